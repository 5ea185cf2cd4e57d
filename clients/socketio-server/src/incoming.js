// Frames from Stentor: their order, and the frames that may be acknowledged.
//
// A frame is acknowledged when the handlers of all its messages have run up to their first `await`: at the end of the turn. Messages that a
// session holds back, because it is being resumed, aren't handled yet; neither is any later frame.

import { inHeader } from './number.js';
import { FrameError } from './reader.js';

/** Handled bytes after which an acknowledgement doesn't wait for other entries. */
const ACK_BYTES = 32 << 10;

export class Incoming {
  /** Sessions that hold messages back, and the count of the first such frame. */
  #holding = new Map();
  #acknowledged = 0;
  #bytes = 0;
  /** Count of the last frame that has arrived. */
  arrived = 0;
  /** `true`: an acknowledgement is due at the end of the turn. */
  isUrgent = false;

  /** Counts a frame. Throws if it isn't the next one. */
  arrive(number, bytes) {
    const expected = inHeader(this.arrived + 1);
    if (number !== expected) throw new FrameError(`the frame has the number ${number}; expected ${expected}`);
    this.arrived += 1;
    this.#bytes += bytes;
    if (this.#bytes >= ACK_BYTES) this.isUrgent = true;
  }

  /** A session holds the messages of the current frame back. */
  hold(session) {
    if (!this.#holding.has(session)) this.#holding.set(session, this.arrived);
  }

  /** A session doesn't hold messages back any more. */
  release(session) {
    return this.#holding.delete(session);
  }

  get isHolding() {
    return this.#holding.size > 0;
  }

  /** Count of the last handled frame, at the end of a turn. */
  get handled() {
    let handled = this.arrived;
    for (const count of this.#holding.values()) handled = Math.min(handled, count - 1);
    return handled;
  }

  /** `true` if an acknowledgement is to be sent. */
  get isUnacknowledged() {
    return this.handled > this.#acknowledged;
  }

  /** An acknowledgement of the handled frames is being sent. Returns their count. */
  acknowledge() {
    this.#acknowledged = this.handled;
    this.#bytes = 0;
    this.isUrgent = false;
    return this.#acknowledged;
  }

  /** Continues on another connection: acknowledgements may have been lost. */
  reconnect() {
    this.#acknowledged = 0;
  }
}
