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

/** What servers say to everyone and to a room reaches all clients, sooner or later. */
async function met(servers, clients) {
  for (const socket of clients) socket.seen.length = 0;
  for (const [n, server] of servers.entries()) {
    for (const room of [undefined, 'red']) {
      await until(`server ${n} reaches all in ${room ?? 'the namespace'}`, async () => {
        if (server.io) (room ? server.io.to(room) : server.io).emit('met', [n, room]);
        else await admin(server, 'publish', { ...(room ? { room } : { namespace: '/' }), event: 'met', data: [n, room] });
        return clients.every((socket) => socket.seen.some(([name, by]) => name === 'met' && by[0] === n && (by[1] ?? undefined) === room));
      });
    }
  }
  await settled(servers, clients);
}

/** Each of these servers reaches each client exactly once. */
async function once(servers, clients) {
  for (const [n, server] of servers.entries()) {
    for (const room of [undefined, 'red']) {
      const emit = () => (server.io ? (room ? server.io.to(room) : server.io).emit('news', n) : admin(server, 'publish', { ...(room ? { room } : { namespace: '/' }), event: 'news', data: n }));
      assert.deepEqual(await received(servers, clients, emit), clients.map(() => [['news', n]]));
    }
  }
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
  const own = { bridge: 'adapter = "sharded"' };
  const stentors = [await stentor(t, engine, own), await stentor(t, engine, own)];
  const clients = await Promise.all(stentors.map((server) => client(t, server, ['red'])));
  await met(stentors, clients);
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
    const own = { bridge: `adapter = "${adapter}"` };
    const stentors = [await stentor(t, engine, own), await stentor(t, engine, own)];
    const clients = await Promise.all(stentors.map((server) => client(t, server, ['red'])));
    await met(stentors, clients);
    const failed = await engine.ownerOf(CHANNELS.all);
    await failed.stop();
    const others = engine.nodes.filter((node) => node !== failed);
    for (const node of others) await until('its replica is the primary', async () => !(await node.command('CLUSTER', 'SLOTS')).includes(failed.id));
    await met(stentors, clients);
    await meetsNewServer(t, engine, create, stentors, clients);
  });
}
