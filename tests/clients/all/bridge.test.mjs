// Two nodes of Stentor and two servers of Socket.IO's own share a namespace over a real Redis, each with clients: what one side says
// reaches the clients of all, once.
import { createAdapter, createShardedAdapter } from '@socket.io/redis-adapter';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { admin, metric, publish } from '../admin.mjs';
import { client, joined, nodeServer, received, redisClient, settled, stentor } from '../bridge.mjs';
import { root, until } from '../harness.mjs';
import { missing, redis } from '../redis.mjs';

const skip = missing;

/** Two servers of each kind, with a client in `red` on each, and one in `blue` on each. */
async function all(t, more) {
  const engine = await redis(t);
  const servers = await Promise.all([nodeServer(t, engine), nodeServer(t, engine), stentor(t, engine, more), stentor(t, engine, more)]);
  const red = await Promise.all(servers.map((server) => client(t, server, ['red'])));
  const blue = await Promise.all(servers.map((server) => client(t, server, ['blue'])));
  const clients = [...red, ...blue];
  await settled(servers, clients);
  await joined(servers[2], ['red', 'blue'], 4);
  /** What the clients in `red` and in `blue` receive. Those of each room receive the same, or `emit` says for whom not. */
  const seen = async (emit) => {
    const lists = await received(servers, clients, emit);
    return { red: lists.slice(0, 4), blue: lists.slice(4) };
  };
  return { engine, servers, nodes: servers.slice(0, 2), stentors: servers.slice(2), red, blue, seen };
}

const times4 = (list) => Array(4).fill(list);

test('messages to rooms, to everyone and with exceptions reach the clients of all servers, once', { skip }, async (t) => {
  const { servers: [node, , own], seen, red } = await all(t);
  const news = [['news', { text: 'Ä "quoted"', list: [1, null, 2.5] }]];
  const [, data] = news[0];
  assert.deepEqual(await seen(() => node.io.to('red').emit(...news[0])), { red: times4(news), blue: times4([]) });
  assert.deepEqual(await seen(() => admin(own, 'publish', { room: 'red', event: 'news', data })), { red: times4(news), blue: times4([]) });
  assert.deepEqual(await seen(() => node.io.emit(...news[0])), { red: times4(news), blue: times4(news) });
  assert.deepEqual(await seen(() => admin(own, 'publish', { namespace: '/', event: 'news', data })), { red: times4(news), blue: times4(news) });
  // Several rooms, of which a client is in more than one.
  for (const socket of red) await socket.emitWithAck('join', 'green');
  assert.deepEqual(await seen(() => node.io.to('red').to('green').to('blue').emit('news', data)), { red: times4(news), blue: times4(news) });
  assert.deepEqual(await seen(() => admin(own, 'emit', { rooms: ['red', 'green', 'blue'], event: 'news', data })), { red: times4(news), blue: times4(news) });
  // Exceptions: a room, and a client by its id, on both sides.
  assert.deepEqual(await seen(() => node.io.to('red').to('blue').except('green').emit('news', data)), { red: times4([]), blue: times4(news) });
  assert.deepEqual(await seen(() => admin(own, 'emit', { rooms: ['red', 'blue'], except: { rooms: ['green'] }, event: 'news', data })), { red: times4([]), blue: times4(news) });
  const without = [[], news, [], news];
  assert.deepEqual(await seen(() => node.io.except([red[0].id, red[2].id]).to('red').emit('news', data)), { red: without, blue: times4([]) });
  assert.deepEqual(await seen(() => admin(own, 'emit', { rooms: ['red'], except: { sessions: [red[0].id, red[2].id] }, event: 'news', data })), { red: without, blue: times4([]) });
  // Nothing else is under way then, for which a volatile message could be left out.
  const alone = (emit) => seen(async () => {
    await emit();
    await passed(100);
  });
  assert.deepEqual(await alone(() => node.io.volatile.to('red').emit('news', data)), { red: times4(news), blue: times4([]) });
  assert.deepEqual(await alone(() => admin(own, 'emit', { rooms: ['red'], event: 'news', data, volatile: true })), { red: times4(news), blue: times4([]) });
});

