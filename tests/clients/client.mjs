// @stentor/client in Node, and feeds whose every document is looked at.
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import SockJS from 'sockjs-client';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { connect } from '../../clients/js/src/index.js';
import { PATIENCE_MS, until } from './harness.mjs';

export const TRANSPORTS = ['websocket', 'sse', 'polling', 'socket.io', 'sockjs'];

/** A document of some 4 kB with its number in it; frozen all through, as nobody may change what was handed out. */
export function version(n) {
  const events = Array.from({ length: 20 + (n % 7) }, (_, i) => ({ id: n - i, text: `what happened at ${n - i}`.padEnd(150, '.') }));
  return { n, clock: { minute: n % 90 }, teams: ['Ajax', 'Benfica'], events };
}

export function freeze(value) {
  if (value !== null && typeof value === 'object') Object.values(value).forEach(freeze);
  return Object.freeze(value);
}

/** A connection that finds out quickly that it is cut off, and is patient with a slow machine unless the options say otherwise. */
export function client(t, url, options) {
  const connection = connect(url, { transport: 'websocket', WebSocket, SockJS, io, backoff: { initialMs: 20, maxMs: 200 }, heartbeatTimeoutMs: PATIENCE_MS, connectTimeoutMs: PATIENCE_MS, ...options });
  t.after(() => connection.close());
  return connection;
}

/** Follows a feed, and looks at each document that it has. */
export function follow(feed) {
  const it = { states: [], changes: [], newest: undefined, seen: 0 };
  feed.on('state', (state) => it.states.push(state));
  feed.on('change', (document, change) => {
    assert.ok(isDeepStrictEqual(document, version(document.n)), `version ${document.n}`);
    assert.equal(document, feed.document);
    const last = it.changes.at(-1);
    if (last) {
      assert.ok(document.n > it.newest || (document.n === it.newest && change.epoch !== last.epoch), `${document.n} after ${it.newest}`);
      assert.ok(change.epoch !== last.epoch || change.offset > last.offset);
    }
    if (change.kind === 'delta') assert.equal(change.base, last.offset);
    it.newest = freeze(document).n;
    it.changes.push(change);
  });
  /** When it has been stale once more than the last time. */
  it.wasStale = async () => {
    await until(() => `stale, not ${feed.state}`, () => it.states.includes('stale', it.seen));
    it.seen = it.states.indexOf('stale', it.seen) + 1;
  };
  it.has = (n, state = 'live') => until(() => `version ${n} and ${state}, not ${it.newest} and ${feed.state} ${feed.reason}`, () => it.newest === n && feed.state === state);
  return it;
}
