// The same over a Redis Cluster whose slots move and whose primaries fail. The suites in bridge-suites.test.mjs run over one as well.
import { createAdapter, createShardedAdapter } from '@socket.io/redis-adapter';
import assert from 'node:assert/strict';
import test from 'node:test';
import { admin, metric } from '../admin.mjs';
import { client, nodeServer, received, settled, stentor } from '../bridge.mjs';
import { missing, redisCluster } from '../redis.mjs';
import { until } from '../harness.mjs';

const skip = missing;
const ADAPTERS = { classic: createAdapter, sharded: createShardedAdapter };
const CHANNELS = { all: 'socket.io#/#', red: 'socket.io#/#red#' };

/** What each server says to everyone and to a room: `[room, say]`, where `say(event, data)` says it. */
const sayings = (servers) => servers.flatMap((server) => [undefined, 'red'].map((room) => [room, (event, data) => {
  if (server.io) return (room ? server.io.to(room) : server.io).emit(event, data);
  return admin(server, 'publish', { ...(room ? { room } : { namespace: '/' }), event, data });
}]));

/** What servers say reaches all clients, sooner or later. */
async function met(servers, clients) {
  for (const socket of clients) socket.seen.length = 0;
  for (const [n, [room, say]] of sayings(servers).entries()) {
    await until(`saying ${n} reaches all in ${room ?? 'the namespace'}`, async () => {
      await say('met', n);
      return clients.every((socket) => socket.seen.some(([name, by]) => name === 'met' && by === n));
    });
  }
  await settled(servers, clients);
}

/** Each of these servers reaches each client exactly once. */
async function once(servers, clients) {
  for (const [n, [, say]] of sayings(servers).entries()) assert.deepEqual(await received(servers, clients, () => say('news', n)), clients.map(() => [['news', n]]));
}

/** Two nodes of Stentor with a client in `red` on each, which have met. */
async function two(t, engine, adapter) {
  const own = { bridge: `adapter = "${adapter}"` };
  const stentors = [await stentor(t, engine, own), await stentor(t, engine, own)];
  const clients = await Promise.all(stentors.map((server) => client(t, server, ['red'])));
  await met(stentors, clients);
  return { stentors, clients };
}

/** The client of Redis in Node doesn't subscribe again to channels that have moved; a server that starts now knows where they are. */
async function meetsNewServer(t, engine, create, stentors, clients) {
  const servers = [await nodeServer(t, engine, { adapter: create }), ...stentors];
  const all = [await client(t, servers[0], ['red']), ...clients];
  await met(servers, all);
  await once(servers, all);
  assert.equal((await admin(stentors[0], 'sessions', { rooms: ['red'] })).count, 3);
  for (const server of stentors) assert.equal(await metric(server, 'bridge_up'), 1);
}

test('sharded channels follow their slots to other primaries', { skip }, async (t) => {
  const engine = await redisCluster(t);
  const { stentors, clients } = await two(t, engine, 'sharded');
  for (const channel of [CHANNELS.red, CHANNELS.all]) {
    const to = await engine.moveSlotOf(channel);
    await met(stentors, clients);
    assert.equal(await engine.ownerOf(channel), to);
    await once(stentors, clients);
  }
  for (const server of stentors) assert.equal(await metric(server, 'bridge_connection_losses_total'), 0);
  // Channels are unsubscribed from there, too.
  await admin(stentors[0], 'leave', { rooms: ['red'], leave: ['red'] });
  const owner = await engine.ownerOf(CHANNELS.red);
  const subscribers = async (count) => (await owner.command('PUBSUB', 'SHARDNUMSUB', CHANNELS.red)).endsWith(`:${count}\r\n`);
  await until('nobody is subscribed', () => subscribers(0));
  for (const socket of clients) await socket.emitWithAck('join', 'red');
  await until('both are subscribed', () => subscribers(2));
  await meetsNewServer(t, engine, createShardedAdapter, stentors, clients);
});

for (const [adapter, create] of Object.entries(ADAPTERS)) {
  test(`${adapter}: messages flow again after a primary has failed`, { skip }, async (t) => {
    const engine = await redisCluster(t, { replicates: true });
    const { stentors, clients } = await two(t, engine, adapter);
    const failed = await engine.ownerOf(CHANNELS.all);
    await failed.stop();
    const others = engine.nodes.filter((node) => node !== failed);
    for (const node of others) await until('its replica is the primary', async () => !(await node.command('CLUSTER', 'SLOTS')).includes(failed.id));
    await met(stentors, clients);
    await meetsNewServer(t, engine, create, stentors, clients);
  });
}
