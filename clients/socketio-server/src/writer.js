// Writes entries into a buffer, and gives it away frame by frame.
//
// Memory: a short frame is copied out of the buffer. A long one keeps the buffer, which is used again after `recycle`.

import { createHash } from 'node:crypto';

/** Length of a frame's header: its number and the acknowledgement. */
export const HEADER_BYTES = 8;

const BUFFER_BYTES = 128 << 10;
/** Frames of at least this length keep the buffer. */
const KEPT_BYTES_MIN = 16 << 10;
const FREE_MAX = 16;

export class Writer {
  #free = [];

  constructor() {
    this.buffer = Buffer.allocUnsafeSlow(BUFFER_BYTES);
    this.offset = HEADER_BYTES;
  }

  /** Returns the entries before `end` as a frame; the header isn't set. Later bytes move to the next one. */
  take(end = this.offset) {
    const { buffer, offset } = this;
    let frame;
    if (end < KEPT_BYTES_MIN && offset === end) {
      frame = Buffer.allocUnsafe(end);
      buffer.copy(frame, 0, 0, end);
    } else {
      frame = buffer.subarray(0, end);
      this.buffer = this.#free.pop() ?? Buffer.allocUnsafeSlow(BUFFER_BYTES);
    }
    this.offset = HEADER_BYTES;
    if (offset > end) {
      this.#reserve(offset - end);
      buffer.copy(this.buffer, HEADER_BYTES, end, offset);
      this.offset += offset - end;
    }
    return frame;
  }

  /** Uses the memory of a frame again. Nobody may read the frame any more. */
  recycle(frame) {
    const { buffer, byteOffset } = frame;
    if (byteOffset === 0 && buffer.byteLength === BUFFER_BYTES && frame.length >= HEADER_BYTES && this.#free.length < FREE_MAX) {
      this.#free.push(Buffer.from(buffer));
    }
  }

  u8(value) {
    this.#reserve(1);
    this.buffer[this.offset++] = value;
  }

  u16(value) {
    this.#reserve(2);
    this.offset = this.buffer.writeUInt16LE(given(value), this.offset);
  }

  u32(value) {
    this.#reserve(4);
    this.offset = this.buffer.writeUInt32LE(given(value), this.offset);
  }

  bool(value) {
    this.u8(value ? 1 : 0);
  }

  /** A name: a text of at most 65,535 bytes. Any value has one, because applications let clients choose rooms. A longer text becomes its hash. */
  name(value) {
    const text = textOf(value);
    this.#reserve(2 + text.length * 3);
    const length = this.buffer.write(text, this.offset + 2, 'utf8');
    if (length > 0xffff) return this.name(`sha256:${createHash('sha256').update(text).digest('base64url')}`);
    this.buffer.writeUInt16LE(length, this.offset);
    this.offset += 2 + length;
    return undefined;
  }

  /** A JSON text. */
  text(value) {
    this.#reserve(4 + value.length * 3);
    const length = this.buffer.write(value, this.offset + 4, 'utf8');
    this.buffer.writeUInt32LE(length, this.offset);
    this.offset += 4 + length;
  }

  json(value) {
    this.text(JSON.stringify(value));
  }

  /** An Engine.IO message: a string, or bytes of any kind. */
  message(value) {
    if (typeof value === 'string') {
      this.#reserve(4 + value.length * 3);
      const length = this.buffer.write(value, this.offset + 4, 'utf8');
      this.buffer.writeUInt32LE(length * 2, this.offset);
      this.offset += 4 + length;
      return;
    }
    const bytes = ArrayBuffer.isView(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : new Uint8Array(value);
    this.u32(bytes.length * 2 + 1);
    this.#reserve(bytes.length);
    this.buffer.set(bytes, this.offset);
    this.offset += bytes.length;
  }

  messages(list) {
    this.u16(list.length);
    for (const message of list) this.message(message);
  }

  /** Names in an array or a set. */
  names(list) {
    this.u16(list.length ?? list.size);
    for (const name of list) this.name(name);
  }

  handles(list) {
    this.u32(list.length);
    for (const handle of list) this.u32(handle);
  }

  #reserve(bytes) {
    if (this.offset + bytes <= this.buffer.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(this.buffer.length * 2, this.offset + bytes));
    this.buffer.copy(larger, 0, 0, this.offset);
    this.buffer = larger;
  }
}

/** The text of a value. Objects of JSON may have a `toString` that is no function. */
export function textOf(value) {
  try {
    return String(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}

/** A number. Node would write 0 for a missing one, which names a session or namespace. */
function given(value) {
  if (typeof value !== 'number') throw new TypeError(`a number is missing: ${value}`);
  return value;
}
