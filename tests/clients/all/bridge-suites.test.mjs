// What the public test suites of `@socket.io/redis-adapter`, `@socket.io/redis-emitter` and `socket.io-adapter` ask of servers, asked of two
// servers in Node and two nodes of Stentor: each configuration of the adapters that the suites run.
import { createAdapter, createShardedAdapter } from '@socket.io/redis-adapter';
import { Emitter } from '@socket.io/redis-emitter';
import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { admin } from '../admin.mjs';
import { client, four, received, redisClient, sorted, subscribers } from '../bridge.mjs';
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
const ALL = [0, 1, 2, 3];

/** Servers whose clients can be told to join and leave on any of them. */
async function start(t, { adapter, bridge = '', engine = redis }) {
  const all = await four(t, [''], { adapter, bridge, start: engine });
  const { servers, clients, own } = all;
  /** A subscription of the sharded adapter takes a moment. */
  const move = (verb) => async (n, ...rooms) => {
    if (n > 1) await admin(servers[n], verb, { sessions: [clients[n].id], [verb]: rooms });
    else for (const room of rooms) await servers[n].io.of('/').sockets.get(clients[n].id)[verb](room);
    await passed(100);
  };
  /** The rooms of each client but its own, as its server says. */
  const rooms = () => Promise.all(clients.map(async ({ id }, n) => {
    if (n < 2) return sorted([...servers[n].io.of('/').sockets.get(id).rooms].filter((room) => room !== id));
    return sorted((await admin(own, 'sessions', { sessions: [id] })).sessions[0].rooms);
  }));
  /** Does something until the clients are in these rooms. */
  const moves = async (act, ...expected) => {
    await act();
    await until(`the rooms are ${JSON.stringify(expected)}`, async () => isDeepStrictEqual(await rooms(), expected));
  };
  return { ...all, join: move('join'), leave: move('leave'), moves };
}

