// Questions that wait for answers: each has a number, and a time after which it is forgotten.

export class Questions {
  #open = new Map();
  #next = 1;

  /** Adds a question. `expire` is called if it isn't finished in time. Returns its number. */
  add(question, timeoutMs, expire) {
    const number = this.#next++;
    const timer = setTimeout(() => {
      this.#open.delete(number);
      expire();
    }, timeoutMs);
    this.#open.set(number, { question, timer });
    return number;
  }

  /** An open question. */
  find(number) {
    return this.#open.get(number)?.question;
  }

  /** Finishes a question. Returns it, or `undefined` if it isn't open. */
  finish(number) {
    const found = this.#open.get(number);
    if (!found) return undefined;
    clearTimeout(found.timer);
    this.#open.delete(number);
    return found.question;
  }

  clear() {
    for (const number of [...this.#open.keys()]) this.finish(number);
  }
}
