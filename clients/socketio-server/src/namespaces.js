// The namespaces that are declared on a link, and their adapters by index.
//
// Invariant: indexes on a link are dense, and an index keeps its name. A new link has new indexes, without those of namespaces that are gone.

import { WORKER } from './entries.js';

export class Namespaces {
  #indexes = new Map();
  /** Adapters by index. `null`: the namespace is gone. */
  #adapters = [];
  #write;

  constructor(write) {
    this.#write = write;
  }

  /** Declares a namespace, unless the link has it. Returns its index. */
  declare(name, adapter) {
    let index = this.#indexes.get(name);
    if (index === undefined) {
      index = this.#adapters.length;
      this.#indexes.set(name, index);
      this.#write(WORKER.NSP, index, name);
    }
    this.#adapters[index] = adapter;
    return index;
  }

  forget(adapter) {
    if (this.#adapters[adapter.index] === adapter) this.#adapters[adapter.index] = null;
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
    this.#adapters = [];
    for (const adapter of adapters) adapter.index = this.declare(adapter.nsp.name, adapter);
  }
}
