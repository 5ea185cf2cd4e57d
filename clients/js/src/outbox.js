// Publications, from `publish()` to the server's answer. Without a connection, they wait for one.
//
// A publication with an id of the application is sent again after a connection was lost. The server publishes it once (docs/protocol.md): it knows the
// ids of the last five minutes, and in which session the client sent it first. So the client names that session, and repeats nothing that is older.
//
// Bounded: beyond `messagesMax` (including those that wait for an answer) or `charsMax`, a new publication is rejected with
// `queue_full`; queued ones are never dropped. Publications in flight when a connection ends are rejected with
// `connection_lost`, unless they have an id: they may have arrived.
//
// Each error has an `outcome`: `unknown` if the publication may have arrived, otherwise `not_published`.

import { now } from './clock.js';
import { StentorError } from './error.js';
import { REPEATS_MS } from './times.js';

export class Outbox {
  #waiting = [];
  #count = 0;
  #chars = 0;
  #messagesMax;
  #charsMax;
  /** For each id of the last minutes: `session`, in which it was sent first, and the time `at`. */
  #firsts = new Map();
  /** Called when a publication waits to be sent again. */
  #again;

  constructor(messagesMax, charsMax, again) {
    this.#again = again;
    this.#messagesMax = messagesMax;
    this.#charsMax = charsMax;
  }

  /** Queues a publication, as the text of its fields. Returns the promise of its answer, which fails after `timeoutMs`, if there is one. */
  put(text, timeoutMs, id) {
    let timer;
    const promise = new Promise((resolve, fail) => {
      const reject = (error, outcome) => {
        if (id && error.code === 'connection_lost') {
          // While a connection is open, nothing else waits, so the order stays.
          this.#waiting.push(message);
          return this.#again();
        }
        // A server that refuses a repeated publication says nothing about the earlier attempt.
        const isUnknown = message.attempts > 1 || /^(connection_lost|unavailable)$/.test(error.code);
        fail(Object.assign(error, { outcome: outcome ?? (isUnknown ? 'unknown' : 'not_published') }));
      };
      const message = { text, id, resolve, reject, attempts: 0 };
      this.#waiting.push(message);
      if (timeoutMs === undefined) return;
      timer = setTimeout(() => {
        const index = this.#waiting.indexOf(message);
        if (index >= 0) this.#waiting.splice(index, 1);
        // It isn't sent again.
        id = undefined;
        reject(new StentorError('timeout', `no answer in ${timeoutMs} ms`, true), index < 0 || message.attempts ? 'unknown' : undefined);
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

  /** Passes everything that waits to `send`, oldest first. Without `send`, the connection is closed. */
  drain(session, send) {
    for (const [id, { at }] of this.#firsts) if (now() - at > REPEATS_MS) this.#firsts.delete(id);
    for (const message of this.#waiting.splice(0)) {
      const { id, text, reject, attempts } = message;
      const first = this.#firsts.get(id);
      if (!send) {
        reject(new StentorError('closed', 'the connection is closed'), attempts ? 'unknown' : undefined);
      } else if (attempts && !first) {
        reject(new StentorError('timeout', `no answer in ${REPEATS_MS} ms`, true), 'unknown');
      } else {
        message.attempts += 1;
        if (id && !first) this.#firsts.set(id, { session, at: now() });
        send(first && first.session !== session ? { ...message, text: `${text},"first_session":"${first.session}"` } : message);
      }
    }
  }
}
