// A connection: its state, the transport in use, when it reconnects, and its subscriptions.
//
//                     ┌─────── backoff ◄────── waiting ◄────┐
//                     ▼                                     │ no transport of the list opens, or an open one is lost
//   connect() ──► connecting ──► open ──────────────────────┤
//                     ▲                                     │ the server doesn't allow a reconnect
//                     └─ reconnect() ◄── refused ◄──────────┘            close() ──► closed, from every state
//   resume() ──► connecting                                              pause() ──► paused, from every state but refused and closed
//
// The client tries the transports of the list in order, each one as soon as the previous one has failed to open. After the last
// one it backs off and begins again. A transport that was open and is lost gets `SAME_TRANSPORT_ATTEMPTS` attempts before the
// others, so that a restart of the server doesn't move clients to a worse transport. While a fallback is in use, the client
// tries the first transport beside it now and then, and switches to it when it opens. With `auto`, the first WebSocket of a page goes on
// opening beside the next transport if it is slow.
//
// A connection can be dead before anybody notices. When the network has changed or the machine slept, the client asks the server for a sign
// of life. Without one in `RACE_MS`, a second connection opens beside the first one, and the one that speaks first stays.

import { Backoff } from './backoff.js';
import { now } from './clock.js';
import { Emitter, emit } from './emitter.js';
import { StentorError } from './error.js';
import { Feed, FeedStore } from './feed.js';
import { ASCII_KEYS } from './keys.js';
import { Outbox } from './outbox.js';
import { address, checkOrigin, isSeen, watchPage } from './page.js';
import { PresenceState } from './presence.js';
import { Room, RoomState } from './room.js';
import {
  AUTO_MS, CONNECT_TIMEOUT_MS, SAME_TRANSPORT_ATTEMPTS, STABLE_MS, PREFERRED_MS, PREFERRED_MAX_MS, OVERLOADED_MS,
  ABSENT_MS, RACE_MS, RACE_MAX_MS, SILENCE_MS, STUCK_MS, RESETS_MAX, RENEWAL,
} from './times.js';
import { noResponse } from './transports/http.js';
import { transportList, transports } from './transports/index.js';

/** The states in which publications wait. */
const WAITING = ['connecting', 'waiting', 'paused'];

export class Connection extends Emitter {
  #base;
  #options;
  #transports;
  #isAuto;
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
  /** For attempts with the first transport while a fallback is in use. */
  #preferredBackoff;
  /** The last token, and its fault if the server has just named one: `expired` or `refused`. */
  #token;
  #tokenFault;
  /** The timers of a check. */
  #check;
  /** The connection beside: `link`, `carrier`, `index`, `timer`, `lost(details)`, and `isRace` if the current carrier may be dead. */
  #rival;
  #raceMs = RACE_MS;
  /** The carrier that was replaced by one beside it: its `link`, its `carrier`, and the names of its `rooms` that the new one hasn't joined yet. */
  #former;
  /** Without an address: a page is being rendered on a server, and there is nothing to connect to. */
  #isInert;
  /** Paused because the page was left. It may come back from the browser's back/forward cache. */
  #isLeft = false;
  #closing = new AbortController();

  constructor(url, options = {}) {
    super();
    ({ base: this.#base, isInert: this.#isInert } = address(url));
    this.#options = options;
    this.#setTransport(options.transport);
    this.#backoff = new Backoff(options.backoff);
    this.#requestBackoff = new Backoff(options.backoff);
    this.#preferredBackoff = new Backoff({ initialMs: PREFERRED_MS, maxMs: options.preferredRetryMs ?? PREFERRED_MAX_MS });
    this.#outbox = new Outbox(options.queueMax ?? 1_000, options.queueCharsMax ?? 1_000_000);
    watchPage((event) => this.#page[event](), this.#closing.signal);
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
      this.#carrier?.leave(name);
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
        if (this.#rooms.get(name) === room) this.#carrier?.watch(name, false);
      }];
    });
  }

