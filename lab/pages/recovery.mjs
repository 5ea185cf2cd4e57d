// After a fault, how long does a page not have what is published? @stentor/client and socket.io-client beside each other, in the same pages of Chromium, by
// the same network, from the same server, each with its defaults. `node lab/pages/recovery.mjs [CONDITION…]` prints a table; with names or parts of names,
// only these conditions. STENTOR_BIN is the server.
//
// The server publishes a message to a room ten times a second. The time is that from the end of the fault (or from the fault, if it is over at once) to the
// first message in the page that was published afterwards. Each of the pages has one client of each kind.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as passed } from 'node:timers/promises';
import { issuer, token } from '../../tests/clients/admin.mjs';
import { launch } from '../../tests/clients/browsers.mjs';
import { gateway } from '../../tests/clients/gateway.mjs';
import { JOIN, modules, root, serve, temporary, until } from '../../tests/clients/harness.mjs';
import { network, quantile, stage, table } from './world.mjs';

const PAGES = Number(process.env.PAGES ?? 20);
/** Time after which a client counts as not recovered. */
const LIMIT_MS = 90_000;
const PERIOD_MS = 100;
const ROOM = 'news';
const now = () => Date.now();
const seconds = () => Math.floor(Date.now() / 1_000);

const config = (folder) => `[server]
takeover_socket = "${path.join(folder, 'takeover')}"
${JOIN}
[auth]
${issuer}[[permissions]]
topics = ["${ROOM}"]
allow = ["subscribe"]`;

/** Runs in a page: connects both clients. The first token may be another one than the next ones. */
function connectBoth({ room, first, rest }) {
  const log = { stentor: [], socketio: [] };
  const take = (name) => ({ at, generation }) => log[name].push({ at, generation, receivedAt: Date.now() });
  const tokens = () => {
    let isFirst = true;
    return () => {
      const token = isFirst ? first : rest;
      isFirst = false;
      return token;
    };
  };
  const stentor = window.Stentor.connect(undefined, { getToken: tokens() });
  stentor.room(room).on('message', take('stentor'));
  const next = tokens();
  const socket = window.io({ forceNew: true, auth: (callback) => callback({ token: next() }) });
  socket.on('connect', () => socket.emit('join', room, () => {}));
  // As its documentation says: this client doesn't return by itself then.
  socket.on('disconnect', (reason) => reason === 'io server disconnect' && socket.connect());
  socket.on('tick', take('socketio'));
  Object.assign(window, { log, end: () => [stentor.close(), socket.disconnect()] });
}

/** Runs in a page: for each client, the time until the first message that counts, in milliseconds. */
const recovered = ({ since, generation }) => Object.values(window.log).map((messages) => {
  const found = messages.find((message) => message.at >= since && message.generation >= generation);
  return found && found.receivedAt - since;
});

class World {
  generation = 0;
  servers = [];

  constructor(t) {
    this.t = t;
  }

  async start() {
    this.folder = temporary(this.t);
    await this.next();
    this.gateway = await gateway(this.t, this.servers[0].http);
    this.network = await network(this.t, new URL(this.gateway.url).port);
    this.browser = await launch('Chromium');
    this.t.after(() => this.browser.close());
    const scripts = [`${modules}/socket.io-client/dist/socket.io.min.js`, `${root}/clients/js/dist/stentor.js`].map((file) => readFileSync(file, 'utf8'));
    this.pages = await Promise.all(Array.from({ length: PAGES }, async () => {
      const page = await (await this.browser.newContext()).newPage();
      await page.goto(`${this.network.url}/healthz`);
      for (const content of scripts) await page.addScriptTag({ content });
      return page;
    }));
    this.publishing = setInterval(() => this.publish(), PERIOD_MS);
    this.t.after(() => clearInterval(this.publishing));
  }

  /** Starts a server, which takes over if there is one. Its generation is in its messages. */
  async next() {
    const server = await serve(this.t, { config: config(this.folder) });
    server.generation = this.generation += 1;
    this.servers.push(server);
    server.closed.then(() => { this.servers = this.servers.filter((other) => other !== server); });
    if (this.gateway) this.gateway.target = server.http;
    return server;
  }

  publish() {
    for (const { admin, generation } of this.servers) {
      const body = JSON.stringify({ room: ROOM, event: 'tick', data: { at: now(), generation } });
      // A server may be away.
      fetch(`${admin}/api/v1/publish`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body }).catch(() => {});
    }
  }

  each = (run, value) => Promise.all(this.pages.map((page) => page.evaluate(run, value)));
  times(since, generation = 0) { return this.each(recovered, { since, generation }); }

  /** Each request meets that fate for a while, and the open connections end. */
  async fate(fate, ms) {
    this.gateway.decide = () => fate;
    this.gateway.cut();
    await passed(ms);
    this.gateway.decide = () => undefined;
    return { since: now() };
  }
}

