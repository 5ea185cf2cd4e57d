// Nodes on a real Redis or NATS, and clients of their rooms.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import test from 'node:test';
import WebSocket from 'ws';
import { admin } from './admin.mjs';
import { event, inbox, introduced, JOIN, SAY, serve, until, within } from './harness.mjs';
import { missing as withoutNats, nats } from './nats.mjs';
import { missing as withoutRedis, redis } from './redis.mjs';
import { socketIo } from './sockets.mjs';

export const SECRET = 'known to all nodes';

export const config = (url, name, more = '') => `
[cluster]
engine = "${url}"
node = "${name}"
secret = "${SECRET.replaceAll(' ', '-')}"
${more}
${JOIN}${SAY}`;

export const node = (t, engine, name, more) => serve(t, { config: config(engine.url, name, more) });

/** A test on each engine. */
export const onEachEngine = (what, body) => {
  test(`${what} (Redis)`, { skip: withoutRedis }, (t) => body(t, redis));
  test(`${what} (NATS)`, { skip: withoutNats }, (t) => body(t, nats));
};

export const nodes = async (server) => (await admin(server, 'nodes')).nodes;

/** Until each node knows the others. */
export const known = (servers) => Promise.all(servers.map((server) => until('all nodes are known', async () => (await nodes(server)).length === servers.length)));

export const member = (t, server, room, options) => socketIo(t, server.http, { transports: ['websocket'], rooms: [room], ...options });

/** Publishes at every node until every client has heard from each of them: then interest has spread. */
export async function meet(servers, sockets, room) {
  const heard = servers.flatMap((_, n) => sockets.map((socket) => new Promise((resolve) => socket.on(`ready ${n}`, resolve))));
  await introduced(() => Promise.all(servers.map((server, n) => admin(server, 'publish', { room, event: `ready ${n}`, data: 1 }))), heard);
}

/** Members on each of the nodes, by every protocol, receive what each of the nodes publishes: once, and in order. */
export async function roomsSpanNodes(t, startEngine, names) {
  const engine = await startEngine(t);
  const servers = await Promise.all(names.map((name) => node(t, engine, name)));
  const sockets = await Promise.all(servers.map((server, n) => member(t, server, 'lobby', { transports: [n === 1 ? 'polling' : 'websocket'] })));
  await meet(servers, sockets, 'lobby');
  const plain = new WebSocket(`${servers.at(-1).ws}/ws`);
  t.after(() => plain.terminate());
  const messages = inbox(plain);
  await once(plain, 'open');
  plain.send(JSON.stringify({ id: 1, type: 'subscribe', room: 'lobby' }));
  await messages.until((message) => message.type === 'ok');
  // From each node, in order, once: to its own members, the sender among them, and to those of the others.
  for (const [n, sender] of sockets.entries()) {
    const last = sockets.map((socket) => new Promise((resolve) => socket.on('say', (data) => data.n === 99 && resolve())));
    for (let i = 0; i < 100; i++) sender.emit('say', { room: 'lobby', from: n, n: i });
    await within(Promise.all(last), `100 messages of client ${n}`);
    for (const socket of sockets) {
      const numbers = socket.seen.filter(([name, data]) => name === 'say' && data.from === n).map(([, data]) => data.n);
      assert.deepEqual(numbers, Array.from({ length: 100 }, (_, i) => i));
    }
    await messages.until((message) => message.data?.from === n && message.data.n === 99);
  }
  for (const socket of sockets) assert.equal(socket.seen.filter(([name]) => name === 'say').length, 100 * sockets.length, 'nothing twice');
  const news = sockets.map((socket) => event(socket, 'news'));
  await admin(servers[1], 'publish', { room: 'lobby', event: 'news', data: { text: 'Ä "quoted"' } });
  for (const [data] of await Promise.all(news)) assert.deepEqual(data, { text: 'Ä "quoted"' });
}

/** Commands at one node concern the sessions of each of the nodes. */
export async function commandsSpanNodes(t, startEngine, names) {
  const engine = await startEngine(t);
  const servers = await Promise.all(names.map((name) => node(t, engine, name)));
  const sockets = await Promise.all(servers.map((server) => member(t, server, 'red')));
  const ids = sockets.map(({ id }) => id);
  await meet(servers, sockets, 'red');
  await known(servers);
  assert.deepEqual((await nodes(servers[0])).map(({ name, this: own }) => [name, own]).sort(), names.map((name, n) => [name, n === 0]));
  const everybody = { sessions: names.length };
  assert.deepEqual(await admin(servers[0], 'join', { rooms: ['red'], join: ['green'] }), everybody);
  const { count, sessions } = await admin(servers[1], 'sessions', { rooms: ['green'] });
  assert.deepEqual([count, sessions.map(({ id }) => id).sort()], [names.length, [...ids].sort()]);
  for (const { rooms } of sessions) assert.deepEqual(rooms.sort(), ['green', 'red']);
  // A session by its id, wherever it is, and the others by an exception.
  const personal = event(sockets.at(-1), 'personal');
  assert.deepEqual(await admin(servers[0], 'emit', { sessions: [ids.at(-1)], event: 'personal', data: 7 }), { sessions: 1 });
  assert.deepEqual(await personal, [7]);
  assert.deepEqual(await admin(servers[0], 'leave', { rooms: ['green'], except: { sessions: [ids[1]] }, leave: ['green'] }), { sessions: names.length - 1 });
  assert.deepEqual((await admin(servers.at(-1), 'rooms')).rooms, [{ name: 'green', sessions: 1 }, { name: 'red', ...everybody }]);
  const ended = sockets.map((socket) => event(socket, 'disconnect'));
  assert.deepEqual(await admin(servers[1], 'disconnect', { rooms: ['red'], close: true }), everybody);
  for (const [reason] of await Promise.all(ended)) assert.equal(reason, 'io server disconnect');
}
