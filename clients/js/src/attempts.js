// The next attempt to connect: by which transport, and when.
//
// Transports are tried in the order of the list, each one as soon as the previous one has failed to open. After the last one the client backs off and
// begins again. A transport that was open and is lost gets `SAME_TRANSPORT_ATTEMPTS` attempts before the others, so that a restart of the server
// doesn't move clients to a worse transport. One whose connections are reset early, as by a proxy, is left after `RESETS_MAX` of them. A token says
// nothing about the transport: it is tried again with another token.

import { Backoff } from './backoff.js';
import { OVERLOADED_MS, PREFERRED_MAX_MS, PREFERRED_MS, RECONNECT, RESETS_MAX, SAME_TRANSPORT_ATTEMPTS, STABLE_MS } from './times.js';
import { transportList } from './transports/index.js';

export class Attempts {
  /** The index of the transport that is in use or being tried. */
  index = 0;
  /** The fault of the last token if the server has just named one: `expired` or `refused`. */
  tokenFault;
  /** Whether the first WebSocket may go on opening beside the next transport. */
  isAuto;
  #transports;
  #backoff;
  /** For attempts after faults of tokens. */
  #tokenBackoff;
  /** For attempts with the first transport while a fallback is in use. */
  #preferredBackoff;
  #sameTransportAttempts = 0;
  /** In this round through the list: the transports that can never open, and how long the server asked us to wait. */
  #permanentFailures = 0;
  #afterMs = 0;
  #resets = 0;

  constructor({ backoff, preferredRetryMs }) {
    this.#backoff = new Backoff({ ...RECONNECT, ...backoff });
    this.#tokenBackoff = new Backoff(backoff);
    this.#preferredBackoff = new Backoff({ initialMs: PREFERRED_MS, maxMs: preferredRetryMs ?? PREFERRED_MAX_MS });
  }

  /** Takes the option `transport`. */
  choose(transport = 'auto') {
    this.#transports = transportList(transport);
    this.index = 0;
    this.isAuto = transport === 'auto';
  }

  /** The name of the transport with this index. */
  name(index = this.index) { return this.#transports[index]; }

  /** The delay before the next attempt if the application, and not the network, is at fault. */
  delayMs() { return this.#tokenBackoff.delayMs(); }

  /** The delay before the first transport is tried beside a fallback. */
  preferredDelayMs() { return this.#preferredBackoff.delayMs(); }

  /** The application asks for an attempt at once. */
  reset() {
    this.#sameTransportAttempts = this.#permanentFailures = this.#afterMs = 0;
    this.#backoff.reset();
    this.#tokenBackoff.reset();
  }

  opened() {
    this.#sameTransportAttempts = SAME_TRANSPORT_ATTEMPTS;
    this.#permanentFailures = this.#afterMs = 0;
  }

  /**
   * Decides after a failure, with the details of `lost` (transports/index.js). `openMs` is how long the connection was open; `undefined`: it wasn't.
   * Returns the delay before the next attempt in milliseconds, or `undefined` if there is none; and whether no transport of the list has opened.
   */
  failed({ code, retry = true, afterMs = 0, token }, openMs, canGetToken) {
    const wasOpen = openMs !== undefined;
    const hasLasted = openMs >= STABLE_MS;
    if (hasLasted) {
      this.#backoff.reset();
      this.#tokenBackoff.reset();
      this.tokenFault = undefined;
      if (!this.index) this.#preferredBackoff.reset();
    }
    // One attempt follows at once, with another token.
    if (token && canGetToken && (token === 'expired' || !this.tokenFault)) {
      const waitMs = this.tokenFault ? this.delayMs() : 1;
      this.tokenFault = token;
      return { waitMs };
    }
    if ((wasOpen || token) && !retry) return {};
    this.#resets = wasOpen && !hasLasted && (!code || code === 1006) ? this.#resets + 1 : wasOpen ? 0 : this.#resets;
    if (this.#resets >= RESETS_MAX && this.#next()) this.#resets = this.#sameTransportAttempts = 0;
    // 4502: the server is out of memory.
    this.#afterMs = Math.max(this.#afterMs, code === 4502 ? OVERLOADED_MS : afterMs);
    let isRoundOver = false;
    if (!wasOpen && this.#sameTransportAttempts) {
      this.#sameTransportAttempts = retry && this.#sameTransportAttempts - 1;
      // Now the whole list.
      if (!this.#sameTransportAttempts) this.index = 0;
    } else if (!wasOpen) {
      this.#permanentFailures += !retry;
      // From a timer: a list of failures is no recursion.
      if (this.#next()) return { waitMs: 1 };
      if (this.#permanentFailures === this.#transports.length) return {};
      this.index = this.#permanentFailures = 0;
      isRoundOver = true;
    }
    const waitMs = this.#backoff.delayMs(this.#afterMs);
    this.#afterMs = 0;
    return { waitMs, isRoundOver };
  }

  /** Goes on to the next transport. Returns whether there is one. */
  #next() {
    if (this.index + 1 >= this.#transports.length) return false;
    this.index += 1;
    return true;
  }
}
