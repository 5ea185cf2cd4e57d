// What a history of clients has to satisfy. Each check returns sentences about what is wrong.

/** The order in which the engine put messages: the position of each, and that no two clients disagree. */
export class Order {
  #messages = new Map();
  #positions = new Map();
  wrong = [];

  /** A client received the message `id` at a position. */
  saw({ epoch, offset, id }, who) {
    const position = `${epoch}:${offset}`;
    const other = this.#messages.get(position);
    if (other !== undefined && other !== id) this.wrong.push(`${who} received ${id} at ${position}, others ${other}`);
    const before = this.#positions.get(id);
    if (before !== undefined && before !== position) this.wrong.push(`${id} is at ${before} and at ${position} (${who})`);
    this.#messages.set(position, id);
    this.#positions.set(id, position);
  }

  /** Where a message is, `[epoch, offset]`, if anybody received it. */
  of(id) {
    return this.#positions.get(id)?.split(':').map(Number);
  }

  /** Whether the messages of each publisher are in its order, within each epoch. */
  publishers(unsure) {
    const epochs = new Map();
    for (const [position, id] of this.#messages) {
      const [epoch, offset] = position.split(':').map(Number);
      epochs.set(epoch, [...(epochs.get(epoch) ?? []), { offset, id }]);
    }
    return [...epochs].flatMap(([epoch, messages]) => ordered(messages.sort((a, b) => a.offset - b.offset).map(({ id }) => id), `epoch ${epoch}`, unsure));
  }
}

/**
 * Whether each publisher's messages `publisher:number` are in its order, and none is there twice. Those of `unsure`, of which their publisher didn't
 * hear, may come late: it didn't wait for them.
 */
export function ordered(ids, who, unsure = new Set()) {
  const last = new Map();
  const wrong = [];
  const late = new Set();
  for (const id of ids) {
    if (unsure.has(id)) {
      if (late.has(id)) wrong.push(`${who}: ${id} comes twice`);
      late.add(id);
      continue;
    }
    const [publisher, number] = [id.slice(0, id.lastIndexOf(':')), Number(id.slice(id.lastIndexOf(':') + 1))];
    const before = last.get(publisher) ?? -1;
    if (number <= before) wrong.push(`${who}: ${id} comes after ${publisher}:${before}`);
    last.set(publisher, Math.max(number, before));
  }
  return wrong;
}

/**
 * A member of a room with history: what it received follows its last position without a gap, unless a gap was announced; it goes
 * forward in any case. `log` has `{ open: position | null }`, `{ gap }` and `{ epoch, offset, id }`.
 */
export function continuous(log, who) {
  const wrong = [];
  const left = new Set();
  let last = null;
  let announced = false;
  for (const entry of log) {
    if ('open' in entry) {
      // Without a position, whatever comes first is where it begins.
      last = entry.open;
      announced = false;
    } else if (entry.gap) {
      announced = true;
    } else if (entry.id !== undefined) {
      const { epoch, offset } = entry;
      const at = `${who}: ${entry.id} at ${epoch}:${offset}`;
      if (last && epoch !== last.epoch) {
        left.add(last.epoch);
        if (!announced) wrong.push(`${at} is of another epoch than ${last.epoch}:${last.offset}, and nobody said so`);
        if (left.has(epoch)) wrong.push(`${at} is of an epoch that had ended`);
      } else if (last && offset <= last.offset) {
        wrong.push(`${at} is not after ${last.offset}`);
      } else if (last && offset !== last.offset + 1 && !announced) {
        wrong.push(`${at} follows ${last.offset}, and nobody announced the gap`);
      }
      last = { epoch, offset };
      announced = false;
    }
  }
  return wrong;
}

/** A follower of a feed: versions never go back, and each is the upstream's document. `log` has `{ version, isExact }`. */
export function followed(log, who) {
  const wrong = [];
  let newest = 0;
  for (const { version, isExact } of log.filter(({ version }) => version !== undefined)) {
    if (version < newest) wrong.push(`${who}: version ${version} after ${newest}`);
    if (!isExact) wrong.push(`${who}: version ${version} is not the upstream's document`);
    newest = Math.max(newest, version);
  }
  return wrong;
}
