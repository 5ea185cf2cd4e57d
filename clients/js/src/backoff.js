// Exponential backoff with full jitter, so that clients don't all reconnect at once. The delay before attempt n is random
// between 0 and min(maxMs, initialMs · factor^n), added to what the server asks for.

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
    return leastMs + Math.random() * Math.min(this.#maxMs, this.#initialMs * this.#factor ** this.#attempts++);
  }

  reset() {
    this.#attempts = 0;
  }
}
