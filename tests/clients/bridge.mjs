// Socket.IO's own servers and nodes of Stentor that share the namespace `/` over one Redis, with a client on each.
import { createAdapter } from '@socket.io/redis-adapter';
import assert from 'node:assert/strict';
import http from 'node:http';
import { setTimeout as passed } from 'node:timers/promises';
import { createClient, createCluster } from 'redis';
import { Server } from 'socket.io';
import { admin } from './admin.mjs';
import { JOIN, listening, serve, until } from './harness.mjs';
import { redis } from './redis.mjs';
import { socketIo } from './sockets.mjs';

/** A Redis client of Node that ends with the test. */
export async function redisClient(t, url) {
  const [scheme, hosts] = url.split('://');
  const isCluster = scheme === 'redis+cluster';
  const client = isCluster ? createCluster({ rootNodes: hosts.split(',').map((host) => ({ url: `redis://${host}` })) }) : createClient({ url });
  client.on('error', () => {});
  await client.connect();
  const answers = [];
  client.answered = () => Promise.all(answers);
  // The packages don't expect that Redis is away, as it is at the end.
  for (const name of ['publish', 'sPublish', 'pSubscribe', 'subscribe', 'sSubscribe', 'pUnsubscribe', 'unsubscribe', 'sUnsubscribe']) {
    const command = client[name].bind(client);
    // A cluster that is closed looks for a node forever.
    const commandIfOpen = async (...args) => client.isOpen && command(...args).catch(() => {});
    client[name] = (...args) => {
      const answer = commandIfOpen(...args);
      answers.push(answer);
      return answer;
    };
  }
  t.after(() => client.isOpen && client.disconnect());
  return client;
}

/** How many servers have subscribed to a sharded channel, as Redis says. */
export async function subscribers(client, channel) {
  const nodes = client.masters ? await Promise.all(client.masters.map((node) => node.client)) : [client];
  const counts = await Promise.all(nodes.map((node) => node.sendCommand(['PUBSUB', 'SHARDNUMSUB', channel])));
  return counts.reduce((sum, [, count]) => sum + count, 0);
}

/** A server of the package `socket.io` on a free port: { io, url }. */
export async function nodeServer(t, engine, { adapter = createAdapter } = {}) {
  const [pub, sub] = [await redisClient(t, engine.url), await redisClient(t, engine.url)];
  const listener = http.createServer();
  const io = new Server(listener, { adapter: adapter(pub, sub) });
  for (const namespace of ['/', '/chat']) {
    io.of(namespace).on('connection', (socket) => {
      socket.on('join', (room, done) => {
        socket.join(room);
        done({ ok: true });
      });
      socket.on('say', (message, done) => {
        socket.to(message.room).emit('say', message);
        done?.({ ok: true });
      });
      socket.on('shout', (...args) => socket.broadcast.emit('shout', ...args));
    });
  }
  // The adapters don't wait until they have subscribed. A message that is published before is lost.
  await sub.answered();
  t.after(() => io.close());
  return { io, url: `http://127.0.0.1:${await listening(t, listener)}` };
}

/** A node of Stentor whose clients can do the same. */
export async function stentor(t, engine, { more = '', bridge = '', cluster = '', namespaces = ['/', '/chat'] } = {}) {
  const config = `
${cluster}
[socketio]
namespaces = ["/chat"]
[[cluster.socketio]]
url = "${engine.url}"
namespaces = ${JSON.stringify(namespaces)}
${bridge}
${JOIN}[[rules]]
event = "say"
broadcast = ["{room}"]
except_sender = true
ack = true
[[rules]]
event = "shout"
broadcast = ["*"]
except_sender = true
${more}`;
  const server = await serve(t, { config });
  await until('all bridges are up', async () => !/^stentor_bridge_up\{.*\} 0$/m.test(await (await fetch(`${server.admin}/metrics`)).text()));
  return { ...server, url: server.http };
}

/** Until `members` clients of all servers are members of each room, as a node of Stentor says: it answers a client that joins before all of its cores know. */
export async function joined(own, rooms, members) {
  await until(`there are ${members} members`, async () => {
    const counts = new Map((await admin(own, 'rooms?limit=1000')).rooms.map(({ name, sessions }) => [name, sessions]));
    return rooms.every((room) => counts.get(room) === members);
  });
}

/** A client that is a member of rooms. */
export const client = (t, { url }, rooms = [], options = {}) => socketIo(t, url, { transports: ['websocket'], rooms, ...options });

/**
 * What each client receives of what `emit` sends: their events named `name`, until a marker that all servers publish to everyone
 * afterwards has come from each of them.
 */
export async function received(servers, clients, emit) {
  for (const socket of clients) socket.seen.length = 0;
  await emit();
  await settled(servers, clients);
  // Messages to different rooms may pass each other on a node with several cores.
  await passed(100);
  return clients.map((socket) => socket.seen.filter(([name]) => name !== 'marker'));
}

let markers = 0;

/** Until each client has received a message of each server to all, which follows whatever they published before. */
export async function settled(servers, clients) {
  const marker = ++markers;
  const heard = () => clients.every((socket) => servers.every((_, n) => socket.seen.some(([name, data]) => name === 'marker' && data[0] === marker && data[1] === n)));
  await Promise.all(servers.map((server, n) => (server.io ? server.io.emit('marker', [marker, n]) : admin(server, 'publish', { namespace: '/', event: 'marker', data: [marker, n] }))));
  await until('all have received the markers', heard);
}

/**
 * Two servers in Node and two nodes of Stentor, each with a client in each of the rooms: the first four clients are in the first room. `adapter` is
 * that of Node; the other options are those of Stentor.
 */
export async function four(t, rooms = ['red'], { adapter, start = redis, ...options } = {}) {
  const engine = await start(t);
  const node = () => nodeServer(t, engine, { adapter });
  const servers = await Promise.all([node(), node(), stentor(t, engine, options), stentor(t, engine, options)]);
  const clients = (await Promise.all(rooms.map((room) => Promise.all(servers.map((server) => client(t, server, room ? [room] : [])))))).flat();
  await settled(servers, clients);
  if (rooms[0]) await joined(servers[2], rooms, servers.length);
  /** Fails unless these clients receive these events, and the others nothing. */
  const reaches = async (who, emit, ...expected) => {
    const lists = await received(servers, clients, emit);
    assert.deepEqual(lists, clients.map((_, n) => (who.includes(n) ? expected : [])));
  };
  return { engine, servers, clients, ids: clients.map(({ id }) => id), first: servers[0].io, second: servers[1].io, own: servers[2], reaches };
}

export const sorted = (list) => [...list].sort();
