// Frames to Stentor: entries are collected into frames, and frames are kept until they are acknowledged.
//
// Invariant: a frame has at most `FRAME_BYTES`, unless one entry alone is longer. An entry that can't be sent leaves no trace.

import { FLAG } from './entries.js';
import { inHeader, nearest } from './number.js';
import { FrameError } from './reader.js';
import { HEADER_BYTES, Writer } from './writer.js';

/** Maximum length of a frame, unless one entry alone is longer. */
const FRAME_BYTES = 64 << 10;
/** Maximum length of a frame with one entry: Stentor accepts no longer one. */
const FRAME_BYTES_MAX = 16 << 20;

export class Outgoing {
  #writer = new Writer();
  /** Start of the last entry. It may still grow. */
  #start = HEADER_BYTES;
  /** The messages of which the last entry consists, if it is a SEND that may grow. */
  #growing = null;
  /** Frames that aren't acknowledged. */
  #kept = [];
  #last = 0;
  #acked = 0;
  #transmitted = 0;
  /** Bytes of the frames that aren't acknowledged. */
  keptBytes = 0;

  /** `onDropped(message)` reports an entry that is too long, or has too long a list. */
  constructor(onDropped) {
    this.onDropped = onDropped;
  }

  /** `true` if there are entries or frames that haven't been transmitted. */
  get isPending() {
    return this.#writer.offset > HEADER_BYTES || this.#transmitted < this.#last;
  }

  /** `true` if Stentor has handled all frames. */
  get isAcknowledged() {
    return !this.isPending && this.#acked === this.#last;
  }

  /** Appends an entry with its fields. Returns `false` if it is dropped, because a list is too long. Throws if a number is missing. */
  write(entry, ...fields) {
    const writer = this.#begin(entry.type);
    try {
      for (let i = 0; i < fields.length; i++) {
        const kind = entry.fields[i][1];
        if (kind !== 'offset') writer[kind](fields[i]);
        else if (fields[i] !== null) writer.name(fields[i]);
      }
    } catch (error) {
      writer.offset = this.#start;
      // Clients choose rooms where the application lets them. Only the length of a list can exceed its field.
      if (error.code !== 'ERR_OUT_OF_RANGE') throw error;
      this.onDropped(`${entry.name} was dropped: a list has more than 65,535 elements`);
      return false;
    }
    return true;
  }

  /**
   * Appends a SEND with one message. Consecutive messages of one session with the same `options` object are the parts of one packet: they
   * become one entry, which Stentor sends as a whole.
   */
  send(entry, handle, flags, message, options) {
    const growing = this.#growing;
    const writer = this.#writer;
    if (growing !== null && growing.handle === handle && growing.options === options && growing.count < 0xffff) {
      growing.count += 1;
      writer.message(message);
      writer.buffer.writeUInt16LE(growing.count, growing.countAt);
      return;
    }
    this.#begin(entry.type);
    writer.u32(handle);
    writer.u8(flags);
    const countAt = writer.offset;
    writer.u16(1);
    writer.message(message);
    this.#growing = flags & FLAG.RECEIPT ? null : { handle, options, count: 1, countAt };
  }

  #begin(type) {
    this.#seal();
    this.#start = this.#writer.offset;
    this.#writer.u8(type);
    return this.#writer;
  }

  /** Ends the last entry: finishes the frame before it if both don't fit, and drops it if no frame can have it. */
  #seal() {
    const writer = this.#writer;
    this.#growing = null;
    if (writer.offset <= FRAME_BYTES) return;
    const bytes = writer.offset - this.#start;
    if (HEADER_BYTES + bytes > FRAME_BYTES_MAX) {
      writer.offset = this.#start;
      this.onDropped(`a message of ${bytes} bytes was dropped; the maximum is ${FRAME_BYTES_MAX}`);
      return;
    }
    if (this.#start > HEADER_BYTES) this.#keep(writer.take(this.#start));
    if (writer.offset > FRAME_BYTES) this.#keep(writer.take());
    this.#start = writer.offset;
  }

  #keep(frame) {
    this.#last += 1;
    frame.writeUInt32LE(inHeader(this.#last), 0);
    this.#kept.push(frame);
    this.keptBytes += frame.length;
  }

  /** Ends the current frame. Returns the frames to transmit, with the acknowledgement `ack` in their headers. */
  poll(ack) {
    this.#seal();
    if (this.#writer.offset > HEADER_BYTES) this.#keep(this.#writer.take());
    this.#start = HEADER_BYTES;
    const frames = this.#kept.slice(this.#transmitted - this.#acked);
    for (const frame of frames) frame.writeUInt32LE(inHeader(ack), 4);
    this.#transmitted = this.#last;
    return frames;
  }

  /** Forgets the frames up to this number: Stentor has handled them. */
  acknowledge(number) {
    const count = nearest(number, this.#acked);
    if (count > this.#transmitted) {
      throw new FrameError(`the frame ${number} is acknowledged; the last one is ${inHeader(this.#transmitted)}`);
    }
    while (this.#acked < count) {
      const frame = this.#kept.shift();
      this.#acked += 1;
      this.keptBytes -= frame.length;
      this.#writer.recycle(frame);
    }
  }

  /** Continues on another connection: frames after `received`, the last one that has reached Stentor, are transmitted again. */
  reconnect(received) {
    const count = nearest(received, this.#acked);
    if (count < this.#acked || count > this.#last) throw new FrameError(`WELCOME has the unknown frame ${received}`);
    this.#transmitted = count;
  }
}
