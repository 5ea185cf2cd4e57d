// The namespaces that are declared on a link, and their adapters by index.
//
// Invariant: an index on a link keeps its name until the namespace is gone, and Stentor has confirmed that no entry with the index follows.

import { WORKER } from './entries.js';

/** Maximum length of a name, and of all names of a link, in bytes. Stentor ends a link that exceeds them. */
const NAME_BYTES_MAX = 256;
const NAMES_BYTES_MAX = 4 << 20;
/** Maximum number of names of a link at a time. The index above is no namespace's. */
const COUNT_MAX = 65_535;
/** The index of the namespace `/`. */
const MAIN = 0;

export class Namespaces {
  #indexes = new Map();
  #bytes = 0;
  #isFull = false;
  /** Adapters by index. `null`: the namespace is gone. */
  #adapters = [];
  /** Indexes that Stentor has freed. */
  #vacant = [];
  #write;
  #onFull;

  /** `onFull` is called once per link when a client is refused a name for which there is no room. */
  constructor(write, onFull = () => {}) {
    this.#write = write;
    this.#onFull = onFull;
  }

  /** `true` if a namespace can have this name. Clients choose the names of dynamic namespaces. */
  hasRoom(name) {
    if (this.#indexes.has(name)) return true;
    const bytes = Buffer.byteLength(name);
    return bytes <= NAME_BYTES_MAX && this.#bytes + bytes <= NAMES_BYTES_MAX && (this.#vacant.length > 0 || this.#adapters.length < COUNT_MAX);
  }

  /** Like `hasRoom`, for a name that a client has chosen. */
  admits(name) {
    if (this.hasRoom(name)) return true;
    if (!this.#isFull && Buffer.byteLength(name) <= NAME_BYTES_MAX) {
      this.#isFull = true;
      this.#onFull();
    }
    return false;
  }

  /** Declares a namespace, unless the link has it. Returns its index. Throws if there is no room: check the names that clients choose with `admits`. */
  declare(name, adapter) {
    let index = this.#indexes.get(name);
    if (index === undefined) {
      if (!this.hasRoom(name)) throw new RangeError(`the name of a namespace is longer than ${NAME_BYTES_MAX} bytes, or there are too many: ${name.slice(0, 100)}`);
      this.#bytes += Buffer.byteLength(name);
      index = this.#vacant.pop() ?? this.#adapters.length;
      this.#indexes.set(name, index);
      this.#write(WORKER.NSP, index, name);
    }
    this.#adapters[index] = adapter;
    return index;
  }

  /** The namespace of an adapter is gone. Its name doesn't count any more. The namespace `/`, in which workers ask each other, keeps its index. */
  forget(adapter) {
    const { index } = adapter;
    if (this.#adapters[index] !== adapter) return;
    this.#adapters[index] = null;
    if (index !== MAIN) this.#free(adapter.nsp.name, index);
  }

  #free(name, index) {
    this.#indexes.delete(name);
    this.#bytes -= Buffer.byteLength(name);
    this.#write(WORKER.GONE, index);
  }

  /** Stentor writes no entry with this index any more. */
  vacated(index) {
    this.#vacant.push(index);
  }

  /**
   * The index of a namespace that is gone here, for entries of this turn: the application still has it, or other workers do. `null` if there is
   * no room for its name.
   */
  late(name) {
    const known = this.#indexes.get(name);
    if (known !== undefined) return known;
    if (!this.admits(name)) return null;
    const index = this.declare(name, null);
    setImmediate(() => {
      if (this.#indexes.get(name) === index && this.#adapters[index] === null) this.#free(name, index);
    });
    return index;
  }

  /** The adapter of an index. `undefined` if the namespace is gone. */
  adapter(index) {
    return this.#adapters[index] ?? undefined;
  }

  /** The adapter of a name. `undefined` if there is no such namespace. */
  named(name) {
    return this.adapter(this.#indexes.get(name));
  }

  /** Declares all namespaces on a new link. */
  redeclare() {
    const adapters = this.#adapters.filter((adapter) => adapter);
    this.#indexes.clear();
    this.#bytes = 0;
    this.#isFull = false;
    this.#adapters = [];
    this.#vacant = [];
    for (const adapter of adapters) adapter.index = this.declare(adapter.nsp.name, adapter);
  }
}
