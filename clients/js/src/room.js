// A room: a publish/subscribe channel.

import { Handle, emit } from './emitter.js';
import { Presence } from './presence.js';

/** The state of a room, shared by all `Room`s of its name. */
export class RoomState {
  handles = new Set();
  /** `joining`, `joined` or `refused`. */
  state = 'joining';
  /** The last message, if the room keeps history. */
  position;
  /** Its members, if the application asked for presence. */
  presence;

  constructor(name) {
    this.name = name;
  }

  become(state, reason = '') {
    if (state === this.state) return;
    this.state = state;
    for (const room of this.handles) emit(room, 'state', state, reason);
  }

  receive({ data, event, epoch, offset, encoding }) {
    if (offset !== undefined) {
      // Two carriers may bring the same message while one replaces the other.
      if (epoch === this.position?.epoch && offset <= this.position.offset) return;
      this.position = { epoch, offset };
    }
    for (const room of this.handles) emit(room, 'message', data, { event, epoch, offset, encoding });
  }
}

export class Room extends Handle {
  #shared;
  #watch;

  /** `watch()` returns the presence of the room, and how to end it. */
  constructor(shared, release, watch) {
    super(shared, release);
    this.#shared = shared;
    this.name = shared.name;
    this.#watch = watch;
  }

  get state() { return this.#shared.state; }

  presence() {
    return new Presence(...this.#watch());
  }
}
