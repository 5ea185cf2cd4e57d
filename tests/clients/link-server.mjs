// Stentor's side of an application link, scripted by the test: what it writes and when, and what it expects of the worker.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { Server } from 'socket.io';
import { SERVER, WORKER } from '../../clients/socketio-server/src/entries.js';
import { attach } from '../../clients/socketio-server/src/index.js';
import { Outgoing } from '../../clients/socketio-server/src/outgoing.js';
import { Reader } from '../../clients/socketio-server/src/reader.js';
import { HEADER_BYTES } from '../../clients/socketio-server/src/writer.js';
import { listening, queue } from './harness.mjs';

const { WebSocketServer } = createRequire(import.meta.url)('ws');

/** A server for workers: { url, connection() }. `connection` gives the next worker's connection, after its HELLO. */
export async function linkServer(t) {
  const connections = queue();
  const server = createServer();
  const sockets = new WebSocketServer({ server });
  sockets.on('connection', (socket, request) => new Connection(socket, request, connections.put));
  const port = await listening(t, server);
  return { url: `ws://127.0.0.1:${port}`, connection: () => connections.next('a worker') };
}

class Connection {
  #socket;
  #outgoing = new Outgoing(() => {});
  #entries = queue();
  #arrived = 0;
  #hasHello = false;

  constructor(socket, request, put) {
    this.#socket = socket;
    this.request = request;
    this.closed = new Promise((resolve) => socket.on('close', resolve));
    socket.on('message', (data) => {
      const reader = new Reader(data, WORKER);
      const { number, ack } = reader;
      if (number !== 0) this.#arrived = number;
      while (reader.hasNext()) {
        const entry = reader.next();
        const fields = reader.fields(entry);
        if (entry === WORKER.HELLO && !this.#hasHello) {
          this.#hasHello = true;
          this.hello = fields.hello;
          put(this);
        } else this.#entries.put({ entry: entry.name, ...fields, number, ack });
      }
      if (data.length === HEADER_BYTES) this.#entries.put({ entry: 'ack', number, ack });
    });
  }

  /** Sends an entry in a frame without a number. */
  first(name, body) {
    const outgoing = new Outgoing(() => {});
    outgoing.write(SERVER[name], body);
    const [frame] = outgoing.poll(0);
    frame.writeUInt32LE(0, 0);
    this.#socket.send(frame);
  }

  welcome(fields = {}) {
    this.first('WELCOME', { v: 1, link: 5, resumed: false, received: 0, servers: 1, window: 262_144, options: {}, ...fields });
    return this;
  }

  /** Sends entries, `[name, ...fields]`, in one frame, which acknowledges all that has arrived. */
  write(...entries) {
    for (const [name, ...fields] of entries) this.#outgoing.write(SERVER[name], ...fields);
    for (const frame of this.#outgoing.poll(this.#arrived)) this.#socket.send(frame);
  }

  /** Sends bytes as they are. */
  raw(bytes) {
    this.#socket.send(bytes);
  }

  /** Number of the last frame that has arrived. */
  get arrived() {
    return this.#arrived;
  }

  /** The next entry. */
  any() {
    return this.#entries.next('an entry');
  }

  /** The next entry of this type; others are left out. */
  async read(name) {
    for (;;) {
      const found = await this.#entries.next(name);
      if (found.entry === name) return found;
    }
  }

  /** Cuts the connection. */
  cut() {
    this.#socket.terminate();
  }
}

/** The handshake of a client. */
export function handshake(sid, fields = {}) {
  const url = '/socket.io/?EIO=4&transport=websocket';
  const query = { EIO: '4', transport: 'websocket' };
  return {
    sid, url, query, protocol: 4, transport: 'websocket', method: 'GET', httpVersion: '1.1', headers: { host: 'a.example' },
    address: '192.0.2.1', port: 1234, localAddress: '192.0.2.2', localPort: 80, encrypted: false, ...fields,
  };
}

/** A worker with a link: { io, link, server, connection }. */
export async function worker(t, { options = {}, settings = {}, setup = () => {}, welcome } = {}) {
  const io = new Server(options);
  t.after(() => io.close());
  const server = await linkServer(t);
  const link = attach(io, server.url, { name: 'w', signals: false, settle: 0, ...settings });
  setup(io);
  const listening = link.listen();
  const connection = await server.connection();
  connection.welcome(welcome);
  await listening;
  return { io, link, server, connection };
}

/** Opens a session with a socket in `/`. Gives the socket. */
export async function connected(io, connection, handle) {
  const connecting = once(io, 'connection');
  connection.write(['OPEN', handle, false, handshake(`s${handle}`)], ['MESSAGE', handle, ['0{"user":"Ann"}']]);
  const [socket] = await connecting;
  return socket;
}
