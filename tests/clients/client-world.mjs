// A browser, a network and a server of stentor.v1 for @stentor/client, all on a virtual clock. A test drives them; nothing waits for real time.
import assert from 'node:assert/strict';
import { connect } from '../../clients/js/src/index.js';

const { setImmediate } = globalThis;
const PING_MS = 25_000;
/** The server's `limits.request_timeout`. */
const WAIT_MS = 10_000;

/** Random numbers between 0 and 1, the same for each seed (mulberry32). */
export function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Replaces a global until the test ends. */
function replace(t, owner, name, value) {
  const before = Object.getOwnPropertyDescriptor(owner, name);
  Object.defineProperty(owner, name, { value, configurable: true, writable: true });
  t.after(() => (before ? Object.defineProperty(owner, name, before) : delete owner[name]));
}

export class World {
  /** Milliseconds of the monotonic clock, and how far the wall clock is ahead of it. */
  nowMs = 0;
  wallMs = 1_700_000_000_000;
  /** Time that a message takes. */
  latencyMs = 20;
  /** Number of the network that the machine is in. Connections of an earlier one are dead, and nobody says so. */
  network = 1;
  /** Whether the network exists at all. */
  isOnline = true;
  window = new EventTarget();
  document = Object.assign(new EventTarget(), { visibilityState: 'visible' });
  #timers = new Map();
  #lastTimer = 0;

