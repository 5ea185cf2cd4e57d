// The same with the sharded adapter of `@socket.io/redis-adapter`: another format, and channels for rooms that come and go.
import { createShardedAdapter } from '@socket.io/redis-adapter';
import assert from 'node:assert/strict';
import test from 'node:test';
import { admin, metric } from '../admin.mjs';
import { client, nodeServer, received, redisClient, settled, stentor } from '../bridge.mjs';
import { event, until, within } from '../harness.mjs';
import { missing, redis } from '../redis.mjs';

const skip = missing;
const bridge = 'adapter = "sharded"';
const sorted = (list) => [...list].sort();
const soon = (promise) => within(promise, 'the answers', 3_000);
const times4 = (list) => Array(4).fill(list);

/** Two servers of each kind, with a client in `red` on each. */
async function all(t) {
  const engine = await redis(t);
  const node = () => nodeServer(t, engine, { adapter: createShardedAdapter });
  const servers = await Promise.all([node(), node(), stentor(t, engine, { bridge }), stentor(t, engine, { bridge })]);
  const clients = await Promise.all(servers.map((server) => client(t, server, ['red'])));
  await met(servers, clients, 'red');
  const seen = (emit) => received(servers, clients, emit);
  return { engine, servers, node: servers[0].io, other: servers[1].io, own: servers[2], clients, ids: clients.map(({ id }) => id), seen };
}

/** Until each server receives what the others say to a room: subscriptions take a moment. */
async function met(servers, clients, room) {
  for (const [n, server] of servers.entries()) {
    await until(`${room} is known to all`, async () => {
      if (server.io) server.io.to(room).emit('met', n);
      else await admin(server, 'publish', { room, event: 'met', data: n });
      return clients.every((socket) => socket.seen.some(([name, by]) => name === 'met' && by === n));
    });
  }
  await settled(servers, clients);
}

test('messages reach the clients of all servers, once', { skip }, async (t) => {
  const { servers, node, own, clients, ids, seen } = await all(t);
  const news = ['news', { text: 'Ä', bytes: Buffer.from([0, 255]), at: new Date(0) }];
  const expected = [['news', { ...news[1], at: new Date(0).toJSON() }]];
  assert.deepEqual(await seen(() => node.to('red').emit(...news)), times4(expected));
  assert.deepEqual(await seen(() => node.emit(...news)), times4(expected));
  assert.deepEqual(await seen(() => admin(own, 'publish', { room: 'red', event: 'news', data: 1 })), times4([['news', 1]]));
  assert.deepEqual(await seen(() => admin(own, 'publish', { namespace: '/', event: 'news', data: 1 })), times4([['news', 1]]));
  const without = [[], [['news', 1]], [], [['news', 1]]];
  assert.deepEqual(await seen(() => node.to('red').to('blue').except([ids[0], ids[2]]).emit('news', 1)), without);
  assert.deepEqual(await seen(() => admin(own, 'emit', { rooms: ['red', 'blue'], except: { sessions: [ids[0], ids[2]] }, event: 'news', data: 1 })), without);
  for (const [n, socket] of clients.entries()) {
    const only = times4([]).map((each, i) => (i === n ? [['personal', n]] : each));
    assert.deepEqual(await seen(() => node.to(socket.id).emit('personal', n)), only);
    assert.deepEqual(await seen(() => admin(own, 'emit', { sessions: [socket.id], event: 'personal', data: n })), only);
    const others = times4([['say', { room: 'red', n }]]).map((each, i) => (i === n ? [] : each));
    assert.deepEqual(await seen(() => socket.emitWithAck('say', { room: 'red', n })), others);
  }
  assert.equal(servers.length, 4);
});

test('the channels of rooms come and go with their members', { skip }, async (t) => {
  const { engine, servers, clients, node } = await all(t);
  const publish = await redisClient(t, engine.url);
  const subscribers = async (room) => (await publish.sendCommand(['PUBSUB', 'SHARDNUMSUB', `socket.io#/#${room}#`]))[1];
  assert.equal(await subscribers('red'), 4);
  for (const socket of clients) await socket.emitWithAck('join', 'blue');
  await met(servers, clients, 'blue');
  assert.equal(await subscribers('blue'), 4);
  node.in('red').socketsLeave('blue');
  await until('nobody listens', async () => (await subscribers('blue')) === 0);
  // They are subscribed again after a lost connection.
  await publish.sendCommand(['CLIENT', 'KILL', 'TYPE', 'pubsub', 'SKIPME', 'yes']);
  await until('the connection is replaced', async () => (await metric(servers[2], 'bridge_connection_losses_total')) === 1
    && (await metric(servers[2], 'bridge_up')) === 1 && (await metric(servers[3], 'bridge_up')) === 1);
  await met(servers, clients, 'red');
});

test('servers ask each other', { skip }, async (t) => {
  const { node, other, own, clients, ids } = await all(t);
  assert.deepEqual(sorted((await soon(node.in('red').fetchSockets())).map(({ id }) => id)), sorted(ids));
  assert.deepEqual(sorted((await soon(node.fetchSockets())).map(({ id }) => id)), sorted(ids));
  other.on('question', (n, answer) => answer(n + 1));
  assert.deepEqual(sorted(await soon(node.serverSideEmitWithAck('question', 1))), sorted([2, null, null]));
  for (const [n, socket] of clients.entries()) socket.on('question', (bytes, done) => done([n, bytes]));
  const answers = await soon(node.timeout(3_000).to('red').emitWithAck('question', Buffer.from([1])));
  assert.deepEqual(answers.sort(([a], [b]) => a - b), [0, 1, 2, 3].map((n) => [n, Buffer.from([1])]));
  const list = await soon(admin(own, 'sessions', { rooms: ['red'] }));
  assert.deepEqual([list.count, sorted(list.sessions.map(({ id }) => id)), list.missing_nodes], [4, sorted(ids), undefined]);
  node.in(ids[2]).socketsJoin('blue');
  await admin(own, 'join', { sessions: [ids[0]], join: ['blue'] });
  await until('both have joined', async () => (await admin(own, 'sessions', { rooms: ['blue'] })).count === 2);
  const ended = [0, 2].map((n) => event(clients[n], 'disconnect'));
  await admin(own, 'disconnect', { rooms: ['blue'] });
  await Promise.all(ended);
  const last = [1, 3].map((n) => event(clients[n], 'disconnect'));
  other.in('red').disconnectSockets();
  await Promise.all(last);
});
