// A connection: its state, the transport in use, when it reconnects, and its subscriptions.
//
//                     ┌─────── backoff ◄────── waiting ◄────┐
//                     ▼                                     │ no transport of the list opens, or an open one is lost
//   connect() ──► connecting ──► open ──────────────────────┤
//                     ▲                                     │ the server doesn't allow a reconnect
//                     └─ reconnect() ◄── refused ◄──────────┘            close() ──► closed, from every state
//   resume() ──► connecting                                              pause() ──► paused, from every state but refused and closed
//
// The client tries the transports of the list in order, each one at once after the one before failed to open. After the last
// one it backs off and begins again. A transport that was open and is lost gets `SAME_TRANSPORT_ATTEMPTS` attempts before the
// others, so that a restart of the server doesn't move clients to a worse transport. While a fallback is in use, the client
// tries the first transport beside it now and then, and switches to it when it opens.
//
// A connection can be dead before anybody notices. When the network has changed or the machine slept, the client asks the server for a sign
// of life. Without one in `RACE_MS`, a second connection opens beside the first one, and the one that speaks first stays.

import { Backoff } from './backoff.js';
import { now } from './clock.js';
import { Emitter, emit } from './emitter.js';
import { StentorError } from './error.js';
import { Feed, FeedStore } from './feed.js';
import { Outbox } from './outbox.js';
import { PresenceState } from './presence.js';
import { Room, RoomState } from './room.js';
import { transports } from './transports/index.js';

/** Keys of docs/protocol.md, unless the option `keys` says otherwise. */
const KEY = /^(?!(.*\/)?\.{0,2}(\/|$))[\w.~@:=+,/-]{1,256}$/;
/** Attempts with a transport that was open, before the others. */
const SAME_TRANSPORT_ATTEMPTS = 3;
/** A connection that lasted this long resets the backoff. */
const STABLE_MS = 5_000;
/** Least time until the client tries the first transport again; at most twice this. */
const PREFERRED_RETRY_MS = 200_000;
/** Least time until the client reconnects to a server that is out of memory. */
const OVERLOADED_MS = 5_000;
/** Least time until the client asks again for a feed that doesn't exist, and the same over SSE. */
const ABSENT_MS = 5_000;
const ABSENT_SSE_MS = 60_000;
/** Time for a sign of life, at first; doubled with each race, until a connection has lasted. */
const RACE_MS = 3_000;
const RACE_MAX_MS = 24_000;
/** Silence after which the connection is checked when somebody looks at the page. */
const SILENCE_MS = 10_000;
/** Age of an attempt that begins again when the network changes. */
const STUCK_MS = 1_000;
/** Connections that end early without a close frame, before the next transport is tried: a proxy may reset them. */
const RESETS_MAX = 3;
/** The states in which publications wait. */
const WAITING = ['connecting', 'waiting', 'paused'];
/** Delays between two calls of `getToken` for a token that expires soon. */
const RENEWAL = { initialMs: 1_000, maxMs: 10_000 };

export class Connection extends Emitter {
  #base;
  #options;
  #transports;
  #backoff;
  /** For requests that the server may accept later. A connection's own back-off is independent of them. */
  #requestBackoff;
  #outbox;
  #stores = new Map();
  #rooms = new Map();
  #state = 'connecting';
  #session;
  #carrier;
  /** The callback of the current carrier. Those of earlier carriers are ignored. */
  #link;
  #timers = new Set();
  /** The index of the transport that is in use or being tried. */
  #index = 0;
  #sameTransportAttempts = 0;
  /** In this round through the list: the transports that can never open, and how long the server asked us to wait. */
  #permanentFailures = 0;
  #afterMs = 0;
  /** Time of the last change to `open`, and of the last attempt. */
  #openedAt = 0;
  #triedAt = 0;
  #resets = 0;
  /** The last token, and its fault if the server has just named one: `expired` or `refused`. */
  #token;
  #tokenFault;
  /** The timer of a check, and the connection beside: its link and carrier. */
  #check;
  #rival;
  #raceMs = RACE_MS;
  #probe;
  /** Without an address: a page is being rendered on a server, and there is nothing to connect to. */
  #isInert;
  /** Paused because the page was left. It may come back from the browser's back/forward cache. */
  #isLeft = false;
  #closing = new AbortController();

