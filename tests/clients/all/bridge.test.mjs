// Two nodes of Stentor and two servers of Socket.IO's own share a namespace over a real Redis, each with clients: order, namespaces, permissions,
// outages. bridge-suites.test.mjs has which clients a message reaches.
import { createShardedAdapter } from '@socket.io/redis-adapter';
import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import notepack from 'notepack.io';
import { admin, metric, publish } from '../admin.mjs';
import { client, four, joined, nodeServer, redisClient, settled, stentor, subscribers } from '../bridge.mjs';
import { until } from '../harness.mjs';
import { missing, redis } from '../redis.mjs';

const skip = missing;
/** Less than the time after which Socket.IO's servers give up. */
const SOON_MS = 3_000;

test('a message that may be left out is not, while there is room', { skip }, async (t) => {
  const { first, own, reaches } = await four(t);
  // Nothing else is under way then, for which a volatile message could be left out.
  const alone = (emit) => reaches([0, 1, 2, 3], async () => {
    await emit();
    await passed(100);
  }, ['news', 1]);
  await alone(() => first.volatile.to('red').emit('news', 1));
  await alone(() => admin(own, 'emit', { rooms: ['red'], event: 'news', data: 1, volatile: true }));
});

test('messages of one server keep their order', { skip }, async (t) => {
  const { first, own, servers, clients, reaches } = await four(t);
  const everyone = [0, 1, 2, 3];
  const numbers = Array.from({ length: 200 }, (_, n) => ['n', n]);
  await reaches(everyone, () => numbers.forEach(([, n]) => first.to('red').emit('n', n)), ...numbers);
  // To different rooms, too.
  const rooms = Array.from({ length: 20 }, (_, n) => `room ${n}`);
  for (const socket of clients) await Promise.all(rooms.map((room) => socket.emitWithAck('join', room)));
  await joined(own, rooms, 4);
  await reaches(everyone, () => numbers.forEach(([, n]) => first.to(`room ${n % 20}`).emit('n', n)), ...numbers);
  // To a client by its id, too.
  clients[2].seen.length = 0;
  numbers.forEach(([, n]) => first.to(n % 2 ? 'red' : clients[2].id).emit('n', n));
  await until('all is there', () => clients[2].seen.length === numbers.length);
  assert.deepEqual(clients[2].seen, numbers);
  // The other clients may still receive what was sent to the room.
  await settled(servers, clients);
  await reaches(everyone, () => publish(own, ...numbers.map(([, n]) => ({ room: 'red', event: 'n', data: n }))), ...numbers);
});

test('a Node server moves sockets in order with its messages', { skip }, async (t) => {
  const { first, servers, clients, ids } = await four(t);
  const every = Array.from({ length: 50 }, (_, n) => n);
  // The server that asks emits to its own clients before they join.
  const others = clients.slice(1);
  const of = (socket, name) => socket.seen.filter(([event]) => event === name).map(([, n]) => n);
  for (const [target, verb, name, isThere] of [
    ['red', 'socketsJoin', 'joined', () => others.every((socket) => of(socket, 'joined').length === 50)],
    [ids[2], 'socketsLeave', 'left', () => [1, 3].every((n) => of(clients[n], 'left').length === 50)],
    ['red', 'socketsLeave', 'empty', () => settled(servers, clients).then(() => true)],
  ]) {
    for (const n of every) {
      first.in(target)[verb](`room ${n}`);
      first.to(`room ${n}`).emit(name, n);
    }
    await until(name, isThere);
  }
  for (const [n, socket] of others.entries()) {
    assert.deepEqual(['joined', 'left', 'empty'].map((name) => of(socket, name)), [every, n === 1 ? [] : every, []], `client ${n + 1}`);
  }
  // And a question is answered in order with them.
  clients[2].on('question', (done) => done(clients[2].seen.length));
  clients[2].seen.length = 0;
  for (let n = 0; n < 100; n++) first.to('red').emit('n', n);
  assert.deepEqual(await first.timeout(SOON_MS).to(ids[2]).emitWithAck('question'), [101]);
});

