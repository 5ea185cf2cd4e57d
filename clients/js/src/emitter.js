// Event listeners. Only this package emits; applications listen, and close what they no longer need.

/** `emit(emitter, event, …details)` calls the listeners. An exception of one is reported as uncaught and affects nothing else. */
export let emit;

export class Emitter {
  #listeners = new Set();

  static {
    emit = (emitter, event, ...details) => {
      for (const [name, listener] of [...emitter.#listeners]) {
        try {
          if (name === event) listener(...details);
        } catch (error) {
          setTimeout(() => { throw error; });
        }
      }
    };
  }

  /** Calls `listener` at each event of that name. Returns a function that removes it. */
  on(name, listener) {
    const entry = [name, listener];
    this.#listeners.add(entry);
    return () => { this.#listeners.delete(entry); };
  }
}

/** One user's handle of a shared feed or room. Closing the last handle calls `release`. */
export class Handle extends Emitter {
  #shared;
  #release;

  constructor(shared, release) {
    super();
    this.#shared = shared;
    this.#release = release;
    shared.handles.add(this);
  }

  close() {
    const { handles } = this.#shared;
    if (handles.delete(this) && handles.size === 0) this.#release();
  }
}