  publish(room, data, event, options) {
    return this.#send({ type: 'publish', room, event, data: data ?? null }, options);
  }

  /** Sends an event to the rule or hook that handles it. A failure is an `error` of the connection. */
  emit(event, data) {
    this.emitWithAck(event, data).catch((error) => emit(this, 'error', error));
  }

  emitWithAck(event, data, options) {
    return this.#send({ type: 'event', event, data: data ?? null }, options);
  }

  #send(message, { timeoutMs = this.#options.publishTimeoutMs } = {}) {
    const answer = this.#outbox.put(JSON.stringify(message).slice(1, -1), timeoutMs);
    if (!WAITING.includes(this.#state)) this.#flush();
    return answer;
  }

  use(transport) {
    this.#setTransport(transport);
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
    this.#dropRival();
    this.#try(0, { reason: 'reconnecting' });
  }

  /** Ends the connection. Feeds keep their documents. */
  close() {
    this.#closing.abort();
    this.#end('closed', { reason: 'closed' });
  }

  /** The events of the page. */
  #page = {
    offline: () => {
      this.#suspend('offline');
      this.#checkAfter(0);
    },
    online: () => {
      if (this.#state !== 'connecting' || !this.#carrier || now() - this.#triedAt <= STUCK_MS) return this.#wake(0);
      this.#dropRival();
      this.#try(0);
    },
    visible: () => this.#wake(SILENCE_MS),
    // Browsers don't keep pages with open connections.
    left: () => this.#pause('the page was left') && (this.#isLeft = true),
    returned: () => this.#isLeft && this.resume(),
  };

  /** Reconnects at once if somebody looks at the page, or checks a connection that has been silent for `silenceMs`. */
  #wake(silenceMs) {
    if (this.#state === 'waiting') isSeen() && this.#try(0);
    else this.#checkAfter(silenceMs);
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
      if (this.#index && !this.#rival) this.#retryPreferred();
      this.#become('open', { session });
      this.#flush();
    },

    received: (message, chars) => {
      if (message.type === 'message') {
        const { room, data, event, encoding } = message;
        return room === undefined ? emit(this, 'message', data, { event, encoding }) : this.#rooms.get(room)?.receive(message);
      }
      if (message.type === 'presence') return this.#rooms.get(message.room)?.presence?.receive(message);
      // Messages of a closed feed may still arrive.
      const store = this.#stores.get(message.feed);
      if (store && !store.receive(message, chars)) this.#subscribe(store);
      // It may exist later, as after a deploy of the API.
      if (store?.state === 'not_found') this.#askAgain(store, ABSENT_MS);
    },

    confirmed: (key) => this.#stores.get(key)?.confirmed(),

    alive: () => {
      this.#check?.forEach(clearTimeout);
      this.#check = undefined;
      if (this.#rival?.isRace) this.#dropRival();
      for (const store of this.#stores.values()) store.resume();
    },

    woken: () => this.#checkAfter(0),

    joined: (name, error) => {
      this.#former?.rooms.delete(name);
      const room = this.#rooms.get(name);
      if (!room) return;
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
      if (!store) return;
      error.feed = key;
      emit(this, 'error', error);
      if (!error.retry) return store.become('not_found', error.message);
      this.#askAgain(store);
    },

    // A subscription may have ended before its first document.
    failed: (error) => {
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
        if (!this.#index) this.#preferredBackoff.reset();
      }
      // A token says nothing about the transport. One attempt follows at once, with another token.
      if (token && this.#options.getToken && (token === 'expired' || !this.#tokenFault)) {
        const waitMs = this.#tokenFault ? this.#backoff.delayMs() : 1;
        this.#tokenFault = token;
        return this.#try(waitMs, details);
      }
      if ((wasOpen || token) && !retry) return this.#refuse(details);
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
        if (!this.#openedAt) checkOrigin(this.#base).then((error) => error && emit(this, 'error', error));
      }
      const waitMs = this.#backoff.delayMs(this.#afterMs);
      this.#afterMs = 0;
      this.#try(waitMs, details);
    },
  };

  #setTransport(transport = 'auto') {
    this.#transports = transportList(transport);
    this.#isAuto = transport === 'auto';
  }

  /** Tries the first transport again later, and switches to it if it opens. */
  #retryPreferred(reason = 'connect', backoff = this.#preferredBackoff) {
    this.#after(backoff.delayMs(), () => this.#openBeside(0, reason, (details) => this.#lostPreferred(details)));
  }

  /** The first transport didn't open beside the current one. */
  #lostPreferred({ token } = {}) {
    if (this.#state === 'open') this.#retryPreferred(token, token && this.#requestBackoff);
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

  #setRival(rival, timeoutMs = CONNECT_TIMEOUT_MS) {
    this.#dropRival();
    this.#rival = rival;
    rival.timer = setTimeout(rival.link, timeoutMs, 'lost', { reason: 'the server is silent' });
  }

  #dropRival() {
    const rival = this.#rival;
    this.#rival = undefined;
    clearTimeout(rival?.timer);
    rival?.carrier?.close();
  }

