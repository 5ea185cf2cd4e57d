// A connection: which transport carries it, when it is tried again, and what it carries.
//
//                     ┌───────────── back-off ◄── waiting ◄─┐
//                     ▼                                     │ no transport of the list opens, or one that was open is lost
//   connect() ──► connecting ──► open ──────────────────────┤
//                     ▲                                     │ the server says: don't come back
//                     └─ reconnect() ◄── refused ◄──────────┘            close() ──► closed, from everywhere
//
// Which transport: the list from its beginning, each one at once when the one before didn't open; then back-off, and
// the list again. One that was open is tried alone for `FAITHFUL` attempts when it is lost: a server that restarts is no
// reason to be content with less. While another than the first one carries, the first one is tried beside it now and then,
// and takes over when it opens.

import { Backoff } from './backoff.js';
import { Emitter, tell } from './emitter.js';
import { StentorError } from './error.js';
import { Feed, Store } from './feed.js';
import { Outbox } from './outbox.js';
import { Hall, Room } from './room.js';
import { transports } from './transports/index.js';

/** What docs/protocol.md calls a key. */
const KEY = /^(?!(.*\/)?\.{0,2}(\/|$))[\w.~@:=+,/-]{1,256}$/;
/** Attempts with a transport that has worked, before others get their turn. */
const FAITHFUL = 3;
/** After so long a connection was a good one, and its end is no continuation of troubles before it. */
const STEADY_MS = 5_000;
/** How long until the first transport of the list is tried again: so long at the least, and twice as long at the most. */
const PREFERRED_RETRY_MS = 200_000;
/** How long a server that has no memory left is spared. */
const OVERLOADED_MS = 5_000;

export class Connection extends Emitter {
  #base;
  #options;
  #list;
  #backoff;
  #outbox;
  #stores = new Map();
  #halls = new Map();
  #state = 'connecting';
  #session;
  #carrier;
  /** By what the carrier of now tells us things; those of carriers before are deaf. */
  #link;
  #timers = new Set();
  /** The place in the list of the transport that is in use or tried. */
  #place = 0;
  #faithful = 0;
  /** Of this round through the list: those that won't ever open, and what the server asked us to wait. */
  #hopeless = 0;
  #afterMs = 0;
  #openedAt = 0;
  #probe;
  #closing = new AbortController();