  constructor(url, options = {}) {
    super();
    const { document, navigator, location } = globalThis;
    this.#isInert = !location && `${url ?? '/'}`.startsWith('/');
    this.#base = new URL(url ?? '/', this.#isInert ? 'http://localhost' : location?.href);
    this.#base.protocol = this.#base.protocol.replace(/^ws/, 'http');
    this.#base.search = this.#base.hash = '';
    this.#base.pathname = this.#base.pathname.replace(/\/?$/, '/');
    this.#options = options;
    this.#transports = transportList(options.transport);
    this.#backoff = new Backoff(options.backoff);
    this.#requestBackoff = new Backoff(options.backoff);
    this.#outbox = new Outbox(options.queueMax ?? 1_000, options.queueCharsMax ?? 1_000_000);
    const { signal } = this.#closing;
    const isSeen = () => document?.visibilityState !== 'hidden';
    // Reconnect at once when the browser comes online or somebody looks at the page.
    const wake = (silenceMs) => {
      if (this.#state === 'waiting') isSeen() && this.#try(0);
      else this.#checkAfter(silenceMs);
    };
    const networkChanged = () => {
      if (this.#state === 'connecting' && this.#carrier && now() - this.#triedAt > STUCK_MS) this.#try(0);
      else wake(0);
    };
    globalThis.addEventListener?.('online', networkChanged, { signal });
    navigator?.connection?.addEventListener?.('change', networkChanged, { signal });
    document?.addEventListener('visibilitychange', () => isSeen() && wake(SILENCE_MS), { signal });
    globalThis.addEventListener?.('offline', () => this.#suspend('offline') || this.#checkAfter(0), { signal });
    // Browsers don't keep pages with open connections.
    globalThis.addEventListener?.('pagehide', () => this.#pause('the page was left') && (this.#isLeft = true), { signal });
    globalThis.addEventListener?.('pageshow', () => this.#isLeft && this.resume(), { signal });
    if (this.#isInert || options.autoConnect === false) this.#state = 'paused';
    else this.#try(0);
  }

  get state() { return this.#state; }
  /** The name of the transport that is in use or being tried. */
  get transport() { return this.#transports[this.#index]; }
  get session() { return this.#session; }

  feed(key, subscribeOptions) {
    let store = this.#stores.get(key);
    const isNew = !store;
    if (isNew) this.#stores.set(key, store = new FeedStore(key));
    const isOther = subscribeOptions && JSON.stringify(subscribeOptions) !== JSON.stringify(store.subscribeOptions);
    if (isOther) store.subscribeOptions = subscribeOptions;
    const feed = new Feed(store, () => {
      this.#stores.delete(key);
      clearTimeout(store.timer);
      this.#carrier?.unsubscribe(key);
    });
    if (isNew || isOther || store.state === 'not_found') this.#subscribe(store);
    return feed;
  }

  room(name) {
    let room = this.#rooms.get(name);
    if (!room) {
      this.#rooms.set(name, room = new RoomState(name));
      this.#join(room);
    }
    return new Room(room, () => {
      this.#rooms.delete(name);
      room.presence?.disconnected();
      this.#carrier?.leave?.(name);
    }, () => {
      if (!room.presence) {
        room.presence = new PresenceState(name);
        this.#watch(room);
      }
      const { presence } = room;
      return [presence, () => {
        presence.disconnected();
        if (room.presence !== presence) return;
        room.presence = undefined;
        if (this.#rooms.get(name) === room) this.#carrier?.watch?.(name, false);
      }];
    });
  }

  publish(room, data, event, { timeoutMs = this.#options.publishTimeoutMs } = {}) {
    const text = JSON.stringify({ room, event, data: data ?? null }).slice(1, -1);
    const answer = this.#outbox.put(text, timeoutMs);
    if (!WAITING.includes(this.#state)) this.#flush();
    return answer;
  }

  use(transport) {
    this.#transports = transportList(transport);
    this.#index = 0;
    if (this.#state !== 'paused') this.reconnect();
  }

  /** Closes the connection until `resume()`. Publications wait. */
  pause() {
    this.#isLeft = false;
    this.#pause('paused');
  }

  /** Ends a pause. */
  resume() {
    if (this.#state === 'paused') this.reconnect();
  }

  reconnect() {
    if (this.#state === 'closed' || this.#isInert) return;
    this.#isLeft = false;
    this.#sameTransportAttempts = this.#permanentFailures = this.#afterMs = 0;
    this.#backoff.reset();
    this.#try(0, { reason: 'reconnecting' });
  }

  /** Ends the connection. Feeds keep their documents. */
  close() {
    this.#closing.abort();
    this.#end('closed', { reason: 'closed' });
  }

  /** The events of a carrier: see transports/index.js. */
  #on = {
    opened: (session) => {
      if (this.#state === 'open') return;
      this.#session = session;
      this.#openedAt = now();
      this.#requestBackoff.reset();
      this.#sameTransportAttempts = SAME_TRANSPORT_ATTEMPTS;
      this.#permanentFailures = this.#afterMs = 0;
      if (this.#index) this.#retryPreferred();
      this.#become('open', { session });
      this.#flush();
    },

    received: (message, chars) => {
      if (message.type === 'message') return this.#rooms.get(message.room)?.receive(message);
      if (message.type === 'presence') return this.#rooms.get(message.room)?.presence?.receive(message);
      // Messages of a closed feed may still arrive.
      const store = this.#stores.get(message.feed);
      if (store && !store.receive(message, chars)) this.#subscribe(store);
      // It may exist later, as after a deploy of the API. Over SSE, asking opens another stream.
      if (store?.state === 'not_found') this.#askAgain(store, this.transport === 'sse' ? ABSENT_SSE_MS : ABSENT_MS);
    },

    confirmed: (key) => this.#stores.get(key)?.confirmed(),

    alive: () => {
      clearTimeout(this.#check);
      this.#check = undefined;
      this.#rival?.carrier.close();
      this.#rival = undefined;
      for (const store of this.#stores.values()) store.resume();
    },

    woken: () => this.#checkAfter(0),

    joined: (name, error) => {
      const room = this.#rooms.get(name);
      if (!room || error?.code === 'connection_lost') return;
      if (!error) return room.become('joined');
      error.room = name;
      emit(this, 'error', error);
      if (error.code === 'history_expired') return;
      if (!error.retry) return room.become('refused', error.message);
      room.become('joining', error.message);
      this.#after(this.#requestBackoff.delayMs(), () => this.#rooms.get(name) === room && this.#join(room));
    },

    refused: (key, error) => {
      const store = this.#stores.get(key);
      if (!store || error.code === 'connection_lost') return;
      error.feed = key;
      emit(this, 'error', error);
      if (!error.retry) return store.become('not_found', error.message);
      this.#askAgain(store);
    },

    // A subscription may have ended before its first document.
    failed: (error) => {
      if (error.code === 'connection_lost') return;
      emit(this, 'error', error);
      if (!error.retry) return;
      this.#after(this.#requestBackoff.delayMs(), () => {
        for (const store of this.#stores.values()) if (store.state === 'loading') this.#subscribe(store);
      });
    },

    // The permission to list the members of a room was withdrawn.
    unwatched: (room, error) => {
      const presence = this.#rooms.get(room)?.presence;
      presence?.disconnected();
      presence?.failed(error);
    },

    // The carrier passes a newer token on.
    expiring: (renew) => {
      const backoff = new Backoff(RENEWAL);
      const ask = () => this.#withToken('expiring', ({ token }) => token && renew(token), () => this.#after(backoff.delayMs(), ask));
      ask();
    },

    lost: ({ code, reason, retry = true, afterMs = 0, token }) => {
      const wasOpen = this.#state === 'open';
      const hasLasted = wasOpen && now() - this.#openedAt >= STABLE_MS;
      const details = { code, reason: reason || (wasOpen ? 'the connection was lost' : 'no connection') };
      if (hasLasted) {
        this.#backoff.reset();
        this.#raceMs = RACE_MS;
        this.#tokenFault = undefined;
      }
      // A token says nothing about the transport. One attempt follows at once, with another token.
      if (token && this.#options.getToken && (token === 'expired' || !this.#tokenFault)) {
        const waitMs = this.#tokenFault ? this.#backoff.delayMs() : 1;
        this.#tokenFault = token;
        return this.#try(waitMs, details);
      }
      if (wasOpen && !retry) return this.#refuse(details);
      this.#resets = wasOpen && !hasLasted && (!code || code === 1006) ? this.#resets + 1 : wasOpen ? 0 : this.#resets;
      if (this.#resets >= RESETS_MAX && this.#index + 1 < this.#transports.length) {
        this.#index += 1;
        this.#resets = this.#sameTransportAttempts = 0;
      }
      // 4502: the server is out of memory.
      this.#afterMs = Math.max(this.#afterMs, code === 4502 ? OVERLOADED_MS : afterMs);
      if (!wasOpen && this.#sameTransportAttempts) {
        this.#sameTransportAttempts = retry && this.#sameTransportAttempts - 1;
        // Now the whole list.
        if (!this.#sameTransportAttempts) this.#index = 0;
      } else if (!wasOpen) {
        this.#permanentFailures += !retry;
        if (this.#index + 1 < this.#transports.length) {
          this.#index += 1;
          // From a timer: a list of failures is no recursion.
          return this.#try(1, details);
        }
        if (this.#permanentFailures === this.#transports.length) return this.#refuse(details);
        this.#index = this.#permanentFailures = 0;
        if (!this.#openedAt && globalThis.location) this.#checkOrigin();
      }
      const waitMs = this.#backoff.delayMs(this.#afterMs);
      this.#afterMs = 0;
      this.#try(waitMs, details);
    },
  };

  /**
   * Reports it if the server refuses the page's origin. Browsers hide the reason from WebSockets. A POST always carries the
   * origin. A page of another origin can read the server's 403, but not the error page of a proxy.
   */
  #checkOrigin() {
    fetch(new URL('sse', this.#base), { method: 'POST' }).then(({ status }) => {
      if (status !== 403) return;
      emit(this, 'error', new StentorError('origin_refused', `the server refuses ${location.origin}: see [origins] allow`, true));
    }, () => {});
  }

  /** Tries the first transport again later, and switches to it if it opens. */
  #retryPreferred() {
    this.#after((this.#options.preferredRetryMs ?? PREFERRED_RETRY_MS) * (1 + Math.random()), () => {
      this.#withToken('connect', (options) => {
        try {
          // If the server is silent, the probe ends by itself.
          this.#probe = transports[this.#transports[0]](this.#base, (what, session) => {
            this.#probe.close();
            // Transports without a session open before they have carried anything.
            if (what === 'opened' && session) this.use(this.#transports);
            else this.#retryPreferred();
          }, options);
        } catch { /* its library is missing, and will be */ }
      });
    });
  }

  #become(state, details) {
    this.#state = state;
    emit(this, 'state', state, { transport: this.transport, ...details });
  }

  #after(ms, then) {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      then();
    }, ms);
    this.#timers.add(timer);
    return timer;
  }

  /** Ends the carrier and all timers. */
  #drop(reason) {
    this.#timers.forEach(clearTimeout);
    this.#timers.clear();
    const carrier = this.#carrier;
    this.#probe?.close();
    this.#rival?.carrier.close();
    this.#link = this.#carrier = this.#session = this.#check = this.#rival = undefined;
    carrier?.close();
    for (const store of this.#stores.values()) store.disconnected(reason);
    for (const room of this.#rooms.values()) {
      if (room.state === 'joined') room.become('joining', reason);
      room.presence?.disconnected();
    }
  }

  /** Tries the current transport in `ms` milliseconds. */
  #try(ms, details) {
    this.#drop(details?.reason ?? 'connecting');
    // A listener may have called `use()` or `reconnect()`, which then decides.
    if (this.#carrier) return;
    if (ms > 0) {
      this.#after(ms, () => this.#try(0));
      this.#become('waiting', { ...details, retryMs: ms });
    } else {
      this.#open();
    }
  }

  #open() {
    const link = this.#link = (what, ...details) => { if (this.#link === link) this.#on[what](...details); };
    this.#become('connecting');
    if (this.#link !== link) return;
    const fault = this.#tokenFault;
    this.#withToken(fault ?? 'connect', (options) => {
      const reason = 'getToken has returned the refused token again';
      if (fault === 'refused' && options.token === this.#token) return this.#refuse({ reason });
      this.#token = options.token;
      this.#connect(link, options);
    }, (reason) => this.#try(this.#backoff.delayMs(), { reason }));
  }

  #connect(link, options) {
    this.#triedAt = now();
    this.#after(this.#options.connectTimeoutMs ?? 10_000, () => {
      if (this.#state === 'connecting' && !this.#carrier?.isPatient) this.#on.lost({ reason: 'the server is silent' });
    });
    try {
      this.#carrier = transports[this.transport](this.#base, link, options);
    } catch (error) {
      // From a timer: the caller doesn't have this object yet.
      this.#after(0, () => this.#on.lost({ reason: error.message, retry: false }));
      return;
    }
    this.#resume();
  }

  /** Subscribes to everything by the current carrier. */
  #resume() {
    for (const store of this.#stores.values()) this.#subscribe(store);
    for (const room of this.#rooms.values()) this.#join(room);
  }

  /**
   * Passes the options to `then`, with a token of the application, or the message of its failure to `otherwise`, if the link is still in use
   * by then.
   */
  async #withToken(reason, then, otherwise = () => {}) {
    const { getToken } = this.#options;
    if (!getToken) return then(this.#options);
    const link = this.#link;
    // The caller may not have this object yet.
    await null;
    let token;
    try {
      token = await getToken({ reason });
    } catch ({ message }) {
      if (this.#link !== link) return;
      emit(this, 'error', new StentorError('no_token', message, true));
      return this.#link === link && otherwise(message);
    }
    if (this.#link === link) then({ ...this.#options, token });
  }

  /** Marks feeds as stale while it is unknown whether the connection works. */
  #suspend(reason) {
    if (this.#state !== 'open' || !this.#carrier.check) return;
    for (const store of this.#stores.values()) store.suspend(reason);
  }

  /** Checks an open connection that has been silent for `silenceMs`. */
  #checkAfter(silenceMs) {
    if (this.#state !== 'open' || this.#check || !this.#carrier.check?.(silenceMs)) return;
    this.#check = this.#after(this.#raceMs, () => this.#race());
  }

  /** Opens a second connection beside one that gives no sign of life. */
  #race() {
    this.#raceMs = Math.min(RACE_MAX_MS, 2 * this.#raceMs);
    this.#suspend('the server is silent');
    if (!this.#carrier.isRaced) return this.#on.lost({ reason: 'the server is silent' });
    this.#withToken('connect', (options) => {
      const rival = this.#rival = { carrier: undefined };
      const link = (what, ...details) => {
        if (this.#link === link) return this.#on[what](...details);
        if (this.#rival !== rival) return;
        if (what === 'opened') this.#adopt(link, ...details);
        // Neither of them works.
        else if (what === 'lost') this.#on.lost(...details);
      };
      rival.carrier = transports[this.transport](this.#base, link, options);
      this.#after(this.#options.connectTimeoutMs ?? 10_000, () => this.#rival === rival && this.#on.lost({ reason: 'the server is silent' }));
    });
  }

  /** Replaces the connection by the one beside it. */
  #adopt(link, session) {
    const { carrier } = this.#rival;
    this.#rival = undefined;
    this.#drop('reconnecting');
    this.#link = link;
    this.#carrier = carrier;
    this.#state = 'connecting';
    this.#resume();
    link('opened', session);
  }

  #subscribe(store) {
    // With some transports, an invalid key would fail the other feeds, or lead to another path.
    if (!(this.#options.keys ?? KEY).test(store.key)) return store.become('not_found', 'bad key');
    if (store.state === 'not_found') store.become(store.position ? 'stale' : 'loading', 'connecting');
    this.#carrier?.subscribe(store.key, store.position, store.subscribeOptions);
  }

  /** Asks for a whole feed again after at least `leastMs` milliseconds. Its state stays until the answer. */
  #askAgain(store, leastMs) {
    clearTimeout(store.timer);
    store.timer = this.#after(this.#requestBackoff.delayMs(leastMs), () => {
      store.needsSnapshot = true;
      this.#carrier.subscribe(store.key, store.position, store.subscribeOptions);
    });
  }

  #join(room) {
    if (this.#carrier?.join) this.#carrier.join(room.name, room.position);
    else if (this.#carrier) {
      const error = Object.assign(notSupported(this.transport), { room: room.name });
      emit(this, 'error', error);
      room.become('refused', error.message);
    }
    this.#watch(room);
  }

  /** Handles a list of members, or a notice about them. */
  #watch({ name, presence }) {
    if (!presence || !this.#carrier) return;
    const carrier = this.#carrier;
    if (!carrier.watch) return presence.failed(notSupported(this.transport));
    carrier.watch(name, true, (error) => {
      if (this.#carrier !== carrier || this.#rooms.get(name)?.presence !== presence) return;
      if (error) presence.failed(error);
      else presence.read((query, answered) => carrier.members(name, query, answered));
    });
  }

  /** Sends what is queued, or rejects it. */
  #flush() {
    const error = this.#state === 'open' ? notSupported(this.transport) : new StentorError('closed', 'the connection is closed');
    this.#outbox.drain((message) => {
      if (this.#carrier?.publish) this.#carrier.publish(message);
      else message.reject(error);
    });
  }

  /** Returns whether the connection wasn't at rest before. */
  #pause(reason) {
    if (this.#state === 'paused' || this.#state === 'refused' || this.#state === 'closed') return false;
    this.#drop(reason);
    this.#become('paused', { reason });
    return true;
  }

  #end(state, details) {
    this.#drop(details.reason);
    this.#become(state, details);
    this.#flush();
  }

  #refuse(details) {
    this.#end('refused', details);
    for (const store of this.#stores.values()) store.become('not_found', details.reason);
    for (const room of this.#rooms.values()) room.become('refused', details.reason);
  }
}

function transportList(transport = 'websocket') {
  const names = [transport].flat();
  if (!names.length || !names.every((name) => Object.hasOwn(transports, name))) {
    throw new StentorError('no_transport', `no such transport: ${transport}`);
  }
  return names;
}

const notSupported = (transport) => new StentorError('not_supported', `no rooms by ${transport}`);
