// Pages with @stentor/client in a browser: what their connections see, and how a test waits for it.
import assert from 'node:assert/strict';
import path from 'node:path';
import { openPage } from './browsers.mjs';
import { PATIENCE_MS, root } from './harness.mjs';

const script = { path: path.join(root, 'clients/js/dist/stentor.js') };
/** Options of a client that gives up nothing because the machine is slow. */
const PATIENT = { heartbeatTimeoutMs: PATIENCE_MS, connectTimeoutMs: PATIENCE_MS, backoff: { initialMs: 20, maxMs: 200 } };

/** Runs in a page, before the client: notes what it sends by WebSocket, and the times of its timers. Chance is even, and the wall clock can be `window.aheadMs` ahead. */
function observe() {
  Object.assign(window, { sent: [], timers: [], aheadMs: 0 });
  const { setTimeout: set, WebSocket, Date } = window;
  const { now } = Date;
  Date.now = () => now() + window.aheadMs;
  Math.random = () => 0.5;
  window.setTimeout = (then, ms, ...details) => {
    window.timers.push(ms);
    return set(then, ms, ...details);
  };
  const { send } = WebSocket.prototype;
  WebSocket.prototype.send = function (data) {
    window.sent.push(data);
    send.call(this, data);
  };
}

/** Runs in a page: connects, and notes what happens. `tokens` are the application's, one after the other; without one, `getToken` fails. */
function connectInPage({ url, feeds, rooms, tokens, options }) {
  const it = { states: [], waits: [], reasons: [], errors: [], asked: [], feeds: {}, rooms: {} };
  const getToken = ({ reason }) => {
    const token = tokens[it.asked.push(reason) - 1];
    if (token) return token;
    // `undefined`: the test decides later.
    if (token === undefined) return new Promise((resolve) => { it.giveToken = resolve; });
    throw new Error('not signed in');
  };
  const stentor = window.Stentor.connect(url, { ...options, ...(tokens && { getToken }) });
  stentor.on('state', (state, { reason, retryMs }) => {
    it.states.push(state);
    if (reason) it.reasons.push(reason);
    if (state === 'waiting') it.waits.push(retryMs);
  });
  stentor.on('error', ({ code, message, retry }) => it.errors.push({ code, message, retry }));
  for (const key of feeds) {
    const feed = stentor.feed(key);
    const seen = it.feeds[key] = { feed, states: [], all: [], kinds: [] };
    feed.on('state', (state) => seen.states.push(state));
    feed.on('change', (document, { kind }) => {
      seen.all.push(document.n);
      seen.kinds.push(kind);
    });
  }
  for (const name of rooms) {
    const messages = [];
    const room = stentor.room(name);
    room.on('message', (data) => messages.push(data));
    it.rooms[name] = { room, messages };
  }
  return Object.assign(it, { stentor });
}

/** Opens a page at an address with the client; with `beside`, another page of the same browser, as a tab beside it. */
export async function clientPage(t, browser, address, beside) {
  const page = beside ? await beside.context().newPage() : await openPage(t, browser, 'about:blank');
  await page.goto(address);
  await page.evaluate(observe);
  await page.addScriptTag(script);
  return page;
}

/**
 * Connects in a page to the server at `url`: `until(holds, value)` waits until `holds([it, value])` in the page, where `it` is the connection as above, and `read(get)` gives what `get(it)` gives
 * there. `has(n, key)` waits for version `n` of a feed, and `was(state, key)` until the feed has been in a state.
 */
export async function connectedPage(page, url, { feeds = ['a'], rooms = [], tokens, ...options } = {}) {
  const it = await page.evaluateHandle(connectInPage, { url, feeds, rooms, tokens, options: { ...PATIENT, ...options } });
  const read = (get) => it.evaluate(get);
  const describe = () => read((it) => JSON.stringify({
    state: `${it.stentor.state} by ${it.stentor.transport}`, ...it, stentor: undefined,
    feeds: Object.values(it.feeds).slice(0, 3).map(({ feed: { key, state, reason, document }, states }) => ({ key, state, reason, n: document?.n, states })),
    rooms: Object.values(it.rooms).map(({ room: { name, state } }) => ({ name, state })),
  }));
  const until = (holds, value) => page.waitForFunction(holds, [it, value], { timeout: PATIENCE_MS, polling: 20 }).catch(async (error) => {
    assert.fail(`${error.message}: ${holds}, ${JSON.stringify(value)}\n${await describe()}`);
  });
  const has = (n, key = feeds[0]) => until(([it, [n, key]]) => {
    const { document, state } = it.feeds[key].feed;
    return document?.n === n && state === 'live';
  }, [n, key]);
  const was = (state, key = feeds[0]) => until(([it, [state, key]]) => it.feeds[key].feed.state === state || it.feeds[key].states.includes(state), [state, key]);
  const is = (state) => until(([it, state]) => it.stentor.state === state, state);
  const isIn = () => until(([it]) => Object.values(it.rooms).every(({ room }) => room.state === 'joined'));
  return { page, it, until, read, has, was, is, isIn };
}
