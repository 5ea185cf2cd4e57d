// A browser, a network and a server of stentor.v1 for @stentor/client, all on a virtual clock. A test drives them; nothing waits for real time.
import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { connect } from '../../clients/js/src/index.js';

const { setImmediate } = globalThis;
const PING_MS = 25_000;
/** The server's `limits.request_timeout`. */
const WAIT_MS = 10_000;
const LINES = { 'Content-Type': 'application/x-ndjson' };

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
  /** The tab whose code runs, if a test has several: see tabs-world.mjs. */
  tabs = new AsyncLocalStorage();
  #timers = new Map();
  #lastTimer = 0;

  constructor(t, seed = 1) {
    this.random = random(seed);
    this.server = new Server(this);
    this.WebSocket = socketClass(this);
    this.SockJS = sockjsClass(this);
    /** socket.io-client, whose connections of Engine.IO begin with polls, or are WebSockets with the option `transports: ['websocket']`. */
    this.io = { Manager: managerClass(this) };
    replace(t, globalThis, 'setTimeout', (then, ms, ...details) => this.#add(then, ms, details));
    replace(t, globalThis, 'setInterval', (then, ms, ...details) => this.#add(then, ms, details, ms));
    for (const name of ['clearTimeout', 'clearInterval']) replace(t, globalThis, name, (timer) => { this.#timers.delete(timer); });
    replace(t, Date, 'now', () => this.wallMs + this.nowMs);
    replace(t, performance, 'now', () => this.nowMs);
    replace(t, Math, 'random', this.random);
    replace(t, globalThis, 'addEventListener', (name, heard, options) => {
      const tab = this.tabs.getStore();
      const inTab = (event) => tab.isOver || tab.isFrozen || this.tabs.run(tab, heard, event);
      this.window.addEventListener(name, tab ? inTab : heard, options);
    });
    replace(t, globalThis, 'document', this.document);
  }

  #add(then, ms = 0, details = [], everyMs = undefined, tab = this.tabs.getStore()) {
    this.#timers.set(++this.#lastTimer, { at: this.nowMs + Math.max(0, ms), then, details, everyMs, tab });
    return this.#lastTimer;
  }

  /** Calls `then` after a time, in a tab: not while it is frozen, and never if it has ended. */
  after(ms, then, tab) {
    this.#add(then, ms, [], undefined, tab);
  }

  /** Passes time. Timers run in order, each with all that follows from it. */
  async pass(ms) {
    const end = this.nowMs + ms;
    for (;;) {
      await new Promise(setImmediate);
      let next;
      for (const [id, timer] of this.#timers) if (timer.at <= end && !timer.tab?.isFrozen && (!next || timer.at < next[1].at)) next = [id, timer];
      if (!next) break;
      const [id, timer] = next;
      this.nowMs = Math.max(this.nowMs, timer.at);
      if (timer.everyMs === undefined) this.#timers.delete(id);
      else timer.at = this.nowMs + timer.everyMs;
      if (!timer.tab) timer.then(...timer.details);
      else if (timer.tab.isOver) this.#timers.delete(id);
      else this.tabs.run(timer.tab, timer.then, ...timer.details);
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

  /** The page is of this origin. */
  visit(t, origin) {
    replace(t, globalThis, 'location', new URL(origin));
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
    const connection = connect('http://server.test', { WebSocket: this.WebSocket, SockJS: this.SockJS, io: this.io, fetch: this.server.fetch, ...options });
    t.after(() => connection.close());
    return connection;
  }
}

/** A server of stentor.v1 over WebSockets and HTTP: one document for all keys, rooms, and tokens that `refusal` doesn't refuse. */
class Server {
  isUp = true;
  /** Whether it reads nothing. */
  isSilent = false;
  version = 1;
  /** Times at which WebSockets began. */
  attempts = [];
  received = [];
  sockets = new Set();
  /** Sessions over HTTP, by their ids. */
  sessions = new Map();
  #lastSession = 0;
  /** The close code for a token, or nothing. */
  refusal = () => undefined;
  /** Idempotency keys of publications, and the number of this node's life: its sessions' ids begin with it. */
  published = new Set();
  life = 1;
  /** Whether the answers to publications are lost. */
  forgetsAnswers = false;
  /** The error that answers a message, or nothing. */
  error = () => undefined;
  /** Responses that carry lines: those that don't end, and polls. */
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
  /** Whether rooms keep their messages, feeds send deltas, and `auth` accepts only tokens of the same user, `USER.…`. */
  isComplete = false;
  #kept = new Map();

  constructor(world) {
    this.world = world;
  }

  /** Members that the server sends messages to. */
  get members() { return [...this.sockets, ...this.sessions.values()]; }

  publish() {
    this.version += 1;
    for (const member of this.members) {
      for (const feed of member.feeds) {
        if (this.isComplete) member.say({ type: 'delta', feed, epoch: 1, base: this.version - 1, offset: this.version, patch: [{ op: 'replace', path: '/n', value: this.version }] });
        else this.#snapshot(member, feed);
      }
    }
  }

  /** Publishes to a room. */
  say(room, data, event) {
    const message = { type: 'message', room, event, data };
    if (this.isComplete) {
      if (!this.#kept.has(room)) this.#kept.set(room, []);
      const kept = this.#kept.get(room);
      kept.push(Object.assign(message, { epoch: 1, offset: kept.length + 1 }));
    }
    for (const member of this.members) if (member.rooms.has(room)) member.say(message);
  }

  /** The browser's `fetch`, which has `connectionsMax` requests open at a time: of `/ndjson`, and others, which tell that the server answers. */
  fetch = (url, { signal, method, headers, body } = {}) => new Promise((resolve, reject) => {
    this.requests += 1;
    const exchange = { tab: this.world.tabs.getStore(), method, headers, body, network: this.world.network, isOver: false };
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
      exchange.writer?.abort(error).catch(() => {});
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
    const later = exchange.later = (ms, then) => world.after(ms, () => exchange.network === world.network && world.isOnline && !exchange.isOver && then(), exchange.tab);
    const answer = exchange.answer = (body, options) => later(world.latencyMs, () => {
      exchange.end();
      exchange.respond(body, options);
    });
    return later(world.latencyMs, () => {
      if (this.isSilent) return undefined;
      if (!this.isUp) return later(world.latencyMs, () => exchange.fail(new TypeError('Failed to fetch')));
      const inHeader = exchange.headers?.['Stentor-Query'];
      const parameters = new URLSearchParams(inHeader ?? url.search);
      const [, segment] = /^\/ndjson\/?(.*)/.exec(url.pathname) ?? [];
      const sid = segment === 'session' ? parameters.get('sid') : segment;
      if (sid === undefined) return answer('{}', { headers: { 'Content-Type': 'application/json' } });
      const code = this.refusal(exchange.headers.Authorization?.slice('Bearer '.length));
      // Other codes are of WebSockets alone.
      if (code > 4400) return answer('', { status: 401, headers: { 'WWW-Authenticate': `Bearer error_description="token_${code === 4505 ? 'expired' : 'refused'}"` } });
      const session = sid ? this.sessions.get(sid) : this.#open();
      if (session) session.token ??= exchange.headers.Authorization?.slice('Bearer '.length);
      const end = () => answer('', { status: 404 });
      if (!session || (!session.stream && world.nowMs - session.aliveAt > 45_000)) return end();
      session.aliveAt = world.nowMs;
      const query = (name) => +parameters.get(name);
      if (sid && exchange.method === 'POST') {
        const [number, isEnd] = [query('n'), query('end')];
        if (number) assert.ok(number <= session.number + 1, `request ${number} after ${session.number}`);
        if (number > session.number) {
          session.number = number;
          this.#lines(session, exchange.body);
        }
        if (isEnd) session.end();
        return answer(null, { status: 204 });
      }
      if (sid && query('received') !== session.sent) {
        session.end();
        return answer('{"type":"disconnect","code":4503,"reason":"lines were lost"}\n', { headers: LINES });
      }
      if (!sid) this.#lines(session, exchange.body);
      return this.#stream(session, exchange, parameters.get('bytes'));
    });
  }

  #lines(session, text) {
    for (const line of text.split('\n')) if (line) this.receive(session, JSON.parse(line));
  }

  #open() {
    const sid = `sid${++this.#lastSession}`;
    const session = { feeds: new Set(), rooms: new Set(), lines: [], sent: 0, number: 0, aliveAt: this.world.nowMs };
    session.say = (message) => {
      session.lines.push(`${JSON.stringify(message)}\n`);
      session.flush?.();
    };
    session.end = () => {
      this.sessions.delete(sid);
      session.stream?.fail(new TypeError('the session has ended'));
    };
    this.sessions.set(sid, session);
    session.say({ type: 'session', sid });
    session.say({ type: 'welcome', session: `${this.life}-h${this.#lastSession}`, ping_ms: PING_MS, ...this.welcome });
    return session;
  }

  /** Carries lines, until another response does. */
  #stream(session, exchange, bytes) {
    const { world } = this;
    session.stream?.fail(new TypeError('another stream has taken over'));
    session.stream = exchange;
    const { end } = exchange;
    exchange.end = () => {
      session.aliveAt = world.nowMs;
      if (session.stream === exchange) session.stream = session.flush = undefined;
      end();
    };
    const take = () => {
      session.sent += session.lines.length;
      return session.lines.splice(0).join('');
    };
    if (bytes !== null) {
      const reply = () => {
        session.flush = undefined;
        this.waiting.delete(exchange);
        exchange.answer(take() || '\n', { headers: LINES });
      };
      if (session.lines.length || bytes === '0') return reply();
      this.waiting.add(exchange);
      session.flush = reply;
      return exchange.later(WAIT_MS, () => this.waiting.has(exchange) && reply());
    }
    const { readable, writable } = new TransformStream();
    exchange.writer = writable.getWriter();
    const inOrder = ordered(world);
    const write = (text) => exchange.later(inOrder(), () => exchange.writer.write(new TextEncoder().encode(text)).catch(() => {}));
    this.streams.add(exchange);
    exchange.later(world.latencyMs, () => exchange.respond(readable, { headers: LINES }));
    session.flush = () => write(take());
    session.flush();
    const beat = () => {
      if (!this.isSilent) write('\n');
      exchange.later(PING_MS, beat);
    };
    return exchange.later(PING_MS, beat);
  }

  stop() {
    this.isUp = false;
    for (const socket of this.sockets) socket.lost(1006);
    this.sockets.clear();
    this.sessions.clear();
    for (const exchange of [...this.streams, ...this.waiting]) exchange.later(this.world.latencyMs, () => exchange.fail(new TypeError('network error')));
  }

  /** Drops the requests of a tab. */
  forget(tab) {
    for (const exchange of [...this.#exchanges, ...this.#queue]) if (exchange.tab === tab) exchange.end();
  }

  /** Ends the sessions over HTTP, and says why. */
  endSessions(code) {
    for (const session of this.sessions.values()) {
      const { stream } = session;
      session.say({ type: 'disconnect', code, reason: '' });
      stream?.later(2 * this.world.latencyMs, () => {
        stream.end();
        stream.writer?.close();
      });
    }
    this.sessions.clear();
  }

  #snapshot(member, feed) {
    member.say({ type: 'snapshot', feed, epoch: 1, offset: this.version, state: 'live', data: { n: this.version } });
  }

  accept(socket) {
    if (!this.isUp) return socket.lost(1006);
    socket.onopen?.({});
    const code = this.refusal(socket.token);
    if (code) return socket.lost(code);
    this.sockets.add(socket);
    socket.say({ type: 'welcome', session: `${this.life}-s${this.attempts.length}`, ping_ms: PING_MS, ...this.welcome });
    this.opened(socket);
  }

  receive(member, message) {
    if (!this.members.includes(member) || this.isSilent) return;
    this.received.push({ at: this.world.nowMs, ...message });
    const { id, type, feed, room, event, offset, data, idempotency_key: key, first_session: first } = message;
    const error = this.error(message);
    if (error) return member.say({ type: 'error', id, ...error });
    if (type === 'presence') return member.say({ type: 'presence', id, room, version: 1, count: 0, members: [] });
    const user = (token) => token?.split('.')[0];
    if (type === 'auth' && this.isComplete && user(message.token) !== user(member.token)) return member.say({ type: 'error', id, code: 'not_allowed', message: "the token is another user's", retry: false });
    const isKnown = this.published.has(key);
    if (key && !isKnown && first && !first.startsWith(`${this.life}-`)) return member.say({ type: 'error', id, code: 'unavailable', message: 'unknown', retry: true });
    if (key) this.published.add(key);
    if (type !== 'publish' || !this.forgetsAnswers) member.say({ type: 'ok', id, ...(type === 'event' && { data }) });
    if (type === 'publish' && !isKnown) this.say(room, data, event);
    if (type === 'unsubscribe') return void member[room === undefined ? 'feeds' : 'rooms'].delete(room ?? feed);
    if (type !== 'subscribe') return;
    if (room !== undefined) {
      if (!member.rooms.has(room) && offset !== undefined) for (const kept of (this.#kept.get(room) ?? []).slice(offset)) member.say(kept);
      return void member.rooms.add(room);
    }
    member.feeds.add(feed);
    if (offset !== this.version) this.#snapshot(member, feed);
  }
}

/** How long each message of a connection takes: they stay in order when the latency changes. */
function ordered(world) {
  let at = 0;
  return () => (at = Math.max(at, world.nowMs + world.latencyMs)) - world.nowMs;
}

/** The class WebSocket of a world's browser. */
const socketClass = (world) => class {
  feeds = new Set();
  rooms = new Set();
  network = world.network;
  tab = world.tabs.getStore();
  isClosed = false;
  #up = ordered(world);
  #down = ordered(world);

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
    world.after(this.#up(), () => this.isAlive && !this.isClosed && world.server.receive(this, JSON.parse(text)));
  }

  close() {
    this.isClosed = true;
    world.after(world.latencyMs, () => { if (this.isAlive) world.server.sockets.delete(this); }, null);
  }

  // The server's side.
  say(message) {
    world.after(this.#down(), () => { if (this.isAlive && !this.isClosed) this.onmessage?.({ data: JSON.stringify(message) }); }, this.tab);
  }

  lost(code) {
    world.server.sockets.delete(this);
    world.after(this.#down(), () => this.isAlive && this.#ended(code), this.tab);
  }
};

/** SockJS, whose connection is a WebSocket. The token is in its query. */
const sockjsClass = (world) => class extends world.WebSocket {
  constructor(url) {
    super(url);
    this.token = new URL(url).searchParams.get('token') ?? undefined;
  }
};

/** The class Manager of socket.io-client, with what the client uses of its connection. */
const managerClass = (world) => class {
  constructor(_, { protocols, transports = ['polling'] }) {
    const [name] = transports;
    const listeners = {};
    const report = (what, ...details) => listeners[what]?.(...details);
    const socket = new world.WebSocket('ws://server.test', protocols);
    const context = (status, code) => ({ getResponseHeader: () => (status === 401 ? `Bearer error_description="token_${code === 4505 ? 'expired' : 'invalid'}"` : null) });
    socket.onopen = () => {};
    socket.onmessage = ({ data }) => {
      if (JSON.parse(data).type === 'welcome') report('open');
      report('data', data);
    };
    socket.onclose = ({ code, reason }) => {
      if (name === 'websocket') return report('close', 'transport close', { context: { code, reason } });
      // A poll is answered with a status.
      const status = code > 4400 ? 401 : 0;
      report('error', { message: 'xhr poll error', description: status, context: context(status, code) });
      return report('close', 'transport error', {});
    };
    this.engine = {
      transport: { name },
      on: (what, listener) => { listeners[what] = listener; },
      write: (text) => socket.send(text),
      close: () => socket.close(),
    };
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
