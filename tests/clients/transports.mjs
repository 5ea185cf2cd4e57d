// Every client by every transport that it has in Node, in a room each and in one with the others: each message arrives once and in order.
import assert from 'node:assert/strict';
import { setTimeout as passed } from 'node:timers/promises';
import { Socket as EngineIo6 } from 'engine.io-client';
import EngineIo3 from 'engine.io-client-3';
import { EventSource } from 'eventsource';
import { io as io4 } from 'socket.io-client';
import io2 from 'socket.io-client-2';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { publish as messages } from './admin.mjs';
import { event, feedsFrom, introduced, until, within } from './harness.mjs';
import { Primus } from './primus.mjs';

const PUBLISHED = 120;
const OWN = 30;
// A feed's versions.
const VERSIONS = 30;
/** How long each step may take. */
export const TIME_MS = 60_000;

/** The configuration that `exercise` needs; `url`: of the feeds' upstream. */
export const config = (url) => `${feedsFrom(url, '20ms')}
[rooms]
publish = true

[[sockjs]]
prefix = "/sockjs"

[[sockjs]]
prefix = "/echo"
app = "echo"

[[rules]]
event = "join_room"
join = ["{}"]
ack = true

[[rules]]
event = "say"
broadcast = ["{room}"]
broadcast_as = "tick"
`;

/** Somebody in a room, and in one of its own, who keeps what is said in either. */
export class Member {
  constructor(name, room) {
    this.rooms = [room, `${room}/${name}`];
    this.heard = this.rooms.map(() => []);
    let waiting = this.rooms.length;
    this.done = new Promise((resolve) => { this.last = () => { if (!--waiting) resolve(); }; });
    this.met = new Promise((resolve) => { this.meet = resolve; });
    // Who is told that it is in a room: by its name.
    this.joining = new Map();
  }

  hear({ room, n, last }) {
    const heard = this.heard[this.rooms.indexOf(room)];
    if (!heard) throw new Error(`${this.rooms[1]} heard of ${room}`);
    if (n < 0) return this.meet();
    heard.push(n);
    if (last) this.last();
  }

  /** A message of `stentor.v1`. */
  take({ type, id, data }) {
    if (type === 'message') this.hear(data);
    else if (type === 'ok') this.joining.get(id)?.();
  }

  /** Joins by `stentor.v1`; then `say` says something to itself. */
  async enter(send) {
    const joined = this.rooms.map((room) => new Promise((resolve) => this.joining.set(room, resolve)));
    for (const room of this.rooms) send({ id: room, type: 'subscribe', room });
    await Promise.all(joined);
    this.say = (data) => send({ type: 'publish', room: this.rooms[1], data });
  }
}

function webSocket() {
  return async (t, at, member) => {
    const socket = new WebSocket(`${at.ws}/ws`);
    t.after(() => socket.terminate());
    socket.on('message', (data) => member.take(JSON.parse(data)));
    await event(socket, 'open', TIME_MS, 'error');
    await member.enter((message) => socket.send(JSON.stringify(message)));
    return 'websocket';
  };
}

function socketIo(io, transports, options) {
  return async (t, at, member) => {
    const socket = io(at.http, { forceNew: true, reconnection: false, transports, ...options });
    t.after(() => socket.disconnect());
    socket.on('tick', (data) => member.hear(data));
    await within(new Promise((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('connect_error', reject);
    }), 'a connection', TIME_MS);
    for (const room of member.rooms) await new Promise((resolve) => socket.emit('join_room', room, resolve));
    member.say = (data) => socket.emit('say', data);
    return () => socket.io.engine.transport.name;
  };
}

function engineIo(Client, transports) {
  return async (t, at, member) => {
    const socket = new Client(at.http, { transports });
    t.after(() => socket.close());
    socket.on('message', (data) => member.take(JSON.parse(data)));
    await event(socket, 'open', TIME_MS, 'error');
    await member.enter((message) => socket.send(JSON.stringify(message)));
    return () => socket.transport.name;
  };
}

function sockJs(transports) {
  return async (t, at, member) => {
    const socket = new SockJS(`${at.http}/sockjs`, null, { transports, timeout: 5_000 });
    t.after(() => socket.close());
    socket.onmessage = ({ data }) => member.take(JSON.parse(data));
    await within(new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onclose = ({ code, reason }) => reject(new Error(`${code} ${reason}`));
    }), 'a connection', TIME_MS);
    await member.enter((message) => socket.send(JSON.stringify(message)));
    return socket.transport;
  };
}

function primus() {
  return async (t, at, member) => {
    const socket = new Primus(at.http, { strategy: false });
    t.after(() => socket.destroy());
    socket.on('data', (message) => member.take(message));
    await event(socket, 'open', TIME_MS, 'error');
    await member.enter((message) => socket.write(message));
    return 'websocket';
  };
}

