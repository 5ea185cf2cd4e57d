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
    const positions = this.#positions.get(id) ?? new Map();
    const before = positions.get(epoch);
    if (before !== undefined && before !== offset) this.wrong.push(`${id} is at ${epoch}:${before} and at ${position} (${who})`);
    this.#messages.set(position, id);
    this.#positions.set(id, positions.set(epoch, offset));
  }

  /** Messages that are in more epochs than one, and than the engine forgot while they were published: `forgotten(id)` times. */
  repeated(forgotten) {
    return [...this.#positions].filter(([id, { size }]) => size > 1 + forgotten(id)).map(([id, positions]) => `${id} is at ${[...positions].map((at) => at.join(':')).join(' and ')}`);
  }

  /** Whether anybody received a message. */
  has(id) {
    return this.#positions.has(id);
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
 * Whether each publisher's messages `publisher:number` are in its order, and none is there twice, but for those that the engine forgot while they were
 * published: `forgotten(id)` times more. Those of `unsure`, of which their publisher didn't hear, may come late: it didn't wait for them.
 */
export function ordered(ids, who, unsure = new Set(), forgotten = () => 0) {
  const last = new Map();
  const wrong = [];
  const counts = new Map();
  for (const id of ids) {
    const count = (counts.get(id) ?? 0) + 1;
    counts.set(id, count);
    const isRepeated = count > 1 && count <= 1 + forgotten(id);
    if (unsure.has(id)) {
      if (count > 1 && !isRepeated) wrong.push(`${who}: ${id} comes twice`);
      continue;
    }
    const [publisher, number] = [id.slice(0, id.lastIndexOf(':')), Number(id.slice(id.lastIndexOf(':') + 1))];
    const before = last.get(publisher) ?? -1;
    if (number < before || (number === before && !isRepeated)) wrong.push(`${who}: ${id} comes after ${publisher}:${before}`);
    last.set(publisher, Math.max(number, before));
  }
  return wrong;
}

/**
 * How often the engine died and forgot, at one of the moments `deaths`, while a message was published. Its node sends it again if the answer is lost:
 * then it has a position in the epoch before and in the one after. A publisher that gave up doesn't know for how long its node goes on: up to
 * `later_ms`.
 */
export function timesForgotten({ from, to, outcome }, deaths, later_ms) {
  const end = outcome.startsWith('unknown') ? to + later_ms : to;
  return deaths.filter((at) => from <= at && at <= end).length;
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
