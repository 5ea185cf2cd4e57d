// Questions to the other workers, and their answers: `fetchSockets`, `serverSideEmit` and broadcasts with acknowledgements.
//
// They travel as RELAY in the first namespace, `/`, which every worker has. The body names the namespace that is meant, so that a worker
// without it can answer, too. Arguments travel in the encoding of the application's own parser: binary works with any.

import { WORKER } from './entries.js';

/** Longest time until all workers have answered, in milliseconds, as in Socket.IO's cluster adapters. */
const TIMEOUT_MS = 5_000;
/** Longest time for acknowledgements of a broadcast without a `timeout`, in milliseconds. */
const ACK_TIMEOUT_MS = 60_000;
/** The index of the namespace `/`. */
const MAIN = 0;
const EVENT = 2;

const plain = ({ rooms, except = [], flags = {} }) => ({ rooms: [...rooms], except: [...except], flags });
const sets = ({ rooms, except, flags }) => ({ rooms: new Set(rooms), except: new Set(except), flags });

/** Questions that wait for answers. */
export class Questions {
  #open = new Map();
  #next = 1;

  /** Adds a question. `expire` is called if it isn't finished in time. Returns its id. */
  add(question, timeoutMs, expire) {
    const id = this.#next++;
    const timer = setTimeout(() => {
      this.#open.delete(id);
      expire();
    }, timeoutMs);
    this.#open.set(id, { question, timer });
    return id;
  }

  /** An open question. */
  find(id) {
    return this.#open.get(id)?.question;
  }

  /** Finishes a question. Returns it, or `undefined` if it isn't open. */
  finish(id) {
    const found = this.#open.get(id);
    if (!found) return undefined;
    clearTimeout(found.timer);
    this.#open.delete(id);
    return found.question;
  }

  clear() {
    for (const id of [...this.#open.keys()]) this.finish(id);
  }
}

/**
 * The questions of one adapter. `own`: its functions for this worker's sockets, which answer the others' questions. Members: `fetchSockets(opts)`,
 * `serverSideEmit(args)`, `broadcastWithAck(packet, opts, count, ack)`, `relayed(link, body, messages)` and `close()`.
 */
export function requestsFor(adapter, worker, own) {
  const { nsp } = adapter;
  const questions = new Questions();

  const relay = (link, body, args) => worker.channel.write(WORKER.RELAY, MAIN, link, { nsp: nsp.name, ...body }, args === undefined ? [] : pack(args));
  const pack = (args) => nsp.server.encoder.encode({ type: EVENT, nsp: '/', data: ['', ...args] });

  /** Decodes arguments with a decoder of the application's parser. */
  const unpack = (messages) => {
    let args = [];
    const decoder = new nsp.server._parser.Decoder();
    decoder.on('decoded', (packet) => (args = packet.data.slice(1)));
    for (const message of messages) decoder.add(message);
    decoder.destroy?.();
    return args;
  };

  /** Asks all other workers. `done(error, answers)` is called when all have answered, or the time is over. */
  const askAll = (timeoutMs, body, args, done) => {
    if (worker.peers <= 1) return done(null, []);
    const question = { missing: worker.peers - 1, answers: [], done };
    const id = questions.add(question, timeoutMs, () => {
      done(new Error(`timeout reached: missing ${question.missing} responses`), question.answers);
    });
    return relay(0, { id, ...body }, args);
  };

  const answered = (id, answers) => {
    const question = questions.find(id);
    if (!question) return;
    question.answers.push(...answers);
    question.missing -= 1;
    if (question.missing > 0) return;
    questions.finish(id);
    question.done(null, question.answers);
  };

  const handlers = {
    // Questions.
    async fetch(link, { id, opts }) {
      const sockets = await own.fetchSockets(sets(opts));
      const described = sockets.map((socket) => {
        // `sessionStore` is a circular structure that express-session leaves in the handshake.
        const { sessionStore, ...handshake } = socket.handshake;
        return { id: socket.id, handshake, rooms: [...socket.rooms], data: socket.data };
      });
      relay(link, { kind: 'sockets', id, sockets: described });
    },
    emit(link, { id }, messages) {
      const args = unpack(messages);
      if (id === undefined) return nsp._onServerSideEmit(args);
      let isAnswered = false;
      return nsp._onServerSideEmit([...args, (answer) => {
        if (!isAnswered) relay(link, { kind: 'emitted', id }, [answer]);
        isAnswered = true;
      }]);
    },
    broadcast(link, { id, opts }, messages) {
      const packet = { type: EVENT, data: unpack(messages) };
      own.broadcastWithAck(packet, sets(opts), (count) => relay(link, { kind: 'count', id, count }), (...answer) => relay(link, { kind: 'ack', id }, answer));
    },
    // Answers.
    sockets: (link, { id, sockets }) => answered(id, sockets),
    emitted: (link, { id }, messages) => answered(id, unpack(messages)),
    count: (link, { id, count }) => questions.find(id)?.count(count),
    ack: (link, { id }, messages) => questions.find(id)?.ack(...unpack(messages)),
    // The answer of a worker without the namespace.
    nothing(link, { id }) {
      if (questions.find(id)?.count) questions.find(id).count(0);
      else answered(id, []);
    },
  };

  return {
    fetchSockets(opts) {
      return new Promise((resolve, reject) => {
        askAll(opts.flags?.timeout ?? TIMEOUT_MS, { kind: 'fetch', opts: plain(opts) }, undefined, (error, sockets) => (error ? reject(error) : resolve(sockets)));
      });
    },
    serverSideEmit(args) {
      if (typeof args.at(-1) !== 'function') return relay(0, { kind: 'emit' }, args);
      return askAll(TIMEOUT_MS, { kind: 'emit' }, args.slice(0, -1), args.at(-1));
    },
    broadcastWithAck(packet, opts, count, ack) {
      if (worker.peers <= 1) return;
      const id = questions.add({ count, ack }, opts.flags?.timeout ?? ACK_TIMEOUT_MS, () => {});
      relay(0, { kind: 'broadcast', id, opts: plain(opts) }, packet.data);
    },
    relayed(link, body, messages) {
      if (Object.hasOwn(handlers, body.kind)) handlers[body.kind](link, body, messages);
    },
    close: () => questions.clear(),
  };
}

/** Answers a question for a namespace that this worker doesn't have. */
export function answerNothing(channel, link, { nsp, id, kind }) {
  if (id !== undefined && ['fetch', 'emit', 'broadcast'].includes(kind)) channel.write(WORKER.RELAY, MAIN, link, { nsp, kind: 'nothing', id }, []);
}
