// A worker: a Socket.IO server whose clients are Stentor's.

import { randomBytes } from 'node:crypto';
import { Channel } from './channel.js';
import { DataKeeper } from './data.js';
import { Engine } from './engine.js';
import { SERVER, WORKER } from './entries.js';
import { LinkError } from './error.js';
import { Namespaces } from './namespaces.js';
import { Questions } from './questions.js';
import { Relay } from './relay.js';
import { releaseSoon } from './release.js';
import { ClientRequest } from './request.js';
import { resume } from './resume.js';

/** Acknowledgement ids of a process begin at a multiple of 2^20 below 2^30. Stentor's own, for events of the backend, are greater. */
const ACK_IDS = 1 << 20;
const ACK_RANGES = 1 << 10;
const TOO_MANY_NAMESPACES = 'a client was refused a namespace: this worker has too many. With cleanupEmptyChildNamespaces, Socket.IO removes those without sockets';
/** Longest time for Stentor to confirm that this worker leaves, in milliseconds. */
const FAREWELL_MS = 1_000;

export class Worker {
  #settings;
  #dataKeeper = new DataKeeper((session, adapter, text) => this.writeSocket(WORKER.STATE, session, adapter.index, text));
  #timer = null;
  #instance = randomBytes(8).toString('hex');
  /** The last CONFIG, or the part of HELLO, that was sent. */
  #sent = '';
  #onDrained = null;
  /** Questions to Stentor and to other workers. */
  questions = new Questions();
  relay = new Relay(this);
  namespaces = new Namespaces((...entry) => this.channel.write(...entry), () => this.on.error(new LinkError('limit', TOO_MANY_NAMESPACES)));
  /** Number of workers that take sessions, including this one. */
  peers = 1;
  /** `true` while sessions are given back: their sockets end here, and live on. */
  isReleasing = false;
  /** `false` with an adapter of the application's own: Stentor then knows no rooms. */
  keepsRooms = true;
  /** Number of listeners for what is sent. 0: broadcasts needn't look at sockets. */
  observers = 0;
  observesSockets = false;
  isStopped = false;
  counts = { resumed: 0, released: 0 };

  /** `settings`: those of `attach`, complete. `on`: { up(), lost(), error(LinkError), peers(count) }. */
  constructor(io, url, settings, on) {
    this.io = io;
    this.on = on;
    this.#settings = settings;
    this.firstAckId = Math.floor(Math.random() * ACK_RANGES) * ACK_IDS;
    this.channel = new Channel(url, settings.token, {
      hello: () => this.#hello(),
      entry: (entry, reader) => this.#handle(entry, reader),
      up: (welcome) => this.#up(welcome),
      lost: () => on.lost(),
      reset: () => this.#reset(),
      error: (error) => on.error(error),
    });
    this.engine = new Engine(this, { path: io.path(), ...settings.engine, ...io._opts });
  }

  /** Connects to Stentor. */
  start() {
    this.#timer = setInterval(() => this.#dataKeeper.save(), this.#settings.stateInterval);
    this.#timer.unref();
    this.channel.open();
  }

  // Settings.

  /** Time for asynchronous handlers before a session is given back, in milliseconds. */
  get settle() {
    return this.#settings.settle;
  }

  get #config() {
    return { asks: this.engine.asks, http: this.#settings.http(), errors: this.engine.listenerCount('connection_error') > 0 };
  }