test("the channels of the sharded adapter's rooms come and go with their members", { skip }, async (t) => {
  const { engine, servers, clients, first, reaches } = await four(t, [''], { adapter: createShardedAdapter, bridge: 'adapter = "sharded"' });
  const redisItself = await redisClient(t, engine.url);
  const listeners = (count) => until(`${count} listen`, async () => (await subscribers(redisItself, 'socket.io#/#blue#')) === count);
  for (const socket of clients) await socket.emitWithAck('join', 'blue');
  await listeners(4);
  first.in('blue').socketsLeave('blue');
  await listeners(0);
  // They are subscribed again after a lost connection.
  for (const socket of clients) await socket.emitWithAck('join', 'blue');
  await listeners(4);
  await redisItself.sendCommand(['CLIENT', 'KILL', 'TYPE', 'pubsub', 'SKIPME', 'yes']);
  await until('the connection is replaced', async () => (await metric(servers[2], 'bridge_connection_losses_total')) === 1
    && (await metric(servers[2], 'bridge_up')) === 1 && (await metric(servers[3], 'bridge_up')) === 1);
  await listeners(4);
  await settled(servers, clients);
  await reaches([0, 1, 2, 3], () => admin(servers[2], 'publish', { room: 'blue', event: 'news', data: 1 }), ['news', 1]);
});

test('other namespaces are apart, and those that are not shared stay here', { skip }, async (t) => {
  const { servers, first, own } = await four(t);
  const chat = await Promise.all(servers.map((server) => client(t, server, ['red'], { namespace: '/chat' })));
  const heard = (name) => chat.map((socket) => socket.seen.filter(([event]) => event === name).length);
  await until('the members are known', async () => {
    first.of('/chat').to('red').emit('ready');
    return heard('ready').every((count) => count > 0);
  });
  first.to('red').emit('main');
  first.of('/chat').to('red').emit('side');
  await until('all have it', () => heard('side').every((count) => count === 1));
  await admin(own, 'publish', { namespace: '/chat', room: 'red', event: 'own', data: 1 });
  await until('all have it', () => heard('own').every((count) => count === 1));
  assert.deepEqual(heard('main'), [0, 0, 0, 0]);
});

test('a node with an engine as well uses it for the other namespaces only', { skip }, async (t) => {
  const engine = await redis(t);
  const options = { cluster: `[cluster]\nengine = "${engine.url}"`, namespaces: ['/'] };
  const servers = await Promise.all([nodeServer(t, engine), stentor(t, engine, options), stentor(t, engine, options)]);
  const [node, own] = servers;
  const main = await Promise.all(servers.map((server) => client(t, server, ['red'])));
  const chat = await Promise.all(servers.map((server) => client(t, server, ['red'], { namespace: '/chat' })));
  const heard = (name) => [...main, ...chat].map(({ seen }) => seen.filter(([event]) => event === name).length);
  await until('interest has spread', async () => {
    await admin(own, 'publish', { namespace: '/chat', room: 'red', event: 'ready', data: 1 });
    return chat[2].seen.some(([name]) => name === 'ready');
  });
  node.io.to('red').emit('shared', 1);
  node.io.of('/chat').to('red').emit('apart', 1);
  await admin(own, 'publish', { room: 'red', event: 'own', data: 1 });
  await admin(own, 'publish', { namespace: '/chat', room: 'red', event: 'over the engine', data: 1 });
  await until('all is there', () => heard('own').slice(0, 3).every((count) => count === 1) && heard('over the engine')[5] === 1);
  await settled([own], main);
  assert.deepEqual(['shared', 'apart', 'own', 'over the engine'].map(heard), [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1]]);
  // The commands, too: those for a namespace of the engine ask its nodes, those for a shared one all servers.
  const count = async (namespace) => (await admin(own, 'sessions', { namespace, rooms: ['red'] })).count;
  await until('the nodes of the engine know each other', async () => (await count('/chat')) === 2);
  assert.equal(await count('/'), 3);
});