test('what a client says reaches the clients of all servers but itself', { skip }, async (t) => {
  const { red, seen } = await all(t);
  for (const [n, sender] of red.entries()) {
    const message = { room: 'red', text: `from ${n}` };
    const others = (list) => times4(list).map((each, i) => (i === n ? [] : each));
    assert.deepEqual(await seen(() => sender.emitWithAck('say', message)), { red: others([['say', message]]), blue: times4([]) });
    const shout = await seen(async () => {
      sender.emit('shout', 'hello', 7);
      // It has been handled when the next one is answered.
      await sender.emitWithAck('join', 'red');
    });
    assert.deepEqual(shout, { red: others([['shout', 'hello', 7]]), blue: times4([['shout', 'hello', 7]]) });
  }
});

test('a client is reached by its id, on whichever server it is', { skip }, async (t) => {
  const { servers: [node, , own], red, seen } = await all(t);
  for (const [n, socket] of red.entries()) {
    const only = times4([]).map((each, i) => (i === n ? [['personal', n]] : each));
    assert.deepEqual(await seen(() => node.io.to(socket.id).emit('personal', n)), { red: only, blue: times4([]) });
    assert.deepEqual(await seen(() => admin(own, 'emit', { sessions: [socket.id], event: 'personal', data: n })), { red: only, blue: times4([]) });
    // Once, though two names are its.
    const both = await seen(() => node.io.to(socket.id).to('red').emit('personal', n));
    assert.deepEqual(both, { red: times4([['personal', n]]), blue: times4([]) });
  }
});

test('messages of one server keep their order', { skip }, async (t) => {
  const { servers, red, seen } = await all(t);
  const [node, , own] = servers;
  const numbers = Array.from({ length: 200 }, (_, n) => ['n', n]);
  assert.deepEqual((await seen(() => numbers.forEach(([, n]) => node.io.to('red').emit('n', n)))).red, times4(numbers));
  // To different rooms, too.
  for (const socket of red) await Promise.all(numbers.slice(0, 20).map(([, n]) => socket.emitWithAck('join', `room ${n}`)));
  await joined(servers[2], numbers.slice(0, 20).map(([, n]) => `room ${n}`), 4);
  const spread = (await seen(() => numbers.forEach(([, n]) => node.io.to(`room ${n % 20}`).emit('n', n)))).red;
  assert.deepEqual(spread, times4(numbers));
  // To a client by its id, too.
  const [, , there] = (await seen(() => numbers.forEach(([, n]) => node.io.to(n % 2 ? 'red' : red[2].id).emit('n', n)))).red;
  assert.deepEqual(there, numbers);
  const lines = numbers.map(([, n]) => ({ room: 'red', event: 'n', data: n }));
  assert.deepEqual((await seen(() => publish(own, ...lines))).red, times4(numbers));
});

test('binary data, dates and several arguments arrive as they would from a Node server', { skip }, async (t) => {
  const { nodes: [node], red, seen } = await all(t);
  const arguments_ = [Buffer.from([0, 1, 255]), { at: new Date(0), nested: [Buffer.from('a'), { none: null }] }, 'text', 1.5, [], true];
  const { red: lists } = await seen(() => node.io.to('red').emit('mixed', ...arguments_, undefined));
  const expected = ['mixed', Buffer.from([0, 1, 255]), { at: '1970-01-01T00:00:00.000Z', nested: [Buffer.from('a'), { none: null }] }, 'text', 1.5, [], true, null];
  for (const list of lists) assert.deepEqual(list, [expected]);
  // From a client of Stentor.
  const shout = await seen(async () => {
    red[2].emit('shout', Buffer.from([9, 8]), { deep: Buffer.from([7]) });
    await red[2].emitWithAck('join', 'red');
  });
  const wanted = [['shout', Buffer.from([9, 8]), { deep: Buffer.from([7]) }]];
  assert.deepEqual(shout.red, [wanted, wanted, [], wanted]);
});

