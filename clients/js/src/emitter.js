// Who listens to what. Only this package tells; whoever uses it only listens, and closes what they no longer want.

const listening = new WeakMap();

export class Emitter {
  /** Calls `listener` at each event of that name, until the function that is returned is called. */
  on(name, listener) {
    const mine = [name, listener];
    const all = listening.get(this) ?? new Set();
    listening.set(this, all.add(mine));
    return () => { all.delete(mine); };
  }
}

/** Calls the listeners. One that throws disturbs neither the others nor us; its error is reported as uncaught. */
export function tell(emitter, event, ...details) {
  for (const [name, listener] of [...(listening.get(emitter) ?? [])]) {
    try {
      if (name === event) listener(...details);
    } catch (error) {
      setTimeout(() => { throw error; });
    }
  }
}

/** What is handed out of something that is shared, one to each who asks. When the last one is closed, `over` is called. */
export class Handle extends Emitter {
  #shared;
  #over;

  constructor(shared, over) {
    super();
    this.#shared = shared;
    this.#over = over;
    shared.handles.add(this);
  }

  close() {
    const { handles } = this.#shared;
    if (handles.delete(this) && handles.size === 0) this.#over();
  }
}
