// What Socket.IO's own servers ask of each other, asked by them of Stentor and by Stentor's admin API of them. A server that doesn't
// answer keeps the others waiting for 5 seconds; Stentor's answers have to be there long before.
import { Emitter } from '@socket.io/redis-emitter';
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import test from 'node:test';
import { admin, issuer, ISSUER, metric, token } from '../admin.mjs';
import { client, nodeServer, received, redisClient, settled, stentor } from '../bridge.mjs';
import { clock, event, until, within } from '../harness.mjs';
import { missing, redis } from '../redis.mjs';

const skip = missing;
/** Less than the time after which Socket.IO's servers give up. */
const SOON_MS = 3_000;

/** Two servers of each kind, with a client in `red` on each. */
async function all(t) {
  const engine = await redis(t);
  const servers = await Promise.all([nodeServer(t, engine), nodeServer(t, engine), stentor(t, engine), stentor(t, engine)]);
  const clients = await Promise.all(servers.map((server) => client(t, server, ['red'])));
  await settled(servers, clients);
  const ids = clients.map(({ id }) => id);
  return { engine, servers, node: servers[0].io, other: servers[1].io, own: servers[2], clients, ids };
}

const soon = (promise) => within(promise, 'the answers', SOON_MS);
const sorted = (list) => [...list].sort();

test('a Node server finds the sockets and rooms of all servers', { skip }, async (t) => {
  const happened = clock();
  const { node, clients, ids } = await all(t);
  await clients[2].emitWithAck('join', 'blue');
  assert.deepEqual(sorted((await soon(node.fetchSockets())).map(({ id }) => id)), sorted(ids));
  assert.deepEqual(sorted((await soon(node.in('red').fetchSockets())).map(({ id }) => id)), sorted(ids));
  assert.deepEqual(sorted((await soon(node.in('red').except('blue').fetchSockets())).map(({ id }) => id)), sorted(ids.toSpliced(2, 1)));
  assert.deepEqual(await soon(node.in('nobody').fetchSockets()), []);
  const [socket, ...more] = await soon(node.in(ids[2]).fetchSockets());
  assert.deepEqual(more, []);
  assert.equal(socket.id, ids[2]);
  assert.deepEqual([...socket.rooms].sort(), sorted([ids[2], 'red', 'blue']));
  assert.deepEqual(socket.data, {});
  const { headers, address, time, issued, xdomain, secure, url, query, auth } = socket.handshake;
  assert.deepEqual([address, xdomain, secure, url, query, auth], ['127.0.0.1', false, false, '/socket.io/?EIO=4&transport=websocket', { EIO: '4', transport: 'websocket' }, {}]);
  assert.match(headers.host, /^127\.0\.0\.1:/);
  assert.ok(happened(issued) && Date.parse(time) === issued, `${time} ${issued}`);
  assert.deepEqual(sorted(await soon(node.of('/').adapter.allRooms())), sorted([...ids, 'red', 'blue']));
  // What is found can be acted on.
  const personal = event(clients[2], 'personal');
  socket.emit('personal', 1);
  assert.deepEqual(await personal, [1]);
});

test('a handshake that a Node server sees has no secrets', { skip }, async (t) => {
  const { node, own } = await all(t);
  const secret = 'hush';
  const extraHeaders = { 'user-agent': `agent "${'x'.repeat(300)}`, origin: own.http, cookie: secret, authorization: secret, 'x-forwarded-for': secret, referer: secret };
  const spy = await client(t, own, ['secrets'], { transports: ['polling', 'websocket'], query: { token: secret }, auth: { token: secret }, extraHeaders });
  const [{ id, handshake }] = await soon(node.in('secrets').fetchSockets());
  assert.deepEqual([id, handshake.headers['user-agent'].length, handshake.headers.origin, handshake.xdomain, handshake.query.transport], [spy.id, 256, own.http, true, 'polling']);
  assert.ok(!JSON.stringify(handshake).includes(secret), JSON.stringify(handshake));
});