test('while Redis is away each server serves its own clients, and all of them when it is back', { skip }, async (t) => {
  const engine = await redis(t);
  const servers = await Promise.all([nodeServer(t, engine), stentor(t, engine)]);
  const [there, here] = await Promise.all(servers.map((server) => client(t, server, ['red'])));
  await settled(servers, [there, here]);
  await engine.stop();
  await until('Stentor notices', async () => (await metric(servers[1], 'bridge_up')) === 0);
  await admin(servers[1], 'publish', { room: 'red', event: 'near', data: 1 });
  await until('the client here has it', () => here.seen.some(([name]) => name === 'near'));
  // Nobody here waits for Redis, however much is published meanwhile.
  await publish(servers[1], ...Array.from({ length: 40_000 }, (_, n) => ({ room: 'red', event: 'n', data: n })));
  await until('the client here has all', () => here.seen.filter(([name]) => name === 'n').length === 40_000);
  assert.ok((await metric(servers[1], 'bridge_messages_not_sent_total')) > 0);
  await engine.start();
  await until('the bridge is back', async () => (await metric(servers[1], 'bridge_up')) === 1);
  await until('both ways work', async () => {
    servers[0].io.to('red').emit('from node');
    await admin(servers[1], 'publish', { room: 'red', event: 'from stentor', data: 1 });
    return here.seen.some(([name]) => name === 'from node') && there.seen.some(([name]) => name === 'from stentor');
  });
});

test('what strangers publish has no effect but in a counter', { skip }, async (t) => {
  // Socket.IO's own servers end at the first of these messages.
  const engine = await redis(t);
  const own = await stentor(t, engine, { bridge: `[[cluster.socketio]]\nurl = "${engine.url}"\nadapter = "python"` });
  const here = await client(t, own, ['red']);
  const stranger = await redisClient(t, engine.url);
  const [all, red] = [{ rooms: [], except: [] }, { rooms: ['red'], except: [] }];
  const long = 'x'.repeat(257);
  const event = (name, nsp = '/') => ({ type: 2, data: [name], nsp });
  const broadcast = (packet, options) => ['socket.io#/#', notepack.encode(['foreign', packet, options])];
  const request = (body) => ['socket.io-request#/#', JSON.stringify({ uid: 'abcdef', ...body })];
  const python = (body) => ['socketio', JSON.stringify({ host_id: 'stranger', namespace: '/', ...body })];
  const refused = (reason) => metric(own, 'bridge_messages_refused_total', reason ? `reason="${reason}"` : '');
  for (const [reason, ...messages] of [
    ['malformed', ['socket.io#/#', Buffer.of(0xc1)], ['socket.io-request#/#', '{'], python({ method: 'emit' })],
    // As python-socketio before 5.14 does.
    ['obsolete', ['socket.io#/#', notepack.encode([event('old'), { rooms: [] }])], ['socketio', Buffer.of(0x80, 0x04, 0x95)]],
    // A name that Stentor has no room for isn't left out: without it, the message would be for everybody.
    ['room_name', broadcast(event('long'), { rooms: [long], except: [] }), broadcast(event('long'), { rooms: [], except: [long] }), broadcast(event('empty'), { rooms: [''], except: [] }),
      request({ type: 5, requestId: 'a', opts: { rooms: [long], except: [] } }), request({ type: 4, opts: { rooms: ['red'], except: [long] }, close: true }),
      request({ type: 2, opts: red, rooms: [long] }),
      ...[long, ['red', '']].map((room) => python({ method: 'emit', event: 'news', data: [1], room }))],
    ['namespace', broadcast(event('other', '/admin'), all)],
    ['reserved_event', broadcast(event('disconnect'), all)],
    ['unknown_type', broadcast({ type: 0, data: ['connect'], nsp: '/' }, all), request({ type: 99 }), python({ method: 'explode' })],
    ['too_large', request({ type: 4, opts: { rooms: Array(4097).fill('red'), except: [] } })],
  ]) {
    for (const message of messages) await stranger.publish(...message);
    await until(() => `${messages.length} messages are refused: ${reason}`, async () => (await refused(reason)) === messages.length);
  }
  const total = await refused();
  // Another namespace on the same channel, and an answer to nobody, are no faults. The bridges go on.
  await stranger.publish(...python({ method: 'emit', event: 'other', data: [1], namespace: '/admin' }));
  await stranger.publish(...python({ method: 'callback', sid: here.id, id: 1, args: [] }));
  await stranger.publish(...broadcast(event('news'), red));
  await until('the first', () => here.seen.length === 1);
  await stranger.publish(...python({ method: 'emit', event: 'last', data: ['x'], room: 'red' }));
  await until('the last', () => here.seen.length === 2);
  assert.deepEqual([here.seen, await refused()], [[['news'], ['last', 'x']], total]);
});
