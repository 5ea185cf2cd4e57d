// When to try again: exponential back-off with full jitter, so that a server that comes back isn't met by everybody at
// once. The wait before attempt n is drawn evenly from 0 to min(mostMs, firstMs · 2^n), and comes on top of what the
// server asked for.

export class Backoff {
  #attempts = 0;
  #firstMs;
  #mostMs;

  constructor({ firstMs = 500, mostMs = 30_000 } = {}) {
    this.#firstMs = firstMs;
    this.#mostMs = mostMs;
  }

  /** Milliseconds to wait now, at least `leastMs`. */
  next(leastMs = 0) {
    return leastMs + Math.random() * Math.min(this.#mostMs, this.#firstMs * 2 ** this.#attempts++);
  }

  /** All is well again. */
  reset() {
    this.#attempts = 0;
  }
}
