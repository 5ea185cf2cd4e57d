// What the public test suites of `@socket.io/redis-adapter`, `@socket.io/redis-emitter` and `socket.io-adapter` ask of three servers, asked
// of two servers in Node and a node of Stentor: each configuration of the adapters that they run.
import { createAdapter, createShardedAdapter } from '@socket.io/redis-adapter';
import { Emitter } from '@socket.io/redis-emitter';
import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { admin } from '../admin.mjs';
import { client, nodeServer, received, redisClient, settled, stentor, subscribers } from '../bridge.mjs';
import { event, until, within } from '../harness.mjs';
import { missing, redis, redisCluster } from '../redis.mjs';

const skip = missing;
const TIMEOUT_MS = 2_000;
/** The time in which a client that doesn't answer keeps others waiting. */
const SILENCE_MS = 500;
const options = { requestsTimeout: TIMEOUT_MS };
const classic = (more) => (pub, sub) => createAdapter(pub, sub, { ...options, ...more });
const sharded = (subscriptionMode) => ({
  adapter: (pub, sub) => createShardedAdapter(pub, sub, { subscriptionMode }),
  bridge: `adapter = "sharded"\nsubscription_mode = "${subscriptionMode}"`,
  isSharded: true,
  hasSessionChannels: subscriptionMode === 'dynamic-private',
});
const json = { encode: JSON.stringify, decode: JSON.parse };
const CONFIGURATIONS = {
  classic: { adapter: classic() },
  'classic with a parser for JSON': { adapter: classic({ parser: json }), bridge: 'parser = "json"', isText: true },
  'classic with specific response channels': { adapter: classic({ publishOnSpecificResponseChannel: true }) },
  'sharded, static': sharded('static'),
  'sharded, dynamic': sharded('dynamic'),
  'sharded, dynamic-private': sharded('dynamic-private'),
  'classic on a Redis Cluster': { adapter: classic(), engine: redisCluster, isUnordered: true },
  'sharded, dynamic, on a Redis Cluster': { ...sharded('dynamic'), engine: redisCluster },
  'sharded, dynamic-private, on a Redis Cluster': { ...sharded('dynamic-private'), engine: redisCluster },
};
const sorted = (list) => [...list].sort();
const names = (socket) => socket.seen.map(([name]) => name);

/** Two servers in Node and one of Stentor with a client on each, which can be told to join and leave on any of them. */
async function three(t, { adapter, bridge = '', engine: start = redis }) {
  const engine = await start(t);
  const servers = await Promise.all([nodeServer(t, engine, { adapter }), nodeServer(t, engine, { adapter }), stentor(t, engine, { bridge })]);
  const clients = await Promise.all(servers.map((server) => client(t, server)));
  await settled(servers, clients);
  for (const socket of clients) socket.seen.length = 0;
  const [{ io: first }, { io: second }, own] = servers;
  /** A subscription of the sharded adapter takes a moment. */
  const move = (verb) => async (n, ...rooms) => {
    if (n === 2) await admin(own, verb, { sessions: [clients[2].id], [verb]: rooms });
    else for (const room of rooms) await servers[n].io.of('/').sockets.get(clients[n].id)[verb](room);
    await passed(100);
  };
  /** The rooms of each client but its own, as its server says. */
  const rooms = async () => {
    const { sessions } = await admin(own, 'sessions', { sessions: [clients[2].id] });
    const of = (io, { id }) => sorted([...io.of('/').sockets.get(id).rooms].filter((room) => room !== id));
    return [of(first, clients[0]), of(second, clients[1]), sorted(sessions[0].rooms)];
  };
  /** Which clients receive what `emit` sends, and nothing else. */
  const receivers = async (emit) => {
    await received(servers, clients, emit);
    for (const socket of clients) socket.seen.splice(0, Infinity, ...socket.seen.filter(([name]) => name !== 'marker'));
    for (const socket of clients) assert.ok(names(socket).every((name) => name === 'test') && socket.seen.length < 2, JSON.stringify(socket.seen));
    return clients.flatMap(({ seen }, n) => (seen.length === 1 ? [n] : []));
  };
  return { engine, servers, clients, first, second, own, ids: clients.map(({ id }) => id), join: move('join'), leave: move('leave'), rooms, receivers };
}

