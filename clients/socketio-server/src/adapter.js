// The adapter: Stentor keeps the rooms of all workers' sockets, and each worker those of its own sockets as a mirror.
//
// Every change is written as an entry at once, so changes and broadcasts take effect in the order of the application's calls.

import { randomBytes } from 'node:crypto';
import { CHANGE, FLAG, WORKER } from './entries.js';
import { dataOf, stateOf } from './data.js';
import { LinkError } from './error.js';
import { resumable } from './resume.js';
import { textOf } from './writer.js';

/** Types of Socket.IO's packets. */
const EVENT = 2;

/** Longest time until Stentor's answer about a client that shows a private id, in milliseconds. */
const RESTORE_TIMEOUT_MS = 5_000;

// Offsets of this process: no other one has the same prefix.
const OFFSET_PREFIX = randomBytes(6).toString('base64url');
let offsets = 0;

/** Maximum number of rooms of one entry. The longest names of as many rooms fit into a frame. */
const ROOMS_MAX = 200;
/** Maximum number of rooms of a socket that Stentor keeps for a client that returns, and of the rooms that an ADD can have. */
const KEPT_ROOMS_MAX = 65_535;
/** Maximum length of the rooms of an ADD in bytes. Its other fields fit into a frame beside them. */
const ADDED_BYTES_MAX = 14 << 20;
/** Maximum length of the rooms that a SELECT joins or leaves, in bytes, unless it is local. Stentor ends a link that exceeds it. */
const TARGETS_BYTES_MAX = 1 << 20;
/** Maximum length of a name. A longer one becomes a hash. */
const NAME_BYTES_MAX = 65_535;

const nothing = new Set();

/** Length of a room's name in bytes. */
const nameBytes = (room) => Math.min(Buffer.byteLength(textOf(room)), NAME_BYTES_MAX);

/** The number of these rooms that an ADD has: all of them, if they fit. */
function addedCount(rooms) {
  if (rooms.length <= ROOMS_MAX || rooms.length > KEPT_ROOMS_MAX) return ROOMS_MAX;
  const bytes = rooms.reduce((sum, room) => sum + 2 + nameBytes(room), 0);
  return bytes <= ADDED_BYTES_MAX ? rooms.length : ROOMS_MAX;
}

