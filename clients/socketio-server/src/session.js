// A client's session, in the place of engine.io's `Socket`: it is `socket.conn` of the sockets on it.

import { EventEmitter } from 'node:events';
import { FLAG, WORKER } from './entries.js';
import { ClientRequest } from './request.js';

/** A session's transport, in the place of engine.io's `Transport`. It has listeners only if the application adds some. */
class Transport {
  constructor(name, sid, protocol) {
    this.name = name;
    this.sid = sid;
    this.protocol = protocol;
    this.readyState = 'open';
    this.discarded = false;
    // `false` while the client doesn't read. Whether a volatile message is dropped is Stentor's decision otherwise.
    this.writable = true;
  }
}

Object.setPrototypeOf(Transport.prototype, EventEmitter.prototype);

export class Session extends EventEmitter {
  #worker;
  /** Messages that wait until all sockets of a resumed session exist. `null`: none wait. */
  #held = null;
  /** Callbacks of `send`, for the receipts, in order. `null`: there was none. */
  #callbacks = null;
  #isWatched = false;
  // `true` if the event has had a listener: emitting it for each message isn't free.
  #wantsPacketCreate = false;
  #wantsPacket = false;
  #wantsMessage = false;

  constructor(worker, handle, handshake) {
    super();
    this.#worker = worker;
    this.handle = handle;
    this.server = worker.engine;
    this.id = handshake.sid;
    this.protocol = handshake.protocol;
    this.remoteAddress = handshake.address;
    this.readyState = 'open';
    this.upgrading = false;
    this.upgraded = handshake.upgraded === true;
    this.transport = new Transport(handshake.transport, handshake.sid, handshake.protocol);
    this.request = new ClientRequest(handshake);
    /** Sockets that Stentor knows, by adapter. */
    this.sockets = new Map();
    /** Sockets that are to be rebuilt, by the name of their namespace. `null` unless the session is being resumed. */
    this.resuming = null;
    /** Number of sockets that are being created. */
    this.creating = 0;
    /** `true` if the session has had a message since the last look at its sockets' `data`. */
    this.isActive = false;
  }

  // As in engine.io.

  on(event, listener) {
    this.#listen(event);
    return super.on(event, listener);
  }

  once(event, listener) {
    this.#listen(event);
    return super.once(event, listener);
  }

  addListener(event, listener) {
    return this.on(event, listener);
  }

  #listen(event) {
    if (event === 'packetCreate') {
      this.#wantsPacketCreate = true;
      this.#worker.observers += 1;
    }
    if (event === 'packet') this.#wantsPacket = true;
    if (event === 'message') this.#wantsMessage = true;
    if ((event === 'heartbeat' || event === 'packet') && !this.#isWatched && this.readyState === 'open') {
      this.#isWatched = true;
      this.#worker.channel.write(WORKER.WATCH, this.handle, true);
    }
  }

  /** Stentor has the queue. */
  get writeBuffer() {
    return [];
  }

  write(data, options, callback) {
    return this.send(data, options, callback);
  }

  send(data, options, callback) {
    if (typeof options === 'function') return this.send(data, undefined, options);
    if (this.readyState !== 'open') return this;
    const sent = options ?? {};
    if (this.#wantsPacketCreate) this.observe(data, sent);
    let flags = sent.volatile ? FLAG.VOLATILE : 0;
    if (sent.compress === false) flags |= FLAG.UNCOMPRESSED;
    if (callback) {
      flags |= FLAG.RECEIPT;
      (this.#callbacks ??= []).push(callback);
    }
    this.#worker.channel.send(this.handle, flags, data, sent);
    return this;
  }

  close(discard = false) {
    if (this.readyState !== 'open') return;
    this.readyState = 'closing';
    this.#worker.channel.write(WORKER.CLOSE, this.handle, discard);
  }

  // From Stentor.

  /** A client's packet with its attachments. */
  deliver(messages) {
    if (this.#held !== null) {
      this.#worker.channel.hold(this);
      this.#held.push(messages);
      return;
    }
    for (const data of messages) {
      if (this.readyState !== 'open') return;
      if (this.#wantsPacket) this.emit('packet', { type: 'message', data });
      this.emit('data', data);
      if (this.#wantsMessage) this.emit('message', data);
    }
    if (!this.isActive) this.#worker.activate(this);
  }

  upgrade(name) {
    this.transport = new Transport(name, this.id, this.protocol);
    this.upgraded = true;
    this.emit('upgrade', this.transport);
  }

  packet(type) {
    this.emit('packet', { type });
    if (type === 'ping' || type === 'pong') this.emit('heartbeat');
  }

  receipt() {
    this.#callbacks?.shift()?.(this.transport);
    this.emit('drain');
  }

  /** Emits what engine.io emits for each message to a client. */
  observe(data, options) {
    options.compress = options.compress !== false;
    this.emit('packetCreate', { type: 'message', data, options });
  }

  /** The session has ended for this worker. */
  end(reason, description) {
    if (this.readyState === 'closed') return;
    this.readyState = 'closed';
    this.transport.readyState = 'closed';
    this.transport.writable = false;
    this.#held = null;
    this.resuming = null;
    this.#worker.channel.release(this);
    this.server.forget(this);
    this.emit('close', reason, description);
  }

  // Messages that wait.

  /** Holds messages back until `release`. */
  hold() {
    this.#held ??= [];
  }

  /** Delivers the messages that were held back, in a later tick: handlers of sockets are registered by then. */
  release() {
    process.nextTick(() => {
      const held = this.#held ?? [];
      this.#held = null;
      for (const messages of held) this.deliver(messages);
      this.#worker.channel.release(this);
    });
  }
}
