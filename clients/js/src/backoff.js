// When to try again: exponential back-off with full jitter, so that a server that comes back isn't met by everybody at
// once. The wait before attempt n is drawn evenly from 0 to min(maxMs, initialMs · 2^n), and comes on top of what the
// server asked for.

export class Backoff {
  #attempts = 0;
  #initialMs;
  #maxMs;

  constructor({ initialMs = 500, maxMs = 30_000 } = {}) {
    this.#initialMs = initialMs;
    this.#maxMs = maxMs;
  }

  /** Milliseconds to wait now, at least `leastMs`. */
  next(leastMs = 0) {
    return leastMs + Math.random() * Math.min(this.#maxMs, this.#initialMs * 2 ** this.#attempts++);
  }

  /** All is well again. */
  reset() {
    this.#attempts = 0;
  }
}
