// Behind nginx and HAProxy, with the files of docs/deploy and with other settings that are met: each transport delivers,
// or its client takes another; nothing is lost, doubled or out of order. The proxies share their connections to the server
// among all clients, and the server has two cores, so that polls of one session come by connections of either.
//
// docs/deploy/README.md has a table of what works behind what: it is this file's.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import test, { after, describe } from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Socket as EngineIo6 } from 'engine.io-client';
import EngineIo3 from 'engine.io-client-3';
import { EventSource } from 'eventsource';
import { launch } from './browsers.mjs';
import { io as io4 } from 'socket.io-client';
import io2 from 'socket.io-client-2';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { event, feedsFrom, serve, upstream, within } from './harness.mjs';
import { Primus } from './primus.mjs';
import { haproxy, missing, nginx } from './proxies.mjs';

const PUBLISHED = 120;
const OWN = 30;
// A feed's versions.
const VERSIONS = 30;
const TIME_MS = 60_000;

const config = (url) => `${feedsFrom(url, '20ms')}
[rooms]
publish = true

[[sockjs]]
prefix = "/sockjs"

[[sockjs]]
prefix = "/echo"
app = "echo"

[[rules]]
event = "join_room"
join = ["{}"]
ack = true

[[rules]]
event = "say"
broadcast = ["{room}"]
broadcast_as = "tick"
`;

// What heartbeats must outlive, below.
const BRIEF = '[heartbeat]\ninterval = "400ms"\ntimeout = "20s"\n[limits]\nrequest_timeout = "400ms"\n';
const brief = (text) => BRIEF + text.replaceAll(/prefix = "\/.*"/g, '$&\nheartbeat = "400ms"');

/** Somebody in a room, and in one of its own, who keeps what is said in either. */
class Member {
  constructor(name, room) {
    this.rooms = [room, `${room}/${name}`];
    this.heard = this.rooms.map(() => []);
    let waiting = this.rooms.length;
    this.done = new Promise((resolve) => { this.last = () => { if (!--waiting) resolve(); }; });
    // Who is told that it is in a room: by its name.
    this.joining = new Map();
  }

  hear({ room, n, last }) {
    const heard = this.heard[this.rooms.indexOf(room)];
    if (!heard) throw new Error(`${this.rooms[1]} heard of ${room}`);
    heard.push(n);
    if (last) this.last();
  }

  /** A message of `stentor.v1`. */
  take({ type, id, data }) {
    if (type === 'message') this.hear(data);
    else if (type === 'ok') this.joining.get(id)?.();
  }

  /** Joins by `stentor.v1`; then `say` says something to itself. */
  async enter(send) {
    const joined = this.rooms.map((room) => new Promise((resolve) => this.joining.set(room, resolve)));
    for (const room of this.rooms) send({ id: room, type: 'subscribe', room });
    await Promise.all(joined);
    this.say = (data) => send({ type: 'publish', room: this.rooms[1], data });
  }
}

function webSocket() {
  return async (t, at, member) => {
    const socket = new WebSocket(`${at.ws}/ws`);
    t.after(() => socket.terminate());
    socket.on('message', (data) => member.take(JSON.parse(data)));
    await event(socket, 'open', TIME_MS, 'error');
    await member.enter((message) => socket.send(JSON.stringify(message)));
    return 'websocket';
  };
}

function socketIo(io, transports, options) {
  return async (t, at, member) => {
    const socket = io(at.http, { forceNew: true, reconnection: false, transports, ...options });
    t.after(() => socket.disconnect());
    socket.on('tick', (data) => member.hear(data));
    await within(new Promise((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('connect_error', reject);
    }), 'a connection', TIME_MS);
    for (const room of member.rooms) await new Promise((resolve) => socket.emit('join_room', room, resolve));
    member.say = (data) => socket.emit('say', data);
    return () => socket.io.engine.transport.name;
  };
}

function engineIo(Client, transports) {
  return async (t, at, member) => {
    const socket = new Client(at.http, { transports });
    t.after(() => socket.close());
    socket.on('message', (data) => member.take(JSON.parse(data)));
    await event(socket, 'open', TIME_MS, 'error');
    await member.enter((message) => socket.send(JSON.stringify(message)));
    return () => socket.transport.name;
  };
}

