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