test('a Node server sees who a client of Stentor is', { skip }, async (t) => {
  const engine = await redis(t);
  const more = `[auth]${issuer}`;
  const [{ io }, own] = await Promise.all([nodeServer(t, engine), stentor(t, engine, { more })]);
  const ada = await client(t, own, [], { auth: { token: token({ sub: 'ada "1"', stentor: { info: { name: 'Ä' } } }) } });
  const bob = await client(t, own, [], { auth: { token: token({ sub: 'bob' }) } });
  const found = new Map((await soon(io.fetchSockets())).map(({ id, data }) => [id, data]));
  assert.deepEqual(found.get(ada.id), { user: { id: 'ada "1"', issuer: ISSUER }, info: { name: 'Ä' } });
  assert.deepEqual(found.get(bob.id), { user: { id: 'bob', issuer: ISSUER } });
});

test('a Node server has sockets of all servers join, leave and disconnect, in order with its messages', { skip }, async (t) => {
  const { node, servers, clients, ids } = await all(t);
  const every = Array.from({ length: 50 }, (_, n) => n);
  const of = (socket, name) => socket.seen.filter(([event]) => event === name).map(([, n]) => n);
  for (const n of every) {
    node.in('red').socketsJoin(`room ${n}`);
    node.to(`room ${n}`).emit('joined', n);
  }
  // The server that asks emits to its own clients before they join.
  const others = clients.slice(1);
  await until('all have joined', () => others.every((socket) => of(socket, 'joined').length === 50));
  for (const n of every) {
    node.in(ids[2]).socketsLeave(`room ${n}`);
    node.to(`room ${n}`).emit('left', n);
  }
  await until('the others have it', () => [1, 3].every((n) => of(clients[n], 'left').length === 50));
  for (const n of every) {
    node.in('red').socketsLeave(`room ${n}`);
    node.to(`room ${n}`).emit('empty', n);
  }
  await settled(servers, clients);
  for (const [n, socket] of others.entries()) {
    const seen = ['joined', 'left', 'empty'].map((name) => of(socket, name));
    assert.deepEqual(seen, [every, n === 1 ? [] : every, []], `client ${n + 1}`);
  }
  const ended = [1, 2].map((n) => event(clients[n], 'disconnect'));
  node.in([ids[1], ids[2]]).disconnectSockets();
  for (const [reason] of await Promise.all(ended)) assert.equal(reason, 'io server disconnect');
  assert.ok(clients[0].connected && clients[3].connected);
  const closed = event(clients[3], 'disconnect');
  node.in('red').disconnectSockets(true);
  assert.match((await closed)[0], /io server disconnect|transport close/);
});

test('serverSideEmit is answered, with null where there is no code', { skip }, async (t) => {
  const { node, other } = await all(t);
  const plain = event(other, 'plain');
  node.serverSideEmit('plain', 7);
  assert.deepEqual(await plain, [7]);
  other.on('question', (n, answer) => answer(n + 1));
  assert.deepEqual(sorted(await soon(node.serverSideEmitWithAck('question', 1))), sorted([2, null, null]));
});

test('a message is acknowledged by the clients of all servers', { skip }, async (t) => {
  const { node, clients, ids } = await all(t);
  for (const [n, socket] of clients.entries()) socket.on('question', (text, bytes, done) => done({ from: n, text, bytes }));
  const answer = (n) => ({ from: n, text: 'Ä', bytes: Buffer.from([n]) });
  const asked = (target, n) => soon(target.timeout(SOON_MS).emitWithAck('question', 'Ä', Buffer.from([n])));
  const answers = await asked(node.to('red'), 7);
  assert.deepEqual(answers.sort((a, b) => a.from - b.from), [0, 1, 2, 3].map((n) => ({ ...answer(7), from: n })));
  assert.deepEqual((await asked(node.except([ids[1], ids[3]]), 1)).map(({ from }) => from).sort(), [0, 2]);
  assert.deepEqual(await asked(node.to(ids[3]), 3), [answer(3)]);
  assert.deepEqual(await asked(node.to('nobody'), 3), []);
  // One found on another server.
  const [socket] = await node.in(ids[2]).fetchSockets();
  assert.deepEqual(await asked(socket, 2), answer(2));
  // A client that doesn't answer isn't left out.
  clients[2].off('question');
  await assert.rejects(node.timeout(500).to('red').emitWithAck('question', '', Buffer.alloc(0)), ({ responses }) => responses.length === 3);
  // In order with other messages.
  clients[2].on('question', (text, bytes, done) => done(clients[2].seen.length));
  for (let n = 0; n < 100; n++) node.to('red').emit('n', n);
  clients[2].seen.length = 0;
  assert.deepEqual(await asked(node.to(ids[2]), 0), [101]);
});