/** The adapter's class for a worker. `Adapter` is the in-memory adapter of the application's socket.io. */
export function adapterFor(worker, Adapter) {
  const { channel, engine } = worker;

  return class StentorAdapter extends Adapter {
    static isStentor = true;

    /** `true` while the mirror follows a change that Stentor has made. */
    #isMirroring = false;
    /** Sessions of the sockets that Stentor knows, by the socket's id. */
    #known = new Map();
    /** `null`: the namespace is gone. */
    #index = null;

    constructor(nsp) {
      super(nsp);
      this.recovers = Boolean(nsp.server._opts.connectionStateRecovery);
      this.index = worker.namespaces.declare(nsp.name, this);
      // Acknowledgements that were meant for a former process must not match the callbacks of this one.
      if (nsp._ids === 0) nsp._ids = worker.firstAckId;
      resumable(nsp, worker, this);
    }

    serverCount() {
      return Promise.resolve(worker.peers);
    }

    /** `null`: the namespace is gone, and the link has no room to declare it again. */
    get index() {
      return this.#index ?? worker.namespaces.late(this.nsp.name);
    }

    set index(index) {
      this.#index = index;
    }

    /** Socket.IO removes the namespace: the server closes, or the last socket of a dynamic namespace has left (`cleanupEmptyChildNamespaces`). */
    close() {
      if (this.#index === null) return;
      worker.namespaces.forget(this);
      this.#index = null;
    }

    /** Writes an entry about this namespace. Without an index, the application's call has no effect beyond this worker. Returns `false` if the entry is dropped. */
    #write(entry, ...fields) {
      const { index } = this;
      return index === null || channel.write(entry, index, ...fields);
    }

    // Membership.

    addAll(id, rooms) {
      const session = this.#known.get(id);
      if (session) {
        const had = this.sids.get(id) ?? nothing;
        const added = [...rooms].filter((room) => !had.has(room));
        super.addAll(id, rooms);
        if (!this.#isMirroring) this.#join(session, added);
        return;
      }
      super.addAll(id, rooms);
      // Stentor learns of a socket when its middlewares have accepted it.
      const socket = this.nsp.sockets.get(id);
      if (!socket || socket.conn.readyState !== 'open') return;
      const { conn, pid = '', handshake } = socket;
      this.#known.set(id, conn);
      conn.sockets.set(this, socket);
      const all = [...this.sids.get(id)];
      // A resumed socket is a member of its rooms, and ADD replaces them: broadcasts of other workers may take effect between two entries.
      const count = addedCount(all);
      worker.writeSocket(WORKER.ADD, conn, this.index, id, pid, all.slice(0, count), stateOf(handshake));
      this.#join(conn, all.slice(count));
      worker.added(conn, socket);
    }

    #join(session, rooms) {
      for (let i = 0; i < rooms.length; i += ROOMS_MAX) worker.writeSocket(WORKER.JOIN, session, this.index, rooms.slice(i, i + ROOMS_MAX));
    }

    del(id, room) {
      const isMember = this.sids.get(id)?.has(room);
      super.del(id, room);
      const session = this.#known.get(id);
      if (session && isMember && !this.#isMirroring) worker.writeSocket(WORKER.LEAVE, session, this.index, room);
    }

    delAll(id) {
      super.delAll(id);
      const session = this.#known.get(id);
      if (!session) return;
      this.#known.delete(id);
      session.sockets.delete(this);
      if (!worker.isReleasing && session.readyState !== 'closed') worker.writeSocket(WORKER.DEL, session, this.index);
    }

    // Broadcasts.

    broadcast(packet, opts) {
      const flags = opts.flags ?? {};
      let offset = null;
      if (this.recovers && packet.type === EVENT && packet.id === undefined && flags.volatile === undefined) {
        offset = `${OFFSET_PREFIX}${(offsets++).toString(36)}`;
        // Clients show the offset of the last event that they have received.
        packet.data.push(offset);
      }
      packet.nsp = this.nsp.name;
      if (worker.observers > 0) this.#observe(packet, opts);
      this.#publish(packet, opts, flags.local === true, offset);
    }

    broadcastWithAck(packet, opts, count, ack) {
      packet.nsp = this.nsp.name;
      if (!opts.flags?.local) worker.relay.broadcastWithAck(this.nsp.name, packet.data, opts, count, ack);
      this.broadcastHere(packet, opts, count, ack);
    }

    /** Each worker's sockets receive the event with an id of their worker, because ids belong to a worker. */
    broadcastHere(packet, opts, count, ack) {
      packet.nsp = this.nsp.name;
      packet.id = this.nsp._ids++;
      let sockets = 0;
      this.apply(opts, (socket) => {
        sockets += 1;
        socket.acks.set(packet.id, ack);
        socket.notifyOutgoingListeners?.(packet);
      });
      if (sockets > 0) this.#publish(packet, opts, true, null);
      count(sockets);
    }

    #publish(packet, { rooms, except = nothing, flags = {} }, isLocal, offset) {
      let bits = flags.volatile ? FLAG.VOLATILE : 0;
      if (flags.compress === false) bits |= FLAG.UNCOMPRESSED;
      if (isLocal) bits |= FLAG.LOCAL;
      if (offset !== null) bits |= FLAG.OFFSET;
      this.#write(WORKER.BROADCAST, bits, rooms, except, offset, this.nsp.server.encoder.encode(packet));
    }

    /** Emits for this worker's sockets what a broadcast by the worker itself would emit. */
    #observe(packet, opts) {
      const options = { preEncoded: true, volatile: opts.flags?.volatile, compress: opts.flags?.compress };
      let encoded;
      this.apply(opts, (socket) => {
        socket.notifyOutgoingListeners?.(packet);
        if (socket.conn.listenerCount('packetCreate') === 0) return;
        encoded ??= this._encode(packet, options);
        for (const data of encoded) socket.conn.observe(data, options);
      });
    }

    // Changes to the sockets of all workers.

    addSockets(opts, rooms) {
      if (this.#select(CHANGE.JOIN, opts, rooms)) this.#mirror(() => super.addSockets(opts, rooms));
    }

    delSockets(opts, rooms) {
      if (this.#select(CHANGE.LEAVE, opts, rooms)) this.#mirror(() => super.delSockets(opts, rooms));
    }

    disconnectSockets(opts, close) {
      if (opts.flags?.local || this.#select(CHANGE.DISCONNECT, opts, [], close)) super.disconnectSockets(opts, close);
    }

    /** Returns `false` if the change is dropped: this worker's mirror doesn't follow it either. */
    #select(change, { rooms, except = nothing, flags = {} }, targets, closes = false) {
      const bytes = flags.local ? 0 : targets.reduce((sum, room) => sum + nameBytes(room), 0);
      if (bytes > TARGETS_BYTES_MAX) {
        worker.on.error(new LinkError('limit', `a change of rooms was dropped: the names have ${bytes} bytes; the maximum is ${TARGETS_BYTES_MAX}`));
        return false;
      }
      const bits = (flags.local ? FLAG.LOCAL : 0) | (closes ? FLAG.CLOSE : 0);
      return this.#write(WORKER.SELECT, change, bits, rooms, except, targets);
    }

    #mirror(change) {
      this.#isMirroring = true;
      try {
        change();
      } finally {
        this.#isMirroring = false;
      }
    }

    /** Another worker has changed the rooms of these sessions' sockets. */
    members(change, handles, rooms) {
      this.#mirror(() => {
        for (const handle of handles) {
          const session = engine.session(handle);
          const socket = session?.sockets.get(this);
          const resuming = session?.resuming?.get(this.nsp.name);
          if (socket && change === CHANGE.JOIN) this.addAll(socket.id, new Set(rooms));
          else if (socket) rooms.forEach((room) => this.del(socket.id, room));
          else if (resuming) resuming.rooms = change === CHANGE.JOIN ? [...new Set([...resuming.rooms, ...rooms])] : resuming.rooms.filter((room) => !rooms.includes(room));
        }
      });
    }

    /** Another worker disconnects these sessions' sockets. */
    kick(handles, close) {
      for (const handle of handles) {
        const session = engine.session(handle);
        const resuming = session?.resuming?.get(this.nsp.name);
        if (resuming) resuming.kick = { close };
        else session?.sockets.get(this)?.disconnect(close);
      }
    }

    // Questions to all workers.

    sockets(rooms) {
      return this.fetchSockets({ rooms, except: nothing, flags: {} }).then((sockets) => new Set(sockets.map((socket) => socket.id)));
    }

    async fetchSockets(opts) {
      const own = await super.fetchSockets(opts);
      return opts.flags?.local ? own : [...own, ...(await worker.relay.fetchSockets(this.nsp.name, opts))];
    }

    /** The sockets of this worker. */
    fetchSocketsHere(opts) {
      return super.fetchSockets(opts);
    }

    serverSideEmit(args) {
      worker.relay.serverSideEmit(this.nsp.name, args);
    }

    // Clients that lose their connection and return in time.

    persistSession({ sid, pid, rooms, data }) {
      if (!this.recovers || worker.isReleasing || rooms.length > KEPT_ROOMS_MAX) return;
      const text = dataOf(data);
      // With other data than before, a socket that counts as recovered would mislead the application.
      if (text !== null) this.#write(WORKER.PERSIST, sid, pid, rooms, text);
    }

    async restoreSession(pid, offset) {
      // `_createSocket` has set it in this tick.
      const session = this.creatingFor;
      const { index } = this;
      if (!this.recovers || !session || index === null) return null;
      const restored = await worker.ask(RESTORE_TIMEOUT_MS, (request) => channel.write(WORKER.RESTORE, request, session.handle, index, pid, offset));
      if (!restored) return null;
      // Stentor sends the missed messages when the socket is added, before CONNECT.
      return { sid: restored.sid, pid, rooms: restored.rooms, data: restored.data ?? {}, missedPackets: [] };
    }
  };
}