// What each needs of the way to the server.
export const clients = {
  'WebSocket': { needs: 'websocket', open: webSocket() },
  'Socket.IO 4.8 by polling': { open: socketIo(io4, ['polling']) },
  'Socket.IO 4.8 by websocket': { needs: 'websocket', open: socketIo(io4, ['websocket']) },
  'Socket.IO 4.8': { open: socketIo(io4, ['polling', 'websocket']), best: { websocket: 'websocket', otherwise: 'polling' } },
  'Socket.IO 4.8, WebSocket first': { open: socketIo(io4, ['websocket', 'polling'], { tryAllTransports: true }), best: { websocket: 'websocket', otherwise: 'polling' } },
  'Socket.IO 2.5 by polling': { open: socketIo(io2, ['polling']) },
  'Socket.IO 2.5': { open: socketIo(io2, ['polling', 'websocket']), best: { websocket: 'websocket', otherwise: 'polling' } },
  'Engine.IO 6 by polling': { open: engineIo(EngineIo6, ['polling']) },
  'Engine.IO 3.5': { open: engineIo(EngineIo3, ['polling', 'websocket']), best: { websocket: 'websocket', otherwise: 'polling' } },
  'SockJS by websocket': { needs: 'websocket', open: sockJs(['websocket']) },
  'SockJS by xhr-streaming': { needs: 'streams', open: sockJs(['xhr-streaming']) },
  'SockJS by eventsource': { needs: 'streams', open: sockJs(['eventsource']) },
  'SockJS by xhr-polling': { open: sockJs(['xhr-polling']) },
  'SockJS': { open: sockJs(), best: { websocket: 'websocket', streams: 'xhr-streaming', otherwise: 'xhr-polling' } },
  'Primus': { needs: 'websocket', open: primus() },
};

/** Fails unless a feed's versions come in order, up to the last one. Some may be left out. */
function versions() {
  let latest = -1;
  let finish;
  const done = new Promise((resolve) => { finish = resolve; });
  return {
    done,
    take({ n }) {
      assert.ok(n > latest, `version ${n} came after ${latest}`);
      latest = n;
      if (n === VERSIONS) finish();
    },
  };
}

function events(t, at, key) {
  const source = new EventSource(`${at.http}/sse?feed=${key}`);
  t.after(() => source.close());
  const { done, take } = versions();
  source.addEventListener('snapshot', ({ data }) => take(JSON.parse(data)));
  return done;
}

async function longPolls(t, at, key) {
  const { take } = versions();
  let tag = '';
  for (;;) {
    const answer = await fetch(`${at.http}/feed/${key}${tag && `?wait=${encodeURIComponent(tag)}`}`);
    // Nothing new, or nothing yet, for as long as a request may wait.
    if ([204, 304, 504].includes(answer.status)) continue;
    assert.equal(answer.status, 200);
    tag = answer.headers.get('etag');
    const document = await answer.json();
    take(document);
    if (document.n === VERSIONS) return;
  }
}

/** One way to the server: everybody connects by it who can, and hears everything. `nodes`: there are several, which learn of members on the others late. */
export async function exercise(t, { server, api, at, room, way, idle_ms = 0, nodes = false }) {
  const members = await Promise.all(Object.entries(clients).map(async ([name, { needs, open, best }]) => {
    const member = new Member(name, room);
    if (needs && !way[needs]) {
      await assert.rejects(open(t, at, member), `${name} should have failed`);
      return null;
    }
    const transport = await open(t, at, member).catch((error) => { throw new Error(`${name}: ${error.message ?? error}`, { cause: error }); });
    return { name, member, transport, expected: best && best[Object.keys(best).find((one) => way[one] || one === 'otherwise')] };
  }));
  api.documents.set(room, { n: 0 });
  // A request names no position: the next node may be a version behind.
  const feeds = [...(nodes ? [] : [longPolls(t, at, room)]), ...(way.streams ? [events(t, at, room)] : [])];
  // The test's failure is told below.
  for (const feed of feeds) feed.catch(() => {});
  await passed(idle_ms);
  const send = (all) => messages(server, ...all.map((data) => ({ room, event: 'tick', data })));
  if (nodes) await introduced(() => send([{ room, n: -1 }]), members.filter(Boolean).map(({ member }) => member.met));

  const publish = async () => {
    for (let n = 0; n < PUBLISHED; n += 3) {
      const batch = [n, n + 1, n + 2].map((one) => ({ room, n: one, last: one === PUBLISHED - 1, filler: 'x'.repeat(one % 10 === 0 ? 6_000 : 10) }));
      await send(batch);
      api.documents.set(room, { n: Math.min(n / 3, VERSIONS) });
      // Polls come and go meanwhile.
      await passed(10);
    }
  };
  const talk = async ({ member }) => {
    for (let n = 0; n < OWN; n++) {
      member.say({ room: member.rooms[1], n, last: n === OWN - 1 });
      if (n % 4 === 0) await passed(20);
    }
  };
  const present = members.filter(Boolean);
  await Promise.all([publish(), ...present.map(talk)]);
  const count = (length) => Array.from({ length }, (_, n) => n);
  for (const { name, member, transport, expected } of present) {
    await within(member.done, `all that ${name} should hear, of which came ${JSON.stringify(member.heard)}`, TIME_MS);
    assert.deepEqual(member.heard, [count(PUBLISHED), count(OWN)], name);
    if (!expected) continue;
    const used = typeof transport === 'function' ? transport : () => transport;
    // All may have been heard before an upgrade is done.
    await until(() => `${name} uses ${expected}, not ${used()}`, () => used() === expected);
  }
  await within(Promise.all(feeds), 'the last version of the feed', TIME_MS);
}

export const everything = { websocket: true, streams: true };