  constructor(url, options = {}) {
    super();
    this.#base = new URL(url ?? '/', globalThis.location?.href);
    this.#base.protocol = this.#base.protocol.replace(/^ws/, 'http');
    this.#base.search = this.#base.hash = '';
    if (!this.#base.pathname.endsWith('/')) this.#base.pathname += '/';
    this.#options = options;
    this.#list = list(options.transport);
    this.#backoff = new Backoff(options.backoff);
    this.#outbox = new Outbox(options.queueMax ?? 1_000, options.queueCharsMax ?? 1_000_000);
    // Whoever is told that there is a network again doesn't wait for a timer; nor does somebody who looks at the page.
    const wake = () => {
      if (this.#state === 'waiting' && globalThis.document?.visibilityState !== 'hidden') this.#try(0);
    };
    const { signal } = this.#closing;
    globalThis.addEventListener?.('online', wake, { signal });
    globalThis.document?.addEventListener('visibilitychange', wake, { signal });
    this.#try(0);
  }

  /** `connecting`, `open`, `waiting` (for the next attempt), `refused` (the server says: don't come back) or `closed`. */
  get state() { return this.#state; }
  /** The name of the transport that is in use or tried. */
  get transport() { return this.#list[this.#place]; }
  /** What the server calls this session in its logs, where the transport tells. */
  get session() { return this.#session; }

  /** A document, kept up to date until it is closed. With `terms`, they hold for all feeds of the key from now on. */
  feed(key, terms) {
    let store = this.#stores.get(key);
    const isNew = !store;
    if (isNew) this.#stores.set(key, store = new Store(key));
    const isOther = terms && JSON.stringify(terms) !== JSON.stringify(store.terms);
    if (isOther) store.terms = terms;
    const feed = new Feed(store, () => {
      this.#stores.delete(key);
      this.#carrier?.unsubscribe(key);
    });
    if (isNew || isOther || store.state === 'not_found') this.#subscribe(store);
    return feed;
  }

  /** What is said in a room, until it is closed. */
  room(name) {
    let hall = this.#halls.get(name);
    if (!hall) {
      this.#halls.set(name, hall = new Hall(name));
      this.#join(hall);
    }
    return new Room(hall, () => {
      this.#halls.delete(name);
      this.#carrier?.leave?.(name);
    });
  }

  /** Says something to everybody in a room. Without a connection it waits for one. */
  publish(room, data, event) {
    const text = JSON.stringify({ room, event, data: data === undefined ? null : data }).slice(1, -1);
    const answer = this.#outbox.put(text);
    if (this.#state !== 'connecting' && this.#state !== 'waiting') this.#flush();
    return answer;
  }

  /** Goes on by other transports, from what is there. */
  use(transport) {
    this.#list = list(transport);
    this.#place = 0;
    this.reconnect();
  }

  /** Connects anew, now: also where the server said not to come back, but not after `close()`. */
  reconnect() {
    if (this.#state === 'closed') return;
    this.#faithful = this.#hopeless = this.#afterMs = 0;
    this.#backoff.reset();
    this.#try(0, { reason: 'reconnecting' });
  }

  /** Ends everything. Feeds keep their documents. */
  close() {
    this.#closing.abort();
    this.#end('closed', { reason: 'closed' });
  }

  /** What carriers tell us: see transports/index.js. */
  #told = {
    opened: (session) => {
      if (this.#state === 'open') return;
      this.#session = session;
      this.#openedAt = Date.now();
      this.#faithful = FAITHFUL;
      this.#hopeless = this.#afterMs = 0;
      if (this.#place) this.#climb();
      this.#become('open', { session });
      this.#flush();
    },

    received: (message, chars) => {
      if (message.type === 'message') return this.#halls.get(message.room)?.receive(message);
      // What is no longer wanted may be under way still.
      const store = this.#stores.get(message.feed);
      if (store && !store.receive(message, chars)) this.#subscribe(store);
    },

    confirmed: (key) => this.#stores.get(key)?.confirmed(),

    refused: (key, error) => {
      const store = this.#stores.get(key);
      if (!store || error.code === 'connection_lost') return;
      if (!error.retry) return store.become('not_found', error.message);
      this.#after(this.#backoff.next(), () => this.#stores.get(key) === store && this.#subscribe(store));
    },

    // A subscription may have ended before it brought anything.
    erred: (error) => {
      tell(this, 'error', error);
      if (!error.retry) return;
      this.#after(this.#backoff.next(), () => {
        for (const store of this.#stores.values()) if (store.state === 'loading') this.#subscribe(store);
      });
    },

    lost: ({ code, reason = '', again = true, afterMs = 0 }) => {
      const details = { code, reason: reason || 'the connection was lost' };
      const wasOpen = this.#state === 'open';
      if (wasOpen && !again) return this.#refuse(details);
      if (wasOpen && Date.now() - this.#openedAt >= STEADY_MS) this.#backoff.reset();
      // Out of memory, says docs/protocol.md.
      this.#afterMs = Math.max(this.#afterMs, code === 4502 ? OVERLOADED_MS : afterMs);
      if (!wasOpen && this.#faithful > 0) {
        this.#faithful = again ? this.#faithful - 1 : 0;
        // Now the others: the whole list.
        if (this.#faithful === 0) this.#place = 0;
      } else if (!wasOpen) {
        this.#hopeless += again ? 0 : 1;
        if (this.#place + 1 < this.#list.length) {
          this.#place += 1;
          // Not from in here: a list of failures is no recursion.
          return this.#try(1, details);
        }
        if (this.#hopeless === this.#list.length) return this.#refuse(details);
        this.#place = this.#hopeless = 0;
      }
      const waitMs = this.#backoff.next(this.#afterMs);
      this.#afterMs = 0;
      this.#try(waitMs, details);
    },
  };

  /** Sees later whether the first transport works by now, and goes on by it if so. */
  #climb() {
    this.#after((this.#options.preferredRetryMs ?? PREFERRED_RETRY_MS) * (1 + Math.random()), () => {
      try {
        // One that says nothing is left to end by itself.
        this.#probe = transports[this.#list[0]](this.#base, (what, session) => {
          this.#probe.close();
          // What carries feeds only names no session, and opens without having asked the server.
          if (what === 'opened' && session) this.use(this.#list);
          else this.#climb();
        }, this.#options);
      } catch { /* what it needs isn't there, and won't be */ }
    });
  }

  #become(state, details = {}) {
    this.#state = state;
    tell(this, 'state', state, { transport: this.transport, ...details });
  }

  #after(ms, then) {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      then();
    }, ms);
    this.#timers.add(timer);
  }

  /** Ends the carrier, and all that waits for a time. */
  #drop(reason) {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
    const carrier = this.#carrier;
    this.#probe?.close();
    this.#link = this.#carrier = this.#session = undefined;
    carrier?.close();
    for (const store of this.#stores.values()) store.disconnected(reason);
  }

  /** Tries the transport of this place, from now in `ms`. */
  #try(ms, details) {
    this.#drop(details?.reason ?? 'connecting');
    // Whoever is told of something may decide otherwise, and then it is up to them.
    if (this.#carrier) return;
    if (ms > 0) {
      this.#after(ms, () => this.#try(0));
      this.#become('waiting', { ...details, retryMs: ms });
    } else {
      this.#open();
    }
  }

  #open() {
    const link = this.#link = (what, ...details) => { if (this.#link === link) this.#told[what](...details); };
    this.#become('connecting');
    if (this.#link !== link) return;
    this.#after(this.#options.connectTimeoutMs ?? 10_000, () => {
      if (this.#state === 'connecting' && !this.#carrier.isPatient) this.#told.lost({ reason: 'the server is silent' });
    });
    try {
      this.#carrier = transports[this.transport](this.#base, link, this.#options);
    } catch (error) {
      // Not from in here: whoever called has not been given us yet.
      this.#after(0, () => this.#told.lost({ reason: error.message, again: false }));
      return;
    }
    for (const store of this.#stores.values()) this.#subscribe(store);
    for (const hall of this.#halls.values()) this.#join(hall);
  }

  #subscribe(store) {
    // By some transports one of these would fail all the others, or be a path to elsewhere.
    if (!KEY.test(store.key)) return store.become('not_found', 'no key');
    if (store.state === 'not_found') store.become(store.position ? 'stale' : 'loading', 'asked again');
    this.#carrier?.subscribe(store.key, store.position, store.terms);
  }

  #join(hall) {
    if (this.#carrier?.join) this.#carrier.join(hall.name, hall.position);
    else if (this.#carrier) tell(this, 'error', notCarried(this.transport));
  }

  /** Sends what waits, or says that it won't be sent. */
  #flush() {
    const error = this.#state === 'open' ? notCarried(this.transport) : new StentorError('closed', 'the connection has ended');
    this.#outbox.drain((message) => {
      if (this.#carrier?.publish) this.#carrier.publish(message);
      else message.reject(error);
    });
  }

  /** The end, by us or by the server. */
  #end(state, details) {
    this.#drop(details.reason);
    this.#become(state, details);
    this.#flush();
  }

  #refuse(details) {
    this.#end('refused', details);
    for (const store of this.#stores.values()) store.become('not_found', details.reason);
  }
}

function list(transport = 'websocket') {
  const names = [transport].flat();
  if (names.length === 0 || !names.every((name) => Object.hasOwn(transports, name))) {
    throw new StentorError('no_transport', `no such transport: ${transport}`);
  }
  return names;
}

const notCarried = (transport) => new StentorError('not_supported', `no rooms by ${transport}`);
