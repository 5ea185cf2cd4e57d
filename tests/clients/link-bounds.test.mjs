// @stentor/socket.io: a worker survives its clients, and reports the calls that it drops. Against a scripted server.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { test } from 'node:test';
import { stateOf } from '../../clients/socketio-server/src/data.js';
import { listening, queue } from './harness.mjs';
import { connected, handshake, worker } from './link-server.mjs';

test('values that clients choose end no worker', async (t) => {
  const { io, connection } = await worker(t, { options: { connectionStateRecovery: {} }, welcome: { servers: 2 } });
  const pack = (...args) => io.encoder.encode({ type: 2, nsp: '/', data: ['', ...args] });
  const deep = (levels) => `${'['.repeat(levels)}${']'.repeat(levels)}`;

  // Rooms: many, and without a short name.
  const socket = await connected(io, connection, 1);
  const rooms = Array.from({ length: 70_000 }, (_, n) => `room ${n}`);
  const long = 'x'.repeat(100_000);
  socket.join([...rooms, { toString: 1 }, long]);
  const joined = [];
  while (joined.length < 70_002) joined.push(...(await connection.read('JOIN')).rooms);
  assert.deepEqual(joined.slice(0, -2), rooms);
  io.to(long).emit('a');
  assert.deepEqual((await connection.read('BROADCAST')).rooms, joined.slice(-1));

  // Values that are nested too deep for the link, and for `JSON.stringify`.
  const others = [];
  for (const [handle, levels] of [[2, 200], [3, 100_000]]) {
    const connecting = once(io, 'connection');
    connection.write(['OPEN', handle, false, handshake(`s${handle}`)], ['MESSAGE', handle, [`0{"a":${deep(levels)}}`]]);
    others.push((await connecting)[0]);
  }
  others[0].data.big = 1n;
  others[0].handshake.user = { id: 1n };
  const deepRooms = [200, 100_000].map((levels) => JSON.parse(deep(levels)));
  others[0].join([...deepRooms, 1n, 7]);
  for (const room of deepRooms) {
    io.in(room).fetchSockets().catch(() => {});
    assert.deepEqual((await connection.read('RELAY')).body.opts.rooms, [{}]);
  }
  const question = (kind, id, messages = []) => ['RELAYED', 0, 8, { kind, nsp: '/', id, opts: { rooms: [], except: [], flags: {} } }, messages];
  connection.write(question('fetch', 3), ['RELAYED', 0, 8, null, []]);
  const { sockets } = (await connection.read('RELAY')).body;
  assert.deepEqual(sockets.map((found) => [found.handshake.auth, found.data]), [[{ user: 'Ann' }, {}], [{}, {}], [{}, {}]]);
  assert.deepEqual([sockets[1].handshake.user, sockets[1].handshake.address], [{}, '192.0.2.1']);
  assert.deepEqual(sockets[1].rooms, [others[0].id, {}, {}, {}, 7]);
  connection.write(question('broadcast', 4, pack('ask')));
  const id = /\d+/.exec((await connection.read('BROADCAST')).messages[0].slice(1))[0];
  assert.deepEqual((await connection.read('RELAY')).body, { id: 4, kind: 'count', count: 3 });
  connection.write(['MESSAGE', 3, [`3${id}[${deep(100_000)}]`]], ['MESSAGE', 1, [`3${id}["fine"]`]]);
  assert.deepEqual((await connection.read('RELAY')).messages, pack('fine'));

  // A socket with more rooms than an entry has isn't kept.
  others[0].data = {};
  connection.write(['CLOSED', 1, 'transport close', ''], ['CLOSED', 2, 'transport close', '']);
  assert.equal((await connection.read('PERSIST')).pid, others[0].pid);
});

test('a call with too many rooms is dropped and reported', async (t) => {
  const { io, link, connection } = await worker(t);
  const dropped = [];
  link.on('error', ({ code, message }) => dropped.push([code, message]));
  const socket = await connected(io, connection, 1);
  const rooms = Array.from({ length: 65_536 }, (_, n) => n);
  io.to(rooms).emit('a');
  io.except(rooms).emit('a');
  io.in(socket.id).socketsJoin(rooms);
  io.except(rooms).socketsJoin('r');
  io.in([...rooms, socket.id]).disconnectSockets();
  const message = (name) => ['limit', `${name} was dropped: a list has more than 65,535 elements`];
  assert.deepEqual(dropped.splice(0), ['BROADCAST', 'BROADCAST', 'SELECT', 'SELECT', 'SELECT'].map(message));
  const long = Array.from({ length: 20 }, (_, n) => `${n}`.padEnd(60_000, 'x'));
  io.socketsJoin(long);
  assert.deepEqual(dropped, [['limit', 'a change of rooms was dropped: the names have 1200000 bytes; the maximum is 1048576']]);
  // Here as in Stentor, the calls have changed nothing.
  assert.deepEqual([socket.connected, [...socket.rooms]], [true, [socket.id]]);
  io.to(rooms.slice(1)).emit('b');
  assert.equal((await connection.read('BROADCAST')).rooms.length, 65_535);
  // No other worker receives these rooms.
  io.local.socketsJoin(long);
  assert.deepEqual([(await connection.read('SELECT')).targets.length, socket.rooms.size], [20, 21]);
});

test('auth that can not be kept is left out of what the next worker gets', () => {
  const times = { time: 't', issued: 1 };
  let nested = {};
  for (let levels = 0; levels < 100_000; levels += 1) nested = { nested };
  assert.deepEqual(stateOf({ auth: { token: 'x' }, ...times }), { auth: { token: 'x' }, ...times });
  for (const auth of [nested, { token: 'x'.repeat(100_000) }]) assert.deepEqual(stateOf({ auth, ...times }), times);
});

test('an upgrade that reaches the worker itself is refused, whatever its client does', async (t) => {
  const { io } = await worker(t);
  const http = createServer();
  const upgrading = queue();
  http.on('upgrade', (request, socket, head) => {
    upgrading.put(socket);
    io.engine.handleUpgrade(request, socket, head);
  });
  const port = await listening(t, http);
  const client = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  client.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
  const socket = await upgrading.next('the upgrade');
  // The client doesn't close its side.
  await once(socket, 'close');
  assert.equal(socket.emit('error', new Error('the client has reset the connection')), true);
  assert.match(`${(await once(client, 'data'))[0]}`, /^HTTP\/1.1 404 /);
  client.destroy();
});
