// Who may connect, and what clients of each protocol see: without a token, with a good, an expired and a wrong one, when the token is
// revoked while they are connected, and when they renew it. The clients are the real ones, in Node; all/auth.test.mjs has the others.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { describe } from 'node:test';
import { EventSource } from 'eventsource';
import { Socket as EngineSocket } from 'engine.io-client';
import { io } from 'socket.io-client';
import io2 from 'socket.io-client-2';
import io3 from 'socket.io-client-3';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { connect } from '../../clients/js/src/index.js';
import { checkClient, expected, overSocketIo, PAGE, query, start, user, v1 } from './auth.mjs';
import { PATIENCE_MS, event, queue, root, statusOf, until, within } from './harness.mjs';
import { Primus } from './primus.mjs';

// A protocol: how its client connects with a token, if any, and what it reports. `seen` receives `open`, `closed CODE` and `refused WHY`.
// `ask(topic)` says whether the client may subscribe to a room: `ok`, or the error's code.
const clients = {
  'WebSocket of a page': (server, with_, t) => stentorV1(new WebSocket(`${server.ws}/ws`, ['stentor.v1', ...(with_ ? [`stentor.bearer.${with_}`] : [])], { origin: PAGE }), t),
  'WebSocket of a program': (server, with_, t) => stentorV1(new WebSocket(`${server.ws}/ws`, { headers: with_ ? { Authorization: `Bearer ${with_}` } : {} }), t),
  SockJS: (server, with_, t) => sockjs(server, with_, ['xhr-streaming', 'xhr-polling'], t),
  'SockJS over WebSocket': (server, with_, t) => sockjs(server, with_, ['websocket'], t),
  Primus: primus,
  'Engine.IO, polling': (server, with_, t) => engine(server, with_, t, ['polling']),
  'Engine.IO, WebSocket': (server, with_, t) => engine(server, with_, t, ['websocket']),
  'Socket.IO 4': (server, with_, t) => socketio(io, server, { auth: { token: with_ } }, t),
  'Socket.IO 4, polling': (server, with_, t) => socketio(io, server, { auth: { token: with_ }, transports: ['polling'] }, t),
  'Socket.IO 3': (server, with_, t) => socketio(io3, server, { auth: { token: with_ } }, t),
  'Socket.IO 2': (server, with_, t) => socketio(io2, server, with_ ? { query: { token: with_ } } : {}, t),
  EventSource: events,
};

/** What a client of stentor.v1 reports: `take` handles a message. `closed` tells of its end, and `failed` of an error, whose status counts as the reason. */
function reports(send) {
  const [seen, received] = [queue(), queue()];
  let refusal;
  return {
    ...v1(seen, received, send),
    take: (message) => (message.type === 'welcome' ? seen.put('open') : received.put(message)),
    failed: ({ message = '' }) => { refusal = /response: (\d+)/.exec(message)?.[1]; },
    closed: (...code) => seen.put(refusal ? `refused ${refusal}` : ['closed', ...code].join(' ')),
  };
}

/** stentor.v1 over anything with the API of WebSocket. */
function stentorV1(socket, t) {
  const { take, failed, closed, ...client } = reports((message) => socket.send(JSON.stringify(message)));
  t.after(() => (socket.terminate ? socket.terminate() : socket.close()));
  socket.onmessage = ({ data }) => take(JSON.parse(data));
  socket.onerror = failed;
  socket.onclose = ({ code }) => closed(code);
  return client;
}

function sockjs(server, with_, transports, t) {
  const socket = new SockJS(`${server.http}/sockjs${query(with_)}`, null, { transports, timeout: PATIENCE_MS });
  // The library keeps the timer of a transport that was refused, which would keep the process alive.
  t.after(() => clearTimeout(socket._transportTimeoutId));
  return stentorV1(socket, t);
}

function primus(server, with_, t) {
  const socket = new Primus(`${server.http}${query(with_)}`, { strategy: false });
  t.after(() => socket.destroy());
  const { take, failed, closed, ...client } = reports((message) => socket.write(message));
  socket.on('data', take);
  socket.on('error', failed);
  // Once the server has ended it, and after a refusal.
  socket.on('end', () => closed());
  socket.on('close', () => closed());
  return client;
}

function engine(server, with_, t, transports) {
  const socket = new EngineSocket(server.http, { transports, query: with_ ? { token: with_ } : {} });
  t.after(() => socket.close());
  const { take, closed, ...client } = reports((message) => socket.send(JSON.stringify(message)));
  socket.on('message', (text) => take(JSON.parse(text)));
  socket.on('error', ({ description }) => client.seen.put(typeof description === 'number' ? `refused ${description}` : 'refused'));
  socket.on('close', (reason) => reason !== 'transport error' && reason !== 'forced close' && closed(reason));
  return client;
}

