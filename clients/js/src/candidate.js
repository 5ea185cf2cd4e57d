// The connection that opens beside the current one, and the one that it has replaced.
//
//                  opens ──► adopt(): it is the current one, and the replaced one goes on for a while, unless it is silent
//   open(), hold() ┤
//                  fails, or takes too long ──► lost(details)
//
// It opens for one of three reasons: the current carrier may be dead (a race: the one that speaks first stays), the first transport of the list may
// work again, or the first WebSocket of a page is slow.

import { now } from './clock.js';
import { CONNECT_TIMEOUT_MS, RACE_AGAIN_MS, RACE_MS } from './times.js';
import { openCarrier } from './transports/index.js';

export class Candidate {
  /**
   * `link`, `carrier`, `index` of its transport, `lost(details)` and a `timer`. `isRace`: it is dropped if the current carrier speaks. `isSilent`: the
   * current carrier has been asked for a sign of life, and gave none. `undefined`: no connection opens beside the current one.
   */
  #entry;
  /** The `link` and the `carrier` that were replaced, and the names of `rooms` that the new carrier hasn't joined yet. */
  #former;
  #adopt;
  /** Time of the last race that didn't wait for a sign of life. */
  #racedAt = -Infinity;

  /** `adopt(entry, session)` makes the connection that has opened the current one. */
  constructor(adopt) {
    this.#adopt = adopt;
  }

  /** Whether there is one. */
  get isOpening() { return !!this.#entry; }

  /** Whether a race may begin although the current connection may well work. */
  mayRace() {
    const mayRace = !this.#entry && now() - this.#racedAt >= RACE_AGAIN_MS;
    if (mayRace) this.#racedAt = now();
    return mayRace;
  }

  /** Opens a connection by the transport `name`. `entry` has no carrier yet. */
  open(entry, name, base, options) {
    this.hold(entry, options.connectTimeoutMs);
    try {
      entry.carrier = openCarrier(name, base, entry.link, options);
    } catch { /* its library is missing */ }
  }

  /** Lets a carrier open for at most `timeoutMs` milliseconds. */
  hold(entry, timeoutMs = CONNECT_TIMEOUT_MS) {
    const former = this.#entry;
    this.drop();
    // A race may be dropped without a report, so the attempt that it replaces must not wait for one.
    if (entry.isRace && !former?.isRace) former?.lost();
    this.#entry = entry;
    entry.timer = setTimeout(entry.link, timeoutMs, 'lost', { reason: 'the server is silent' });
  }

  /** Closes the connection that is opening. */
  drop() {
    const entry = this.#entry;
    this.#entry = undefined;
    clearTimeout(entry?.timer);
    entry?.carrier?.close();
  }

  /** Ends a race: the current connection speaks, or is lost. */
  dropRace() {
    if (this.#entry?.isRace) this.drop();
  }

  /** Lets a replaced carrier go on for a while, so that no message of a room is missed, and publications are answered. */
  retire(former, after) {
    this.#former = former;
    after(RACE_MS, () => this.dropFormer());
  }

  dropFormer() {
    this.#former?.carrier.close();
    this.#former = undefined;
  }

  /** The current carrier has joined a room, or was refused. */
  joined(room) {
    this.#former?.rooms.delete(room);
  }

  /** Handles an event of a carrier that isn't the current one. Returns whether it counts nevertheless: a message of a room that only the replaced carrier has joined. */
  handle(link, what, details) {
    if (this.#former?.link === link) return what === 'received' && this.#former.rooms.has(details[0].room);
    const entry = this.#entry;
    if (entry?.link !== link) return false;
    if (what === 'opened') {
      clearTimeout(entry.timer);
      this.#entry = undefined;
      this.#adopt(entry, ...details);
    } else if (what === 'lost') {
      this.drop();
      entry.lost(...details);
    }
    return false;
  }
}
