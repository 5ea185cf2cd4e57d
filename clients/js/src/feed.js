// A feed: a document that the server keeps up to date, and how sure we are of it.
//
// There is one `Store` per key and connection; each call of `connection.feed(key)` gives a `Feed` of its own that looks
// into it.
//
//   loading ──► live ◄──► stale     stale: the source fails, or we aren't connected
//      │          └──► complete     no newer version will come
//      └──────────┴──► not_found    there is no such feed, or it was refused

import { Handle, tell } from './emitter.js';
import { applyPatch } from './patch.js';

export class Store {
  document = undefined;
  epoch = undefined;
  offset = undefined;
  state = 'loading';
  reason = '';
  terms = {};
  /** What is kept can't be gone on from: a snapshot has to come. */
  mending = false;
  handles = new Set();

  constructor(key) {
    this.key = key;
  }

  /** What to resume from, if there is something. */
  get position() {
    return this.document === undefined || this.mending ? undefined : { epoch: this.epoch, offset: this.offset };
  }

  become(state, reason = '') {
    if (state === this.state && reason === this.reason) return;
    this.state = state;
    this.reason = reason;
    for (const feed of this.handles) tell(feed, 'state', state, reason);
  }

  /** The connection is gone: newer versions may exist. */
  disconnected(reason) {
    if (this.state === 'live') this.become('stale', reason);
  }

  /** The server knows what we have. If it says nothing more, that is the newest there is. */
  confirmed() {
    if (this.state === 'stale' && this.position) this.become('live');
  }

  /**
   * Takes a `snapshot`, `delta` or `state`; `chars` is its length as text. False: the document isn't what the server
   * takes it for, and has to be asked for again.
   */
  receive(message, chars) {
    if (message.type === 'state') {
      this.become(message.state, message.reason);
      return true;
    }
    const isSame = message.epoch === this.epoch;
    if (message.type === 'snapshot') {
      // What we have already, and what went another way and is late.
      const isNews = !isSame || message.offset > this.offset || (this.mending && message.offset === this.offset);
      if (isNews) this.#take(message, message.data, { kind: 'snapshot', chars });
      if (isNews || message.offset === this.offset) this.become(message.state ?? 'live');
      return true;
    }
    // Types that we don't know are none of our business.
    if (message.type !== 'delta' || this.mending || (isSame && message.offset <= this.offset)) return true;
    try {
      if (!isSame || message.base !== this.offset) throw new Error(); // A delta for another version.
      const document = applyPatch(this.document, message.patch);
      this.#take(message, document, { kind: 'delta', base: message.base, patch: message.patch, chars });
    } catch {
      this.mending = true;
      return false;
    }
    this.become('live');
    return true;
  }

  #take({ epoch, offset }, document, change) {
    Object.assign(this, { epoch, offset, document, mending: false });
    for (const feed of this.handles) tell(feed, 'change', document, { ...change, epoch, offset });
  }
}

/** A feed, as it is handed out. After `close()` nothing is told any more. */
export class Feed extends Handle {
  #store;

  constructor(store, over) {
    super(store, over);
    this.#store = store;
  }

  get key() { return this.#store.key; }
  get document() { return this.#store.document; }
  get state() { return this.#store.state; }
  get reason() { return this.#store.reason; }
  get epoch() { return this.#store.epoch; }
  get offset() { return this.#store.offset; }
}
