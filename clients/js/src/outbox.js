// What is published, from `publish()` to the server's answer. What finds no connection waits for one.
//
// Bounded: over `messagesMax`, counting those that wait for an answer, or `charsMax` the new message is refused with
// `queue_full`, never an old one dropped. What was sent when a connection ended is refused with `connection_lost`: nobody
// knows whether it arrived, and nothing is ever sent twice.

import { StentorError } from './error.js';

export class Outbox {
  #waiting = [];
  #count = 0;
  #chars = 0;
  #messagesMax;
  #charsMax;

  constructor(messagesMax, charsMax) {
    this.#messagesMax = messagesMax;
    this.#charsMax = charsMax;
  }

  /** Takes a message, as the text of its members; gives what becomes of it. */
  put(text) {
    const promise = new Promise((resolve, reject) => this.#waiting.push({ text, resolve, reject }));
    const isFull = this.#count >= this.#messagesMax || this.#chars + text.length > this.#charsMax;
    if (isFull) this.#waiting.pop().reject(new StentorError('queue_full', 'too much waits', true));
    this.#count += 1;
    this.#chars += text.length;
    const done = () => {
      this.#count -= 1;
      this.#chars -= text.length;
    };
    // Who doesn't ask how it went isn't bothered with an unhandled rejection either.
    promise.then(done, done);
    return promise;
  }

  /** Hands everything that waits to `send`, oldest first. */
  drain(send) {
    for (const message of this.#waiting.splice(0)) send(message);
  }
}
