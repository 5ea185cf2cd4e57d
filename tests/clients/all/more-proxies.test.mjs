// Behind each proxy of docs/deploy, with its file: each client by its best transport, streams at once, the client's own address and host, prefixes, and users that
// the proxy names. proxies.test.mjs has nginx's and HAProxy's transports.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import test, { after, describe } from 'node:test';
import { EventSource } from 'eventsource';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { connect } from '../../../clients/js/src/index.js';
import { issuer, now, token } from '../admin.mjs';
import { event, logged, request, root, serve, until, upstream, within } from '../harness.mjs';
import { apache2, caddy, envoy, fastify, haproxy, lighttpd, missing, nextjs, nginx, springGateway, varnishd, vite, webpack } from '../proxies.mjs';
import { config, everything, exercise } from '../transports.mjs';

const api = await upstream({ after });
const TRUSTED = '[proxies]\ntrusted = ["127.0.0.1"]\n';
const server = await serve({ after }, { config: `${config(api.url)}\n[server]\naccess_log = true\n${TRUSTED}`, args: ['--cores', '2'] });
const POLLING = '/socket.io/?EIO=4&transport=polling';

describe('each transport delivers, as docs/deploy has it', { concurrency: 2 }, () => {
  for (const proxy of [apache2, caddy, envoy, fastify, lighttpd, nextjs, springGateway, varnishd, vite, webpack]) {
    test(proxy.name, { skip: missing(proxy.name) }, async (t) => {
      const at = await proxy(t, server);
      await exercise(t, { server, api, at, room: proxy.name, way: everything });
    });
  }
});

const FORGED = { 'X-Forwarded-For': '203.0.113.9', 'X-Forwarded-Host': 'evil.test', 'X-Forwarded-Proto': 'https', Forwarded: 'for=203.0.113.9;host=evil.test' };

describe("the proxy states the client's address and host, whatever the client's headers say", () => {
  for (const [n, proxy] of [apache2, caddy, envoy, fastify, haproxy, lighttpd, nginx, varnishd].entries()) {
    test(proxy.name, { skip: missing(proxy.name) }, async (t) => {
      const at = await proxy(t, server);
      const localAddress = `127.0.1.${n + 1}`;
      const ask = async (origin) => (await request(at.http + POLLING, { localAddress, headers: { ...FORGED, Origin: origin } })).status;
      assert.equal(await ask(at.http), 200);
      assert.equal(await ask('http://evil.test'), 403);
      const { status } = await logged(server, (line) => line.address === localAddress, 'the request');
      assert.equal(status, 200);
    });
  }
});

test("Spring Cloud Gateway removes a client's headers, so that its own address counts, and passes frames of a megabyte on", { skip: missing('springGateway') }, async (t) => {
  const own = await serve(t, { config: `[server]\naccess_log = true\n[[sockjs]]\nprefix = "/echo"\napp = "echo"\n${TRUSTED}` });
  const at = await springGateway(t, own);
  const ask = async (origin) => (await request(at.http + POLLING, { headers: { ...FORGED, Origin: origin } })).status;
  assert.deepEqual([await ask(at.http), await ask('http://evil.test')], [200, 403]);
  const { address } = await logged(own, (line) => line.path === '/socket.io/', 'the request');
  assert.equal(address, '127.0.0.1');
  const large = 'x'.repeat(900_000);
  const echo = new WebSocket(`${at.ws}/echo/websocket`);
  t.after(() => echo.terminate());
  echo.on('open', () => echo.send(large));
  const [text] = await event(echo, 'message', undefined, 'close');
  assert.ok(text.toString() === large);
});

test("Next.js passes a client's X-Forwarded-For on, so Stentor must not trust it", { skip: missing('nextjs') }, async (t) => {
  const at = await nextjs(t, server);
  await request(at.http + POLLING, { localAddress: '127.0.2.1', headers: { 'X-Forwarded-For': '203.0.113.77' } });
  await logged(server, (line) => line.address === '203.0.113.77', 'the address that the client states');
});

test('@fastify/http-proxy: Stentor sees the origin of pages', { skip: missing('fastify') }, async (t) => {
  const at = await fastify(t, server);
  await welcomed(t, `${at.ws}/ws`, { origin: at.http });
  // The proxy has accepted the WebSocket before it asks Stentor, so the refusal is an end.
  const refused = new WebSocket(`${at.ws}/ws`, { origin: 'http://evil.test', localAddress: '127.0.1.99' });
  t.after(() => refused.terminate());
  await event(refused, 'close');
  const { status } = await logged(server, (line) => line.address === '127.0.1.99', 'the request');
  assert.equal(status, 403);
});

