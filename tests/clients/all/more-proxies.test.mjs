// Behind Apache, Caddy, lighttpd, Varnish, Vite and webpack-dev-server, with the files of docs/deploy: each client by its best transport, and streams at once. Behind these, nginx
// and HAProxy: the client's own address and host, and prefixes. proxies.test.mjs has nginx's and HAProxy's transports.
import assert from 'node:assert/strict';
import test, { after, describe } from 'node:test';
import WebSocket from 'ws';
import { event, logged, request, serve, upstream } from '../harness.mjs';
import { apache2, caddy, haproxy, lighttpd, missing, nginx, varnishd, vite, webpack } from '../proxies.mjs';
import { config, everything, exercise } from '../transports.mjs';

const api = await upstream({ after });
const TRUSTED = '[proxies]\ntrusted = ["127.0.0.1"]\n';
const server = await serve({ after }, { config: `${config(api.url)}\n[server]\naccess_log = true\n${TRUSTED}`, args: ['--cores', '2'] });
const POLLING = '/socket.io/?EIO=4&transport=polling';

describe('each transport delivers, as docs/deploy has it', { concurrency: 2 }, () => {
  for (const proxy of [apache2, caddy, lighttpd, varnishd, vite, webpack]) {
    test(proxy.name, { skip: missing(proxy.name) }, async (t) => {
      const at = await proxy(t, server);
      await exercise(t, { server, api, at, room: proxy.name, way: everything });
    });
  }
});

describe("the proxy states the client's address and host, whatever the client's headers say", () => {
  for (const [n, proxy] of [apache2, caddy, haproxy, lighttpd, nginx, varnishd].entries()) {
    test(proxy.name, { skip: missing(proxy.name) }, async (t) => {
      const at = await proxy(t, server);
      const localAddress = `127.0.1.${n + 1}`;
      const forged = { 'X-Forwarded-For': '203.0.113.9', 'X-Forwarded-Host': 'evil.test', 'X-Forwarded-Proto': 'https', Forwarded: 'for=203.0.113.9;host=evil.test' };
      const ask = async (origin) => (await request(at.http + POLLING, { localAddress, headers: { ...forged, Origin: origin } })).status;
      assert.equal(await ask(at.http), 200);
      assert.equal(await ask('http://evil.test'), 403);
      const { status } = await logged(server, (line) => line.address === localAddress, 'the request');
      assert.equal(status, 200);
    });
  }
});

test('Apache without ProxyPreserveHost: the host that it states counts', { skip: missing('apache2') }, async (t) => {
  const at = await apache2(t, server, { changes: [['ProxyPreserveHost On', 'ProxyPreserveHost Off']] });
  const ask = async (origin) => (await request(at.http + POLLING, { headers: { Origin: origin } })).status;
  assert.deepEqual([await ask(at.http), await ask(server.http), await ask('http://evil.test')], [200, 403, 403]);
});

/** Opens a WebSocket and waits for its first message. */
async function welcomed(t, url, options) {
  const socket = new WebSocket(url, options);
  t.after(() => socket.terminate());
  const [message] = await event(socket, 'message', undefined, 'error');
  assert.equal(JSON.parse(message).type, 'welcome');
  return socket;
}

test('nginx: a prefix that it removes, and one that it keeps', { skip: missing('nginx') }, async (t) => {
  const prefixed = await serve(t, { config: '[server]\nbase_path = "/rt"\n[socketio]\ncookie = "io"\n' });
  const location = ['location / {', 'location /rt/ {'];
  for (const [to, changes, cookiePath] of [
    [server, [location, ['proxy_pass http://stentor;', 'proxy_pass http://stentor/;']]],
    [prefixed, [location], 'Path=/rt;'],
  ]) {
    const at = await nginx(t, to, { changes });
    await welcomed(t, `${at.ws}/rt/ws`, { origin: at.http });
    const opened = await request(`${at.http}/rt${POLLING}`, { headers: { Origin: at.http } });
    assert.equal(opened.status, 200);
    if (cookiePath) assert.ok(`${opened.headers['set-cookie']}`.includes(cookiePath), opened.headers['set-cookie']);
    assert.equal((await request(`${at.http}/rt/readyz`)).status, 200);
    assert.equal((await request(`${at.http}/ws`)).status, 404);
  }
});
