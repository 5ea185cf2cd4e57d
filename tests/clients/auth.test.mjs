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
import { now } from './admin.mjs';
import { checkClient, expected, LIFE_S, overSocketIo, PAGE, query, start, user, v1 } from './auth.mjs';
import { PATIENCE_MS, event, queue, root, statusOf, until, within } from './harness.mjs';
import { Primus } from './primus.mjs';

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
};

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
  return overSocketIo(seen, () => received.next('token_expiring'), ask);
}

function events(server, with_, t) {
  const source = new EventSource(`${server.http}/sse/user/42${query(with_)}`);
  t.after(() => source.close());
  const seen = queue();
  source.addEventListener('snapshot', () => seen.put('open'));
  source.onerror = ({ code }) => code && seen.put(`refused ${code}`);
  return { seen, source };
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


describe('@stentor/client renews its token when it is told to', { concurrency: true }, () => {
  for (const transport of ['websocket', 'sockjs', 'socket.io']) {
    test(`over ${transport}`, async (t) => {
      const server = await start(t);
      const [states, asked] = [queue(), queue()];
      let count = 0;
      const stentor = connect(server.http, {
        transport,
        WebSocket,
        SockJS,
        io,
        backoff: { initialMs: 10 },
        getToken: () => { asked.put(++count); return user('42', { exp: now() + (count === 1 ? LIFE_S : 600) }); },
      });
      t.after(() => stentor.close());
      stentor.on('state', states.put);
      const feed = stentor.feed('user/42');
      await event({ once: (name, then) => feed.on(name, then) }, 'change');
      assert.deepEqual(feed.document, { user: '42' });
      const denied = stentor.feed('user/43');
      for (const number of [1, 2]) assert.equal(await asked.next('a question for a token'), number);
      await until('the feed of another user is refused', () => denied.state === 'not_found');
      assert.equal(stentor.state, 'open');
      // It connected once, and is refused when its user is revoked.
      await server.revoke({ subject: '42' });
      const seen = [];
      while (seen.at(-1) !== 'refused') seen.push(await states.next('the end'));
      assert.equal(seen.filter((state) => state === 'open').length, 1);
    });
  }
});

test('@stentor/client reports that it gets no token, and tries again', async (t) => {
  const server = await start(t);
  let asked = 0;
  const stentor = connect(server.http, {
    WebSocket,
    backoff: { initialMs: 10 },
    getToken: () => { if (asked++ < 2) throw new Error('not signed in'); return user('42'); },
  });
  t.after(() => stentor.close());
  const errors = [];
  stentor.on('error', ({ code, message }) => errors.push(`${code}: ${message}`));
  const feed = stentor.feed('user/42');
  await event({ once: (name, then) => feed.on(name, then) }, 'change');
  assert.deepEqual(errors, ['no_token: not signed in', 'no_token: not signed in']);
});
