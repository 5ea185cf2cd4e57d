// A room: what others say to everybody who is in it. Rooms travel by the transports `websocket` and `sockjs`.

import { Handle, tell } from './emitter.js';

/** One per name and connection, behind all the `Room`s of that name. */
export class Hall {
  handles = new Set();
  /** What to resume from, where the room keeps history. */
  position = undefined;

  constructor(name) {
    this.name = name;
  }

  receive({ data, event, epoch, offset, encoding }) {
    if (offset !== undefined) this.position = { epoch, offset };
    for (const room of this.handles) tell(room, 'message', data, { event, epoch, offset, encoding });
  }
}

/** A room, as it is handed out. */
export class Room extends Handle {
  constructor(hall, over) {
    super(hall, over);
    this.name = hall.name;
  }
}
