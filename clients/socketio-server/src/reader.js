// Reads the entries of a received frame. Everything is checked: a frame that is cut, or has an unknown type, throws `FrameError`.

import { FLAG } from './entries.js';
import { HEADER_BYTES } from './writer.js';

/** Binary messages of at least this length share the memory of their frame. Shorter ones are copied, so that they don't keep a large frame. */
const SHARED_BYTES_MIN = 16_384;

/** A frame that breaks the protocol. */
export class FrameError extends Error {
  name = 'FrameError';
}

export class Reader {
  /** `entries`: those of the peer, as in `entries.js`. */
  constructor(frame, entries) {
    this.frame = frame;
    this.offset = 0;
    this.entry = 'the header';
    this.types = typesOf(entries);
    this.number = this.u32();
    this.ack = this.u32();
    this.offset = HEADER_BYTES;
  }

  /** `true` until the end of the frame. */
  hasNext() {
    return this.offset < this.frame.length;
  }

  /** Reads the type of the next entry: the entry of `entries.js`. Its fields are then read in their order. */
  next() {
    const type = this.u8();
    const entry = this.types[type];
    if (!entry) throw new FrameError(`the frame has an entry of the unknown type ${type}`);
    this.entry = entry.name;
    return entry;
  }

  /** Reads all fields of an entry. */
  fields(entry) {
    const found = {};
    for (const [name, kind] of entry.fields) {
      if (kind === 'offset') found[name] = found.flags & FLAG.OFFSET ? this.name() : null;
      else found[name] = this[kind]();
    }
    return found;
  }

  u8() {
    return this.frame[this.#take(1)];
  }

  u16() {
    return this.frame.readUInt16LE(this.#take(2));
  }

  u32() {
    return this.frame.readUInt32LE(this.#take(4));
  }

  bool() {
    return this.u8() !== 0;
  }

  name() {
    return this.#text(this.u16());
  }

  /** A JSON text. Empty if it was left out. */
  text() {
    return this.#text(this.u32());
  }

  json() {
    const text = this.text();
    try {
      return JSON.parse(text);
    } catch {
      throw new FrameError(`${this.entry} is malformed: a text isn't JSON`);
    }
  }

  message() {
    const word = this.u32();
    const length = word >>> 1;
    if ((word & 1) === 0) return this.#text(length);
    const start = this.#take(length);
    const content = this.frame.subarray(start, start + length);
    return length < SHARED_BYTES_MIN ? Buffer.from(content) : content;
  }

  messages() {
    return this.#list(this.u16(), this.message);
  }

  names() {
    return this.#list(this.u16(), this.name);
  }

  handles() {
    return this.#list(this.u32(), this.u32);
  }

  #list(count, read) {
    const list = [];
    for (let i = 0; i < count; i++) list.push(read.call(this));
    return list;
  }

  #text(length) {
    const start = this.#take(length);
    return this.frame.toString('utf8', start, start + length);
  }

  #take(length) {
    const start = this.offset;
    this.offset = start + length;
    if (this.offset > this.frame.length) throw new FrameError(`the frame ends within ${this.entry}`);
    return start;
  }
}

const known = new Map();

/** Entries by type. */
function typesOf(entries) {
  let types = known.get(entries);
  if (!types) {
    types = [];
    for (const entry of Object.values(entries)) types[entry.type] = entry;
    known.set(entries, types);
  }
  return types;
}