  constructor(t, seed = 1) {
    this.random = random(seed);
    this.server = new Server(this);
    this.WebSocket = socketClass(this);
    replace(t, globalThis, 'setTimeout', (then, ms, ...details) => this.#add(then, ms, details));
    replace(t, globalThis, 'setInterval', (then, ms, ...details) => this.#add(then, ms, details, ms));
    for (const name of ['clearTimeout', 'clearInterval']) replace(t, globalThis, name, (timer) => { this.#timers.delete(timer); });
    replace(t, Date, 'now', () => this.wallMs + this.nowMs);
    replace(t, performance, 'now', () => this.nowMs);
    replace(t, Math, 'random', this.random);
    replace(t, globalThis, 'addEventListener', (...details) => this.window.addEventListener(...details));
    replace(t, globalThis, 'document', this.document);
  }

  #add(then, ms = 0, details = [], everyMs = undefined) {
    this.#timers.set(++this.#lastTimer, { at: this.nowMs + Math.max(0, ms), then, details, everyMs });
    return this.#lastTimer;
  }

  after(ms, then) {
    this.#add(then, ms);
  }

  /** Passes time. Timers run in order, each with all that follows from it. */
  async pass(ms) {
    const end = this.nowMs + ms;
    for (;;) {
      await new Promise(setImmediate);
      let next;
      for (const [id, timer] of this.#timers) if (timer.at <= end && (!next || timer.at < next[1].at)) next = [id, timer];
      if (!next) break;
      const [id, timer] = next;
      this.nowMs = Math.max(this.nowMs, timer.at);
      if (timer.everyMs === undefined) this.#timers.delete(id);
      else timer.at = this.nowMs + timer.everyMs;
      timer.then(...timer.details);
    }
    this.nowMs = end;
  }

  /** The machine sleeps: no timer runs, the monotonic clock stands still, the wall clock doesn't. Its connections are dead afterwards. */
  hibernate(ms) {
    this.wallMs += ms;
    this.network += 1;
  }

  /** The page is frozen: its timers are late, all else goes on. */
  freeze(ms) {
    this.nowMs += ms;
  }

  /** The machine is in another network. */
  move() {
    this.network += 1;
  }

  say(name) {
    this.window.dispatchEvent(new Event(name));
  }

  show(isVisible) {
    this.document.visibilityState = isVisible ? 'visible' : 'hidden';
    this.document.dispatchEvent(new Event('visibilitychange'));
  }

  /** Makes all connections tabs of one browser, which share its locks: the names of those that are held. */
  share(t) {
    const held = new Set();
    const request = async (name, _, then) => {
      if (held.has(name)) return then(null);
      held.add(name);
      return Promise.resolve(then({ name })).finally(() => held.delete(name));
    };
    replace(t, globalThis, 'location', new URL('http://server.test/page'));
    replace(t, globalThis, 'navigator', { locks: { request } });
    return held;
  }

  connect(t, options = {}) {
    const connection = connect('http://server.test', { WebSocket: this.WebSocket, fetch: this.server.fetch, ...options });
    t.after(() => connection.close());
    return connection;
  }
}

/** A server of stentor.v1: one document for all keys, rooms, and tokens if `accepts` is set. */
class Server {
  isUp = true;
  /** Whether it reads nothing. */
  isSilent = false;
  version = 1;
  /** Times at which connections began. */
  attempts = [];
  received = [];
  sockets = new Set();
  /** The close code for a token, or nothing. */
  refusal = () => undefined;
  /** The error that answers a message, or nothing. */
  error = () => undefined;
  /** Event streams, and requests that wait for another version. */
  streams = new Set();
  waiting = new Set();
  /** Requests of the browser, and how many it has open at a time. */
  requests = 0;
  connectionsMax = 6;
  #exchanges = new Set();
  #queue = [];
  /** What the first bytes of a WebSocket take beside the latency. */
  socketDelayMs = 0;
  /** Called with each connection that has opened. */
  opened = () => {};
  welcome = {};

  constructor(world) {
    this.world = world;
  }

  publish() {
    this.version += 1;
    for (const member of [...this.sockets, ...this.streams]) for (const feed of member.feeds) this.#snapshot(member, feed);
    for (const exchange of [...this.waiting]) {
      this.waiting.delete(exchange);
      exchange.document();
    }
  }

  /** The browser's `fetch`, which has `connectionsMax` requests open at a time: of `/sse`, `/feed/KEY`, and others, which tell that the server answers. */
  fetch = (url, { signal, method, headers, body } = {}) => new Promise((resolve, reject) => {
    this.requests += 1;
    const exchange = { method, headers, body, network: this.world.network, isOver: false };
    const abort = () => exchange.fail(new Error('aborted'));
    exchange.end = () => {
      signal?.removeEventListener('abort', abort);
      exchange.isOver = true;
      this.waiting.delete(exchange);
      this.streams.delete(exchange);
      this.#queue = this.#queue.filter((other) => other !== exchange);
      this.#exchanges.delete(exchange);
      this.#begin();
    };
    exchange.fail = (error) => {
      exchange.end();
      reject(error);
    };
    exchange.respond = (body, options) => resolve(new Response(body, options));
    signal?.addEventListener('abort', abort);
    if (signal?.aborted) return abort();
    exchange.begin = () => this.#answer(new URL(url), exchange);
    this.#queue.push(exchange);
    return this.#begin();
  });

  #begin() {
    for (const exchange of this.#queue.splice(0, this.connectionsMax - this.#exchanges.size)) {
      this.#exchanges.add(exchange);
      exchange.begin();
    }
  }

  #answer(url, exchange) {
    const { world } = this;
    if (!world.isOnline) return world.after(0, () => exchange.fail(new TypeError('Failed to fetch')));
    const later = (ms, then) => world.after(ms, () => exchange.network === world.network && world.isOnline && !exchange.isOver && then());
    const answer = (body, options) => later(world.latencyMs, () => {
      exchange.end();
      exchange.respond(body, options);
    });
    return later(world.latencyMs, () => {
      if (this.isSilent) return undefined;
      if (!this.isUp) return later(world.latencyMs, () => exchange.fail(new TypeError('Failed to fetch')));
      const positions = exchange.body && JSON.parse(exchange.body).feeds;
      const feeds = positions ? Object.keys(positions) : url.searchParams.getAll('feed');
      if (feeds.length) return this.#stream(feeds, exchange, later, positions);
      const [, key] = /^\/feed\/(.+)/.exec(url.pathname) ?? [];
      if (!key) return answer('{}', { headers: { 'Content-Type': 'application/json' } });
      const document = () => {
        const data = JSON.stringify({ n: this.version });
        answer(exchange.method === 'HEAD' ? null : data, { headers: { ETag: `"1-${this.version}"`, 'Content-Type': 'application/json' } });
      };
      if (url.searchParams.get('wait') !== `1-${this.version}`) return document();
      this.waiting.add(Object.assign(exchange, { document }));
      const headers = { ETag: `"1-${this.version}"` };
      return world.after(WAIT_MS, () => this.waiting.delete(exchange) && answer(null, { status: 204, headers }));
    });
  }

  #stream(feeds, exchange, later, positions) {
    const { world } = this;
    const { readable, writable } = new TransformStream();
    const writer = writable.getWriter();
    const write = (text) => later(world.latencyMs, () => writer.write(new TextEncoder().encode(text)).catch(() => {}));
    Object.assign(exchange, {
      feeds,
      say: ({ type, feed, epoch, offset, data }) => write(`event: ${type}\ndata: ${JSON.stringify(data)}\nid: ${feed}!${epoch}!${offset.toString(16)}\n\n`),
      cut: () => later(world.latencyMs, () => {
        exchange.end();
        writer.abort(new TypeError('network error')).catch(() => {});
      }),
    });
    this.streams.add(exchange);
    later(world.latencyMs, () => exchange.respond(readable, { headers: { 'Content-Type': 'text/event-stream' } }));
    write('retry: 1500\n\n');
    const beat = () => {
      write(': alive\n\n');
      later(PING_MS, beat);
    };
    later(PING_MS, beat);
    const known = positions ? Object.values(positions).join(';') : exchange.headers['Last-Event-ID'] ?? '';
    for (const feed of feeds) if (!known.includes(`${feed}!1!${this.version.toString(16)}`)) this.#snapshot(exchange, feed);
  }

  stop() {
    this.isUp = false;
    for (const socket of this.sockets) socket.lost(1006);
    this.sockets.clear();
    for (const stream of this.streams) stream.cut();
    for (const exchange of this.waiting) exchange.fail(new TypeError('network error'));
  }

  #snapshot(socket, feed) {
    socket.say({ type: 'snapshot', feed, epoch: 1, offset: this.version, state: 'live', data: { n: this.version } });
  }

