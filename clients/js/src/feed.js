// A feed: a document that the server keeps current, and its state.
//
// There is one `FeedStore` per key and connection. Each call of `connection.feed(key)` returns a new `Feed` that reads it.
//
//   loading ──► live ◄──► stale     stale: requests to the upstream fail, or there is no connection
//      │          └──► complete     no newer version will come
//      └──────────┴──► not_found    there is no such feed, or it was refused

import { Handle, emit } from './emitter.js';
import { applyPatch } from './patch.js';

export class FeedStore {
  state = 'loading';
  reason = '';
  subscribeOptions = {};
  /** The document is no base for deltas: a snapshot has to come. */
  needsSnapshot = false;
  handles = new Set();
  /** It is stale only because the connection may be dead. */
  #isSuspended = false;

  constructor(key) {
    this.key = key;
  }

  /** The version to resume from, if any. */
  get position() {
    return this.document === undefined || this.needsSnapshot ? undefined : { epoch: this.epoch, offset: this.offset };
  }

  become(state, reason = '') {
    this.#isSuspended = false;
    if (state === this.state && reason === this.reason) return;
    this.state = state;
    this.reason = reason;
    for (const feed of this.handles) emit(feed, 'state', state, reason);
  }

  /** Without a connection, newer versions may exist. */
  disconnected(reason) {
    this.#isSuspended = false;
    if (this.state === 'live') this.become('stale', reason);
  }

  /** The connection may be dead, but isn't given up. */
  suspend(reason) {
    if (this.state !== 'live') return;
    this.become('stale', reason);
    this.#isSuspended = true;
  }

  /** The connection was not dead. */
  resume() {
    if (this.#isSuspended) this.become('live');
  }

  /** The server knows the client's version. Unless it sends another one, this is the newest. */
  confirmed() {
    if (this.state === 'stale' && this.position) this.become('live');
  }

  /**
   * Takes a `snapshot`, `delta` or `state` of `chars` characters. Returns false if the delta doesn't fit the document: the
   * client then subscribes again.
   */
  receive(message, chars) {
    if (message.type === 'state') {
      this.become(message.state, message.reason);
      return true;
    }
    const isSame = message.epoch === this.epoch;
    if (message.type === 'snapshot') {
      // A late answer of another transport may be older.
      const isNews = !isSame || message.offset > this.offset || (this.needsSnapshot && message.offset === this.offset);
      // With an encoding it is base64, of bytes.
      const document = message.encoding ? Uint8Array.from(atob(message.data), (char) => char.charCodeAt()) : message.data;
      if (isNews) this.#take(message, document, { kind: 'snapshot', chars });
      if (message.offset === this.offset) this.become(message.state ?? 'live');
      return true;
    }
    // Unknown types are ignored.
    if (message.type !== 'delta' || this.needsSnapshot || (isSame && message.offset <= this.offset)) return true;
    try {
      if (!isSame || message.base !== this.offset) throw 0; // A delta for another version.
      const document = applyPatch(this.document, message.patch);
      this.#take(message, document, { kind: 'delta', base: message.base, patch: message.patch, chars });
    } catch {
      this.needsSnapshot = true;
      return false;
    }
    this.become('live');
    return true;
  }

  #take({ epoch, offset }, document, change) {
    Object.assign(this, { epoch, offset, document, needsSnapshot: false });
    for (const feed of this.handles) emit(feed, 'change', document, { ...change, epoch, offset });
  }
}

export class Feed extends Handle {
  #store;

  constructor(store, release) {
    super(store, release);
    this.#store = store;
  }

  get key() { return this.#store.key; }
  get document() { return this.#store.document; }
  get state() { return this.#store.state; }
  get reason() { return this.#store.reason; }
  get epoch() { return this.#store.epoch; }
  get offset() { return this.#store.offset; }
}
