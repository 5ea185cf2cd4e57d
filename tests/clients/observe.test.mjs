// What operators see of clients: sessions by protocol, and the access log. all/observe.test.mjs has how long deliveries take.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import test from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { admin, issuer, push, reload, samples, token } from './admin.mjs';
import { event, logged, serve, statusOf, until } from './harness.mjs';

/** Waits until `read` gives what is expected. */
const untilEqual = (read, expected) => until(() => JSON.stringify(expected), async () => isDeepStrictEqual(await read(), expected));

async function plain(t, server) {
  const socket = new WebSocket(`${server.ws}/ws`, ['stentor.v1']);
  t.after(() => socket.terminate());
  await once(socket, 'open');
  return socket;
}

test('sessions are counted by protocol while they last', async (t) => {
  const server = await serve(t);
  const read = () => samples(server, 'sessions_by_protocol');
  const protocols = ['websocket', 'primus', 'engineio', 'socketio', 'sockjs', 'sse', 'ndjson', 'link'];
  const counts = (own = {}) => Object.fromEntries(protocols.map((name) => [`protocol="${name}"`, own[name] ?? 0]));
  await untilEqual(read, counts());
  await push(server, 'game', 1);
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
  await untilEqual(read, counts({ websocket: 2, socketio: 1, sse: 1, sockjs: 1 }));
  const { data_plane: { sessions_by_protocol: shown, sessions } } = await admin(server, 'status');
  assert.deepEqual([shown.websocket, shown.socketio, sessions], [2, 1, 5]);
  // The second socket of a client is a session, too.
  const upgraded = io(server.http, { forceNew: true });
  t.after(() => upgraded.close());
  await event(upgraded, 'connect');
  if (upgraded.io.engine.transport.name !== 'websocket') await event(upgraded.io.engine, 'upgrade');
  await untilEqual(read, counts({ websocket: 2, socketio: 2, sse: 1, sockjs: 1 }));
  for (const socket of sockets) socket.close();
  polling.close();
  upgraded.close();
  stream.destroy();
  sockjs.close();
  await untilEqual(read, counts());
});

test('the access log has a line per request, without secrets', async (t) => {
  const config = (level) => `
[server]
access_log = true
log = "json"
log_level = "${level}"
[auth]
anonymous = "allow"
${issuer}[[permissions]]
topics = ["**"]
allow = ["subscribe"]
to = "anyone"
`;
  const server = await serve(t, { config: config('info') });
  // The level is that of other lines.
  assert.deepEqual((await reload(server, config('error'))).applied, ['server.log_level']);
  const bearer = token({ sub: '42' });
  const headers = { Authorization: `Bearer ${bearer}` };
  const line = async (path, wanted = () => true) => {
    const { timestamp, level, duration_ms: duration, ...rest } = await logged(server, (one) => one.path === path && wanted(one), path);
    assert.ok(Date.parse(timestamp) && level === 'INFO' && Number.isInteger(duration), `${timestamp} ${level} ${duration}`);
    return rest;
  };
  const common = { message: 'request', address: '127.0.0.1', method: 'GET' };

  assert.equal(await statusOf(server.http, '/healthz?token=secret-1'), 200);
  assert.deepEqual(await line('/healthz'), { ...common, path: '/healthz', status: 200 });
  assert.equal(await statusOf(server.http, '/nowhere%1b[2J'), 404);
  assert.deepEqual(await line('/nowhere%1b[2J'), { ...common, path: '/nowhere%1b[2J', status: 404 });
  // A document that isn't there.
  assert.equal(await statusOf(server.http, '/feed/none'), 404);
  assert.deepEqual(await line('/feed/none'), { ...common, path: '/feed/none', status: 404 });

  // A WebSocket's line is written when it ends.
  const socket = new WebSocket(`${server.ws}/ws?secret-3`, { headers });
  await once(socket, 'open');
  assert.equal(await statusOf(server.http, '/readyz'), 200);
  await line('/readyz');
  assert.ok(!server.log.some((entry) => entry.includes('"/ws"')));
  socket.close();
  assert.deepEqual(await line('/ws'), { ...common, path: '/ws', status: 101, user: '42' });

  // Polling: the session's id is in the query, and a body is a request as any other.
  const polling = io(server.http, { transports: ['polling'], auth: { token: bearer } });
  await event(polling, 'connect');
  const sid = polling.io.engine.id;
  assert.deepEqual(await line('/socket.io/', ({ method }) => method === 'POST'), { ...common, method: 'POST', path: '/socket.io/', status: 200 });
  polling.close();
  assert.deepEqual(await line('/socket.io/', ({ method }) => method === 'GET'), { ...common, path: '/socket.io/', status: 200 });
  // SockJS: it is in the path.
  const sockjs = await fetch(`${server.http}/sockjs/000/secret-2/xhr`, { method: 'POST' });
  assert.equal(await sockjs.text(), 'o\n');
  assert.deepEqual(await line('/sockjs/000/*/xhr'), { ...common, method: 'POST', path: '/sockjs/000/*/xhr', status: 200 });

  // A stream that waits, and one that is cut off.
  await push(server, 'game', 1);
  const stream = http.get(`${server.http}/sse/game?secret-4`, { headers });
  const [response] = await once(stream, 'response');
  await once(response, 'data');
  response.on('error', () => {});
  stream.destroy();
  assert.deepEqual(await line('/sse/game'), { ...common, path: '/sse/game', status: 200, user: '42' });
  const all = server.log.join('\n');
  for (const secret of [bearer, 'secret-1', 'secret-2', 'secret-3', 'secret-4', sid]) assert.ok(!all.includes(secret), secret);
});

test('without server.access_log, no request is logged', async (t) => {
  const server = await serve(t, { config: '[server]\nlog = "json"\n' });
  assert.equal(await statusOf(server.http, '/healthz'), 200);
  assert.equal(await statusOf(server.http, '/healthz'), 200);
  assert.ok(!server.log.some((entry) => JSON.parse(entry).message === 'request'));
});
