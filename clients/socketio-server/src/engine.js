// The engine of a Socket.IO server: `io.engine`, in the place of engine.io's `Server`.
//
// Deliberately absent: `generateId` (Stentor chooses the ids), and middlewares and headers for later requests of a session.

import { EventEmitter } from 'node:events';
import { WORKER } from './entries.js';
import { CapturedResponse, texts } from './request.js';
import { Session } from './session.js';

/** Options of engine.io with their defaults there. Stentor gets those that are listed here, and those without a default below. */
const DEFAULTS = {
  pingTimeout: 20_000,
  pingInterval: 25_000,
  upgradeTimeout: 10_000,
  maxHttpBufferSize: 1e6,
  transports: ['polling', 'websocket'],
  allowUpgrades: true,
  httpCompression: { threshold: 1024 },
  cors: false,
  allowEIO3: false,
};
const WITHOUT_DEFAULT = ['path', 'addTrailingSlash', 'cookie', 'perMessageDeflate'];

/** Codes of engine.io's errors. */
const BAD_REQUEST = 3;
const FORBIDDEN = 4;
const BAD_REQUEST_STATUS = 400;

export class Engine extends EventEmitter {
  #worker;
  #middlewares = [];
  /** Sessions by handle. */
  #sessions = new Map();
  /** Sessions whose checks aren't finished, by handle. */
  #checking = new Map();
  clients = {};
  clientsCount = 0;

  constructor(worker, options) {
    super();
    this.#worker = worker;
    this.opts = { ...DEFAULTS, ...options };
    if (this.opts.cookie) {
      this.opts.cookie = { name: 'io', path: '/', httpOnly: true, sameSite: 'lax', ...(this.opts.cookie === true ? {} : this.opts.cookie) };
    }
    if (this.opts.perMessageDeflate) {
      this.opts.perMessageDeflate = { threshold: 1024, ...(this.opts.perMessageDeflate === true ? {} : this.opts.perMessageDeflate) };
    }
  }

  /** The options that Stentor applies. */
  get settings() {
    const settings = { serveClient: this.#worker.io.serveClient() };
    for (const name of [...Object.keys(DEFAULTS), ...WITHOUT_DEFAULT]) {
      if (this.opts[name] !== undefined) settings[name] = this.opts[name];
    }
    settings.transports = settings.transports.filter((name) => name in { polling: 0, websocket: 0 });
    if (!this.sendsCors) settings.cors = false;
    return settings;
  }

  /** `false` if the option `cors` has functions or patterns, which can't travel: a middleware applies it here. */
  get sendsCors() {
    return isPlain(this.opts.cors);
  }

  /** `true` if each new session waits for the checks of this worker. */
  get asks() {
    return this.#hasChecks || this.listenerCount('initial_headers') > 0 || this.listenerCount('headers') > 0;
  }

  get #hasChecks() {
    return this.#middlewares.length > 0 || Boolean(this.opts.allowRequest);
  }

  // As in engine.io.

  on(event, listener) {
    super.on(event, listener);
    this.#worker.configure();
    return this;
  }

  addListener(event, listener) {
    return this.on(event, listener);
  }

  use(middleware) {
    this.#middlewares.push(middleware);
    this.#worker.configure();
  }

  /** Stentor has the HTTP server. */
  attach() {
    return this;
  }

  handleRequest(request, response) {
    response.writeHead(404).end();
  }

  handleUpgrade(request, socket) {
    // The HTTP server has left the socket to its listener for `upgrade`, with errors and the end.
    socket.on('error', () => {});
    socket.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n', () => socket.destroy());
  }

  close() {
    this.#worker.stop();
    return this;
  }

  get isClosed() {
    return this.#worker.isStopped;
  }

  /** A socket has got a listener for outgoing packets. */
  observed() {
    this.#worker.observers += 1;
  }

  // Sessions.

  get sessions() {
    return this.#sessions.values();
  }

  /** A session, by its handle. */
  session(handle) {
    return this.#sessions.get(handle) ?? this.#checking.get(handle);
  }