function sockJs(transports) {
  return async (t, at, member) => {
    const socket = new SockJS(`${at.http}/sockjs`, null, { transports, timeout: 5_000 });
    t.after(() => socket.close());
    socket.onmessage = ({ data }) => member.take(JSON.parse(data));
    await within(new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onclose = ({ code, reason }) => reject(new Error(`${code} ${reason}`));
    }), 'a connection', TIME_MS);
    await member.enter((message) => socket.send(JSON.stringify(message)));
    return socket.transport;
  };
}

function primus() {
  return async (t, at, member) => {
    const socket = new Primus(at.http, { strategy: false });
    t.after(() => socket.destroy());
    socket.on('data', (message) => member.take(message));
    await event(socket, 'open', TIME_MS, 'error');
    await member.enter((message) => socket.write(message));
    return 'websocket';
  };
}

// Browsers of old. Connections are kept as they keep them.
const agent = new http.Agent({ keepAlive: true });
after(() => agent.destroy());

/** A request: what it answers, as text; or each piece of it, to `each`. */
function ask(url, { method = 'GET', body, headers, each, signal } = {}) {
  return new Promise((resolve, reject) => {
    const request = http.request(url, { method, agent, headers, signal }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => { if (each) each(chunk); else text += chunk; });
      response.on('error', reject);
      response.on('end', () => (response.statusCode < 400 ? resolve(text) : reject(new Error(`${response.statusCode} ${text}`))));
    });
    request.on('error', reject);
    request.end(body);
  });
}

/** SockJS's transports that have no client in Node. `receive` gives frames to `take` until it is told to end. */
function byHand(name, send, receive) {
  return async (t, at, member) => {
    const session = `${at.http}/sockjs/000/${name}${Math.random().toString(36).slice(2)}`;
    const end = new AbortController();
    let opened;
    const open = new Promise((resolve) => { opened = resolve; });
    const failed = receive(session, end.signal, (frame) => {
      if (frame === 'o') opened();
      else if (frame[0] === 'a') for (const text of JSON.parse(frame.slice(1))) member.take(JSON.parse(text));
      else if (frame !== 'h') throw new Error(`not the frame expected: ${frame}`);
    });
    failed.catch(() => {});
    t.after(() => end.abort());
    await within(Promise.race([open, failed]), 'a connection', TIME_MS);
    // One after the other: two requests may overtake each other.
    let sent = Promise.resolve();
    // What is said may be heard before it is answered.
    member.answered = () => sent;
    await member.enter((message) => {
      sent = sent.then(() => send(session, JSON.stringify([JSON.stringify(message)])));
      sent.catch(() => {});
    });
    return name;
  };
}

const jsonp = byHand(
  'jsonp-polling',
  (session, messages) => ask(`${session}/jsonp_send`, { method: 'POST', body: `d=${encodeURIComponent(messages)}`, headers: { 'Content-Type': 'application/x-www-form-urlencoded' } }),
  async (session, signal, take) => {
    for (;;) take(JSON.parse(/^\/\*\*\/cb\((.*)\);\r\n$/.exec(await ask(`${session}/jsonp?c=cb`, { signal }))[1]));
  },
);

const htmlfile = byHand(
  'htmlfile',
  (session, messages) => ask(`${session}/xhr_send`, { method: 'POST', body: messages }),
  async (session, signal, take) => {
    for (;;) {
      let text = '';
      await ask(`${session}/htmlfile?c=cb`, {
        signal,
        each(chunk) {
          text += chunk;
          for (let found; (found = /\np\((".*")\);\n<\/script>\r\n/.exec(text)); text = text.slice(found.index + found[0].length)) take(JSON.parse(found[1]));
        },
      });
    }
  },
);

// What each needs of the way to the server.
const clients = {
  'WebSocket': { needs: 'websocket', open: webSocket() },
  'Socket.IO 4.8 by polling': { open: socketIo(io4, ['polling']) },
  'Socket.IO 4.8 by websocket': { needs: 'websocket', open: socketIo(io4, ['websocket']) },
  'Socket.IO 4.8': { open: socketIo(io4, ['polling', 'websocket']), best: { websocket: 'websocket', otherwise: 'polling' } },
  'Socket.IO 4.8, WebSocket first': { open: socketIo(io4, ['websocket', 'polling'], { tryAllTransports: true }), best: { websocket: 'websocket', otherwise: 'polling' } },
  'Socket.IO 2.5 by polling': { open: socketIo(io2, ['polling']) },
  'Socket.IO 2.5': { open: socketIo(io2, ['polling', 'websocket']), best: { websocket: 'websocket', otherwise: 'polling' } },
  'Engine.IO 6 by polling': { open: engineIo(EngineIo6, ['polling']) },
  'Engine.IO 3.5': { open: engineIo(EngineIo3, ['polling', 'websocket']), best: { websocket: 'websocket', otherwise: 'polling' } },
  'SockJS by websocket': { needs: 'websocket', open: sockJs(['websocket']) },
  'SockJS by xhr-streaming': { needs: 'streams', open: sockJs(['xhr-streaming']) },
  'SockJS by eventsource': { needs: 'streams', open: sockJs(['eventsource']) },
  'SockJS by htmlfile': { needs: 'streams', open: htmlfile },
  'SockJS by xhr-polling': { open: sockJs(['xhr-polling']) },
  'SockJS by jsonp-polling': { open: jsonp },
  'SockJS': { open: sockJs(), best: { websocket: 'websocket', streams: 'xhr-streaming', otherwise: 'xhr-polling' } },
  'Primus': { needs: 'websocket', open: primus() },
};