  /** Ends the carrier and all timers. Feeds stay `live`, and rooms `joined`, if another carrier has replaced it. */
  #drop(reason, isReplaced) {
    this.#timers.forEach(clearTimeout);
    this.#timers.clear();
    this.#former?.carrier.close();
    this.#former = undefined;
    const carrier = this.#carrier;
    this.#link = this.#carrier = this.#session = this.#check = undefined;
    carrier?.close();
    if (!isReplaced) for (const store of this.#stores.values()) store.disconnected(reason);
    for (const room of this.#rooms.values()) {
      if (room.state === 'joined' && !isReplaced) room.become('joining', reason);
      room.presence?.disconnected();
    }
  }

  /** Tries the current transport in `ms` milliseconds. The first one goes on opening beside it. */
  #try(ms, details) {
    if (this.#rival?.isRace) this.#dropRival();
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
    const link = this.#link = this.#newLink();
    this.#become('connecting');
    if (this.#link !== link) return;
    const fault = this.#tokenFault;
    this.#withToken(fault ?? 'connect', (options) => {
      const reason = 'getToken has returned the refused token';
      if (fault === 'refused' && options.token === this.#token) return this.#refuse({ reason });
      this.#token = options.token;
      this.#connect(link, options);
    }, (reason) => this.#try(this.#backoff.delayMs(), { reason }));
  }

  #connect(link, options) {
    this.#triedAt = now();
    const { connectTimeoutMs = CONNECT_TIMEOUT_MS } = this.#options;
    this.#after(connectTimeoutMs, () => {
      if (this.#state === 'connecting') this.#on.lost({ reason: 'the server is silent' });
    });
    try {
      this.#carrier = transports[this.transport](this.#base, link, options);
    } catch (error) {
      // From a timer: the caller doesn't have this object yet.
      this.#after(0, () => this.#on.lost({ reason: error.message, retry: false }));
      return;
    }
    this.#resume();
    this.#after(RACE_MS, () => this.#state === 'connecting' && this.#carrier?.isHttp && emit(this, 'error', noResponse()));
    // A server that has spoken WebSocket to this page is worth the wait.
    if (this.#isAuto && !this.#index && !this.#openedAt) this.#after(AUTO_MS, () => this.#state === 'connecting' && this.#bridge(connectTimeoutMs - AUTO_MS));
  }