for (const [name, configuration] of Object.entries(CONFIGURATIONS)) {
  test(`${name}: broadcasts`, { skip }, async (t) => {
    const { clients, first, second, own, ids, join, leave, reaches } = await start(t, configuration);
    const binary = configuration.isText ? [] : [Buffer.from('asdf'), Buffer.of(1, 2, 3)];
    const values = [[], { a: 'Ä "quoted"', at: '1970-01-01T00:00:00.000Z', list: [1, null, 2.5], nested: binary }, ...binary, true];
    const sent = ['test', [], { a: 'Ä "quoted"', at: new Date(0), list: [1, null, 2.5], nested: binary }, ...binary, true];
    await reaches(ALL, () => first.emit(...sent), ['test', ...values]);
    const test = ['test', 1];
    const emit = (target) => () => target.emit(...test);
    await reaches([0, 2, 3], emit(second.of('/').sockets.get(ids[1]).broadcast), test);
    // What a client says reaches all but itself.
    for (const [n, socket] of clients.entries()) {
      await reaches(ALL.filter((other) => other !== n), async () => {
        socket.emit('shout', ...values);
        // It has been handled when the next one is answered.
        await socket.emitWithAck('join', 'red');
      }, ['shout', ...values]);
      await reaches(ALL.slice(0, n), () => socket.emitWithAck('say', { room: 'red', n }), ['say', { room: 'red', n }]);
    }
    await join(2, 'woot', '123');
    await reaches([2], emit(first.to('woot')), test);
    await reaches([2], emit(first.to(123)), test);
    await reaches([2], emit(first.to('woot').to('123')), test);
    await reaches([0, 1, 3], emit(first.except('woot')), test);
    await reaches([0, 1, 3], emit(first.except('woot').to('red')), test);
    await reaches([1, 3], emit(first.except([ids[0], ids[2]]).to('red')), test);
    await join(0, 'woot');
    await reaches([0], emit(first.local.to('woot')), test);
    await reaches([0], emit(first.local), test);
    await leave(2, 'woot');
    await reaches([0], emit(second.to('woot')), test);
    for (const n of ALL) await reaches([n], emit(first.to(ids[n])), test);
    // Once, though two names are its.
    await reaches(ALL, emit(first.to(ids[2]).to('red').to('123')), test);
    // The same from Stentor.
    const command = (body, verb = 'emit') => () => admin(own, verb, { event: 'test', data: 1, ...body });
    for (const n of ALL) await reaches([n], command({ sessions: [ids[n]] }), test);
    await reaches([0], command({ rooms: ['woot'] }), test);
    await reaches([1], command({ rooms: [ids[1]] }), test);
    await reaches(ALL, command({ rooms: ['red', 'woot', '123'] }), test);
    await reaches([1, 2, 3], command({ rooms: ['red', '123'], except: { rooms: ['woot'] } }), test);
    await reaches([1, 3], command({ rooms: ['red'], except: { sessions: [ids[0], ids[2]] } }), test);
    await join(1, 'a room with 20 units');
    await reaches([1], command({ rooms: ['a room with 20 units'] }), test);
    await join(2, 'a room with 20 units');
    await reaches([1, 2], emit(first.to('a room with 20 units')), test);
    await reaches(ALL, command({ room: 'red' }, 'publish'), test);
    await reaches(ALL, command({ namespace: '/' }, 'publish'), test);
  });

  test(`${name}: acknowledgements`, { skip }, async (t) => {
    const { clients, first, second, ids, join } = await start(t, configuration);
    const answering = (answer) => clients.forEach((socket, n) => socket.off('test').on('test', (...args) => answer(n, ...args)));
    const ask = (target, ...args) => target.timeout(TIMEOUT_MS).emitWithAck('test', ...args);
    answering((n, text, done) => done([n, text]));
    assert.deepEqual(sorted(await ask(first, 'Ä')), ALL.map((n) => [n, 'Ä']));
    await join(2, 'woot');
    assert.deepEqual(await ask(first.to('woot'), 'a'), [[2, 'a']]);
    assert.deepEqual(await ask(first.to('nobody'), 'a'), []);
    assert.deepEqual(sorted(await ask(first.except([ids[1], ids[3]]), 'a')), [[0, 'a'], [2, 'a']]);
    const [remote] = await first.in(ids[2]).fetchSockets();
    assert.deepEqual(await ask(remote, 'b'), [2, 'b']);
    if (!configuration.isText) {
      answering((n, bytes, done) => done(Buffer.concat([bytes, Buffer.of(n)])));
      assert.deepEqual((await ask(second, Buffer.of(7))).sort(Buffer.compare), ALL.map((n) => Buffer.of(7, n)));
    }
    // Those of the clients that answer, if one doesn't.
    for (const silent of [1, 2]) {
      answering((n, done) => n === silent || done(n));
      const error = await first.timeout(SILENCE_MS).emitWithAck('test').catch((failed) => failed);
      assert.ok(error instanceof Error);
      assert.deepEqual(sorted(error.responses), ALL.filter((n) => n !== silent));
    }
    await until('nothing waits', () => [first, second].every((io) => io.of('/').adapter.ackRequests.size === 0));
  });

  test(`${name}: sockets that join, leave, are found and disconnected`, { skip }, async (t) => {
    const { engine, clients, first, ids, join, moves } = await start(t, configuration);
    await moves(() => first.socketsJoin('room1'), ['room1'], ['room1'], ['room1'], ['room1']);
    await moves(() => first.socketsLeave('room1'), [], [], [], []);
    await Promise.all([join(0, 'room1'), join(2, 'room1')]);
    await moves(() => first.in('room1').socketsJoin('room2'), ['room1', 'room2'], [], ['room1', 'room2'], []);
    await moves(() => first.in(ids[2]).socketsJoin(['room3', 'room4']), ['room1', 'room2'], [], ['room1', 'room2', 'room3', 'room4'], []);
    await moves(() => first.in('room3').socketsLeave(['room1', 'room4']), ['room1', 'room2'], [], ['room2', 'room3'], []);
    await moves(() => first.in(ids[2]).socketsLeave('room2'), ['room1', 'room2'], [], ['room3'], []);
    const found = async (target) => sorted((await target.fetchSockets()).map(({ id }) => id));
    assert.deepEqual(await found(first), sorted(ids));
    assert.deepEqual(await found(first.local), [ids[0]]);
    assert.deepEqual(await found(first.in('room3')), [ids[2]]);
    assert.deepEqual(await found(first.except(['room2', 'room3'])), sorted([ids[1], ids[3]]));
    assert.deepEqual(await found(first.in('nobody')), []);
    const [socket] = await first.in(ids[2]).fetchSockets();
    assert.deepEqual([sorted(socket.rooms), socket.data], [sorted([ids[2], 'room3']), {}]);
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
    if (!configuration.isUnordered) assert.deepEqual(clients.map(({ seen }) => seen.at(-1)), clients.map(() => ['test', 'bye']));
    await until('its channel is gone', async () => (await listeners()) === 0);
  });

  test(`${name}: serverSideEmit`, { skip }, async (t) => {
    const { first, second } = await start(t, configuration);
    first.on('hello', () => assert.fail('the sender receives it'));
    const heard = event(second, 'hello');
    first.serverSideEmit('hello', 'world', 1, '2');
    assert.deepEqual(await heard, ['world', 1, '2']);
    second.on('hello', (answer) => answer(2));
    // Stentor has no code that could answer.
    assert.deepEqual(await within(first.serverSideEmitWithAck('hello'), 'the answers', TIMEOUT_MS).then(sorted), [2, null, null]);
    second.of('/').removeAllListeners('hello').on('hello', () => {});
    const [error, responses] = await new Promise((resolve) => first.serverSideEmit('hello', (...answer) => resolve(answer)));
    assert.match(error.message, /^timeout reached: (only 2 responses received out of 3|missing 1 responses)$/);
    assert.deepEqual(responses, [null, null]);
  });
}

