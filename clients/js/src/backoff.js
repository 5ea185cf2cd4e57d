// Exponential backoff with jitter, so that clients don't all reconnect at once. The delay before attempt n is random, up to
// min(maxMs, initialMs · factor^n), within half of `maxMs`: at first it may be zero. It is added to what the server asks for.

export class Backoff {
  #attempts = 0;
  #initialMs;
  #maxMs;
  #factor;

  constructor({ initialMs = 500, maxMs = 30_000, factor = 2 } = {}) {
    this.#initialMs = initialMs;
    this.#maxMs = maxMs;
    this.#factor = factor;
  }

  /** The next delay in milliseconds, at least `leastMs`. */
  delayMs(leastMs = 0) {
    const mostMs = Math.min(this.#maxMs, this.#initialMs * this.#factor ** this.#attempts++);
    return leastMs + mostMs - (1 - Math.random()) * Math.min(mostMs, this.#maxMs / 2);
  }

  reset() {
    this.#attempts = 0;
  }
}