for (const [name, configuration] of Object.entries(CONFIGURATIONS)) {
  test(`${name}: broadcasts`, { skip }, async (t) => {
    const { servers, clients, first, second, own, ids, join, leave, receivers } = await three(t, configuration);
    const binary = configuration.isText ? [] : [Buffer.from('asdf'), Uint8Array.of(1, 2, 3)];
    assert.deepEqual(await receivers(() => first.emit('test', [], { a: 'b' }, ...binary)), [0, 1, 2]);
    for (const { seen } of clients) assert.deepEqual(seen[0].slice(1), [[], { a: 'b' }, ...binary.map((bytes) => Buffer.from(bytes))]);
    assert.deepEqual(await receivers(() => second.of('/').sockets.get(ids[1]).broadcast.emit('test')), [0, 2]);
    await join(2, 'woot', '123');
    assert.deepEqual(await receivers(() => first.to('woot').emit('test')), [2]);
    assert.deepEqual(await receivers(() => first.to(123).emit('test')), [2]);
    assert.deepEqual(await receivers(() => first.to('woot').to('123').emit('test')), [2]);
    assert.deepEqual(await receivers(() => first.except('woot').emit('test')), [0, 1]);
    await join(0, 'woot');
    assert.deepEqual(await receivers(() => first.local.to('woot').emit('test')), [0]);
    assert.deepEqual(await receivers(() => first.local.emit('test')), [0]);
    await leave(2, 'woot');
    assert.deepEqual(await receivers(() => second.to('woot').emit('test')), [0]);
    for (const n of [0, 1, 2]) assert.deepEqual(await receivers(() => first.to(ids[n]).emit('test')), [n]);
    // The same from Stentor.
    const publish = (body) => () => admin(own, 'emit', { event: 'test', data: 1, ...body });
    for (const n of [0, 1, 2]) assert.deepEqual(await receivers(publish({ sessions: [ids[n]] })), [n]);
    assert.deepEqual(await receivers(publish({ rooms: ['woot'] })), [0]);
    assert.deepEqual(await receivers(publish({ rooms: [ids[1]] })), [1]);
    await join(1, 'a room with 20 units');
    assert.deepEqual(await receivers(publish({ rooms: ['a room with 20 units'] })), [1]);
    await join(2, 'a room with 20 units');
    assert.deepEqual(await receivers(() => first.to('a room with 20 units').emit('test')), [1, 2]);
    assert.deepEqual(await receivers(() => admin(own, 'publish', { namespace: '/', event: 'test', data: 1 })), [0, 1, 2]);
    assert.equal(servers.length, 3);
  });

  test(`${name}: acknowledgements`, { skip }, async (t) => {
    const { clients, first, second, ids, join } = await three(t, configuration);
    for (const [n, socket] of clients.entries()) socket.on('test', (answer) => answer(n + 1));
    assert.deepEqual(sorted(await first.timeout(TIMEOUT_MS).emitWithAck('test')), [1, 2, 3]);
    await join(2, 'woot');
    assert.deepEqual(await first.timeout(TIMEOUT_MS).to('woot').emitWithAck('test'), [3]);
    assert.deepEqual(await first.timeout(TIMEOUT_MS).to('nobody').emitWithAck('test'), []);
    const [remote] = await first.in(ids[2]).fetchSockets();
    assert.equal(await remote.timeout(TIMEOUT_MS).emitWithAck('test'), 3);
    if (!configuration.isText) {
      for (const [n, socket] of clients.entries()) socket.off('test').on('test', (answer) => answer(Buffer.from([n])));
      const answers = await second.timeout(TIMEOUT_MS).emitWithAck('test');
      assert.ok(answers.length === 3 && answers.every(Buffer.isBuffer), JSON.stringify(answers));
    }
    // Those of the clients that answer, if one doesn't.
    for (const silent of [1, 2]) {
      for (const [n, socket] of clients.entries()) socket.off('test').on('test', (answer) => n === silent || answer(n));
      const error = await first.timeout(SILENCE_MS).emitWithAck('test').catch((failed) => failed);
      assert.ok(error instanceof Error);
      assert.deepEqual(sorted(error.responses), [0, 1, 2].filter((n) => n !== silent));
    }
    await until('nothing waits', () => [first, second].every((io) => io.of('/').adapter.ackRequests.size === 0));
  });

  test(`${name}: sockets that join, leave, are found and disconnected`, { skip }, async (t) => {
    const { engine, clients, first, ids, join, rooms } = await three(t, configuration);
    const after = async (act, expected) => {
      await act();
      await until(`the rooms are ${JSON.stringify(expected)}`, async () => isDeepStrictEqual(await rooms(), expected));
    };
    await after(() => first.socketsJoin('room1'), [['room1'], ['room1'], ['room1']]);
    await after(() => first.socketsLeave('room1'), [[], [], []]);
    await Promise.all([join(0, 'room1'), join(2, 'room1')]);
    await after(() => first.in('room1').socketsJoin('room2'), [['room1', 'room2'], [], ['room1', 'room2']]);
    await after(() => first.in(ids[2]).socketsJoin(['room3', 'room4']), [['room1', 'room2'], [], ['room1', 'room2', 'room3', 'room4']]);
    await after(() => first.in('room3').socketsLeave(['room1', 'room4']), [['room1', 'room2'], [], ['room2', 'room3']]);
    await after(() => first.in(ids[2]).socketsLeave('room2'), [['room1', 'room2'], [], ['room3']]);
    const sockets = await first.fetchSockets();
    assert.deepEqual(sorted(sockets.map(({ id }) => id)), sorted(ids));
    assert.deepEqual((await first.local.fetchSockets()).map(({ id }) => id), [ids[0]]);
    assert.deepEqual((await first.in('room3').fetchSockets()).map(({ id }) => id), [ids[2]]);
    const found = sockets.find(({ id }) => id === ids[2]);
    assert.deepEqual([sorted(found.rooms), found.data], [sorted([ids[2], 'room3']), {}]);
    assert.deepEqual(Object.keys(found.handshake).sort(), ['address', 'auth', 'headers', 'issued', 'query', 'secure', 'time', 'url', 'xdomain']);
    if (!configuration.isSharded) assert.deepEqual(sorted(await first.of('/').adapter.allRooms()), sorted([...ids, 'room1', 'room2', 'room3']));
    assert.equal(first.of('/').adapter.requests.size, 0);
    const redisItself = await redisClient(t, engine.url);
    const listeners = () => subscribers(redisItself, `socket.io#/#${ids[2]}#`);
    assert.equal(await listeners(), configuration.hasSessionChannels ? 1 : 0);
    // A message that was sent before is received first.
    const ended = clients.map((socket) => event(socket, 'disconnect'));
    first.emit('test', 'bye');
    first.disconnectSockets(true);
    for (const [reason] of await Promise.all(ended)) assert.equal(reason, 'io server disconnect');
    // The client of a Redis Cluster in Node publishes at one primary after the other, which keep no order.
    if (!configuration.isUnordered) assert.deepEqual(clients.map(({ seen }) => seen.at(-1)), clients.map(() => ["test", "bye"]));
    await until('its channel is gone', async () => (await listeners()) === 0);
  });

  test(`${name}: serverSideEmit`, { skip }, async (t) => {
    const { first, second } = await three(t, configuration);
    first.on('hello', () => assert.fail('the sender receives it'));
    const heard = event(second, 'hello');
    first.serverSideEmit('hello', 'world', 1, '2');
    assert.deepEqual(await heard, ['world', 1, '2']);
    second.on('hello', (answer) => answer(2));
    assert.deepEqual(await within(first.serverSideEmitWithAck('hello'), 'the answers', TIMEOUT_MS).then(sorted), [2, null]);
    second.of('/').removeAllListeners('hello').on('hello', () => {});
    const [error, responses] = await new Promise((resolve) => first.serverSideEmit('hello', (...answer) => resolve(answer)));
    assert.match(error.message, /^timeout reached: (only 1 responses received out of 2|missing 1 responses)$/);
    assert.deepEqual(responses, [null]);
  });
}

