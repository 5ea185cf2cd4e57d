// Questions to the other workers, and their answers: `fetchSockets`, `serverSideEmit` and broadcasts with acknowledgements.
//
// They travel as RELAY in the namespace `/`, which every worker has, whatever the namespace that is meant. So a worker without that namespace
// answers, too. Arguments travel in the encoding of the application's own parser: binary works with any.

import { sendable } from './data.js';
import { WORKER } from './entries.js';

/** Longest time until all workers have answered, in milliseconds, as in Socket.IO's cluster adapters. */
const TIMEOUT_MS = 5_000;
/** Longest time for acknowledgements of a broadcast without a `timeout`, in milliseconds. */
const ACK_TIMEOUT_MS = 60_000;
/** The index of the namespace `/`. */
const MAIN = 0;
const EVENT = 2;

/** Rooms as values of JSON. Clients choose them where the application lets them. */
const named = (rooms) => Array.from(rooms, (room) => (typeof room === 'string' ? room : sendable(room)));
const plain = ({ rooms, except = [], flags = {} }) => ({ rooms: named(rooms), except: named(except), flags });
const sets = ({ rooms, except, flags }) => ({ rooms: new Set(rooms), except: new Set(except), flags });

export class Relay {
  #worker;

  constructor(worker) {
    this.#worker = worker;
  }

  // This worker's questions.

  /** Sockets of all other workers. */
  fetchSockets(nsp, opts) {
    return new Promise((resolve, reject) => {
      this.#askAll(opts.flags?.timeout ?? TIMEOUT_MS, { kind: 'fetch', nsp, opts: plain(opts) }, undefined, (error, sockets) => (error ? reject(error) : resolve(sockets)));
    });
  }

  /** Emits an event to all other workers. The last of `args` may be a function, which gets an error or the answers. */
  serverSideEmit(nsp, args) {
    if (typeof args.at(-1) !== 'function') return this.#write(0, { kind: 'emit', nsp }, args);
    return this.#askAll(TIMEOUT_MS, { kind: 'emit', nsp }, args.slice(0, -1), args.at(-1));
  }

  /** Broadcasts an event to the sockets of all other workers. `count` is called for each worker, `ack` for each client that acknowledges. */
  broadcastWithAck(nsp, args, opts, count, ack) {
    const { questions, peers } = this.#worker;
    if (peers <= 1) return;
    const id = questions.add({ count, ack, answer: () => count(0) }, opts.flags?.timeout ?? ACK_TIMEOUT_MS, () => {});
    this.#write(0, { kind: 'broadcast', nsp, id, opts: plain(opts) }, args);
  }

  /** `done(error, answers)` is called when all have answered, or the time is over. */
  #askAll(timeoutMs, body, args, done) {
    const { questions, peers } = this.#worker;
    if (peers <= 1) return done(null, []);
    const answers = [];
    let missing = peers - 1;
    const answer = (found) => {
      answers.push(...found);
      missing -= 1;
      if (missing > 0) return;
      questions.finish(id);
      done(null, answers);
    };
    const id = questions.add({ answer }, timeoutMs, () => done(new Error(`timeout reached: missing ${missing} responses`), answers));
    return this.#write(0, { ...body, id }, args);
  }

  // RELAYED.

  handle({ link, body, messages }) {
    // Stentor passes a text on as `null` if it is nested too deep.
    if (body === null) return undefined;
    const adapter = this.#worker.namespaces.named(body.nsp);
    const { kind, id } = body;
    const question = this.#worker.questions.find(id);
    const reply = (answer, args) => this.#write(link, { id, ...answer }, args);
    switch (kind) {
      case 'fetch':
        return adapter ? this.#describeSockets(adapter, body.opts, reply) : reply({ kind: 'sockets', sockets: [] });
      case 'emit':
        return adapter ? this.#emit(adapter.nsp, id, this.#unpack(messages), reply) : id !== undefined && reply({ kind: 'sockets', sockets: [] });
      case 'broadcast': {
        const count = (sockets) => reply({ kind: 'count', count: sockets });
        if (!adapter) return count(0);
        const packet = { type: EVENT, data: this.#unpack(messages) };
        return adapter.broadcastHere(packet, sets(body.opts), count, (...answer) => {
          try {
            reply({ kind: 'ack' }, answer);
          } catch {
            // A client has acknowledged with a value that is nested too deep to be encoded.
          }
        });
      }
      case 'sockets':
        return question?.answer?.(body.sockets);
      case 'emitted':
        return question?.answer?.(this.#unpack(messages));
      case 'count':
        return question?.count?.(body.count);
      case 'ack':
        return question?.ack?.(...this.#unpack(messages));
      default:
        // Stentor's answer for a worker without the namespace.
        return body.k === 'none' ? question?.answer?.([]) : undefined;
    }
  }

  async #describeSockets(adapter, opts, reply) {
    const sockets = await adapter.fetchSocketsHere(sets(opts));
    const described = sockets.map((socket) => {
      // `sessionStore` is a circular structure that express-session leaves in the handshake.
      const { sessionStore, ...handshake } = socket.handshake;
      for (const [name, value] of Object.entries(handshake)) handshake[name] = sendable(value);
      return { id: socket.id, handshake, rooms: named(socket.rooms), data: sendable(socket.data) };
    });
    reply({ kind: 'sockets', sockets: described });
  }

  #emit(nsp, id, args, reply) {
    if (id === undefined) return nsp._onServerSideEmit(args);
    let isAnswered = false;
    return nsp._onServerSideEmit([...args, (answer) => {
      if (!isAnswered) reply({ kind: 'emitted' }, [answer]);
      isAnswered = true;
    }]);
  }

  #write(link, body, args) {
    const messages = args === undefined ? [] : this.#worker.io.encoder.encode({ type: EVENT, nsp: '/', data: ['', ...args] });
    this.#worker.channel.write(WORKER.RELAY, MAIN, link, body, messages);
  }

  #unpack(messages) {
    let args = [];
    const decoder = new this.#worker.io._parser.Decoder();
    decoder.on('decoded', (packet) => (args = packet.data.slice(1)));
    for (const message of messages) decoder.add(message);
    decoder.destroy?.();
    return args;
  }
}
