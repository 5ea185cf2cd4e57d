// A connection: its state, the transport in use, and when it reconnects. subscriptions.js has its feeds and rooms, candidate.js the connection that
// opens beside the current one.
//
//                     ┌─────── backoff ◄────── waiting ◄────┐
//                     ▼                                     │ no transport of the list opens, or an open one is lost
//   connect() ──► connecting ──► open ──────────────────────┤
//                     ▲                                     │ the server doesn't allow a reconnect
//                     └─ reconnect() ◄── refused ◄──────────┘            close() ──► closed, from every state
//   resume() ──► connecting                                              pause() ──► paused, from every state but refused and closed
//
// attempts.js decides by which transport the next attempt is, and when. While a fallback is in use, the client tries the first transport beside it now and
// then, and switches to it when it opens. With `auto`, the first WebSocket of a page goes on opening beside the next transport if it is slow.
//
// A connection can be dead before anybody notices. When the network has changed or the machine slept, the client asks the server for a sign
// of life. Without one in `RACE_MS`, a second connection opens beside the first one, and the one that speaks first stays. Over `sse` and `polling`, whose
// requests cost little, the second one opens as soon as the network has changed.

import { Attempts } from './attempts.js';
import { Backoff } from './backoff.js';
import { Candidate } from './candidate.js';
import { now } from './clock.js';
import { Emitter, emit } from './emitter.js';
import { StentorError } from './error.js';
import { Outbox } from './outbox.js';
import { address, checkOrigin, isSeen, watchPage } from './page.js';
import { Subscriptions } from './subscriptions.js';
import { AUTO_MS, CONNECT_TIMEOUT_MS, RACE_MAX_MS, RACE_MS, RENEWAL, SILENCE_MS, STABLE_MS, STUCK_MS } from './times.js';
import { noResponse } from './transports/http.js';
import { openCarrier } from './transports/index.js';

/** The states in which publications wait. */
const WAITING = ['connecting', 'waiting', 'paused'];

export class Connection extends Emitter {
  #base;
  #options;
  #attempts;
  /** For requests that the server may accept later. A connection's own back-off is independent of them. */
  #requestBackoff;
  #outbox;
  #subscriptions;
  #state = 'connecting';
  #session;
  #carrier;
  /** The callback of the current carrier. Those of earlier carriers are ignored. */
  #link;
  #timers = new Set();
  /** Time of the last change to `open`, and of the last attempt. */
  #openedAt = 0;
  #triedAt = 0;
  /** The last token. */
  #token;
  /** The server's answer to whether it refuses the page's origin: see page.js. */
  #refusal;
  /** The timers of a check. */
  #check;
  /** The connection that opens beside the current one. */
  #candidate = new Candidate((entry, session) => this.#adopt(entry, session));
  #raceMs = RACE_MS;
  /** Without an address: a page is being rendered on a server, and there is nothing to connect to. */
  #isInert;
  /** Paused because the page was left. It may come back from the browser's back/forward cache. */
  #isLeft = false;
  #closing = new AbortController();