function socketio(client, server, options, t) {
  const socket = client(server.http, { forceNew: true, reconnection: false, ...options });
  t.after(() => socket.disconnect());
  const [seen, received] = [queue(), queue()];
  socket.on('connect', () => seen.put('open'));
  const refused = (error) => seen.put(`refused ${error.data?.code ?? ''}`.trim());
  socket.on('connect_error', refused);
  if (client === io2) socket.on('error', refused);
  socket.on('disconnect', (reason) => seen.put(`closed ${reason}`));
  socket.on('stentor:token_expiring', received.put);
  const ask = async (...event) => {
    const { ok, code } = await within(new Promise((resolve) => socket.emit(...event, resolve)), event[0]);
    return ok ? 'ok' : code;
  };
  return overSocketIo(seen, () => received.next('token_expiring'), ask);
}

function events(server, with_, t) {
  const source = new EventSource(`${server.http}/sse/user/42${query(with_)}`);
  t.after(() => source.close());
  const seen = queue();
  source.addEventListener('snapshot', () => seen.put('open'));
  source.onerror = ({ code }) => code && seen.put(`refused ${code}`);
  return { seen };
}

test('docs/conformance.md has what each client sees', () => {
  const page = readFileSync(`${root}/docs/conformance.md`, 'utf8');
  const row = ([name, { none, expired, wrong, revoked }]) => `| ${[name, none, expired, wrong, revoked].join(' | ')} |`;
  const table = Object.entries(expected).map(row).join('\n');
  assert.ok(page.includes(table), `the table should be:\n${table}`);
  assert.ok(Object.keys(clients).every((name) => name in expected));
});

describe('clients in Node', { concurrency: true }, () => {
  for (const [name, open] of Object.entries(clients)) test(name, (t) => checkClient(t, name, open));
});

test('a cookie counts for pages of allowed origins only', async (t) => {
  const server = await start(t);
  const status = (headers) => statusOf(server.http, '/feed/user/42', { Cookie: `session=${user('42')}`, ...headers });
  assert.equal(await status({ Origin: PAGE }), 200);
  assert.equal(await status({ 'Sec-Fetch-Site': 'same-origin' }), 200);
  assert.equal(await status({}), 401);
  assert.equal(await status({ Origin: 'https://evil.example.com' }), 403);
});


/** @stentor/client whose application gives it tokens: its connection, and the feed of its user once it has come. */
async function follow(t, server, options) {
  const stentor = connect(server.http, { WebSocket, SockJS, io, backoff: { initialMs: 10 }, ...options });
  t.after(() => stentor.close());
  const [states, errors] = [queue(), []];
  stentor.on('state', states.put);
  stentor.on('error', ({ code, message }) => errors.push(`${code}: ${message}`));
  const feed = stentor.feed('user/42');
  await event({ once: (name, then) => feed.on(name, then) }, 'change');
  assert.deepEqual(feed.document, { user: '42' });
  return { stentor, states, errors };
}

for (const transport of ['websocket', 'sockjs', 'socket.io']) {
  test(`@stentor/client renews its token when it is told to, over ${transport}`, async (t) => {
    const server = await start(t);
    const asked = queue();
    let count = 0;
    const { stentor, states } = await follow(t, server, { transport, getToken: () => { asked.put(++count); return user('42'); } });
    assert.equal(await asked.next('a question for a token'), 1);
    await server.revoke({ subject: '42', action: 'refresh' });
    assert.equal(await asked.next('another question'), 2);
    const denied = stentor.feed('user/43');
    await until('the feed of another user is refused', () => denied.state === 'not_found');
    assert.equal(stentor.state, 'open');
    // It connected once, and is refused when its user is revoked.
    await server.revoke({ subject: '42' });
    const seen = [];
    while (seen.at(-1) !== 'refused') seen.push(await states.next('the end'));
    assert.equal(seen.filter((state) => state === 'open').length, 1);
  });
}

test('@stentor/client reports that it gets no token, and tries again', async (t) => {
  let asked = 0;
  const getToken = () => { if (asked++ < 2) throw new Error('not signed in'); return user('42'); };
  const { errors } = await follow(t, await start(t), { getToken });
  assert.deepEqual(errors, ['no_token: not signed in', 'no_token: not signed in']);
});
