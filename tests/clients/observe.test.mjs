// What operators see of clients: sessions by protocol, and how long deliveries take.
import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { event, logged, PATIENCE_MS, serve, statusOf } from './harness.mjs';

/** The samples of a metric: value by labels, as they are written. */
async function samples(server, name) {
  const text = await (await fetch(`${server.admin}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line.startsWith(`stentor_${name}{`) || line.startsWith(`stentor_${name} `));
  return Object.fromEntries(lines.map((line) => [line.slice(line.indexOf('{'), line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]));
}

/** Waits until `read` gives what is expected. */
async function until(read, expected) {
  let found;
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end; await sleep(50)) {
    found = await read();
    try { return assert.deepEqual(found, expected); } catch { /* not yet */ }
  }
  assert.deepEqual(found, expected);
}

async function plain(t, server) {
  const socket = new WebSocket(`${server.ws}/ws`, ['stentor.v1']);
  t.after(() => socket.terminate());
  await once(socket, 'open');
  return socket;
}

const publish = (server, data) => fetch(`${server.admin}/api/v1/publish`, {
  method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ room: 'news', data }),
});

test('sessions are counted by protocol while they last', async (t) => {
  const server = await serve(t);
  const read = () => samples(server, 'sessions_by_protocol');
  const counts = (own = {}) => Object.fromEntries(['websocket', 'primus', 'engineio', 'socketio', 'sockjs', 'sse']
    .map((name) => [`{protocol="${name}"}`, own[name] ?? 0]));
  await until(read, counts());
  assert.equal((await fetch(`${server.admin}/api/v1/feeds/game`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: '1' })).status, 200);
  const sockets = [await plain(t, server), await plain(t, server)];
  const polling = io(server.http, { forceNew: true, transports: ['polling'] });
  t.after(() => polling.close());
  await event(polling, 'connect');
  const stream = http.get(`${server.http}/sse/game`);
  t.after(() => stream.destroy());
  const [response] = await once(stream, 'response');
  await once(response, 'data');
  const sockjs = new WebSocket(`${server.ws}/sockjs/000/abcdefgh/websocket`);
  t.after(() => sockjs.terminate());
  await once(sockjs, 'message');
  await until(read, counts({ websocket: 2, socketio: 1, sse: 1, sockjs: 1 }));
  const { data_plane: { sessions_by_protocol: shown, sessions } } = await (await fetch(`${server.admin}/api/v1/status`)).json();
  assert.deepEqual([shown.websocket, shown.socketio, sessions], [2, 1, 5]);
  // The second socket of a client is a session, too.
  const upgraded = io(server.http, { forceNew: true });
  t.after(() => upgraded.close());
  await event(upgraded, 'connect');
  while (upgraded.io.engine.transport.name !== 'websocket') await sleep(10);
  await until(read, counts({ websocket: 2, socketio: 2, sse: 1, sockjs: 1 }));
  for (const socket of sockets) socket.close();
  polling.close();
  upgraded.close();
  stream.destroy();
  sockjs.close();
  await until(read, counts());
});

test('the latency of deliveries is sampled, slow clients included, and replays are not', async (t) => {
  const server = await serve(t, { config: `
[server]
cores = 1
[limits]
send_buffer_bytes_max = "128MiB"
[rooms]
history_length = 1000
history_bytes_max = "128MiB"
` });
  const seconds = async (suffix) => Object.entries(await samples(server, `delivery_seconds_${suffix}`));
  const sum = async (suffix, label = '') => (await seconds(suffix)).filter(([labels]) => labels.includes(label)).reduce((all, [, value]) => all + value, 0);
  const join = async () => {
    const socket = await plain(t, server);
    const received = [];
    socket.on('message', (text) => received.push(JSON.parse(text)));
    socket.send(JSON.stringify({ type: 'subscribe', id: 1, room: 'news' }));
    while (!received.some(({ type }) => type === 'ok')) await sleep(10);
    return { socket, received, messages: () => received.filter(({ type }) => type === 'message').length };
  };
  const [fast, slow] = [await join(), await join()];
  const begun = performance.now();
  // The first fan-out of a core is sampled, then each 64th.
  for (let n = 0; n < 64; n += 1) assert.equal((await publish(server, n)).status, 200);
  await until(async () => [fast.messages(), slow.messages()], [64, 64]);
  await until(() => sum('count'), 2);
  assert.ok(await sum('sum') < (performance.now() - begun) / 1000);

  // More than the kernel takes for a client that doesn't read: 36 MB by default. The first of these messages and the 65th are sampled.
  slow.socket.pause();
  // It can't be deflated.
  const large = randomBytes(525 << 10).toString('base64');
  for (let n = 0; n < 70; n += 1) assert.equal((await publish(server, large)).status, 200);
  await until(() => fast.messages(), 134);
  await sleep(1500);
  assert.ok(await sum('count') < 6, 'what waits for the slow client is not counted yet');
  slow.socket.resume();
  await until(() => slow.messages(), 134);
  await until(() => sum('count'), 6);
  assert.ok(await sum('bucket', 'le="1.0"') < 6, 'the slow client is above a second');

  // Old messages are old.
  const late = await plain(t, server);
  const replayed = [];
  late.on('message', (text) => replayed.push(JSON.parse(text)));
  late.send(JSON.stringify({ type: 'subscribe', id: 1, room: 'news', epoch: fast.received.find(({ epoch }) => epoch)?.epoch, offset: 1 }));
  await until(async () => replayed.filter(({ type }) => type === 'message').length > 66, true);
  assert.equal(await sum('count'), 6);
});

test('the access log has a line per request, without secrets', async (t) => {
  const KEY = '0123456789abcdef0123456789abcdef';
  const config = (level) => `
[server]
access_log = true
log = "json"
log_level = "${level}"
[auth]
anonymous = "allow"
[[auth.issuers]]
issuer = "backend"
algorithms = ["HS256"]
keys = [{ secret = "${KEY}" }]
[[permissions]]
topics = ["**"]
allow = ["subscribe"]
to = "anyone"
`;
  const server = await serve(t, { config: config('info') });
  // The level is that of other lines.
  writeFileSync(server.configFile, config('error'));
  assert.deepEqual((await (await fetch(`${server.admin}/api/v1/reload`, { method: 'POST' })).json()).applied, ['server.log_level']);
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const text = `${part({ alg: 'HS256' })}.${part({ iss: 'backend', sub: '42', iat: Math.floor(Date.now() / 1000), exp: Math.floor(Date.now() / 1000) + 600 })}`;
  const token = `${text}.${createHmac('sha256', KEY).update(text).digest('base64url')}`;
  const headers = { Authorization: `Bearer ${token}` };
  const line = async (path, wanted = () => true) => {
    const { timestamp, level, duration_ms: duration, ...rest } = await logged(server, (one) => one.path === path && wanted(one), path);
    assert.ok(Date.parse(timestamp) && level === 'INFO' && Number.isInteger(duration), `${timestamp} ${level} ${duration}`);
    return [rest, duration];
  };
  const common = { message: 'request', address: '127.0.0.1', method: 'GET' };

  assert.equal(await statusOf(server.http, '/healthz?token=secret-1'), 200);
  assert.deepEqual((await line('/healthz'))[0], { ...common, path: '/healthz', status: 200 });
  assert.equal(await statusOf(server.http, '/nowhere%1b[2J'), 404);
  assert.deepEqual((await line('/nowhere%1b[2J'))[0], { ...common, path: '/nowhere%1b[2J', status: 404 });
  // A document that isn't there.
  assert.equal(await statusOf(server.http, '/feed/none'), 404);
  assert.deepEqual((await line('/feed/none'))[0], { ...common, path: '/feed/none', status: 404 });

  // A WebSocket's line is written when it ends.
  const socket = new WebSocket(`${server.ws}/ws?secret-3`, { headers });
  await once(socket, 'open');
  await sleep(300);
  assert.ok(!server.log.some((entry) => entry.includes('"/ws"')));
  socket.close();
  const [ended, duration] = await line('/ws');
  assert.deepEqual(ended, { ...common, path: '/ws', status: 101, user: '42' });
  assert.ok(duration >= 300, `${duration}`);

  // Polling: the session's id is in the query, and a body is a request as any other.
  const polling = io(server.http, { transports: ['polling'], auth: { token } });
  await event(polling, 'connect');
  const sid = polling.io.engine.id;
  assert.deepEqual((await line('/socket.io/', ({ method }) => method === 'POST'))[0], { ...common, method: 'POST', path: '/socket.io/', status: 200 });
  polling.close();
  assert.deepEqual((await line('/socket.io/', ({ method }) => method === 'GET'))[0], { ...common, path: '/socket.io/', status: 200 });
  // SockJS: it is in the path.
  const sockjs = await fetch(`${server.http}/sockjs/000/secret-2/xhr`, { method: 'POST' });
  assert.equal(await sockjs.text(), 'o\n');
  assert.deepEqual((await line('/sockjs/000/*/xhr'))[0], { ...common, method: 'POST', path: '/sockjs/000/*/xhr', status: 200 });

  // A stream that waits, and one that is cut off.
  assert.equal((await fetch(`${server.admin}/api/v1/feeds/game`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: '1' })).status, 200);
  const stream = http.get(`${server.http}/sse/game?secret-4`, { headers });
  const [response] = await once(stream, 'response');
  await once(response, 'data');
  response.on('error', () => {});
  stream.destroy();
  assert.deepEqual((await line('/sse/game'))[0], { ...common, path: '/sse/game', status: 200, user: '42' });
  const all = server.log.join('\n');
  for (const secret of [token, 'secret-1', 'secret-2', 'secret-3', 'secret-4', sid]) assert.ok(!all.includes(secret), secret);
});

test('a log that is not read costs lines of the access log, and nothing else', async (t) => {
  const server = await serve(t, { config: '[server]\naccess_log = true\n' });
  server.child.stderr.pause();
  const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
  t.after(() => agent.destroy());
  const request = () => new Promise((resolve, reject) => {
    http.get(`${server.http}/healthz`, { agent }, (response) => response.resume().on('end', resolve)).on('error', reject);
  });
  const count = async () => Number(/^stentor_access_log_lines_dropped_total (\d+)$/m.exec(await (await fetch(`${server.admin}/metrics`)).text())[1]);
  assert.equal(await count(), 0);
  let sent = 0;
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end && await count() === 0;) {
    await Promise.all(Array.from({ length: 2_000 }, request));
    sent += 2_000;
  }
  assert.ok(await count() > 0 && sent > 16_384, `${sent} requests`);
  await request();
  server.child.stderr.resume();
});

test('without server.access_log, no request is logged', async (t) => {
  const server = await serve(t, { config: '[server]\nlog = "json"\n' });
  assert.equal(await statusOf(server.http, '/healthz'), 200);
  assert.equal(await statusOf(server.http, '/healthz'), 200);
  assert.ok(!server.log.some((entry) => JSON.parse(entry).message === 'request'));
});
