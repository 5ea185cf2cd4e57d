// Behind nginx and HAProxy, with the files of docs/deploy and with other settings that are met: each transport delivers,
// or its client takes another; nothing is lost, doubled or out of order. The proxies share their connections to the server
// among all clients, and the server has two cores, so that polls of one session come by connections of either.
//
// docs/deploy/README.md has a table of what works behind what: it is this file's.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test, { after, describe } from 'node:test';
import { launch } from '../browsers.mjs';
import { io as io4 } from 'socket.io-client';
import WebSocket from 'ws';
import { event, modules, serve, upstream, within } from '../harness.mjs';
import { haproxy, missing, nginx } from '../proxies.mjs';
import { TIME_MS, config, everything, exercise } from '../transports.mjs';

// What heartbeats must outlive, below.
const BRIEF = '[heartbeat]\ninterval = "400ms"\ntimeout = "20s"\n[limits]\nrequest_timeout = "400ms"\n';
const brief = (text) => BRIEF + text.replaceAll(/prefix = "\/.*"/g, '$&\nheartbeat = "400ms"');

const noUpgrade = { websocket: false, streams: true };
const oldUpstream = [['proxy_http_version 1.1', 'proxy_http_version 1.0']];
const buffers = [['proxy_buffering off', 'proxy_buffering on']];
// Silence is ended by the proxy sooner than the test is quiet, but for heartbeats.
const impatientNginx = [['proxy_read_timeout 75s', 'proxy_read_timeout 4s'], ['proxy_send_timeout 75s', 'proxy_send_timeout 4s']];
const impatientHaproxy = ['client         ', 'server         ', 'tunnel         '].map((name) => [`timeout ${name} 75s`, `timeout ${name} 4s`]);

/** The location that ingress-nginx 1 makes of docs/deploy/kubernetes/ingress-nginx/ingress.yaml: its template with its defaults, without Lua. */
const ingress = ({ upstream: address, port }) => `
  upstream balancer { server ${address}; keepalive 320; keepalive_timeout 60s; keepalive_requests 10000; }
  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
  server {
    listen 127.0.0.1:${port};
    keepalive_timeout 75s;
    location / {
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Host $http_host;
      proxy_set_header X-Forwarded-Port $server_port;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header Proxy "";
      proxy_connect_timeout 5s;
      proxy_send_timeout 60s;
      proxy_read_timeout 60s;
      proxy_buffering off;
      proxy_buffer_size 4k;
      proxy_buffers 4 4k;
      proxy_request_buffering on;
      proxy_http_version 1.1;
      proxy_next_upstream error timeout;
      proxy_next_upstream_tries 3;
      client_max_body_size 1m;
      proxy_pass http://balancer;
    }
  }`;

const ways = [
  ['nginx: docs/deploy/nginx.conf', { proxy: nginx, way: everything }],
  ['nginx: buffering on', { proxy: nginx, changes: buffers, way: everything }],
  ['nginx: HTTP/1.0 to the server, buffering off', { proxy: nginx, changes: oldUpstream, way: noUpgrade }],
  ['nginx: HTTP/1.0 to the server, buffering on', { proxy: nginx, changes: [...oldUpstream, ...buffers], way: noUpgrade }],
  ['nginx: as it comes, one line of configuration', { proxy: nginx, whole: ({ upstream: address, port }) => `server { listen 127.0.0.1:${port}; location / { proxy_pass http://${address}; } }`, way: noUpgrade }],
  ['nginx: HTTP/1.0 to the server, and buffers that it cannot turn off', { proxy: nginx, changes: [['proxy_buffering off;', 'proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;'], ...oldUpstream], way: { websocket: false, streams: false } }],
  ['nginx: time-outs shorter than the silence', { proxy: nginx, changes: impatientNginx, way: everything, idle_ms: 10_000, server: 'brief' }],
  ['nginx: as ingress-nginx configures it', { proxy: nginx, whole: ingress, way: everything }],
  ['HAProxy: docs/deploy/haproxy.cfg', { proxy: haproxy, way: everything }],
  ['HAProxy: a connection for each request', { proxy: haproxy, changes: [['http-reuse always', 'option httpclose']], way: everything }],
  ['HAProxy: time-outs shorter than the silence', { proxy: haproxy, changes: impatientHaproxy, way: everything, idle_ms: 10_000, server: 'brief' }],
];

const api = await upstream({ after });
const args = ['--cores', '2'];
const servers = {
  usual: await serve({ after }, { config: config(api.url), args }),
  brief: await serve({ after }, { config: brief(config(api.url)), args }),
};

// A few at a time: each has some twenty clients.
describe('each transport delivers or is replaced', { concurrency: 3 }, () => {
  for (const [n, [name, { proxy, way, server: which = 'usual', changes, whole, idle_ms }]] of ways.entries()) {
    test(name, { skip: missing(proxy.name) }, async (t) => {
      const server = servers[which];
      const at = await proxy(t, server, { changes, whole });
      await exercise(t, { server, api, at, room: `way-${n}`, way, idle_ms });
    });
  }
});