  constructor(url, options = {}) {
    super();
    ({ base: this.#base, isInert: this.#isInert } = address(url));
    this.#options = options;
    this.#attempts = new Attempts(options);
    this.#attempts.choose(options.transport);
    this.#requestBackoff = new Backoff(options.backoff);
    this.#subscriptions = new Subscriptions(options.keys, this.#requestBackoff, this.#after, (error) => emit(this, 'error', error));
    this.#outbox = new Outbox(options.queueMax ?? 1_000, options.queueCharsMax ?? 1_000_000, () => setTimeout(() => this.#state === 'open' && this.#flush()));
    watchPage((event) => this.#page[event](), this.#closing.signal);
    if (this.#isInert || options.autoConnect === false) this.#state = 'paused';
    else this.#try(0);
  }

  get state() { return this.#state; }
  /** The name of the transport that is in use or being tried. */
  get transport() { return this.#attempts.name(); }
  get session() { return this.#session; }

  feed(key, subscribeOptions) { return this.#subscriptions.feed(key, subscribeOptions); }
  room(name) { return this.#subscriptions.room(name); }

  publish(room, data, event, options) {
    return this.#send({ type: 'publish', room, event, data: data ?? null, idempotency_key: options?.id }, options);
  }

  /** Sends an event to the rule or hook that handles it. A failure is an `error` of the connection. */
  emit(event, data) {
    this.emitWithAck(event, data).catch((error) => emit(this, 'error', error));
  }

  emitWithAck(event, data, options) {
    return this.#send({ type: 'event', event, data: data ?? null }, options);
  }

  #send(message, { timeoutMs = this.#options.publishTimeoutMs } = {}) {
    const answer = this.#outbox.put(JSON.stringify(message).slice(1, -1), timeoutMs, message.idempotency_key);
    if (!WAITING.includes(this.#state)) this.#flush();
    return answer;
  }

  use(transport) {
    this.#attempts.choose(transport);
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
    this.#attempts.reset();
    this.#candidate.drop();
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
      if (this.#state === 'connecting' && this.#carrier && now() - this.#triedAt > STUCK_MS) {
        this.#candidate.drop();
        return this.#try(0);
      }
      this.#wake(0);
      if (this.#state === 'open' && this.#carrier.isHttp && !this.#carrier.isShared && this.#candidate.mayRace()) this.#openBeside({ index: this.#attempts.index, isRace: true, lost: () => {} });
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

  /** The events of a carrier: see transports/index.js. Those that are missing here concern subscriptions only. */
  #on = {
    opened: (session) => {
      if (this.#state === 'open') return;
      this.#session = session;
      this.#openedAt = now();
      this.#requestBackoff.reset();
      this.#attempts.opened();
      if (this.#attempts.index && !this.#candidate.isOpening) this.#retryPreferred();
      this.#become('open', { session });
      this.#flush();
    },

    received: (message, chars) => {
      const { type, room, data, event, encoding } = message;
      if (type === 'message' && room === undefined) return emit(this, 'message', data, { event, encoding });
      this.#subscriptions.on.received(message, chars);
    },

    joined: (room, error) => {
      this.#candidate.joined(room);
      this.#subscriptions.on.joined(room, error);
    },

    alive: () => {
      this.#check?.forEach(clearTimeout);
      this.#check = undefined;
      this.#candidate.dropRace();
      this.#subscriptions.unsuspend();
    },

    woken: () => this.#checkAfter(0),
    silent: () => this.#checkAfter(0),

    // The carrier passes a newer token on.
    expiring: (renew) => {
      const backoff = new Backoff(RENEWAL);
      const ask = () => this.#withToken('expiring', ({ token }) => token && renew(token), () => this.#after(backoff.delayMs(), ask));
      ask();
    },

    lost: (details) => {
      const wasOpen = this.#state === 'open';
      const openMs = wasOpen ? now() - this.#openedAt : undefined;
      if (openMs >= STABLE_MS) this.#raceMs = RACE_MS;
      const { waitMs, isRoundOver } = this.#attempts.failed(details, openMs, !!this.#options.getToken);
      const { code } = details;
      const reason = details.reason || (wasOpen ? 'the connection was lost' : 'no connection');
      if (waitMs === undefined) return this.#refuse({ code, reason });
      if (isRoundOver && !this.#openedAt && this.#refusal === undefined) {
        this.#refusal = false;
        checkOrigin(this.#base).then((error) => (this.#refusal = error) && emit(this, 'error', error));
      }
      this.#try(waitMs, { code, reason });
    },
  };

  /** Tries the first transport again later, and switches to it if it opens. */
  #retryPreferred(reason = 'connect', waitMs = this.#attempts.preferredDelayMs()) {
    this.#after(waitMs, () => this.#openBeside({ index: 0, lost: (details) => this.#lostPreferred(details) }, reason));
  }

  /** The first transport didn't open beside the current one. */
  #lostPreferred({ token } = {}) {
    if (this.#state === 'open') this.#retryPreferred(token, token && this.#requestBackoff.delayMs());
  }

  #become(state, details) {
    this.#state = state;
    emit(this, 'state', state, { transport: this.transport, ...details });
  }

  /** A timer that ends with the current carrier. */
  #after = (ms, then) => {
    const timer = setTimeout(() => this.#timers.delete(timer) && then(), ms);
    this.#timers.add(timer);
    return timer;
  };

  /** Ends the carrier and all timers. Feeds stay `live`, and rooms `joined`, if another carrier has replaced it. */
  #drop(reason, isReplaced) {
    this.#timers.forEach(clearTimeout);
    this.#timers.clear();
    this.#candidate.dropFormer();
    const carrier = this.#carrier;
    this.#link = this.#carrier = this.#session = this.#check = undefined;
    this.#subscriptions.disconnected(reason, isReplaced);
    carrier?.close();
  }

  /** Tries the current transport in `ms` milliseconds. The first one goes on opening beside it. */
  #try(ms, details) {
    this.#candidate.dropRace();
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
    const fault = this.#attempts.tokenFault;
    this.#withToken(fault ?? 'connect', (options) => {
      const reason = 'getToken has returned the refused token';
      if (fault === 'refused' && options.token === this.#token) return this.#refuse({ reason });
      this.#token = options.token;
      this.#connect(link, options);
    }, (reason) => this.#try(this.#attempts.delayMs(), { reason }));
  }

  #connect(link, options) {
    this.#triedAt = now();
    const { connectTimeoutMs = CONNECT_TIMEOUT_MS } = this.#options;
    this.#after(connectTimeoutMs, () => {
      if (this.#state === 'connecting') this.#on.lost({ reason: 'the server is silent' });
    });
    try {
      this.#carrier = openCarrier(this.transport, this.#base, link, options);
    } catch (error) {
      // From a timer: the caller doesn't have this object yet.
      this.#after(0, () => this.#on.lost({ reason: error.message, retry: false }));
      return;
    }
    this.#subscriptions.use(this.#carrier);
    this.#after(RACE_MS, () => this.#state === 'connecting' && this.#carrier?.isHttp && emit(this, 'error', noResponse()));
    // A server that has spoken WebSocket to this page is worth the wait.
    if (this.#attempts.isAuto && !this.#attempts.index && !this.#openedAt) this.#after(AUTO_MS, () => this.#state === 'connecting' && this.#bridge(connectTimeoutMs - AUTO_MS));
  }

  /** Lets the current carrier go on opening beside the next transport. */
  #bridge(timeoutMs) {
    const link = this.#link;
    this.#candidate.hold({ link, carrier: this.#carrier, index: this.#attempts.index, lost: (details) => this.#lostPreferred(details) }, timeoutMs);
    // When it opens, everything is subscribed to again.
    this.#carrier.forget();
    this.#carrier = undefined;
    this.#attempts.index += 1;
    this.#try(0);
  }

  /** The callback of a carrier. One that opens beside the current one replaces it. */
  #newLink() {
    const link = (what, ...details) => {
      if (this.#link === link || this.#candidate.handle(link, what, details)) (this.#on[what] ?? this.#subscriptions.on[what])(...details);
    };
    return link;
  }

  /** Passes the options to `then`, with a token of the application, or the message of its failure to `otherwise`, unless the link has changed meanwhile. */
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
    if (this.#state === 'open') this.#subscriptions.suspend(reason);
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
    this.#openBeside({ index: this.#attempts.index, isRace: true, isSilent: true, lost: this.#on.lost });
  }

  /** Opens a connection beside the current one, with an entry of candidate.js that has no link yet. */
  #openBeside(entry, reason = 'connect') {
    this.#withToken(reason, (options) => {
      entry.link = this.#newLink();
      this.#candidate.open(entry, this.#attempts.name(entry.index), this.#base, options);
    }, (message) => entry.lost({ reason: message }));
  }

  /** Replaces the connection by the one that has opened beside it. */
  #adopt({ link, carrier, index, isSilent }, session) {
    const former = !isSilent && this.#state === 'open' && { link: this.#link, carrier: this.#carrier, rooms: new Set(this.#subscriptions.joined) };
    if (former) this.#carrier = undefined;
    this.#drop('reconnecting', !isSilent);
    if (former) this.#candidate.retire(former, this.#after);
    this.#link = link;
    this.#carrier = carrier;
    this.#attempts.index = index;
    this.#state = 'connecting';
    this.#subscriptions.use(carrier);
    link('opened', session);
  }

  /** Sends what is queued, or rejects it. */
  #flush() {
    const carrier = this.#carrier;
    this.#outbox.drain(this.#session, carrier && ((message) => carrier.publish(message)));
  }

  /** Returns whether the connection wasn't at rest before. */
  #pause(reason) {
    if (this.#state === 'paused' || this.#state === 'refused' || this.#state === 'closed') return false;
    this.#candidate.drop();
    this.#drop(reason);
    this.#become('paused', { reason });
    return true;
  }

  #end(state, details) {
    this.#candidate.drop();
    this.#drop(details.reason);
    this.#become(state, details);
    this.#flush();
  }

  #refuse(details) {
    this.#end('refused', details);
    this.#subscriptions.refuse(details.reason);
  }
}