  accept(socket) {
    if (!this.isUp) return socket.lost(1006);
    socket.onopen?.({});
    const code = this.refusal(socket.token);
    if (code) return socket.lost(code);
    this.sockets.add(socket);
    socket.say({ type: 'welcome', session: `s${this.attempts.length}`, ping_ms: PING_MS, ...this.welcome });
    this.opened(socket);
  }

  receive(socket, message) {
    if (!this.sockets.has(socket) || this.isSilent) return;
    this.received.push({ at: this.world.nowMs, ...message });
    const { id, type, feed, offset } = message;
    const error = this.error(message);
    if (error) return socket.say({ type: 'error', id, ...error });
    socket.say({ type: 'ok', id });
    if (type !== 'subscribe' || feed === undefined) return;
    socket.feeds.add(feed);
    if (offset !== this.version) this.#snapshot(socket, feed);
  }
}

/** The class WebSocket of a world's browser. */
const socketClass = (world) => class {
  feeds = new Set();
  network = world.network;
  isClosed = false;

  constructor(url, protocols = []) {
    this.token = protocols.find((one) => one.startsWith('stentor.bearer.'))?.slice('stentor.bearer.'.length);
    world.server.attempts.push(world.nowMs);
    if (!world.isOnline) return void world.after(0, () => this.#ended(1006));
    world.after(2 * world.latencyMs + world.server.socketDelayMs, () => this.isAlive && !this.isClosed && world.server.accept(this));
  }

  get isAlive() { return this.network === world.network && world.isOnline; }

  #ended(code, reason = '') {
    if (this.isClosed) return;
    this.isClosed = true;
    this.onerror?.({});
    this.onclose?.({ code, reason });
  }

  // The client's side.
  send(text) {
    world.after(world.latencyMs, () => this.isAlive && !this.isClosed && world.server.receive(this, JSON.parse(text)));
  }

  close() {
    this.isClosed = true;
    world.after(world.latencyMs, () => { if (this.isAlive) world.server.sockets.delete(this); });
  }

  // The server's side.
  say(message) {
    world.after(world.latencyMs, () => { if (this.isAlive && !this.isClosed) this.onmessage?.({ data: JSON.stringify(message) }); });
  }

  lost(code) {
    world.server.sockets.delete(this);
    world.after(world.latencyMs, () => this.isAlive && this.#ended(code));
  }
};

/** A connection with a live feed. */
export async function live(t, world, options) {
  const connection = world.connect(t, options);
  const feed = connection.feed('a');
  await world.pass(1_000);
  assert.deepEqual([connection.state, feed.state], ['open', 'live']);
  return { connection, feed };
}

/** What an emitter emits by that name: the first detail of each event. */
export const records = (emitter, name) => {
  const list = [];
  emitter.on(name, (...details) => list.push(details[0]));
  return list;
};
