// Limits per address behind HAProxy and nginx.
import assert from 'node:assert/strict';
import test from 'node:test';
import WebSocket from 'ws';
import { websocket } from '../addresses.mjs';
import { metric } from '../admin.mjs';
import { request, serve } from '../harness.mjs';
import { haproxy, missing, nginx } from '../proxies.mjs';

// Behind a proxy on 127.0.0.1, two clients of other addresses, which claim to be somebody else.
const trusted = '[proxies]\ntrusted = ["127.0.0.1"]\n[address_limits]\nconnections_max = 2\n';
const required = `${trusted}[server]\nproxy_protocol = "required"\n`;
const sends = (header) => ({ changes: [[' check\n', ` check check-send-proxy ${header}\n`]] });
const tcp = [['mode http', 'mode tcp'], ['http-reuse always', ''], ['option forwardfor', ''], ['    http-request set-header X-Forwarded-Host %[req.hdr(host)]\n', ''], ['    http-request set-header X-Forwarded-Proto https if { ssl_fc }\n', ''], ['    http-request set-header X-Forwarded-Proto http if !{ ssl_fc }\n', '']];
const behind = [
  ['HAProxy: docs/deploy/haproxy.cfg', haproxy, {}, trusted],
  ['HAProxy: Forwarded', haproxy, { changes: [['default_backend', 'http-request set-header Forwarded for=%[src]\n    default_backend']] }, trusted.replace('[proxies]\n', '[proxies]\nheader = "forwarded"\n')],
  ['HAProxy: PROXY protocol 1', haproxy, sends('send-proxy'), required],
  ['HAProxy: PROXY protocol 2', haproxy, sends('send-proxy-v2'), required],
  ['HAProxy: PROXY protocol 2 over TCP, with checksums', haproxy, { changes: [...sends('send-proxy-v2 proxy-v2-options crc32c,unique-id').changes, ...tcp] }, required],
  ['nginx: docs/deploy/nginx.conf', nginx, {}, trusted],
];

for (const [name, proxy, options, config] of behind) {
  test(name, { skip: missing(proxy.name) }, async (t) => {
    const server = await serve(t, { args: ['--cores', '2'], config });
    const at = await proxy(t, server, options);
    const of = (localAddress) => websocket(t, at.ws, { localAddress, headers: { 'X-Forwarded-For': '203.0.113.9', Forwarded: 'for=203.0.113.9' } });
    for (let n = 0; n < 2; n++) assert.equal((await of('127.0.0.5')).readyState, WebSocket.OPEN);
    assert.deepEqual(await of('127.0.0.5'), { refused: 429, retryAfter: '5' });
    assert.equal((await of('127.0.0.6')).readyState, WebSocket.OPEN);
    assert.equal((await request(`${at.http}/healthz`, { localAddress: '127.0.0.6' })).status, 200);
    assert.equal(await metric(server, 'proxy_headers_refused_total'), 0);
  });
}