  #hello() {
    const { name, onCrash } = this.#settings;
    const { parser, connectionStateRecovery } = this.io._opts;
    this.#sent = JSON.stringify(this.#config);
    return {
      name,
      instance: this.#instance,
      parser: parser ? 'opaque' : 'json',
      options: this.engine.settings,
      recovery: connectionStateRecovery ?? null,
      on_crash: onCrash,
      ...this.#config,
    };
  }

  /** Sends the settings that have changed since HELLO. */
  configure() {
    if (!this.channel?.isUp) return;
    const text = JSON.stringify(this.#config);
    if (text === this.#sent) return;
    this.#sent = text;
    this.channel.write(WORKER.CONFIG, this.#config);
  }

  // The link.

  #up(welcome) {
    this.peers = welcome.servers;
    this.configure();
    this.on.up(welcome);
  }

  /** The link has ended: its sessions go to other workers, so their users haven't left, or are closed. The time of open questions runs out. */
  #reset() {
    this.namespaces.redeclare();
    this.engine.forgetChecks();
    this.releasing(() => this.#endSessions('server shutting down'));
    if (this.#onDrained) this.channel.write(WORKER.BYE, { mode: 'handover' });
  }

  /** An exception of one session's handlers is reported as uncaught, and affects no other session. */
  #endSessions(reason) {
    for (const session of [...this.engine.sessions]) {
      try {
        session.end(reason);
      } catch (error) {
        process.nextTick(() => { throw error; });
      }
    }
  }

  /** Runs a function that ends sessions for this worker only. */
  releasing(run) {
    const before = this.isReleasing;
    this.isReleasing = true;
    try {
      run();
    } finally {
      this.isReleasing = before;
    }
  }

  #handle(entry, reader) {
    const { engine, namespaces } = this;
    if (entry === SERVER.MESSAGE) {
      const session = engine.session(reader.u32());
      const messages = reader.messages();
      return session?.deliver(messages);
    }
    const fields = reader.fields(entry);
    const session = engine.session(fields.handle);
    const adapter = namespaces.adapter(fields.namespace);
    switch (entry) {
      case SERVER.OPEN:
        return engine.open(fields.handle, fields.ask, fields.handshake);
      case SERVER.RESUME:
        this.counts.resumed += 1;
        return resume(this, fields.handle, fields.session);
      case SERVER.CLOSED:
        return engine.closed(fields.handle, fields.reason, described(fields.description));
      case SERVER.UPGRADE:
        return session?.upgrade(fields.transport);
      case SERVER.RECEIPT:
        return session?.receipt();
      case SERVER.PACKET:
        return session?.packet(fields.kind);
      case SERVER.PRESSURE:
        if (session) session.transport.writable = !fields.isOn;
        return undefined;
      case SERVER.RELEASE:
        return session && releaseSoon(this, session);
      case SERVER.MEMBERS:
        return adapter?.members(fields.change, fields.handles, fields.rooms);
      case SERVER.KICK:
        return adapter?.kick(fields.handles, fields.closes);
      case SERVER.RELAYED:
        return this.relay.handle(fields);
      case SERVER.VACANT:
        return namespaces.vacated(fields.namespace);
      case SERVER.PEERS:
        this.peers = fields.count;
        return this.on.peers(fields.count);
      case SERVER.RESTORED:
        return this.questions.finish(fields.request)?.resolve(fields.socket);
      case SERVER.CONN_ERROR: {
        const { req, code, message, context } = fields.error;
        return engine.emit('connection_error', { req: req ? new ClientRequest(req) : undefined, code, message, context });
      }
      case SERVER.DRAINED:
        return this.#onDrained?.();
      default:
        return undefined;
    }
  }

  /** Asks Stentor. `write(request)` writes the question with its number. */
  ask(timeoutMs, write) {
    return new Promise((resolve, reject) => {
      write(this.questions.add({ resolve }, timeoutMs, () => reject(new Error(`Stentor hasn't answered within ${timeoutMs} ms`))));
    });
  }

  // Sockets.

  /** Writes an entry about a session's socket. Closes the session if the socket's namespace has no index: Stentor would keep other rooms than this worker. */
  writeSocket(entry, session, index, ...fields) {
    if (index !== null) return this.channel.write(entry, session.handle, index, ...fields);
    session.close(true);
    // Handlers of `disconnect` don't run inside the application's call.
    return process.nextTick(() => session.end('forced close'));
  }

  /** A session has had a message: its sockets' `data` may have changed. */
  activate(session) {
    this.#dataKeeper.activate(session);
  }

  /** A socket was added to Stentor: its `data` is sent with the next look. */
  added(session, socket) {
    this.#dataKeeper.forget(socket);
    this.activate(session);
  }

  /** Notices when sockets get outgoing listeners: only then do broadcasts look at each socket. */
  observeSockets(socket) {
    this.observesSockets = true;
    const prototype = Object.getPrototypeOf(socket);
    if (Object.hasOwn(prototype.onAnyOutgoing, 'isObserved')) return;
    for (const name of ['onAnyOutgoing', 'prependAnyOutgoing']) {
      const add = prototype[name];
      prototype[name] = function (listener) {
        if (this.conn.server instanceof Engine) this.conn.server.observed();
        return add.call(this, listener);
      };
      prototype[name].isObserved = true;
    }
  }

  // The end.

  /** `true` if this worker has a link, whose connection may be broken. */
  get isLinked() {
    return this.channel.number !== null;
  }

  /** Asks Stentor to send no further messages. Resolves when none follows. */
  drain() {
    return new Promise((resolve) => {
      this.#onDrained = resolve;
      this.channel.write(WORKER.BYE, { mode: 'handover' });
    });
  }

  /** Ends this worker's sessions: `io.close()`. Without effect after a handover. */
  stop() {
    if (this.isStopped) return;
    const leaving = this.leave('stop');
    this.engine.forgetChecks();
    this.#endSessions('forced close');
    leaving.catch(() => {});
  }

  /** Leaves with BYE of this mode, and ends the connection when Stentor has confirmed it. `null`: ends the connection at once. */
  async leave(mode) {
    this.isStopped = true;
    clearInterval(this.#timer);
    this.questions.clear();
    const { channel } = this;
    if (mode !== null && channel.isUp) {
      channel.write(WORKER.BYE, { mode });
      channel.flush();
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, FAREWELL_MS);
        channel.onceAcknowledged(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
    channel.close();
  }
}

/** The description of an error, as a value. */
function described(text) {
  if (text === '') return undefined;
  const value = JSON.parse(text);
  return value?.message === undefined ? value : Object.assign(new Error(value.message), value);
}

