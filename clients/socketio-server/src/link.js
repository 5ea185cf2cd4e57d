// The public object: connects a Socket.IO server to Stentor, hands its sessions over, and reports.

import cluster from 'node:cluster';
import { EventEmitter } from 'node:events';
import { hostname } from 'node:os';
import { adapterFor } from './adapter.js';
import { linkUrl } from './connection.js';
import { LinkError } from './error.js';
import { handOver } from './release.js';
import { Worker } from './worker.js';

const ON_CRASH = ['disconnect', 'redeliver', 'drop'];
const OPTIONS = ['token', 'app', 'name', 'onCrash', 'stateInterval', 'http', 'signals', 'settle', 'engine'];
/** SIGTERM is that of systemd and Kubernetes, SIGINT that of PM2 and of the terminal. */
const SIGNALS = ['SIGTERM', 'SIGINT'];
const STATE_INTERVAL_MS = 1_000;
const SETTLE_MS = 200;

export class Link extends EventEmitter {
  #worker;
  #settle;
  #signals;
  #listening = null;
  /** Rejects the promise of `listen`, until the link is up. */
  #refuse = null;
  #handover = null;
  /** The last error that was printed. */
  #printed = '';

  constructor(io, url, options = {}) {
    super();
    check(io, options);
    const { http, name = defaultName(), onCrash, stateInterval = STATE_INTERVAL_MS, settle = SETTLE_MS, signals = true } = options;
    this.#settle = settle;
    this.#signals = signals;
    const settings = { token: options.token, engine: options.engine, name, onCrash, stateInterval, settle, http: portOf(http) };
    this.#worker = new Worker(io, linkUrl(url, options.app), settings, {
      up: (welcome) => {
        this.#printed = '';
        this.emit('up', { link: welcome.link, resumed: welcome.resumed, peers: welcome.servers });
      },
      lost: () => this.emit('lost'),
      peers: (count) => this.emit('peers', count),
      error: (error) => this.#failed(error),
    });
    bind(io, this.#worker, http);
  }

  /** Connects to Stentor. Resolves when clients can connect. Rejects if Stentor refuses this worker. */
  listen() {
    if (this.#worker.isStopped) return Promise.reject(new LinkError('closed', 'the link has ended: create another Server'));
    this.#listening ??= new Promise((resolve, reject) => {
      this.#refuse = reject;
      this.once('up', () => {
        this.#refuse = null;
        resolve(this);
      });
      if (this.#signals) for (const signal of SIGNALS) process.on(signal, this.#onSignal);
      this.#worker.start();
    });
    return this.#listening;
  }

  #failed(error) {
    if (this.#worker.isStopped) return undefined;
    const isReported = error.isFinal && this.#refuse !== null;
    if (error.isFinal) {
      this.#worker.leave(null);
      this.#ignoreSignals();
      this.#refuse?.(error);
    }
    if (this.listenerCount('error') > 0) return this.emit('error', error);
    if (isReported) return undefined;
    // Attempts repeat: the same line isn't printed again until the link has been up.
    if (error.message !== this.#printed) console.error(`stentor: ${error.message}`);
    this.#printed = error.message;
    return undefined;
  }

  /**
   * Gives all sessions to other workers, or to the next process, and ends the link. Clients notice nothing. `settle`: time for asynchronous
   * handlers of the last messages, in milliseconds. `hook`: called, and awaited, after it.
   */
  handover({ settle = this.#settle, hook } = {}) {
    this.#handover ??= this.#handOver(settle, hook);
    return this.#handover;
  }

  async #handOver(settle, hook) {
    if (this.#worker.isStopped) return;
    this.emit('handover');
    try {
      await handOver(this.#worker, { settle, hook });
    } finally {
      this.#ignoreSignals();
    }
  }

  // A second signal changes nothing: PM2 and terminals may send two.
  #onSignal = (signal) => {
    if (this.#handover) return;
    const exit = (code) => {
      // The application's own handlers decide about the exit.
      if (process.listenerCount(signal) === 0) process.exit(code);
    };
    this.handover().then(() => exit(0), (error) => {
      console.error(error);
      exit(1);
    });
  };

  #ignoreSignals() {
    for (const signal of SIGNALS) process.removeListener(signal, this.#onSignal);
  }

  /** Numbers of this worker, for metrics. */
  stats() {
    const { channel, engine, counts, peers } = this.#worker;
    return {
      isUp: channel.isUp,
      link: channel.number,
      peers,
      sessions: engine.clientsCount,
      ...channel.counts,
      ...counts,
      unacknowledgedBytes: channel.keptBytes,
    };
  }
}

function check(io, options) {
  if (typeof io?.of !== 'function' || typeof io.bind !== 'function' || !io._nsps) throw new TypeError('attach(io, url): `io` must be a Server of socket.io');
  if (typeof Object.getPrototypeOf(io.of('/'))._createSocket !== 'function') throw new TypeError('@stentor/socket.io needs socket.io 4.6.0 or later');
  // A Server whose link has ended may get another one.
  if (io.engine && !io.engine.isClosed) {
    throw new Error('the Server has an HTTP server already: create it with `new Server(options)`, and pass the HTTP server to attach() as `http`');
  }
  for (const name of Object.keys(options)) if (!OPTIONS.includes(name)) throw new TypeError(`attach() has no option \`${name}\`; it has ${OPTIONS.slice(0, -1).join(', ')}`);
  if (options.onCrash !== undefined && !ON_CRASH.includes(options.onCrash)) throw new TypeError(`onCrash is one of ${ON_CRASH.join(', ')}, not ${options.onCrash}`);
}

/** A name that the next process of this worker has, too. */
function defaultName() {
  return `${hostname()}-${process.env.NODE_APP_INSTANCE ?? cluster.worker?.id ?? 0}`;
}

/** Returns a function that returns the port of the worker's own HTTP server. `null`: there is none, or it doesn't listen yet. */
function portOf(http) {
  if (typeof http === 'function') return () => http() ?? null;
  if (typeof http === 'object' && http !== null) return () => http.address()?.port ?? null;
  return () => http ?? null;
}

/** Namespaces of a server that clients can't create when there is no room for their names. The application's check of a name may be asynchronous. */
function limited(io, namespaces) {
  const limit = (parent) => ({ createChild: (name) => namespaces.admits(name) && parent.createChild(name) });
  const parentNsps = new Map([...io.parentNsps].map(([check, parent]) => [check, limit(parent)]));
  return Object.create(io, { parentNsps: { value: parentNsps } });
}

/** Makes the worker's engine and adapter those of the Socket.IO server. */
function bind(io, worker, http) {
  const current = io.adapter();
  const Adapter = inMemoryAdapter(current);
  worker.keepsRooms = !io._opts.adapter && isDefault(current, Adapter);
  if (worker.keepsRooms) {
    io.adapter(adapterFor(worker, Adapter));
    const { _checkNamespace } = Object.getPrototypeOf(io);
    // Socket.IO answers a client with "Invalid namespace".
    io._checkNamespace = (name, auth, done) => {
      if (!worker.namespaces.admits(name)) return done(false);
      return _checkNamespace.call(limited(io, worker.namespaces), name, auth, done);
    };
  }
  io.listen = io.attach = (...args) => {
    if (worker.isStopped) return Object.getPrototypeOf(io).attach.apply(io, args);
    throw new Error('the clients of this Server are those of Stentor: call link.listen() instead');
  };
  io.bind(worker.engine);
  io.eio = worker.engine;
  if (!worker.engine.sendsCors && io._corsMiddleware) worker.engine.use(io._corsMiddleware);
  if (typeof http === 'object' && http !== null) {
    io.httpServer = http;
    if (io.serveClient()) io.attachServe(http);
    http.on('listening', () => worker.configure());
  }
}

/** The in-memory adapter that an adapter's class extends. */
function inMemoryAdapter(Class) {
  let found = Class;
  for (let parent = Object.getPrototypeOf(found); parent?.prototype?.socketRooms; parent = Object.getPrototypeOf(parent)) found = parent;
  return found;
}

/** `true` for the adapters of Socket.IO itself, and for that of a former link. */
function isDefault(Class, Adapter) {
  return Class === Adapter || Class.isStentor || (Class.name === 'SessionAwareAdapter' && Object.getPrototypeOf(Class) === Adapter);
}