test('the admin API concerns the sockets of all servers', { skip }, async (t) => {
  const { own, node, clients, ids } = await all(t);
  const list = await soon(admin(own, 'sessions', { rooms: ['red'] }));
  assert.deepEqual([list.count, sorted(list.sessions.map(({ id }) => id)), list.missing_nodes], [4, sorted(ids), undefined]);
  for (const session of list.sessions) assert.deepEqual([session.protocol, session.rooms], ['socketio', ['red']]);
  // The others are asked, not waited for.
  await admin(own, 'join', { rooms: ['red'], except: { sessions: [ids[3]] }, join: ['green', 'blue'] });
  const rooms = async () => (await admin(own, 'rooms')).rooms;
  await until('they have joined', async () => (await rooms()).some(({ name, sessions }) => name === 'green' && sessions === 3));
  assert.deepEqual(await rooms(), [{ name: 'blue', sessions: 3 }, { name: 'green', sessions: 3 }, { name: 'red', sessions: 4 }]);
  await admin(own, 'leave', { sessions: [ids[0], ids[2]], leave: ['green'] });
  await until('they have left', async () => (await rooms()).some(({ name, sessions }) => name === 'green' && sessions === 1));
  assert.deepEqual([...node.of('/').sockets.get(ids[0]).rooms].sort(), sorted([ids[0], 'red', 'blue']));
  const { count } = await admin(own, 'sessions', { rooms: ['red'], except: { rooms: ['green'] } });
  assert.equal(count, 3);
  const ended = clients.slice(1).map((socket) => event(socket, 'disconnect'));
  await admin(own, 'disconnect', { rooms: ['red'], except: { sessions: [ids[0]] } });
  await Promise.all(ended);
  assert.ok(clients[0].connected);
});

test('a server that does not answer is named', { skip }, async (t) => {
  const { engine, own } = await all(t);
  const silent = await redisClient(t, engine.url);
  await silent.subscribe('socket.io-request#/#', () => {});
  const list = await admin(own, 'sessions', { rooms: ['red'] });
  assert.deepEqual([list.count, list.missing_nodes], [4, ['socketio']]);
  assert.equal(await metric(own, 'bridge_requests_incomplete_total'), 1);
});

test('an emitter reaches the clients of all servers, and moves them', { skip }, async (t) => {
  const { engine, servers, clients, ids } = await all(t);
  const emitter = new Emitter(await redisClient(t, engine.url));
  const blue = await Promise.all(servers.map((server) => client(t, server, ['blue'])));
  await settled(servers, blue);
  const seen = (emit) => received(servers, [...clients, ...blue], emit);
  const [yes, no] = [Array(4).fill([['news', 1]]), Array(4).fill([])];
  assert.deepEqual(await seen(() => emitter.emit('news', 1)), [...yes, ...yes]);
  assert.deepEqual(await seen(() => emitter.to('red').emit('news', 1)), [...yes, ...no]);
  assert.deepEqual(await seen(() => emitter.to('red').to('blue').except('red').emit('news', 1)), [...no, ...yes]);
  assert.deepEqual(await seen(() => emitter.volatile.to('nobody').emit('news', 1)), [...no, ...no]);
  assert.deepEqual((await seen(() => emitter.to(ids[2]).emit('news', 1)))[2], [['news', 1]]);
  const binary = ['data', Buffer.from([1, 2]), { at: new Date(0) }];
  const expected = [['data', Buffer.from([1, 2]), { at: new Date(0).toJSON() }]];
  assert.deepEqual(await seen(() => emitter.to('red').emit(...binary)), [...Array(4).fill(expected), ...no]);
  emitter.in('red').socketsJoin('green');
  emitter.to('green').emit('joined');
  await until('all have joined', () => clients.every(({ seen: events }) => events.some(([name]) => name === 'joined')));
  emitter.in('red').socketsLeave('green');
  assert.deepEqual(await seen(() => emitter.to('green').emit('news', 1)), [...no, ...no]);
  emitter.serverSideEmit('ignored', 1);
  const ended = clients.map((socket) => event(socket, 'disconnect'));
  emitter.in('red').disconnectSockets();
  await Promise.all(ended);
  assert.ok(blue.every(({ connected }) => connected));
});