for (const name of ['classic', 'classic on a Redis Cluster']) test(`${name}: messages of an emitter`, { skip }, async (t) => {
  const { engine, clients, ids, join, moves, reaches, own } = await start(t, CONFIGURATIONS[name]);
  const emitter = new Emitter(await redisClient(t, engine.url));
  const test = ['test', 1];
  class Four {
    toJSON() {
      return 4;
    }
  }
  await reaches(ALL, () => emitter.emit('test', 1, '2', [3], Buffer.from('asdf'), Uint8Array.of(1, 2).buffer, new Four()), ['test', 1, '2', [3], Buffer.from('asdf'), Buffer.of(1, 2), 4]);
  await Promise.all([join(0, 'room1', 'room2'), join(1, 'room1'), join(2, 'room2'), join(3, 'room3')]);
  for (const [who, target] of [
    [[0, 1, 2], emitter.in(['room1', 'room2'])],
    [[2, 3], emitter.except(['room1', 'room4'])],
    [[3], emitter.to('room1').to('room3').except('room1')],
    [[0, 1, 3], emitter.except(ids[2])],
    [[2], emitter.to(ids[2])],
    [[], emitter.volatile.to('nobody')],
    [ALL, emitter.compress(false)],
  ]) await reaches(who, () => target.emit(...test), ...(who.length ? [test] : []));
  // A client that isn't ready, as while it changes transports, loses what is volatile.
  const ready = new Set();
  await until('volatile messages arrive', async () => {
    for (const [n, list] of (await received([own], clients, () => emitter.volatile.to('room2').emit('test'))).entries()) if (list.length) ready.add(n);
    return ready.size >= 2;
  });
  assert.deepEqual(sorted([...ready]), [0, 2]);
  const chat = await client(t, own, [], { namespace: '/chat' });
  await reaches([], () => emitter.of('chat').emit('test', 'here'));
  assert.deepEqual(chat.seen, [['test', 'here']]);
  await moves(() => emitter.in('room2').socketsJoin('room4'), ['room1', 'room2', 'room4'], ['room1'], ['room2', 'room4'], ['room3']);
  await moves(() => emitter.socketsLeave('room1'), ['room2', 'room4'], [], ['room2', 'room4'], ['room3']);
  await moves(() => emitter.in(ids[2]).socketsLeave(['room2', 'room4']), ['room2', 'room4'], [], [], ['room3']);
  emitter.serverSideEmit('ignored', 1);
  emitter.in([ids[2], 'room2']).disconnectSockets(true);
  await until('they are disconnected', () => !clients[0].connected && !clients[2].connected);
  assert.ok(clients[1].connected && clients[3].connected);
});