  /** A new session. If `ask`, the client waits for the answer. Otherwise Stentor has answered already, and checks can only close the session. */
  open(handle, ask, handshake) {
    const session = new Session(this.#worker, handle, handshake);
    if (!ask && !this.#hasChecks) return this.accept(session);
    if (!ask) session.hold();
    this.#checking.set(handle, session);
    const { request } = session;
    const isOver = () => this.#checking.get(handle) !== session;
    const refuse = ({ status, code, message, context }) => {
      if (isOver()) return;
      this.#checking.delete(handle);
      const { captured: headers, body } = request.res;
      if (ask) this.#worker.channel.write(WORKER.REFUSE, handle, { code, message, ...responseTo(handshake.transport, { status, message, headers, body }) });
      else this.#closeUnaccepted(session);
      // As in engine.io: a middleware that answers itself isn't reported.
      if (context) this.emit('connection_error', { req: request, code, message: code === FORBIDDEN ? 'Forbidden' : message, context });
    };
    const accept = (response) => {
      if (isOver()) return;
      this.#checking.delete(handle);
      const headers = this.#headers(request, response);
      if (ask) this.#worker.channel.write(WORKER.ACCEPT, handle, headers);
      // Middlewares save what they have, such as a new session of the user.
      if (handshake.transport === 'polling') response.end();
      this.accept(session);
      if (!ask) session.release();
    };
    return this.#check(request, accept, refuse);
  }

  /** Ends a session that Stentor has accepted, and Socket.IO doesn't know. */
  #closeUnaccepted(session) {
    session.close(true);
    session.end('forced close');
  }

  /** Runs the checks again for a session that another process had: they leave values on its request. `done(isAllowed)`. */
  check(session, done) {
    if (this.#hasChecks) this.#check(session.request, () => done(true), () => done(false));
    else done(true);
  }

  /** Runs middlewares and `allowRequest`, and calls one of both functions, at most once. */
  #check(request, accept, refuse) {
    let isOver = false;
    const once = (call, argument) => {
      if (isOver) return;
      isOver = true;
      call(argument);
    };
    const response = new CapturedResponse(request, () => once(refuse, { status: response.statusCode, code: BAD_REQUEST, message: 'Bad request' }));
    request.res = response;
    const allow = () => {
      if (!this.opts.allowRequest) return once(accept, response);
      return this.opts.allowRequest(request, (message, isAllowed) => {
        if (isAllowed) once(accept, response);
        else once(refuse, { status: 403, code: FORBIDDEN, message: message ?? 'Forbidden', context: { message } });
      });
    };
    const run = (i) => {
      if (isOver) return undefined;
      if (i === this.#middlewares.length) return allow();
      return this.#middlewares[i](request, response, (error) => {
        if (error) once(refuse, { status: 400, code: BAD_REQUEST, message: 'Bad request', context: { name: 'MIDDLEWARE_FAILURE' } });
        else run(i + 1);
      });
    };
    run(0);
  }

  /** Headers of the first response, and of all responses, from middlewares and listeners. Cookies are set once, by the first. */
  #headers(request, response) {
    response.writeHead(200);
    const first = {};
    const all = {};
    this.emit('initial_headers', first, request);
    this.emit('headers', all, request);
    const cookies = [];
    const withoutCookies = (headers) => {
      const rest = {};
      for (const [name, value] of Object.entries(texts(headers))) {
        if (name.toLowerCase() === 'set-cookie') cookies.push(...[value].flat());
        else rest[name] = value;
      }
      return rest;
    };
    const headers = { first: withoutCookies(first), all: { ...withoutCookies(all) } };
    headers.all = { ...withoutCookies(response.captured), ...headers.all };
    if (cookies.length > 0) headers.first['set-cookie'] = cookies;
    return headers;
  }

  /** Gives a session to Socket.IO. */
  accept(session) {
    this.add(session);
    this.emit('connection', session);
  }

  add(session) {
    this.#sessions.set(session.handle, session);
    this.clients[session.id] = session;
    this.clientsCount += 1;
  }

  forget(session) {
    if (this.#sessions.get(session.handle) !== session) return;
    this.#sessions.delete(session.handle);
    delete this.clients[session.id];
    this.clientsCount -= 1;
  }

  /** Stentor has ended a session. Handlers of its last messages run before. */
  closed(handle, reason, description) {
    const session = this.session(handle);
    this.#checking.delete(handle);
    if (!session) return;
    // With the acknowledgement, Stentor knows that PERSIST doesn't follow.
    this.#worker.channel.hold(session);
    setImmediate(() => session.end(reason, description));
  }

  /** Forgets the sessions whose checks aren't finished. Another worker is asked, or the session is closed. */
  forgetChecks() {
    for (const session of this.#checking.values()) session.end('server shutting down');
    this.#checking.clear();
  }
}

/** The response to a refused request. As in engine.io, one for a WebSocket has the status 400, and the reason as a text. */
function responseTo(transport, { status, message, headers, body }) {
  if (transport === 'polling' || body !== undefined) return { status, headers, body };
  return { status: BAD_REQUEST_STATUS, headers: { ...headers, 'content-type': 'text/html' }, body: message };
}

/** `true` if a value has neither functions nor patterns. */
function isPlain(value) {
  if (typeof value === 'function' || value instanceof RegExp) return false;
  return value === null || typeof value !== 'object' || Object.values(value).every(isPlain);
}