test('requests in the form of older adapters are answered', { skip }, async (t) => {
  const { engine, clients, ids } = await all(t);
  const [asking, publish] = [await redisClient(t, engine.url), await redisClient(t, engine.url)];
  const answers = [];
  await asking.subscribe('socket.io-response#/#', (text) => answers.push(JSON.parse(text)));
  const ask = async (body, count) => {
    const requestId = randomBytes(4).toString('hex');
    await publish.publish('socket.io-request#/#', JSON.stringify({ uid: 'abcdef', requestId, ...body }));
    const own = () => answers.filter((answer) => answer.requestId === requestId);
    await until('the answers are there', () => own().length === count, SOON_MS);
    return own();
  };
  const found = await ask({ type: 0, rooms: ['red'] }, 4);
  assert.deepEqual(sorted(found.flatMap(({ sockets }) => sockets)), sorted(ids));
  assert.deepEqual((await ask({ type: 0, rooms: ['nobody'] }, 4)).map(({ sockets }) => sockets), [[], [], [], []]);
  // Only the server that has the socket answers.
  for (const sid of [ids[0], ids[2]]) {
    await ask({ type: 2, sid, room: 'old' }, 1);
    assert.deepEqual((await ask({ type: 0, rooms: ['old'] }, 4)).flatMap(({ sockets }) => sockets), [sid]);
    await ask({ type: 3, sid, room: 'old' }, 1);
    assert.deepEqual((await ask({ type: 0, rooms: ['old'] }, 4)).flatMap(({ sockets }) => sockets), []);
    const ended = event(clients[ids.indexOf(sid)], 'disconnect');
    await ask({ type: 4, sid, close: false }, 1);
    await ended;
  }
});

test('requests of strangers have bounds', { skip }, async (t) => {
  const engine = await redis(t);
  const own = await stentor(t, engine);
  const here = await client(t, own, ['red']);
  const publish = await redisClient(t, engine.url);
  const ask = (body, channel = 'socket.io-request#/#') => publish.publish(channel, typeof body === 'string' ? body : JSON.stringify({ uid: 'abcdef', ...body }));
  await ask('{');
  await ask({ type: 99 });
  await ask({ type: 5, requestId: 'a', opts: { rooms: ['x'.repeat(257)], except: [] } });
  await ask({ type: 4, opts: { rooms: ['red'], except: ['x'.repeat(257)] }, close: true });
  await ask({ type: 2, opts: { rooms: ['red'], except: [] }, rooms: ['x'.repeat(257)] });
  await ask({ type: 4, opts: { rooms: Array(4097).fill('red'), except: [] } });
  const refused = (reason) => metric(own, 'bridge_messages_refused_total', `reason="${reason}"`);
  await until('all are counted', async () => (await refused('malformed')) === 1 && (await refused('unknown_type')) === 1
    && (await refused('room_name')) === 3 && (await refused('too_large')) === 1);
  // A flood is answered in part. Most of it costs the server nothing else, so that a slow one reaches its limit too.
  const flood = publish.multi();
  for (let n = 0; n < 12_000; n++) {
    const rooms = n % 20 ? ['x'.repeat(257)] : [];
    flood.publish('socket.io-request#/#', JSON.stringify({ uid: 'abcdef', type: 5, requestId: `${n}`, opts: { rooms, except: [] } }));
  }
  await flood.exec();
  await until('some are refused', async () => (await refused('rate')) > 0);
  await until('it goes on', async () => {
    await publish.publish('socket.io#/#red#', (await import('notepack.io')).default.encode(['foreign', { type: 2, data: ['news'], nsp: '/' }, { rooms: ['red'], except: [] }]));
    return here.seen.some(([name]) => name === 'news');
  });
  assert.ok(here.connected);
});