/** Fails unless a feed's versions come in order, up to the last one. Some may be left out. */
function versions() {
  let latest = -1;
  let finish;
  const done = new Promise((resolve) => { finish = resolve; });
  return {
    done,
    take({ n }) {
      assert.ok(n > latest, `version ${n} came after ${latest}`);
      latest = n;
      if (n === VERSIONS) finish();
    },
  };
}

function events(t, at, key) {
  const source = new EventSource(`${at.http}/sse?feed=${key}`);
  t.after(() => source.close());
  const { done, take } = versions();
  source.addEventListener('snapshot', ({ data }) => take(JSON.parse(data)));
  return done;
}

async function longPolls(t, at, key) {
  const { take } = versions();
  let tag = '';
  for (;;) {
    const answer = await fetch(`${at.http}/feed/${key}${tag && `?wait=${encodeURIComponent(tag)}`}`);
    // Nothing new, or nothing yet, for as long as a request may wait.
    if (answer.status === 304 || answer.status === 504) continue;
    assert.equal(answer.status, 200);
    tag = answer.headers.get('etag');
    const document = await answer.json();
    take(document);
    if (document.n === VERSIONS) return;
  }
}

/** One way to the server: everybody connects by it who can, and hears everything. */
async function exercise(t, { server, api, at, room, way, idle_ms = 0 }) {
  const members = await Promise.all(Object.entries(clients).map(async ([name, { needs, open, best }]) => {
    const member = new Member(name, room);
    if (needs && !way[needs]) {
      // A stream that is kept back opens late or never, which is no refusal.
      if (needs === 'websocket' || open !== htmlfile) await assert.rejects(open(t, at, member), `${name} should have failed`);
      return null;
    }
    const transport = await open(t, at, member).catch((error) => { throw new Error(`${name}: ${error.message ?? error}`, { cause: error }); });
    return { name, member, transport, expected: best && best[Object.keys(best).find((one) => way[one] || one === 'otherwise')] };
  }));
  api.documents.set(room, { n: 0 });
  const feeds = [longPolls(t, at, room), ...(way.streams ? [events(t, at, room)] : [])];
  // The test's failure is told below.
  for (const feed of feeds) feed.catch(() => {});
  await passed(idle_ms);

  const publish = async () => {
    for (let n = 0; n < PUBLISHED; n += 3) {
      const batch = [n, n + 1, n + 2].map((one) => ({ room, n: one, last: one === PUBLISHED - 1, filler: 'x'.repeat(one % 10 === 0 ? 6_000 : 10) }));
      const answer = await fetch(`${server.admin}/api/v1/publish`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/x-ndjson' },
        body: batch.map((data) => JSON.stringify({ room, event: 'tick', data })).join('\n'),
      });
      assert.deepEqual(await answer.json(), { published: 3 });
      api.documents.set(room, { n: Math.min(n / 3, VERSIONS) });
      // Polls come and go meanwhile.
      await passed(10);
    }
  };
  const talk = async ({ member }) => {
    for (let n = 0; n < OWN; n++) {
      member.say({ room: member.rooms[1], n, last: n === OWN - 1 });
      if (n % 4 === 0) await passed(20);
    }
  };
  const present = members.filter(Boolean);
  await Promise.all([publish(), ...present.map(talk)]);
  const count = (length) => Array.from({ length }, (_, n) => n);
  for (const { name, member, transport, expected } of present) {
    await within(member.done, `all that ${name} should hear, of which came ${JSON.stringify(member.heard)}`, TIME_MS);
    assert.deepEqual(member.heard, [count(PUBLISHED), count(OWN)], name);
    await member.answered?.();
    if (!expected) continue;
    const used = typeof transport === 'function' ? transport : () => transport;
    // All may have been heard before an upgrade is done.
    for (const end = Date.now() + TIME_MS; used() !== expected && Date.now() < end;) await passed(20);
    assert.equal(used(), expected, name);
  }
  await within(Promise.all(feeds), 'the last version of the feed', TIME_MS);
}

