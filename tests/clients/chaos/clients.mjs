// Clients that roam between nodes and keep a log of what they receive. Each connects to any node, stays for a while, and moves on; it
// leaves a node that has been silent for SILENCE_MAX_MS.
import { setTimeout as passed } from 'node:timers/promises';
import { EventSource } from 'eventsource';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { applyPatch } from '../../../clients/js/src/index.js';

const SILENCE_MAX_MS = 3000;
const STAY_MS = [500, 6000];

/** Moves a client from node to node until `world.isOver`. `visit(node, until)` is one stay; it ends when `until` is kept or earlier. */
async function roam(world, random, visit) {
  while (!world.isOver) {
    const node = world.nodes[Math.floor(random() * world.nodes.length)];
    const stay_ms = STAY_MS[0] + random() * (STAY_MS[1] - STAY_MS[0]);
    await visit(node, Promise.race([world.over, world.isSettling ? world.over : passed(stay_ms, undefined, { ref: false })]));
    await passed(20 + random() * 100);
  }
}

/** A promise and how to keep it. */
function signal() {
  let fire;
  const fired = new Promise((resolve) => { fire = resolve; });
  return { fire, fired };
}

/** A WebSocket that ends when the server is silent: `on(message)` receives objects. Resolves when it has ended. */
async function connected(node, path, until, opened, on) {
  const socket = new WebSocket(node.ws + path);
  const { fire, fired } = signal();
  let heard = Date.now();
  const watch = setInterval(() => {
    if (Date.now() - heard > SILENCE_MAX_MS) return fire();
    if (socket.readyState === WebSocket.OPEN) socket.ping();
  }, 500);
  socket.on('open', () => opened(socket)).on('close', fire).on('error', fire).on('pong', () => { heard = Date.now(); });
  socket.on('message', (data) => {
    heard = Date.now();
    on(JSON.parse(data));
  });
  await Promise.race([fired, until]);
  clearInterval(watch);
  // What is under way may still arrive, but nobody takes it.
  socket.removeAllListeners('message');
  socket.terminate();
}

/** A member of a room by `stentor.v1` over a WebSocket at `path`, which resumes. */
export function member(world, random, name, room, path) {
  const log = [];
  let last = null;
  const running = roam(world, random, async (node, until) => {
    let stay;
    await connected(node, path, until, (socket) => {
      socket.send(JSON.stringify({ id: 1, type: 'subscribe', room, ...last }));
      log.push({ open: last });
    }, (message) => {
      if (message.type === 'ok') {
        stay = { node, incarnation: node.incarnation, from: Date.now(), received: new Set() };
        log.push({ stay });
      } else if (message.type === 'error') {
        if (message.code !== 'history_expired') throw new Error(`${name}: ${JSON.stringify(message)}`);
        log.push({ gap: true, at: Date.now() });
      } else if (message.type === 'message') {
        const { epoch, offset, data } = message;
        if (epoch !== undefined) last = { epoch, offset };
        stay?.received.add(data.id);
        log.push({ at: Date.now(), epoch, offset, id: data.id });
      }
    });
    if (stay) stay.to = Date.now();
  });
  return { name, room, log, running, protocol: 'stentor.v1' };
}

/** A member of a room by Socket.IO, which begins anew each time. */
export function socketIoMember(world, random, name, room, transport) {
  const log = [];
  const running = roam(world, random, async (node, until) => {
    const { fire, fired } = signal();
    const socket = io(node.http, { forceNew: true, reconnection: false, transports: [transport], timeout: SILENCE_MAX_MS });
    const stay = { node, incarnation: node.incarnation, received: new Set() };
    socket.on('connect', () => {
      log.push({ open: null });
      socket.emit('join', room, () => {
        stay.from = Date.now();
        log.push({ stay });
      });
    });
    socket.on('note', ({ id }) => {
      stay.received.add(id);
      log.push({ id });
    });
    socket.on('connect_error', fire).on('disconnect', fire);
    await Promise.race([fired, until]);
    socket.offAny().removeAllListeners();
    socket.disconnect();
    stay.to = Date.now();
  });
  return { name, room, log, running, protocol: `Socket.IO by ${transport}` };
}

/** A follower of a feed by `stentor.v1` with deltas, or by SSE with documents, which resumes. */
export function follower(world, random, name, key, protocol) {
  const log = [];
  let last = null;
  let value;
  const take = (next, message) => {
    value = next;
    log.push({ version: value.version, isExact: world.upstream.has(value), epoch: message?.epoch, offset: message?.offset });
  };
  const overWebSocket = (node, until) => connected(node, '/ws', until, (socket) => {
    log.push({ open: last, node: node.name });
    socket.send(JSON.stringify({ id: 1, type: 'subscribe', feed: key, ...last }));
  }, (message) => {
    if (message.type === 'error') throw new Error(`${name}: ${JSON.stringify(message)}`);
    if (message.type === 'snapshot') take(message.data, message);
    else if (message.type === 'delta') {
      if (message.base !== last?.offset || message.epoch !== last.epoch) throw new Error(`${name}: a delta from ${message.epoch}:${message.base} for ${JSON.stringify(last)}`);
      take(applyPatch(value, message.patch), message);
    } else return;
    last = { epoch: message.epoch, offset: message.offset };
  });
  const overSse = async (node, until) => {
    const { fire, fired } = signal();
    // Its own reconnecting would go to the same node.
    const source = new EventSource(`${node.http}/sse/${key}`, {
      fetch: (url, options) => fetch(url, { ...options, headers: { ...options.headers, ...(last && { 'Last-Event-ID': last }) } }),
    });
    let heard = Date.now();
    const watch = setInterval(() => Date.now() - heard > SILENCE_MAX_MS && fire(), 500);
    source.addEventListener('error', fire);
    source.addEventListener('snapshot', ({ data, lastEventId }) => {
      heard = Date.now();
      last = lastEventId;
      take(JSON.parse(data));
    });
    await Promise.race([fired, until]);
    clearInterval(watch);
    source.close();
  };
  const running = roam(world, random, protocol === 'SSE' ? overSse : overWebSocket);
  return { name, key, log, running, protocol };
}

/** Publishes numbered messages one after the other, at one node or at any, and keeps what became of each. */
export function publisher(world, random, name, rooms, node) {
  const log = [];
  const running = (async () => {
    for (let number = 0; !world.isOver; number++) {
      await passed(10 + random() * 60);
      // From when all members are there.
      if (world.isSettling || !world.hasMembers()) {
        number -= 1;
        continue;
      }
      const room = rooms[Math.floor(random() * rooms.length)];
      await publish(world, log, name, number, room, node ?? world.nodes[Math.floor(random() * world.nodes.length)]);
    }
  })();
  return { name, log, running };
}

export async function publish(world, log, name, number, room, node) {
  const entry = { id: `${name}:${number}`, room, node, incarnation: node.incarnation, from: Date.now() };
  log.push(entry);
  try {
    const response = await fetch(`${node.admin}/api/v1/publish`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ room, event: 'note', data: { id: entry.id } }),
      signal: AbortSignal.timeout(SILENCE_MAX_MS),
    });
    entry.outcome = response.status === 200 ? 'ok' : `${response.status} ${await response.text()}`;
  } catch (error) {
    entry.outcome = `unknown: ${error.cause?.code ?? error.name}`;
  }
  entry.to = Date.now();
  return entry;
}