test('other namespaces are apart, and those that are not shared stay here', { skip }, async (t) => {
  const { servers, nodes: [node], stentors: [own] } = await all(t);
  const chat = await Promise.all(servers.map((server) => client(t, server, ['red'], { namespace: '/chat' })));
  const heard = (name) => chat.map((socket) => socket.seen.filter(([event]) => event === name).length);
  await until('the members are known', async () => {
    node.io.of('/chat').to('red').emit('ready');
    return heard('ready').every((count) => count > 0);
  });
  node.io.to('red').emit('main');
  node.io.of('/chat').to('red').emit('side');
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

test('the permissions that docs/cluster.md lists are enough', { skip }, async (t) => {
  const page = readFileSync(`${root}/docs/cluster.md`, 'utf8');
  const [, rule] = /^ACL (SETUSER stentor .*socket\.io.*)$/m.exec(page);
  for (const [name, adapter] of [['classic', createAdapter], ['sharded', createShardedAdapter]]) {
    const engine = await redis(t);
    assert.match(await engine.command('ACL', ...rule.split(' ')), /OK/);
    const url = engine.url.replace('//', '//stentor:password@');
    const options = { bridge: `adapter = "${name}"`, namespaces: ['/'] };
    const servers = await Promise.all([nodeServer(t, engine, { adapter }), stentor(t, { url }, options)]);
    const clients = await Promise.all(servers.map((server) => client(t, server, ['red'])));
    await settled(servers, clients);
    assert.equal((await admin(servers[1], 'sessions', { rooms: ['red'] })).count, 2);
  }
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
  const [own, other] = await Promise.all([stentor(t, engine), stentor(t, engine)]);
  const clients = await Promise.all([own, other].map((server) => client(t, server, ['red'])));
  const redisItself = await redisClient(t, engine.url);
  const { encode } = (await import('notepack.io')).default;
  const broadcast = (room, packet, options) => redisItself.publish(`socket.io#/#${room}`, encode(['foreign', packet, options]));
  const event = (data, nsp = '/') => ({ type: 2, data, nsp });
  const counts = async () => Object.fromEntries(await Promise.all(['malformed', 'obsolete', 'room_name', 'namespace', 'reserved_event', 'unknown_type']
    .map(async (reason) => [reason, await metric(own, 'bridge_messages_refused_total', `reason="${reason}"`)])));
  await redisItself.publish('socket.io#/#', Buffer.from([0xc1]));
  await redisItself.publish('socket.io#/#', encode([event(['old']), { rooms: [] }]));
  // A name that Stentor has no room for isn't left out: without it, the message would be for everybody.
  await broadcast('', event(['long']), { rooms: ['x'.repeat(257)], except: [] });
  await broadcast('', event(['long']), { rooms: [], except: ['x'.repeat(257)] });
  await broadcast('', event(['empty']), { rooms: [''], except: [] });
  await broadcast('', event(['other'], '/admin'), { rooms: [], except: [] });
  await broadcast('', event(['disconnect']), { rooms: [], except: [] });
  await broadcast('', { type: 0, data: ['connect'], nsp: '/' }, { rooms: [], except: [] });
  const expected = { malformed: 1, obsolete: 1, room_name: 3, namespace: 1, reserved_event: 1, unknown_type: 1 };
  await until('all are counted', async () => Object.values(await counts()).reduce((sum, count) => sum + count) >= 8);
  assert.deepEqual(await counts(), expected);
  for (const socket of clients) assert.deepEqual(socket.seen, []);
  // It goes on.
  await broadcast('', event(['news']), { rooms: ['red'], except: [] });
  await until('all have it', () => clients.every((socket) => socket.seen.some(([name]) => name === 'news')));
  assert.equal(await metric(other, 'bridge_up'), 1);
});
