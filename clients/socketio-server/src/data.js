// `socket.data` as JSON, for Stentor, which keeps it for the next worker.

/** Stentor keeps no more of a socket's `data`. */
const DATA_BYTES_MAX = 64 << 10;
/** A text of at most this many characters can't exceed the limit. */
const UNMEASURED_CHARS_MAX = DATA_BYTES_MAX / 3;

let hasWarned = false;

/** The JSON text of a socket's `data`. `null` if it can't be kept: it isn't JSON, or too long. */
export function dataOf(data) {
  let text;
  let reason;
  try {
    text = JSON.stringify(data) ?? 'null';
    if (text.length <= UNMEASURED_CHARS_MAX || Buffer.byteLength(text) <= DATA_BYTES_MAX) return text;
    reason = `it has ${Buffer.byteLength(text)} bytes of JSON; the maximum is ${DATA_BYTES_MAX}`;
  } catch (error) {
    reason = error.message;
  }
  if (!hasWarned) process.emitWarning(`the data or auth of a socket can't be kept for the next worker: ${reason}`, { type: 'StentorWarning' });
  hasWarned = true;
  return null;
}

/** Maximum depth of a value in a JSON text of the link, whose own depth is at most 128. */
const DEPTH_MAX = 120;

/** A value, or an empty object if it isn't JSON or is nested too deep for the link. Clients choose `auth`, and often `data`; middlewares add to the handshake. */
export function sendable(value) {
  try {
    return depthOf(JSON.stringify(value) ?? 'null') <= DEPTH_MAX ? value : {};
  } catch {
    return {};
  }
}

/** The depth of a JSON text. */
function depthOf(text) {
  let depth = 0;
  let deepest = 0;
  for (const [token] of text.matchAll(/"(?:[^"\\]+|\\.)*"|[[{\]}]/g)) {
    if (token === '[' || token === '{') deepest = Math.max(deepest, (depth += 1));
    else if (token === ']' || token === '}') depth -= 1;
  }
  return deepest;
}

/** The part of a handshake that Stentor keeps for the next worker. Without `auth`, which a client chooses, if it can't be kept. */
export function stateOf({ auth, time, issued }) {
  return dataOf(auth) === null ? { time, issued } : { auth, time, issued };
}

/** Sends the `data` of sockets that have changed. Looks at those sessions that have had a message since the last call. */
export class DataKeeper {
  #active = [];
  #write;
  /** The last text that Stentor has, by socket. `null`: it isn't known. */
  #sent = new WeakMap();

  /** `write(session, adapter, text)` sends the data of a socket. */
  constructor(write) {
    this.#write = write;
  }

  activate(session) {
    if (session.isActive) return;
    session.isActive = true;
    this.#active.push(session);
  }

  /** Stentor has no `data` of a socket, or those of a former process. */
  forget(socket) {
    if (socket.recovered) this.#sent.set(socket, null);
    else this.#sent.delete(socket);
  }

  save() {
    for (const session of this.#active.splice(0)) {
      session.isActive = false;
      if (session.readyState === 'open') this.#saveSession(session);
    }
  }

  #saveSession(session) {
    for (const [adapter, socket] of session.sockets) {
      const text = dataOf(socket.data);
      const sent = this.#sent.has(socket) ? this.#sent.get(socket) : '{}';
      if (text === null || text === sent) continue;
      this.#sent.set(socket, text);
      this.#write(session, adapter, text);
    }
  }
}
