// Who may connect, and what clients of each protocol see: without a token, with a good, an expired and a wrong one, when the token is
// revoked while they are connected, and when they renew it. The clients are the real ones.
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import test, { after, describe } from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { EventSource } from 'eventsource';
import { Socket as EngineSocket } from 'engine.io-client';
import { io } from 'socket.io-client';
import io2 from 'socket.io-client-2';
import io3 from 'socket.io-client-3';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { connect } from '../../clients/js/src/index.js';
import { missing as noBrowser, sharedBrowsers } from './browsers.mjs';
import { missing as notInstalled, startClient } from './foreign.mjs';
import { PATIENCE_MS, event, feedsFrom, queue, serve, upstream, within } from './harness.mjs';
import { Primus } from './primus.mjs';

const SECRET = '0123456789abcdef0123456789abcdef';
const ISSUER = 'https://id.example.com/';
const PAGE = 'https://app.example.com';

const now = () => Math.floor(Date.now() / 1000);
/** A token of user `sub`. */
function token(sub, claims = {}, secret = SECRET) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const text = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ iss: ISSUER, sub, jti: randomUUID(), iat: now(), exp: now() + 600, ...claims })}`;
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
}
const tokens = {
  none: () => undefined,
  good: () => token('42'),
  expired: () => token('42', { iat: now() - 600, exp: now() - 1 }),
  wrong: () => token('42', {}, `${SECRET.slice(1)}!`),
};

const config = (url) => `${feedsFrom(url)}
[origins]
allow = ["${PAGE}"]
[auth]
cookie = "session"
renewal_lead = "60s"
[[auth.issuers]]
issuer = "${ISSUER}"
algorithms = ["HS256"]
keys = [{ secret = "${SECRET}" }]
[[permissions]]
topics = ["user/{sub}", "user:{sub}"]
allow = ["subscribe", "publish", "history"]
[[rules]]
event = "join"
join = ["{}"]
ack = true
`;

/** A server whose users may read their own feed. */
async function start(t) {
  const api = await upstream(t);
  for (const user of ['42', '43']) api.documents.set(`user/${user}`, { user });
  const server = await serve(t, { args: ['--cores', '1'], config: config(api.url) });
  const revoke = async (body) => {
    const response = await fetch(`${server.admin}/api/v1/revocations`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
    assert.equal(response.status, 200, await response.text());
  };
  return { ...server, revoke };
}

// A protocol: how its client connects with a token, if any, and what it reports. `seen` receives `open`, `closed CODE` and `refused WHY`.
// `ask(topic)` says whether the client may subscribe to a room: `ok`, or the error's code.
const clients = {
  'WebSocket of a page': (server, with_, t) => stentorV1(new WebSocket(`${server.ws}/ws`, ['stentor.v1', ...(with_ ? [`stentor.bearer.${with_}`] : [])], { origin: PAGE }), t),
  'WebSocket of a program': (server, with_, t) => stentorV1(new WebSocket(`${server.ws}/ws`, { headers: with_ ? { Authorization: `Bearer ${with_}` } : {} }), t),
  SockJS: (server, with_, t) => stentorV1(new SockJS(`${server.http}/sockjs${query(with_)}`, null, { transports: ['xhr-streaming', 'xhr-polling'], timeout: PATIENCE_MS }), t),
  'SockJS over WebSocket': (server, with_, t) => stentorV1(new SockJS(`${server.http}/sockjs${query(with_)}`, null, { transports: ['websocket'], timeout: PATIENCE_MS }), t),
  Primus: primus,
  'Engine.IO, polling': (server, with_, t) => engine(server, with_, t, ['polling']),
  'Engine.IO, WebSocket': (server, with_, t) => engine(server, with_, t, ['websocket']),
  'Socket.IO 4': (server, with_, t) => socketio(io, server, { auth: { token: with_ } }, t),
  'Socket.IO 4, polling': (server, with_, t) => socketio(io, server, { auth: { token: with_ }, transports: ['polling'] }, t),
  'Socket.IO 3': (server, with_, t) => socketio(io3, server, { auth: { token: with_ } }, t),
  'Socket.IO 2': (server, with_, t) => socketio(io2, server, with_ ? { query: { token: with_ } } : {}, t),
  EventSource: events,
  'websocket-client for Python': pythonWebSocket,
  'python-socketio 5, threads': (server, with_, t) => pythonSocketio('python-socketio 5, threads', 'websocket', server, with_, t),
  'python-socketio 5, asyncio': (server, with_, t) => pythonSocketio('python-socketio 5, asyncio', 'polling', server, with_, t),
  'python-socketio 4, threads': (server, with_, t) => pythonSocketio('python-socketio 4, threads', 'upgrade', server, with_, t),
  'httpx-sse': httpxSse,
  'Chromium, WebSocket': (server, with_, t) => chromium('websocket', server, with_, t),
  'Chromium, SockJS': (server, with_, t) => chromium('sockjs', server, with_, t),
  'Chromium, Engine.IO': (server, with_, t) => chromium('engineio', server, with_, t),
  'Chromium, Socket.IO 4': (server, with_, t) => chromium('socketio', server, with_, t),
  'Chromium, Socket.IO 2': (server, with_, t) => chromium('socketio2', server, with_, t),
  'Chromium, EventSource': (server, with_, t) => chromium('events', server, with_, t),
};

/** Why the tests of a client are skipped. */
const skip = (name) => {
  if (name.startsWith('Chromium')) return noBrowser('Chromium');
  return /ython|httpx/.test(name) ? notInstalled(name) : undefined;
};

// What each sees. `revoked`: how it ends then; those that reconnect by themselves are refused after that.
const expected = {
  'WebSocket of a page': { none: 'closed 4408', expired: 'closed 4505', wrong: 'closed 4408', revoked: 'closed 4407' },
  'WebSocket of a program': { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'closed 4407' },
  SockJS: { none: 'closed 4408', expired: 'closed 4505', wrong: 'closed 4408', revoked: 'closed 4407' },
  // Without an Origin, as in Node, its WebSocket is refused with a status.
  'SockJS over WebSocket': { none: 'closed 2000', expired: 'closed 2000', wrong: 'closed 2000', revoked: 'closed 4407' },
  Primus: { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'closed' },
  'Engine.IO, polling': { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'closed transport close' },
  'Engine.IO, WebSocket': { none: 'refused', expired: 'refused', wrong: 'refused', revoked: 'closed transport close' },
  'Socket.IO 4': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed io server disconnect' },
  'Socket.IO 4, polling': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed io server disconnect' },
  'Socket.IO 3': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed io server disconnect' },
  'Socket.IO 2': { none: 'refused', expired: 'refused', wrong: 'refused', revoked: 'closed io server disconnect' },
  EventSource: { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'refused 401' },
  // It sends an Origin, as a page does.
  'websocket-client for Python': { none: 'closed 4408', expired: 'closed 4505', wrong: 'closed 4408', revoked: 'closed 4407' },
  'python-socketio 5, threads': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed server disconnect' },
  'python-socketio 5, asyncio': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed server disconnect' },
  'python-socketio 4, threads': { none: 'refused', expired: 'refused', wrong: 'refused', revoked: 'closed' },
  'httpx-sse': { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'closed' },
  'Chromium, WebSocket': { none: 'closed 4408', expired: 'closed 4505', wrong: 'closed 4408', revoked: 'closed 4407' },
  'Chromium, SockJS': { none: 'closed 4408', expired: 'closed 4505', wrong: 'closed 4408', revoked: 'closed 4407' },
  'Chromium, Engine.IO': { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'closed transport close' },
  'Chromium, Socket.IO 4': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed io server disconnect' },
  'Chromium, Socket.IO 2': { none: 'refused', expired: 'refused', wrong: 'refused', revoked: 'closed io server disconnect' },
  // Its `error` event has no status.
  'Chromium, EventSource': { none: 'refused', expired: 'refused', wrong: 'refused', revoked: 'refused' },
};

const query = (with_) => (with_ ? `?token=${with_}` : '');

/** stentor.v1 over anything with the API of WebSocket. */
function stentorV1(socket, t) {
  const seen = queue();
  const received = queue();
  t.after(() => (socket.terminate ? socket.terminate() : socket.close()));
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.type === 'welcome') seen.put('open');
    else received.put(message);
  };
  let refusal;
  socket.onerror = ({ message = '' }) => { refusal = /response: (\d+)/.exec(message)?.[1]; };
  socket.onclose = ({ code }) => seen.put(refusal ? `refused ${refusal}` : `closed ${code}`);
  const send = (message) => socket.send(JSON.stringify(message));
  return v1(seen, received, send);
}

function v1(seen, received, send) {
  const answer = async () => {
    const { type, code } = await received.next('an answer');
    return type === 'ok' ? 'ok' : code;
  };
  return {
    seen,
    expiring: async () => assert.equal((await received.next('token_expiring')).type, 'token_expiring'),
    ask: (room) => { send({ type: 'subscribe', room }); return answer(); },
    renew: (newer) => { send({ type: 'auth', token: newer }); return answer(); },
  };
}

function primus(server, with_, t) {
  const client = new Primus(`${server.http}${query(with_)}`, { strategy: false });
  t.after(() => client.destroy());
  const seen = queue();
  const received = queue();
  client.on('data', (message) => (message.type === 'welcome' ? seen.put('open') : received.put(message)));
  let refusal;
  client.on('error', ({ message = '' }) => { refusal = /response: (\d+)/.exec(message)?.[1]; });
  client.on('end', () => seen.put(refusal ? `refused ${refusal}` : 'closed'));
  client.on('close', () => refusal && seen.put(`refused ${refusal}`));
  return v1(seen, received, (message) => client.write(message));
}

function engine(server, with_, t, transports) {
  const client = new EngineSocket(server.http, { transports, query: with_ ? { token: with_ } : {} });
  t.after(() => client.close());
  const seen = queue();
  const received = queue();
  client.on('message', (text) => {
    const message = JSON.parse(text);
    if (message.type === 'welcome') seen.put('open');
    else received.put(message);
  });
  client.on('error', ({ description }) => seen.put(['refused', typeof description === 'number' ? description : ''].join(' ').trim()));
  client.on('close', (reason) => reason !== 'transport error' && reason !== 'forced close' && seen.put(`closed ${reason}`));
  return v1(seen, received, (message) => client.send(JSON.stringify(message)));
}

function socketio(client, server, options, t) {
  const socket = client(server.http, { forceNew: true, reconnection: false, ...options });
  t.after(() => socket.disconnect());
  const seen = queue();
  socket.on('connect', () => seen.put('open'));
  const refused = (error) => seen.put(`refused ${error.data?.code ?? ''}`.trim());
  socket.on('connect_error', refused);
  if (client === io2) socket.on('error', refused);
  socket.on('disconnect', (reason) => seen.put(`closed ${reason}`));
  const received = queue();
  socket.on('stentor:token_expiring', received.put);
  const ask = (...event) => within(new Promise((resolve) => {
    socket.emit(...event, ({ ok, code }) => resolve(ok ? 'ok' : code));
  }), event[0]);
  return {
    seen,
    expiring: async () => assert.ok((await received.next('token_expiring')).expires_in_ms > 0),
    ask: (room) => ask('join', room),
    renew: (newer) => ask('stentor:auth', { token: newer }),
  };
}

function events(server, with_, t) {
  const source = new EventSource(`${server.http}/sse/user/42${query(with_)}`);
  t.after(() => source.close());
  const seen = queue();
  source.addEventListener('snapshot', () => seen.put('open'));
  source.onerror = ({ code }) => code && seen.put(`refused ${code}`);
  return { seen, source };
}

/** The reports of a client in another language, as `seen` has them; `what` describes one, or gives nothing. */
function reported(client, types, what) {
  const seen = queue();
  (async () => {
    for (;;) {
      const told = what(await client.next({ type: (type) => types.includes(type) }));
      if (told) seen.put(told);
    }
  })().catch(() => {}); // It has ended, or is silent.
  return seen;
}

function pythonWebSocket(server, with_, t) {
  const client = startClient(t, 'websocket-client for Python');
  const received = queue();
  const seen = reported(client, ['message', 'closed'], ({ type, data, code, status }) => {
    if (type === 'closed') return status ? `refused ${status}` : `closed ${code}`;
    const message = JSON.parse(data);
    if (message.type === 'welcome') return 'open';
    received.put(message);
    return undefined;
  });
  client.send({ do: 'connect', url: `${server.ws}/ws`, headers: with_ ? { Authorization: `Bearer ${with_}` } : {} });
  return v1(seen, received, (message) => client.send({ do: 'send', text: JSON.stringify(message) }));
}

function pythonSocketio(name, transport, server, with_, t) {
  const client = startClient(t, name, transport);
  const hasAuth = !name.startsWith('python-socketio 4');
  const seen = reported(client, ['connect', 'disconnect', 'refused'], ({ type, code, reason = [] }) => {
    const told = { connect: 'open', disconnect: `closed ${reason[0] ?? ''}`, refused: `refused ${code ?? ''}` }[type];
    return told && told.trim();
  });
  const url = hasAuth ? server.http : `${server.http}${query(with_)}`;
  client.send({ do: 'connect', url, namespaces: ['/'], auth: hasAuth && with_ ? { token: with_ } : undefined });
  let id = 0;
  const ask = async (event, ...args) => {
    client.send({ do: 'call', id: ++id, namespace: '/', name: event, args });
    const answered = id;
    const [{ ok, code }] = (await client.next({ type: 'answer', id: answered })).args;
    return ok ? 'ok' : code;
  };
  return {
    seen,
    expiring: async () => assert.ok((await client.next({ type: 'event', name: 'stentor:token_expiring' })).args[0].expires_in_ms > 0),
    ask: (room) => ask('join', room),
    renew: (newer) => ask('stentor:auth', { token: newer }),
  };
}

function httpxSse(server, with_, t) {
  const client = startClient(t, 'httpx-sse');
  const seen = reported(client, ['open', 'closed'], ({ type, reason }) => {
    if (type === 'open') return type;
    return reason.includes('401') ? 'refused 401' : 'closed';
  });
  client.send({ do: 'connect', url: `${server.http}/sse/user/42${query(with_)}` });
  return { seen };
}

const browser = sharedBrowsers({ after });
const builds = path.join(path.dirname(fileURLToPath(import.meta.url)), 'node_modules');
const scripts = {
  sockjs: 'sockjs-client/dist/sockjs.min.js',
  engineio: 'engine.io-client/dist/engine.io.min.js',
  socketio: 'socket.io-client/dist/socket.io.min.js',
  socketio2: 'socket.io-client-2/dist/socket.io.js',
};

/** Runs in a page: connects, and reports as the functions above do. */
function connectInPage({ kind, http: base, token: with_ }) {
  const asQuery = with_ ? `?token=${with_}` : '';
  const { seen, received } = window;
  const messages = (socket) => Object.assign(socket, {
    onmessage: ({ data }) => received(data),
    onclose: ({ code }) => seen(`closed ${code}`),
  });
  if (kind === 'websocket') {
    window.client = messages(new WebSocket(`${base.replace('http', 'ws')}/ws`, ['stentor.v1', ...(with_ ? [`stentor.bearer.${with_}`] : [])]));
  } else if (kind === 'sockjs') {
    window.client = messages(new window.SockJS(`${base}/sockjs${asQuery}`));
  } else if (kind === 'engineio') {
    const client = window.eio(base, { query: with_ ? { token: with_ } : {} });
    client.on('message', received);
    client.on('error', ({ description }) => seen(`refused ${description}`));
    client.on('close', (reason) => reason !== 'transport error' && seen(`closed ${reason}`));
    window.client = client;
  } else if (kind === 'events') {
    window.client = new EventSource(`${base}/sse/user/42${asQuery}`);
    window.client.addEventListener('snapshot', () => seen('open'));
    window.client.onerror = ({ target }) => target.readyState === EventSource.CLOSED && seen('refused');
  } else {
    const options = kind === 'socketio' ? { auth: { token: with_ } } : with_ && { query: { token: with_ } };
    const socket = window.io(base, { forceNew: true, reconnection: false, ...options });
    socket.on('connect', () => seen('open'));
    const refused = (error) => seen(`refused ${error.data?.code ?? ''}`.trim());
    socket.on('connect_error', refused);
    if (kind === 'socketio2') socket.on('error', refused);
    socket.on('disconnect', (reason) => seen(`closed ${reason}`));
    socket.on('stentor:token_expiring', (notice) => received(JSON.stringify(notice)));
    window.client = socket;
  }
}

function chromium(kind, server, with_, t) {
  const [seen, received] = [queue(), queue()];
  const opened = (async () => {
    const page = await (await browser('Chromium')).newPage();
    t.after(() => page.close());
    // A page of the server's origin.
    await page.goto(`${server.http}/healthz`);
    await page.exposeFunction('seen', seen.put);
    await page.exposeFunction('received', (text) => {
      const message = JSON.parse(text);
      if (message.type === 'welcome') seen.put('open');
      else received.put(message);
    });
    if (scripts[kind]) await page.addScriptTag({ path: path.join(builds, scripts[kind]) });
    await page.evaluate(connectInPage, { kind, http: server.http, token: with_ });
    return page;
  })();
  opened.catch((error) => seen.put(`failed: ${error}`));
  if (kind === 'events') return { seen };
  if (!kind.startsWith('socketio')) return v1(seen, received, async (message) => (await opened).evaluate((text) => window.client.send(text), JSON.stringify(message)));
  const ask = async (...event) => {
    const emit = (args) => new Promise((resolve) => { window.client.emit(...args, resolve); });
    const { ok, code } = await within((await opened).evaluate(emit, event), event[0]);
    return ok ? 'ok' : code;
  };
  return {
    seen,
    expiring: async () => assert.ok((await received.next('token_expiring')).expires_in_ms > 0),
    ask: (room) => ask('join', room),
    renew: (newer) => ask('stentor:auth', { token: newer }),
  };
}

test('docs/conformance.md has what each client sees', () => {
  const page = readFileSync(new URL('../../docs/conformance.md', import.meta.url), 'utf8');
  const row = ([name, { none, expired, wrong, revoked }]) => `| ${[name, none, expired, wrong, revoked].join(' | ')} |`;
  const table = Object.entries(expected).map(row).join('\n');
  assert.ok(page.includes(table), `the table should be:\n${table}`);
  assert.deepEqual(Object.keys(clients), Object.keys(expected));
});

const testClient = (name, open) => test(name, { timeout: 120_000, skip: skip(name) }, async (t) => {
  const server = await start(t);
  for (const kind of ['none', 'expired', 'wrong']) {
    const client = open(server, tokens[kind](), t);
    assert.equal(await client.seen.next(`the refusal (${kind})`), expected[name][kind], kind);
  }
  const client = open(server, tokens.good(), t);
  assert.equal(await client.seen.next('the connection'), 'open');
  if (client.ask) {
    assert.equal(await client.ask('user:42'), 'ok');
    assert.equal(await client.ask('user:43'), 'not_allowed');
    // Renewed: the session outlives its first token, for the same user only.
    // On a busy machine, a process or page may take longer to start than its token lives.
    let life_s = skip(name) === undefined ? 4 : 10;
    const attempt = () => open(server, token('42', { exp: now() + life_s }), t);
    let brief = attempt();
    for (; (await brief.seen.next('the connection')) !== 'open'; brief = attempt()) {
      life_s *= 2;
      assert.ok(life_s < 60, 'no session');
    }
    await brief.expiring();
    assert.equal(await brief.renew(token('43')), 'not_allowed');
    assert.equal(await brief.renew(token('42', { exp: now() + 600 })), 'ok');
    await passed(life_s * 1000 + 500);
    assert.equal(await brief.ask('user:42'), 'ok');
  }
  const old = token('42', { iat: now() - 10 });
  await server.revoke({ subject: '42' });
  assert.equal(await client.seen.next('the end'), expected[name].revoked);
  const late = open(server, old, t);
  assert.match(await late.seen.next('the refusal of a revoked token'), /^(refused|closed)/);
  const other = open(server, token('43'), t);
  if (other.ask) assert.equal(await other.seen.next('the connection'), 'open', 'nobody else is concerned');
  assert.ok(!server.log.some((line) => line.includes('eyJ')), 'a token is in the log');
  assert.ok(!(await (await fetch(`${server.admin}/metrics`)).text()).includes('eyJ'), 'a token is in the metrics');
});

// Those in Node mostly wait. The others start a process or a page each time, one after the other, so that no token expires meanwhile.
const inNode = ([name]) => skip(name) === undefined;
describe('clients in Node', { concurrency: 4 }, () => {
  for (const client of Object.entries(clients).filter(inNode)) testClient(...client);
});
for (const client of Object.entries(clients).filter((client) => !inNode(client))) testClient(...client);

test('a session ends with its token, and the client returns with a new one', async (t) => {
  const server = await start(t);
  const page = clients['WebSocket of a page'](server, token('42', { exp: now() + 6 }), t);
  const polls = clients['Socket.IO 4, polling'](server, token('42', { exp: now() + 6 }), t);
  const stream = events(server, token('42', { exp: now() + 6 }), t);
  for (const { seen } of [page, polls, stream]) assert.equal(await seen.next('the connection'), 'open');
  assert.equal(await page.seen.next('the end'), 'closed 4505');
  // By the transport: after a DISCONNECT packet it wouldn't return.
  assert.match(await polls.seen.next('the end'), /^closed transport/);
  // An EventSource returns with the same URL, and is refused.
  assert.equal(await stream.seen.next('the end'), 'refused 401');

  // socket.io-client asks its application for each attempt.
  let asked = 0;
  const socket = io(server.http, {
    forceNew: true,
    reconnectionDelay: 10,
    auth: (send) => send({ token: token('42', { exp: now() + (asked++ ? 600 : 6) }) }),
  });
  t.after(() => socket.disconnect());
  await event(socket, 'connect');
  await event(socket, 'disconnect');
  await event(socket, 'connect');
  assert.equal(asked, 2);
});

test('a cookie counts for pages of allowed origins only', async (t) => {
  const server = await start(t);
  const status = (headers) => new Promise((resolve, reject) => {
    http.get(`${server.http}/feed/user/42`, { headers: { Cookie: `session=${token('42')}`, ...headers } }, (response) => resolve(response.resume().statusCode)).on('error', reject);
  });
  assert.equal(await status({ Origin: PAGE }), 200);
  assert.equal(await status({ 'Sec-Fetch-Site': 'same-origin' }), 200);
  assert.equal(await status({}), 401);
  assert.equal(await status({ Origin: 'https://evil.example.com' }), 403);
});

for (const transport of ['websocket', 'sockjs', 'socket.io', 'sse', 'polling']) {
  test(`@stentor/client asks for a token when it is needed, over ${transport}`, async (t) => {
    const server = await start(t);
    const states = queue();
    let asked = 0;
    let lifetime = 3;
    const stentor = connect(server.http, {
      transport,
      WebSocket,
      SockJS,
      io,
      backoff: { initialMs: 10 },
      getToken: async () => { asked += 1; return token('42', { exp: now() + lifetime }); },
    });
    t.after(() => stentor.close());
    stentor.on('state', (state, { code }) => states.put(code && state === 'refused' ? `${state} ${code}` : state));
    const feed = stentor.feed('user/42');
    await event({ once: (name, then) => feed.on(name, then) }, 'change');
    assert.deepEqual(feed.document, { user: '42' });
    const hasSession = transport !== 'sse' && transport !== 'polling';
    // Otherwise, one response has all feeds, or tells nothing but a status.
    const closed = hasSession && stentor.feed('user/43');
    lifetime = 600;
    // Those with a session renew it; the others return.
    await passed(3_500);
    for (let left = 100; stentor.state !== 'open' || asked < 2; left--) {
      assert.ok(left, `${stentor.state}, asked ${asked} times`);
      await passed(50);
    }
    if (closed) assert.equal(closed.state, 'not_found');
    await server.revoke({ subject: '42' });
    // Others return at once, with a token that was issued later.
    for (let state = ''; hasSession && !state.startsWith('refused');) state = await states.next('the end');
  });
}

test('@stentor/client reports that it gets no token, and tries again', async (t) => {
  const server = await start(t);
  let asked = 0;
  const stentor = connect(server.http, {
    WebSocket,
    backoff: { initialMs: 10 },
    getToken: () => { if (asked++ < 2) throw new Error('not signed in'); return token('42'); },
  });
  t.after(() => stentor.close());
  const errors = [];
  stentor.on('error', ({ code, message }) => errors.push(`${code}: ${message}`));
  const feed = stentor.feed('user/42');
  await event({ once: (name, then) => feed.on(name, then) }, 'change');
  assert.deepEqual(errors, ['no_token: not signed in', 'no_token: not signed in']);
});
