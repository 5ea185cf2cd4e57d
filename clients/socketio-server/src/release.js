// Gives sessions back to Stentor, for other workers: all at a handover, single ones when Stentor asks.
//
// The client notices nothing. Here, its sockets end with the reason `server shutting down`; elsewhere, real sockets are built with the same
// id, rooms and data, and `recovered` is `true`.

import { END, WORKER } from './entries.js';
import { dataOf } from './data.js';

const REASON = 'server shutting down';
/** Longest time for middlewares to finish with sockets that are connecting or being resumed, in milliseconds. */
const UNFINISHED_MS = 5_000;
const LOOK_MS = 10;
/** Longest time for Stentor to confirm that no further messages follow, in milliseconds. */
const DRAIN_MS = 5_000;

const turn = () => new Promise(setImmediate);
const time = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Gives all sessions back, and ends the link. Throws the first exception of `hook` and of handlers afterwards: they don't keep sessions here. */
export async function handOver(worker, { settle, hook }) {
  const errors = [];
  const { isLinked } = worker;
  if (isLinked) {
    const isDrained = await Promise.race([worker.drain().then(() => true), time(DRAIN_MS)]);
    if (!isDrained) return worker.leave(null);
  } else {
    // There are no sessions. A link that began now would get some.
    worker.channel.close();
  }
  // Handlers of the last messages have run up to their first `await`.
  await turn();
  if (settle > 0) await time(settle);
  try {
    await hook?.();
  } catch (error) {
    errors.push(error);
  }
  await finished(() => unfinished(worker).size > 0);
  worker.engine.forgetChecks();
  const refused = unfinished(worker);
  for (const session of [...worker.engine.sessions]) {
    try {
      release(worker, session, refused.has(session));
    } catch (error) {
      errors.push(error);
    }
  }
  await worker.leave(isLinked ? 'done' : null);
  if (errors.length > 0) throw errors[0];
  return undefined;
}

/** Handles RELEASE: gives one session back when its last messages have been handled. It stays if its middlewares need longer. */
export async function releaseSoon(worker, session) {
  await turn();
  await turn();
  if (worker.settle > 0) await time(Math.min(worker.settle, UNFINISHED_MS));
  await finished(() => isUnfinished(session, connecting(worker)));
  // On another link, the handle is that of another session.
  if (worker.isStopped || session.readyState !== 'open') return;
  if (isUnfinished(session, connecting(worker))) {
    worker.channel.write(WORKER.KEPT, session.handle);
    return;
  }
  try {
    release(worker, session, false);
  } finally {
    worker.channel.write(WORKER.RELEASED, session.handle, END, '');
  }
}

/** Waits until something isn't busy any more, but not forever. */
async function finished(isBusy) {
  for (let ms = 0; isBusy() && ms < UNFINISHED_MS; ms += LOOK_MS) await time(LOOK_MS);
}

/** Sessions with a socket that waits for middlewares. Elsewhere, its client would wait for CONNECT forever. */
function unfinished(worker) {
  const waiting = connecting(worker);
  return new Set([...worker.engine.sessions].filter((session) => isUnfinished(session, waiting)));
}

const isUnfinished = (session, waiting) => session.resuming !== null || session.creating > 0 || waiting.has(session);

/** Sessions with a socket that waits for middlewares of its namespace. */
function connecting(worker) {
  const found = new Set();
  for (const nsp of worker.io._nsps.values()) {
    for (const socket of nsp._preConnectSockets?.values() ?? []) found.add(socket.conn);
  }
  return found;
}

/** Gives a session back, or closes it if it can't be continued elsewhere. */
function release(worker, session, isRefused) {
  if (session.readyState !== 'open') return;
  if (isRefused) {
    session.close(true);
    session.end('forced close');
    return;
  }
  worker.counts.released += 1;
  // Before the handlers of `disconnect` run: the session goes on as it is. Its namespaces may be gone afterwards.
  for (const [adapter, socket] of session.sockets) {
    const data = dataOf(socket.data);
    if (data !== null) worker.writeSocket(WORKER.RELEASED, session, adapter.index, data);
  }
  worker.releasing(() => session.end(REASON));
}
