// Nodes on a real Redis or NATS, and clients of their rooms.
import assert from 'node:assert/strict';
import test from 'node:test';
import { io } from 'socket.io-client';
import { event, introduced, serve, within } from './harness.mjs';
import { missing as withoutNats, nats } from './nats.mjs';
import { missing as withoutRedis, redis, until } from './redis.mjs';

export const SECRET = 'known to all nodes';

export const config = (url, name, more = '') => `
[cluster]
engine = "${url}"
node = "${name}"
secret = "${SECRET.replaceAll(' ', '-')}"
${more}
[[rules]]
event = "join"
join = ["{}"]
ack = true
[[rules]]
event = "say"
broadcast = ["{room}"]
ack = true
`;

export const node = (t, engine, name, more) => serve(t, { config: config(engine.url, name, more) });

/** A test on each engine. */
export const onEachEngine = (what, body) => {
  test(`${what} (Redis)`, { skip: withoutRedis }, (t) => body(t, redis));
  test(`${what} (NATS)`, { skip: withoutNats }, (t) => body(t, nats));
};

export const post = async (server, path, body) => {
  const response = await fetch(`${server.admin}/api/v1/${path}`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer));
  return answer;
};

export const nodes = async (server) => (await (await fetch(`${server.admin}/api/v1/nodes`)).json()).nodes;

export const metric = async (server, name) => {
  const text = await (await fetch(`${server.admin}/metrics`)).text();
  return Number(new RegExp(`^stentor_${name}(?:\\{.*\\})? (\\S+)$`, 'm').exec(text)?.[1]);
};

/** Until each node knows the others. */
export const known = (servers) => Promise.all(servers.map((server) => until('all nodes are known', async () => (await nodes(server)).length === servers.length)));

export async function member(t, server, room, options = {}) {
  const socket = io(server.http, { forceNew: true, transports: ['websocket'], ...options });
  t.after(() => socket.disconnect());
  socket.seen = [];
  socket.onAny((...args) => socket.seen.push(args));
  await event(socket, 'connect');
  await within(socket.emitWithAck('join', room), 'the answer to join');
  return socket;
}

/** Publishes at every node until every client has heard from each of them: then interest has spread. */
export async function meet(servers, sockets, room) {
  const heard = servers.flatMap((_, n) => sockets.map((socket) => new Promise((resolve) => socket.on(`ready ${n}`, resolve))));
  await introduced(() => Promise.all(servers.map((server, n) => post(server, 'publish', { room, event: `ready ${n}`, data: 1 }))), heard);
}