const everything = { websocket: true, streams: true };
const noUpgrade = { websocket: false, streams: true };
const oldUpstream = [['proxy_http_version 1.1', 'proxy_http_version 1.0']];
const buffers = [['proxy_buffering off', 'proxy_buffering on']];
// Silence is ended by the proxy sooner than the test is quiet, but for heartbeats.
const impatientNginx = [['proxy_read_timeout 75s', 'proxy_read_timeout 4s'], ['proxy_send_timeout 75s', 'proxy_send_timeout 4s']];
const impatientHaproxy = ['client         ', 'server         ', 'tunnel         '].map((name) => [`timeout ${name} 75s`, `timeout ${name} 4s`]);

const ways = [
  ['nginx: docs/deploy/nginx.conf', { proxy: nginx, way: everything }],
  ['nginx: buffering on', { proxy: nginx, changes: buffers, way: everything }],
  ['nginx: HTTP/1.0 to the server, buffering off', { proxy: nginx, changes: oldUpstream, way: noUpgrade }],
  ['nginx: HTTP/1.0 to the server, buffering on', { proxy: nginx, changes: [...oldUpstream, ...buffers], way: noUpgrade }],
  ['nginx: as it comes, one line of configuration', { proxy: nginx, whole: ({ upstream: address, port }) => `server { listen 127.0.0.1:${port}; location / { proxy_pass http://${address}; } }`, way: noUpgrade }],
  ['nginx: HTTP/1.0 to the server, and buffers that it cannot turn off', { proxy: nginx, changes: [['proxy_buffering off;', 'proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;'], ...oldUpstream], way: { websocket: false, streams: false } }],
  ['nginx: time-outs shorter than the silence', { proxy: nginx, changes: impatientNginx, way: everything, idle_ms: 10_000, server: 'brief' }],
  ['HAProxy: docs/deploy/haproxy.cfg', { proxy: haproxy, way: everything }],
  ['HAProxy: a connection for each request', { proxy: haproxy, changes: [['http-reuse always', 'option httpclose']], way: everything }],
  ['HAProxy: time-outs shorter than the silence', { proxy: haproxy, changes: impatientHaproxy, way: everything, idle_ms: 10_000, server: 'brief' }],
];

const api = await upstream({ after });
const args = ['--cores', '2'];
const servers = {
  usual: await serve({ after }, { config: config(api.url), args }),
  brief: await serve({ after }, { config: brief(config(api.url)), args }),
};

// A few at a time: each has some twenty clients.
describe('each transport delivers or is replaced', { concurrency: 3 }, () => {
  for (const [n, [name, { proxy, way, server: which = 'usual', changes, whole, idle_ms }]] of ways.entries()) {
    test(name, { skip: missing(proxy.name) }, async (t) => {
      const server = servers[which];
      const at = await proxy(t, server, { changes, whole });
      await exercise(t, { server, api, at, room: `way-${n}`, way, idle_ms });
    });
  }
});

test('polls came by connections of other cores than their sessions', { skip: missing('nginx') && missing('haproxy') }, async () => {
  const metrics = await (await fetch(`${servers.usual.admin}/metrics`)).text();
  const handed = [...metrics.matchAll(/^stentor_connections_migrated_total\S* (\d+)$/gm)].map(([, count]) => Number(count));
  assert.ok(handed.length === 2 && handed.every((count) => count > 100), `handed over: ${handed}`);
});

test("nginx: a page's origin is the server's own only if the Host header is passed on", { skip: missing('nginx') }, async (t) => {
  const whole = ({ upstream: address, port }) => `server { listen 127.0.0.1:${port}; location / { proxy_pass http://${address}; } }`;
  const status = async (at) => (await fetch(`${at.http}/socket.io/?EIO=4&transport=polling`, { headers: { Origin: at.http } })).status;
  assert.equal(await status(await nginx(t, servers.usual)), 200);
  assert.equal(await status(await nginx(t, servers.usual, { whole })), 403);
});

