// Entries in both directions: collects them into frames, sends a frame once per turn, acknowledges, and continues after a broken connection.
//
// ```text
//  connecting ── HELLO, WELCOME ──► up ── connection ends ──► lost ── WELCOME, resumed ──► up: both sides send again what isn't acknowledged
//                                                               └─── WELCOME, new ───────► up: all sessions are gone (`on.reset`)
// ```

import { Connection } from './connection.js';
import { SERVER, VERSION, WORKER } from './entries.js';
import { LinkError } from './error.js';
import { Incoming } from './incoming.js';
import { inHeader } from './number.js';
import { Outgoing } from './outgoing.js';
import { FrameError, Reader } from './reader.js';
import { HEADER_BYTES, Writer } from './writer.js';

/** Longest time until an acknowledgement that has nothing to travel with. */
const ACK_MS = 20;
/** While there is no connection, entries of at most this many bytes wait for one. */
const WAITING_BYTES_MAX = 8 << 20;

export class Channel {
  #connection;
  #on;
  #incoming = new Incoming();
  #outgoing;
  #isScheduled = false;
  #ackTimer = null;
  #onAcknowledged = null;
  #flush = () => {
    this.#isScheduled = false;
    this.flush();
  };
  /** Number of the link. `null`: there is none. */
  number = null;
  /** `true` between WELCOME and the end of the connection. */
  isUp = false;
  counts = { framesIn: 0, framesOut: 0, bytesIn: 0, bytesOut: 0 };

  /**
   * `on`: { hello() → fields of HELLO, entry(entry, reader), up(welcome), lost(), reset(), error(LinkError) }. `reset` follows the end of a link:
   * its sessions are gone, and nothing is declared on the next one.
   */
  constructor(url, token, on) {
    this.#on = on;
    this.#outgoing = this.#newOutgoing();
    this.#connection = new Connection(url, token, {
      open: () => this.#hello(),
      message: (data) => this.#receive(data),
      lost: () => this.#lost(),
      failed: (error) => on.error(error),
    });
  }

  #newOutgoing() {
    return new Outgoing((message) => this.#on.error(new LinkError('limit', message)));
  }

  open() {
    this.#connection.connect();
  }

  // To Stentor.

  /** Appends an entry, which is sent at the end of the turn. Returns `false` if it is dropped. */
  write(entry, ...fields) {
    this.schedule();
    return this.#outgoing.write(entry, ...fields);
  }

  /** Appends a message for one session: see `Outgoing.send`. */
  send(handle, flags, message, options) {
    this.#outgoing.send(WORKER.SEND, handle, flags, message, options);
    if (!this.#isScheduled) this.schedule();
  }

  /** Sends at the end of the turn. */
  schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(this.#flush);
  }

  /** Sends what is pending, with an acknowledgement. */
  flush() {
    if (!this.isUp) {
      if (this.#outgoing.keptBytes > WAITING_BYTES_MAX) {
        this.#end(new LinkError('limit', `without a connection, entries of more than ${WAITING_BYTES_MAX} bytes were dropped`));
      }
      return;
    }
    if (this.#outgoing.isPending) {
      for (const frame of this.#outgoing.poll(this.#incoming.acknowledge())) this.#send(frame);
    } else if (this.#incoming.isUnacknowledged) {
      this.#send(header(this.#incoming.acknowledge()));
    }
  }

  #send(frame) {
    this.counts.framesOut += 1;
    this.counts.bytesOut += frame.length;
    this.#connection.send(frame);
  }

  #hello() {
    const writer = new Writer();
    writer.u8(WORKER.HELLO.type);
    writer.json({ v: [VERSION], link: this.number, received: inHeader(this.#incoming.arrived), ...this.#on.hello() });
    const frame = writer.take();
    frame.fill(0, 0, HEADER_BYTES);
    this.#connection.send(frame);
  }

  // From Stentor.

  #receive(data) {
    try {
      this.#frame(Buffer.isBuffer(data) ? data : Buffer.from(data));
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.#end(new LinkError('protocol', `Stentor broke the protocol: ${error.message}`));
      this.#connection.drop();
    }
  }

  #frame(frame) {
    const reader = new Reader(frame, SERVER);
    this.counts.framesIn += 1;
    this.counts.bytesIn += frame.length;
    if (!this.isUp) return this.#first(reader);
    if (reader.number !== 0) this.#incoming.arrive(reader.number, frame.length);
    this.#outgoing.acknowledge(reader.ack);
    if (this.#onAcknowledged !== null && this.#outgoing.isAcknowledged) this.#onAcknowledged();
    while (reader.hasNext()) {
      const entry = reader.next();
      if (entry === SERVER.ERROR) return this.#refused(reader.json(), 'Stentor has ended the link');
      if (entry === SERVER.NOP) this.#incoming.isUrgent = true;
      else this.#handle(entry, reader);
    }
    if (reader.number === 0) return undefined;
    if (this.#incoming.isUrgent) return this.schedule();
    // An acknowledgement alone can wait for entries to travel with.
    this.#ackTimer ??= setTimeout(() => {
      this.#ackTimer = null;
      this.flush();
    }, ACK_MS);
    return undefined;
  }

  /** An exception of the application is reported as uncaught, and affects no other entry. */
  #handle(entry, reader) {
    try {
      this.#on.entry(entry, reader);
    } catch (error) {
      if (error instanceof FrameError) throw error;
      process.nextTick(() => { throw error; });
    }
  }

  /** The first frame of a connection: WELCOME or ERROR. */
  #first(reader) {
    const entry = reader.next();
    if (entry === SERVER.ERROR) return this.#refused(reader.json(), 'Stentor refuses this worker');
    if (entry !== SERVER.WELCOME) throw new FrameError(`the first frame has ${entry.name}`);
    const welcome = reader.json();
    if (welcome.resumed) {
      this.#outgoing.reconnect(welcome.received);
      this.#incoming.reconnect();
    } else if (this.number !== null) {
      this.#reset();
    }
    this.number = welcome.link;
    this.isUp = true;
    this.#connection.accepted();
    this.#on.up(welcome);
    return this.flush();
  }

  #refused({ code, message }, what) {
    const error = new LinkError(code, `${what}: ${message}`);
    this.#end(error);
    if (error.isFinal) this.#connection.close();
    else this.#connection.refused();
    this.#connection.drop();
  }

  #lost() {
    const wasUp = this.isUp;
    this.isUp = false;
    if (wasUp) this.#on.lost();
  }

  /** Ends the link because of an error. The next connection begins another one. */
  #end(error) {
    this.#reset();
    this.#on.error(error);
  }

  #reset() {
    this.number = null;
    this.#lost();
    this.#incoming = new Incoming();
    this.#outgoing = this.#newOutgoing();
    this.#on.reset();
  }

  // Sessions that are being resumed.

  /** A session holds its messages back: the current frame isn't acknowledged. */
  hold(session) {
    this.#incoming.hold(session);
  }

  /** A session holds no messages back any more. */
  release(session) {
    if (this.#incoming.release(session)) this.schedule();
  }

  /** `true` while a session holds messages back. */
  get isHolding() {
    return this.#incoming.isHolding;
  }

  /** Calls a function once Stentor has handled all entries. */
  onceAcknowledged(call) {
    this.#onAcknowledged = () => {
      this.#onAcknowledged = null;
      call();
    };
    if (this.#outgoing.isAcknowledged) this.#onAcknowledged();
  }

  /** Bytes of entries that Stentor hasn't handled. */
  get keptBytes() {
    return this.#outgoing.keptBytes;
  }

  /** Ends the connection after what was written. */
  close() {
    this.flush();
    clearTimeout(this.#ackTimer);
    this.isUp = false;
    this.#connection.close();
  }

  /** Drops the connection, as if the network had failed. */
  drop() {
    this.#connection.drop();
  }
}

/** A frame without entries and number. */
function header(ack) {
  const frame = Buffer.alloc(HEADER_BYTES);
  frame.writeUInt32LE(inHeader(ack), 4);
  return frame;
}