  /** Lets the current carrier go on opening beside the next transport. */
  #bridge(timeoutMs) {
    const link = this.#link;
    this.#setRival({ link, carrier: this.#carrier, index: this.#index, lost: (details) => this.#lostPreferred(details) }, timeoutMs);
    // When it opens, everything is subscribed to again.
    this.#carrier.forget();
    this.#carrier = undefined;
    this.#index += 1;
    this.#try(0);
  }

  /** The callback of a carrier. One that opens beside the current one replaces it. */
  #newLink() {
    const link = (what, ...details) => {
      if (this.#link === link) return this.#on[what](...details);
      if (this.#former?.link === link && what === 'received' && this.#former.rooms.has(details[0].room)) return this.#on.received(...details);
      const rival = this.#rival;
      if (rival?.link !== link || (what !== 'opened' && what !== 'lost')) return;
      if (what === 'opened') return this.#adopt(details[0]);
      this.#dropRival();
      rival.lost(...details);
    };
    return link;
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
    if (this.#state === 'open') for (const store of this.#stores.values()) store.suspend(reason);
  }

  /** Checks an open connection that has been silent for `silenceMs`. */
  #checkAfter(silenceMs) {
    if (this.#state !== 'open' || this.#check || !this.#carrier.check(silenceMs)) return;
    this.#check = [this.#after(RACE_MS, () => this.#suspend('the server is silent')), this.#after(this.#raceMs, () => this.#race())];
  }

  /** Opens a second connection beside one that gives no sign of life. */
  #race() {
    this.#raceMs = Math.min(RACE_MAX_MS, 2 * this.#raceMs);
    this.#suspend('the server is silent');
    if (this.#carrier.isHttp) return this.#on.lost({ reason: 'the server is silent' });
    this.#openBeside(this.#index, 'connect', (details) => this.#on.lost(details), true);
  }

  /** Opens a connection beside the current one. `lost(details)` is called if it doesn't open. */
  #openBeside(index, reason, lost, isRace) {
    this.#withToken(reason, (options) => {
      const link = this.#newLink();
      const rival = { link, index, lost, isRace };
      this.#setRival(rival, options.connectTimeoutMs);
      try {
        rival.carrier = transports[this.#transports[index]](this.#base, link, options);
      } catch { /* its library is missing */ }
    }, (message) => lost({ reason: message }));
  }

  /** Replaces the connection by the one beside it. */
  #adopt(session) {
    const { link, carrier, index, timer, isRace } = this.#rival;
    clearTimeout(timer);
    this.#rival = undefined;
    // The old carrier goes on for a while: no message of a room is missed, and publications are answered.
    const former = !isRace && this.#state === 'open' && {
      link: this.#link,
      carrier: this.#carrier,
      rooms: new Set([...this.#rooms.values()].filter(({ state }) => state === 'joined').map(({ name }) => name)),
    };
    if (former) this.#carrier = undefined;
    this.#drop('reconnecting', !isRace);
    if (former) {
      this.#former = former;
      this.#after(RACE_MS, () => {
        former.carrier.close();
        this.#former = undefined;
      });
    }
    this.#link = link;
    this.#carrier = carrier;
    this.#index = index;
    this.#state = 'connecting';
    this.#resume();
    link('opened', session);
  }

  #subscribe(store) {
    // With some transports, an invalid key would fail the other feeds, or lead to another path.
    if (!(this.#options.keys ?? ASCII_KEYS).test(store.key)) return store.become('not_found', 'bad key');
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
    this.#carrier?.join(room.name, room.position);
    this.#watch(room);
  }

  /** Handles a list of members, or a notice about them. */
  #watch({ name, presence }) {
    if (!presence || !this.#carrier) return;
    const carrier = this.#carrier;
    carrier.watch(name, true, (error) => {
      if (this.#carrier !== carrier || this.#rooms.get(name)?.presence !== presence) return;
      if (error) presence.failed(error);
      else presence.read((query, answered) => carrier.members(name, query, answered));
    });
  }

  /** Sends what is queued, or rejects it. */
  #flush() {
    this.#outbox.drain((message) => {
      if (this.#carrier) this.#carrier.publish(message);
      else message.reject(new StentorError('closed', 'the connection is closed'));
    });
  }

  /** Returns whether the connection wasn't at rest before. */
  #pause(reason) {
    if (this.#state === 'paused' || this.#state === 'refused' || this.#state === 'closed') return false;
    this.#dropRival();
    this.#drop(reason);
    this.#become('paused', { reason });
    return true;
  }

  #end(state, details) {
    this.#dropRival();
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