for (const name of ['classic', 'classic on a Redis Cluster']) test(`${name}: messages of an emitter`, { skip }, async (t) => {
  const { engine, clients, ids, join, rooms, receivers, own } = await three(t, CONFIGURATIONS[name]);
  const emitter = new Emitter(await redisClient(t, engine.url));
  class Four {
    toJSON() {
      return 4;
    }
  }
  const seen = await receivers(() => emitter.emit('test', 1, '2', [3], Buffer.from('asdf'), Uint8Array.of(1, 2).buffer, new Four()));
  assert.deepEqual(seen, [0, 1, 2]);
  for (const socket of clients) assert.deepEqual(socket.seen[0], ['test', 1, '2', [3], Buffer.from('asdf'), Buffer.from([1, 2]), 4]);
  await Promise.all([join(0, 'room1', 'room2'), join(1, 'room1'), join(2, 'room2')]);
  assert.deepEqual(await receivers(() => emitter.in(['room1', 'room2']).emit('test')), [0, 1, 2]);
  assert.deepEqual(await receivers(() => emitter.except(['room1', 'room4']).emit('test')), [2]);
  assert.deepEqual(await receivers(() => emitter.except(ids[2]).emit('test')), [0, 1]);
  assert.deepEqual(await receivers(() => emitter.to(ids[2]).emit('test')), [2]);
  assert.deepEqual(await receivers(() => emitter.compress(false).emit('test')), [0, 1, 2]);
  // A client that isn't ready, as while it changes transports, loses what is volatile.
  const ready = new Set();
  await until('volatile messages arrive', async () => {
    for (const n of await receivers(() => emitter.volatile.to('room2').emit('test'))) ready.add(n);
    return ready.size >= 2;
  });
  assert.deepEqual(sorted([...ready]), [0, 2]);
  const chat = await client(t, own, [], { namespace: '/chat' });
  assert.deepEqual(await receivers(() => emitter.of('chat').emit('test', 'here')), []);
  assert.deepEqual(chat.seen, [['test', 'here']]);
  const after = async (act, expected) => {
    act();
    await until(`the rooms are ${JSON.stringify(expected)}`, async () => isDeepStrictEqual(await rooms(), expected));
  };
  await after(() => emitter.in('room2').socketsJoin('room3'), [['room1', 'room2', 'room3'], ['room1'], ['room2', 'room3']]);
  await after(() => emitter.socketsLeave('room1'), [['room2', 'room3'], [], ['room2', 'room3']]);
  await after(() => emitter.in(ids[2]).socketsLeave(['room2', 'room3']), [['room2', 'room3'], [], []]);
  emitter.in([ids[2], 'room2']).disconnectSockets(true);
  await until('they are disconnected', () => !clients[0].connected && !clients[2].connected);
  assert.ok(clients[1].connected);
});
