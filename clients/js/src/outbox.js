// Publications, from `publish()` to the server's answer. Without a connection, they wait for one.
//
// Bounded: beyond `messagesMax` (including those that wait for an answer) or `charsMax`, a new publication is rejected with
// `queue_full`; queued ones are never dropped. Publications in flight when a connection ends are rejected with
// `connection_lost`: they may have arrived, and nothing is sent twice.
//
// Each error has an `outcome`: `unknown` if the publication may have arrived, otherwise `not_published`.

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

  /** Queues a publication, as the text of its fields. Returns the promise of its answer, which fails after `timeoutMs`, if there is one. */
  put(text, timeoutMs) {
    let timer;
    const promise = new Promise((resolve, fail) => {
      const reject = (error, outcome = error.code === 'connection_lost' ? 'unknown' : 'not_published') => fail(Object.assign(error, { outcome }));
      const message = { text, resolve, reject };
      this.#waiting.push(message);
      if (timeoutMs === undefined) return;
      timer = setTimeout(() => {
        const index = this.#waiting.indexOf(message);
        if (index >= 0) this.#waiting.splice(index, 1);
        reject(new StentorError('timeout', `no answer in ${timeoutMs} ms`, true), index < 0 ? 'unknown' : undefined);
      }, timeoutMs);
    });
    const isFull = this.#count >= this.#messagesMax || this.#chars + text.length > this.#charsMax;
    if (text.length > this.#charsMax) {
      this.#waiting.pop().reject(new StentorError('too_long', `a message has at most ${this.#charsMax} characters (queueCharsMax)`));
    } else if (isFull) {
      this.#waiting.pop().reject(new StentorError('queue_full', 'the queue is full', true));
    }
    this.#count += 1;
    this.#chars += text.length;
    const done = () => {
      clearTimeout(timer);
      this.#count -= 1;
      this.#chars -= text.length;
    };
    // This also prevents an unhandled rejection if the application ignores the promise.
    promise.then(done, done);
    return promise;
  }

  /** Passes everything that waits to `send`, oldest first. */
  drain(send) {
    for (const message of this.#waiting.splice(0)) send(message);
  }
}