// In a browser, by TLS and HTTP/2.

const builds = path.join(path.dirname(fileURLToPath(import.meta.url)), 'node_modules');

/** Runs in a page: what its clients get, by each transport, and by which version of HTTP. */
async function useAll({ room, key }) {
  const url = location.origin;
  const patience = (promise, what) => Promise.race([promise, new Promise((_, reject) => setTimeout(() => reject(new Error(`no ${what}`)), 60_000))]);
  const result = {};
  for (const transport of ['websocket', 'xhr-streaming', 'eventsource', 'htmlfile', 'xhr-polling', 'jsonp-polling']) {
    const socket = new window.SockJS(`${url}/echo`, null, { transports: [transport], timeout: 5_000 });
    const texts = Array.from({ length: 20 }, (_, n) => `${n} ${'é'.repeat(n * 100)}`);
    const received = [];
    await patience(new Promise((resolve) => {
      socket.onopen = () => { for (const text of texts) socket.send(text); };
      socket.onmessage = ({ data }) => { if (received.push(data) === texts.length) resolve(); };
      socket.onclose = resolve;
    }), transport);
    result[transport] = JSON.stringify(received) === JSON.stringify(texts);
    socket.close();
  }
  for (const transports of [['polling'], ['websocket'], ['polling', 'websocket']]) {
    const socket = window.io(url, { forceNew: true, transports });
    await patience(new Promise((resolve) => socket.once('connect', resolve)), 'Socket.IO');
    await patience(new Promise((resolve) => socket.emit('join_room', room + transports, resolve)), 'room');
    const heard = [];
    const all = new Promise((resolve) => socket.on('tick', ({ n }) => { if (heard.push(n) === 10) resolve(); }));
    for (let n = 0; n < 10; n++) socket.emit('say', { room: room + transports, n });
    await patience(all, 'echo of Socket.IO');
    result[`Socket.IO by ${transports}`] = heard.every((n, place) => n === place);
    socket.disconnect();
  }
  const source = new EventSource(`${url}/sse?feed=${key}`);
  const { data } = await patience(new Promise((resolve) => source.addEventListener('snapshot', resolve)), 'event');
  result.sse = JSON.parse(data).n === 7;
  source.close();
  const webSocket = new WebSocket(`${url.replace('https', 'wss')}/ws/${key}`);
  result.websocketOfItsOwn = await patience(new Promise((resolve) => { webSocket.onmessage = (message) => resolve(JSON.parse(message.data).n === 7); }), 'document');
  webSocket.close();
  const used = performance.getEntriesByType('resource').filter(({ name }) => name.includes('/echo/')).map(({ nextHopProtocol }) => nextHopProtocol);
  return { result, used: [...new Set(used.filter(Boolean))] };
}

for (const proxy of [nginx, haproxy]) {
  test(`${proxy.name}: a page by TLS and HTTP/2`, { skip: missing(proxy.name) }, async (t) => {
    const at = await proxy(t, servers.usual);
    api.documents.set(`page-${proxy.name}`, { n: 7 });
    const browser = await launch('Chromium');
    t.after(() => browser.close());
    const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
    await page.goto(`${at.https}/healthz`);
    for (const build of ['sockjs-client/dist/sockjs.min.js', 'socket.io-client/dist/socket.io.min.js']) await page.addScriptTag({ path: path.join(builds, build) });
    const { result, used } = await page.evaluate(useAll, { room: `page-${proxy.name}`, key: `page-${proxy.name}` });
    assert.deepEqual(Object.entries(result).filter(([, fine]) => !fine), []);
    assert.deepEqual(used, ['h2']);
  });

  test(`${proxy.name}: programs by TLS, with its certificate`, { skip: missing(proxy.name) }, async (t) => {
    const at = await proxy(t, servers.usual);
    const ca = readFileSync(at.certificate);
    const raw = new WebSocket(`${at.wss}/ws`, { ca });
    t.after(() => raw.terminate());
    const [welcome] = await event(raw, 'message', TIME_MS, 'error');
    assert.equal(JSON.parse(welcome).type, 'welcome');
    for (const transports of [['polling'], ['websocket']]) {
      const socket = io4(at.https, { forceNew: true, transports, ca });
      t.after(() => socket.disconnect());
      await event(socket, 'connect', TIME_MS, 'connect_error');
      assert.deepEqual(await within(new Promise((resolve) => socket.emit('join_room', 'secret', resolve)), 'the answer'), { ok: true });
    }
  });
}
