// Resumes sessions that another process had: real `Socket`s are built with the id, rooms and data that Stentor has kept.
//
// Engine middlewares and namespace middlewares run again, since they leave values on requests and sockets. The client notices nothing: it
// receives no CONNECT, and DISCONNECT for a namespace that refuses it now, or that another worker has disconnected meanwhile. Its messages
// wait until all sockets exist.

import { WORKER } from './entries.js';
import { Session } from './session.js';

const CONNECT = 0;
const DISCONNECT = 1;
/** DISCONNECT of the namespace `/` for a client of Engine.IO 3, which can't be without it. */
const DISCONNECT_MAIN = '1';

/** Longest time until the middlewares have accepted the sockets of a session, in milliseconds. It is closed then: its messages hold up others. */
const TIMEOUT_MS = 10_000;

/** Makes a namespace rebuild sockets. Its adapter knows the session of the next socket before that is created. */
export function resumable(nsp, worker, adapter) {
  if (nsp.stentor) {
    Object.assign(nsp.stentor, { worker, adapter });
    return;
  }
  const current = { worker, adapter };
  Object.defineProperty(nsp, 'stentor', { value: current });
  const create = nsp._createSocket;
  nsp._createSocket = (client, auth) => {
    const { conn } = client;
    const kept = conn.resuming?.get(nsp.name);
    if (kept && !kept.isTaken) {
      kept.isTaken = true;
      return rebuild(nsp, client, kept, create);
    }
    current.adapter.creatingFor = conn;
    const created = create.call(nsp, client, auth);
    conn.creating += 1;
    const isCreated = () => (conn.creating -= 1);
    created.then(isCreated, isCreated);
    if (!current.worker.observesSockets) created.then((socket) => current.worker.observeSockets(socket), () => {});
    return created;
  };
}

/** Builds the socket of a connected client. `kept` is its part of RESUME. */
async function rebuild(nsp, client, kept, create) {
  // Without `pid` and `offset`, which would make Socket.IO recover the client.
  const socket = await create.call(nsp, client, {});
  socket.id = kept.id;
  if (kept.pid) socket.pid = kept.pid;
  socket.data = kept.data ?? {};
  socket.recovered = true;
  Object.assign(socket.handshake, { auth: kept.auth ?? {}, time: kept.time, issued: kept.issued });
  const joined = kept.rooms;
  for (const room of joined) socket.join(room);
  const finish = () => {
    delete socket._onconnect;
    delete socket._error;
    resumed(client.conn, nsp.name);
  };
  socket._onconnect = () => {
    // Other workers may have changed the rooms while middlewares ran.
    const [before, after] = [new Set(joined), new Set(kept.rooms)];
    for (const room of before) if (!after.has(room)) socket.leave(room);
    for (const room of after) if (!before.has(room)) socket.join(room);
    socket.connected = true;
    socket.join(kept.id);
    if (kept.kick) process.nextTick(() => socket.disconnect(kept.kick.close));
    finish();
  };
  socket._error = () => {
    socket.packet({ type: DISCONNECT });
    const { worker, adapter } = nsp.stentor;
    leave(worker, client.conn, adapter.index);
    finish();
  };
  return socket;
}

/** Stentor has a socket and its rooms that is refused now: it shall receive nothing more. */
function leave(worker, session, index) {
  if (session.readyState === 'open') worker.writeSocket(WORKER.DEL, session, index);
}

/** A namespace of a session is done. */
function resumed(session, name) {
  session.resuming?.delete(name);
  if (session.resuming?.size === 0) finish(session);
}

function finish(session) {
  session.resuming = null;
  session.release();
}

/** Handles RESUME: `description` is the handshake with the sockets of the session. */
export function resume(worker, handle, description) {
  const { engine } = worker;
  const session = new Session(worker, handle, description);
  const sockets = description.sockets.map((socket) => ({ ...socket, ...socket.state }));
  session.resuming = new Map(sockets.map((socket) => [socket.nsp, socket]));
  session.hold();
  engine.add(session);
  // Without Stentor's adapter, the rooms and sockets of the session aren't known: its client connects again.
  if (!worker.keepsRooms) return refuse(session);
  const timer = setTimeout(() => session.resuming && refuse(session), TIMEOUT_MS);
  timer.unref();
  return engine.check(session, (isAllowed) => {
    if (session.readyState !== 'open') return;
    if (!isAllowed) return refuse(session);
    if (session.protocol === 3 && session.resuming.get('/')?.disconnected) return refuse(session, DISCONNECT_MAIN);
    // A client of Engine.IO 3 is connected to `/` by this.
    engine.emit('connection', session);
    for (const socket of sockets) {
      if (!(session.protocol === 3 && socket.nsp === '/')) connect(worker, session, socket);
    }
    if (session.resuming?.size === 0) finish(session);
  });
}

/** Ends a session whose client has to connect again, unless this message says otherwise. */
function refuse(session, message) {
  if (message) session.write(message);
  session.close(message === undefined);
  session.end('forced close');
}

/** Connects a client to a namespace as if it had sent CONNECT. */
function connect(worker, session, { nsp, auth, disconnected }) {
  const { io } = worker;
  const go = (isAllowed) => {
    if (session.readyState !== 'open') return;
    const isRefused = !isAllowed;
    const index = isRefused ? worker.namespaces.late(nsp) : null;
    // Without an index, Stentor can't be told that the socket is gone.
    if (isRefused && index === null) return refuse(session);
    const packet = isRefused ? { type: DISCONNECT, nsp } : { type: CONNECT, nsp, data: session.protocol === 3 ? undefined : {} };
    for (const message of io.encoder.encode(packet)) {
      if (isRefused) session.write(message);
      else session.emit('data', message);
    }
    if (!isRefused) return;
    leave(worker, session, index);
    resumed(session, nsp);
  };
  if (disconnected) go(false);
  else if (io._nsps.has(nsp)) go(true);
  else io._checkNamespace(nsp, auth ?? {}, go);
}