test('polls came by connections of other cores than their sessions', { skip: missing('nginx') && missing('haproxy') }, async () => {
  const metrics = await (await fetch(`${servers.usual.admin}/metrics`)).text();
  const handed = [...metrics.matchAll(/^stentor_connections_migrated_total\S* (\d+)$/gm)].map(([, count]) => Number(count));
  assert.ok(handed.length === 2 && handed.every((count) => count > 100), `handed over: ${handed}`);
});

test("nginx: a page's origin is the server's own only if the Host header is passed on", { skip: missing('nginx') }, async (t) => {
  const whole = ({ upstream: address, port }) => `server { listen 127.0.0.1:${port}; location / { proxy_pass http://${address}; } }`;
  const status = async (at) => (await fetch(`${at.http}/socket.io/?EIO=4&transport=polling`, { headers: { Origin: at.http } })).status;
  assert.equal(await status(await nginx(t, servers.usual)), 200);
  assert.equal(await status(await nginx(t, servers.usual, { whole })), 403);
});

// In a browser, by TLS and HTTP/2.


/** Runs in a page: what its clients get, by each transport, and by which version of HTTP. */
async function useAll({ room, key }) {
  const url = location.origin;
  const result = {};
  for (const transport of ['websocket', 'xhr-streaming', 'eventsource', 'htmlfile', 'xhr-polling', 'jsonp-polling']) {
    const socket = new window.SockJS(`${url}/echo`, null, { transports: [transport], timeout: 5_000 });
    const texts = Array.from({ length: 20 }, (_, n) => `${n} ${'é'.repeat(n * 100)}`);
    const received = [];
    await new Promise((resolve) => {
      socket.onopen = () => { for (const text of texts) socket.send(text); };
      socket.onmessage = ({ data }) => { if (received.push(data) === texts.length) resolve(); };
      socket.onclose = resolve;
    });
    result[transport] = JSON.stringify(received) === JSON.stringify(texts);
    socket.close();
  }
  for (const transports of [['polling'], ['websocket'], ['polling', 'websocket']]) {
    const socket = window.io(url, { forceNew: true, transports });
    await new Promise((resolve) => socket.once('connect', resolve));
    await new Promise((resolve) => socket.emit('join_room', room + transports, resolve));
    const heard = [];
    const all = new Promise((resolve) => socket.on('tick', ({ n }) => { if (heard.push(n) === 10) resolve(); }));
    for (let n = 0; n < 10; n++) socket.emit('say', { room: room + transports, n });
    await all;
    result[`Socket.IO by ${transports}`] = heard.every((n, place) => n === place);
    socket.disconnect();
  }
  const source = new EventSource(`${url}/sse?feed=${key}`);
  const { data } = await new Promise((resolve) => source.addEventListener('snapshot', resolve));
  result.sse = JSON.parse(data).n === 7;
  source.close();
  const webSocket = new WebSocket(`${url.replace('https', 'wss')}/ws/${key}`);
  result.websocketOfItsOwn = await new Promise((resolve) => { webSocket.onmessage = (message) => resolve(JSON.parse(message.data).n === 7); });
  webSocket.close();
  const used = performance.getEntriesByType('resource').filter(({ name }) => name.includes('/echo/')).map(({ nextHopProtocol }) => nextHopProtocol);
  return { result, used: [...new Set(used.filter(Boolean))] };
}

for (const proxy of [nginx, haproxy]) {
  test(`${proxy.name}: a page by TLS and HTTP/2`, { skip: missing(proxy.name) }, async (t) => {
    const at = await proxy(t, servers.usual);
    api.documents.set(`page-${proxy.name}`, { n: 7 });
    const browser = await launch('Chromium');
    t.after(() => browser.close());
    const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
    await page.goto(`${at.https}/healthz`);
    for (const build of ['sockjs-client/dist/sockjs.min.js', 'socket.io-client/dist/socket.io.min.js']) await page.addScriptTag({ path: path.join(modules, build) });
    const { result, used } = await within(page.evaluate(useAll, { room: `page-${proxy.name}`, key: `page-${proxy.name}` }), 'what the page gets');
    assert.deepEqual(Object.entries(result).filter(([, fine]) => !fine), []);
    assert.deepEqual(used, ['h2']);
  });

  test(`${proxy.name}: programs by TLS, with its certificate`, { skip: missing(proxy.name) }, async (t) => {
    const at = await proxy(t, servers.usual);
    const ca = readFileSync(at.certificate);
    const raw = new WebSocket(`${at.wss}/ws`, { ca });
    t.after(() => raw.terminate());
    const [welcome] = await event(raw, 'message', TIME_MS, 'error');
    assert.equal(JSON.parse(welcome).type, 'welcome');
    for (const transports of [['polling'], ['websocket']]) {
      const socket = io4(at.https, { forceNew: true, transports, ca });
      t.after(() => socket.disconnect());
      await event(socket, 'connect', TIME_MS, 'connect_error');
      assert.deepEqual(await within(new Promise((resolve) => socket.emit('join_room', 'secret', resolve)), 'the answer'), { ok: true });
    }
  });
}