/** What happens: gives the time from which messages count, and the generation of those that do. */
const conditions = {
  'connections are reset': async ({ network }) => {
    network.reset();
    return { since: now() };
  },
  'a proxy ends connections': async ({ network }) => {
    network.finish();
    return { since: now() };
  },
  'the server is killed and started again': async (world) => {
    const since = now();
    const [server] = world.servers;
    server.child.kill('SIGKILL');
    await server.closed;
    const { generation } = await world.next();
    return { since, generation };
  },
  'the server is away for 3 s': (world) => world.fate('refuse', 3_000),
  'the server is away for 10 s': (world) => world.fate('refuse', 10_000),
  'the server is away for 30 s': (world) => world.fate('refuse', 30_000),
  'a proxy answers 502 for 2 s': (world) => world.fate({ status: 502 }, 2_000),
  'a captive portal for 5 s': (world) => world.fate({ status: 200, headers: { 'Content-Type': 'text/html' }, body: '<h1>Sign in</h1>' }, 5_000),
  'half-open: packets are swallowed': async ({ network }) => {
    network.swallow();
    return { since: now() };
  },
  'another network: offline for 2 s': async ({ network, pages }) => {
    network.swallow();
    const set = (isOffline) => Promise.all(pages.map((page) => page.context().setOffline(isOffline)));
    await set(true);
    await passed(2_000);
    await set(false);
    return { since: now() };
  },
  'packets are swallowed, 11 s later somebody looks at the page': async ({ network, each }) => {
    network.swallow();
    await passed(11_000);
    await each(() => document.dispatchEvent(new Event('visibilitychange')));
    return { since: now() };
  },
  'reset on a slow network: 200 ms for a round trip': async ({ network }) => {
    network.delayMs = 100;
    await passed(1_000);
    network.reset();
    return { since: now() };
  },
  'reset on a lossy network: one chunk of 20 takes 1 s': async ({ network }) => {
    Object.assign(network, { delayMs: 25, loss: 0.05 });
    await passed(1_000);
    network.reset();
    return { since: now() };
  },
  'a new process takes over': async (world) => {
    const { generation } = await world.next();
    return { since: now(), generation };
  },
  'the token expires': async (_, { expiresAt }) => {
    await passed(expiresAt * 1_000 - now());
    // Half a second later, a server that ends sessions with their tokens has done so.
    await passed(500);
    return { since: now() };
  },
};

async function measure(world, name, meets) {
  const expiresAt = seconds() + 15;
  const [long, short] = [{}, { exp: expiresAt }].map((claims) => token({ sub: '42', ...claims }));
  await world.each(connectBoth, { room: ROOM, first: name === 'the token expires' ? short : long, rest: long });
  const begun = now();
  const all = async ({ since, generation }) => (await world.times(since, generation)).flat().every((ms) => ms !== undefined);
  await until('all are connected', () => all({ since: begun }));
  const found = await meets(world, { expiresAt });
  while (now() - found.since < LIMIT_MS && !(await all(found))) await passed(200);
  const times = await world.times(found.since, found.generation);
  await world.each(() => window.end());
  Object.assign(world.network, { delayMs: 0, loss: 0 });
  return [0, 1].map((index) => times.map((both) => both[index]));
}

const text = (ms) => (ms === undefined ? 'not within 90 s' : (ms / 1_000).toFixed(2));
const t = stage();
const world = new World(t);
try {
  await world.start();
  const wanted = process.argv.slice(2);
  const rows = [];
  for (const [name, meets] of Object.entries(conditions)) {
    if (wanted.length && !wanted.some((part) => name.includes(part))) continue;
    const [ours, theirs] = await measure(world, name, meets);
    const cells = [0.5, 0.9].map((part) => [ours, theirs].map((times) => quantile(times, part)));
    const isSlower = cells.some(([one, other]) => (one ?? Infinity) > (other ?? Infinity) + 500);
    const missing = [ours, theirs].map((times) => times.filter((ms) => ms === undefined).length);
    console.error(name, JSON.stringify(cells), missing.join(), isSlower ? 'SLOWER' : '');
    rows.push([name, ...cells.flat().map(text), isSlower ? '**slower**' : 'yes']);
  }
  console.log(table(['condition', 'Stentor, median, s', 'socket.io-client, median', 'Stentor, p90', 'socket.io-client, p90', 'at most 0.5 s slower'], rows));
} finally {
  await t.end();
}