test('Next.js: pages connect if their origin is listed', { skip: missing('nextjs') }, async (t) => {
  const page = 'https://www.example.com';
  const listing = await serve(t, { config: `[origins]\nallow = ["${page}"]\n` });
  const at = await nextjs(t, listing);
  assert.equal((await request(at.http + POLLING, { headers: { Origin: page } })).status, 200);
  await welcomed(t, `${at.ws}/ws`, { origin: page });
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

/** The title of a process, which may have ended. */
function titleOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

test('nginx: a reload closes a WebSocket after worker_shutdown_timeout only', { skip: missing('nginx') }, async (t) => {
  for (const more of ['', 'worker_shutdown_timeout 1s;']) {
    const at = await nginx(t, server, { more });
    const socket = await welcomed(t, `${at.ws}/ws`, { origin: at.http });
    const workers = () => readFileSync(`/proc/${at.child.pid}/task/${at.child.pid}/children`, 'utf8').trim().split(' ').map(titleOf);
    at.child.kill('SIGHUP');
    if (more) {
      assert.equal((await event(socket, 'close'))[0], 1006);
    } else {
      await until('old workers shut down', () => workers().some((title) => title.includes('shutting down')));
      assert.equal(await subscribed(socket, 'reload'), 'ok');
    }
  }
});

/** The changes with which each proxy removes the prefix /rt. Those that add a line are in docs/deploy/README.md. */
const removing = new Map([
  [apache2, [['ProxyPass / http', 'ProxyPass /rt/ http']]],
  [caddy, [['reverse_proxy ', 'uri strip_prefix /rt\n\treverse_proxy ']]],
  [envoy, [['match: { prefix: / }', 'match: { prefix: /rt/ }'], ['timeout: 0s', `prefix_rewrite: /\n${' '.repeat(28)}timeout: 0s`]]],
  [fastify, [['websocket: true,', "websocket: true, prefix: '/rt',"]]],
  [haproxy, [['default_backend stentor', 'http-request replace-path /rt/(.*) /\\1\n    default_backend stentor']]],
  [lighttpd, [['"upgrade" => "enable"', '"upgrade" => "enable", "map-urlpath" => ( "/rt/" => "/" )']]],
  [nginx, [['location / {', 'location /rt/ {'], ['proxy_pass http://stentor;', 'proxy_pass http://stentor/;']]],
  [nextjs, [["source: '/:stentor(ws|sse|feed|ndjson|socket\\\\.io|engine\\\\.io|sockjs|primus|stentor|stentor\\\\.js)/:path*'", "source: '/rt/:path*'"], ['/:stentor/:path*', '/:path*']]],
  [springGateway, [['Path=/**', 'Path=/rt/**'], ['- PreserveHostHeader', `- StripPrefix=1\n${' '.repeat(16)}- PreserveHostHeader`]]],
  [varnishd, [['if (req.http.Upgrade', 'set req.url = regsub(req.url, "^/rt/", "/");\n    if (req.http.Upgrade']]],
  [vite, [[String.raw`'^/(ws|sse|feed|ndjson|socket\\.io|engine\\.io|sockjs|primus|stentor)([/.?]|$)'`, "'/rt'"], ['ws: true,', "ws: true, rewrite: (path) => path.replace(/^\\/rt/, ''),"]]],
  [webpack, [["['/ws', '/sse', '/feed', '/ndjson', '/socket.io', '/engine.io', '/sockjs', '/primus', '/stentor']", "['/rt']"], ['ws: true,', "ws: true, pathRewrite: { '^/rt': '' },"]]],
]);
const readme = readFileSync(path.join(root, 'docs/deploy/README.md'), 'utf8');

describe('a proxy removes a prefix', { concurrency: 4 }, () => {
  for (const [proxy, changes] of removing) {
    test(proxy.name, { skip: missing(proxy.name) }, async (t) => {
      for (const [, line] of changes) assert.ok(readme.includes(line.split('\n')[0]), `docs/deploy/README.md has no line ${line}`);
      api.documents.set(`prefix-${proxy.name}`, { n: 1 });
      const at = await proxy(t, server, { changes });
      await welcomed(t, `${at.ws}/rt/ws`, { origin: at.http });
      const source = new EventSource(`${at.http}/rt/sse/prefix-${proxy.name}`);
      t.after(() => source.close());
      const [{ data }] = await event({ once: (...args) => source.addEventListener(...args) }, 'snapshot');
      assert.deepEqual(JSON.parse(data), { n: 1 });
      for (const transports of [['polling'], ['websocket']]) {
        const socket = io(at.http, { path: '/rt/socket.io/', forceNew: true, transports });
        t.after(() => socket.disconnect());
        await event(socket, 'connect', undefined, 'connect_error');
      }
      const stentor = connect(`${at.http}/rt`, { WebSocket, transport: 'websocket' });
      t.after(() => stentor.close());
      await within(new Promise((resolve) => stentor.on('state', (state) => state === 'open' && resolve())), 'the JavaScript client is connected');
    });
  }
});

/** The blocks of nginx's configuration in docs/permissions.md. */
const blocks = [...readFileSync(path.join(root, 'docs/permissions.md'), 'utf8').matchAll(/```nginx\n(.*?)```/gs)].map(([, text]) => text);
const PERMISSIONS = '[[permissions]]\ntopics = ["user:{sub}", "team:{groups}"]\nallow = ["subscribe"]\n';
const SECRET = 'at-least-16-bytes-that-the-proxy-sends';

/** An authentication service: its answer names the user of the cookie. */
async function service(t, answer) {
  const signIn = http.createServer(async ({ headers }, response) => {
    const [, user] = /user=(\w+)/.exec(headers.cookie ?? '') ?? [];
    response.writeHead(user ? 202 : 401, user && await answer(user)).end();
  }).listen(0, '127.0.0.1');
  await once(signIn, 'listening');
  t.after(() => signIn.close());
  return signIn.address().port;
}

/** nginx with the lines of a block, and the location that it asks. */
const asking = (block, location, port) => [
  ['proxy_pass http://stentor;', `proxy_pass http://stentor;\n${block}`],
  ['    location / {', `    location = ${location} { internal; proxy_pass http://127.0.0.1:${port}; proxy_pass_request_body off; proxy_set_header Content-Length ""; }\n    location / {`],
];

async function subscribed(socket, room) {
  const answer = event(socket, 'message');
  socket.send(JSON.stringify({ type: 'subscribe', room }));
  const { type, code } = JSON.parse((await answer)[0]);
  return code ?? type;
}

/** Checks that nginx decides which user a client is. */
async function decides(t, at, forged) {
  const page = { origin: at.http, headers: { Cookie: 'user=ann', ...forged } };
  const socket = await welcomed(t, `${at.ws}/ws`, page);
  assert.deepEqual([await subscribed(socket, 'user:ann'), await subscribed(socket, 'user:eve'), await subscribed(socket, 'team:admin')], ['ok', 'not_allowed', 'not_allowed']);
  const refused = async (options) => (await event(new WebSocket(`${at.ws}/ws`, options), 'error'))[0].message;
  assert.match(await refused({ origin: at.http, headers: forged }), /401/);
  assert.match(await refused({ ...page, origin: 'http://evil.test' }), /403/);
}

test('nginx: auth_request, and a header with the user', { skip: missing('nginx') }, async (t) => {
  const port = await service(t, (user) => ({ 'X-Auth-Request-User': user }));
  const proxied = await serve(t, {
    config: `[auth.proxy]\nuser_header = "X-Forwarded-User"\ngroups_header = "X-Forwarded-Groups"\nfrom = ["127.0.0.1"]\nsecret_header = "X-Proxy-Secret"\nsecret = "${SECRET}"\n${TRUSTED}${PERMISSIONS}`,
  });
  const at = await nginx(t, proxied, { changes: asking(blocks[0], '/oauth2/auth', port) });
  await decides(t, at, { 'X-Forwarded-User': 'eve', 'X-Forwarded-Groups': 'admin', 'X-Proxy-Secret': SECRET });
  // Past the proxy.
  const own = { Origin: proxied.http, 'X-Forwarded-User': 'ann' };
  const statuses = await Promise.all([{}, { 'X-Proxy-Secret': SECRET.toUpperCase() }, { 'X-Proxy-Secret': SECRET }].map(async (more) => (await request(`${proxied.http}/ndjson?bytes=1`, { headers: { ...own, ...more } })).status));
  assert.deepEqual(statuses, [401, 401, 200]);
  const { message } = await logged(proxied, (line) => line.message?.includes('[auth.proxy]') && line.message.includes('refused'), 'the refusal');
  assert.match(message, /from 127\.0\.0\.1: secret_header is missing or wrong/);
});

test('nginx: auth_request, and a token of the user', { skip: missing('nginx') }, async (t) => {
  let lifetime_s = 600;
  const port = await service(t, (user) => ({ 'X-Token': token({ sub: user, exp: now() + lifetime_s, jti: randomUUID() }) }));
  const verifying = await serve(t, { config: `${issuer}${TRUSTED}${PERMISSIONS}` });
  const at = await nginx(t, verifying, { changes: asking(blocks[1], '/token', port) });
  await decides(t, at, { Authorization: `Bearer ${token({ sub: 'eve', groups: 'admin' })}` });
  // Each poll has another token of the same user.
  const options = { forceNew: true, transports: ['polling'], extraHeaders: { Cookie: 'user=ann', Origin: at.http } };
  const polling = io(at.http, options);
  t.after(() => polling.disconnect());
  await event(polling, 'connect', undefined, 'connect_error');
  // A page can't present another token beside it.
  const page = { origin: at.http, headers: { Cookie: 'user=ann' } };
  const [code] = await event(new WebSocket(`${at.ws}/ws?token=${token({ sub: 'eve' })}`, page), 'close');
  assert.equal(code, 4408);
  // The session ends with its token, and the client returns with the next one.
  lifetime_s = 2;
  const short = await welcomed(t, `${at.ws}/ws`, page);
  assert.equal((await event(short, 'close'))[0], 4505);
  lifetime_s = 600;
  const returned = await welcomed(t, `${at.ws}/ws`, page);
  assert.equal(await subscribed(returned, 'user:ann'), 'ok');
});
