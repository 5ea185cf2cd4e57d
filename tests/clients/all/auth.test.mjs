// The clients of auth.test.mjs in Python and in Chromium, and clients whose tokens expire while they are connected.
import assert from 'node:assert/strict';
import path from 'node:path';
import test, { after, describe } from 'node:test';
import { io } from 'socket.io-client';
import { connect } from '../../../clients/js/src/index.js';
import { now } from '../admin.mjs';
import { checkClient, expected, overSocketIo, query, start, user, v1 } from '../auth.mjs';
import { missing as noBrowser, sharedBrowsers } from '../browsers.mjs';
import { missing as notInstalled, startClient } from '../foreign.mjs';
import { event, modules, queue, until, within } from '../harness.mjs';

const clients = {
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
  const notice = async () => (await client.next({ type: 'event', name: 'stentor:token_expiring' })).args[0];
  return overSocketIo(seen, notice, ask);
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
    if (scripts[kind]) await page.addScriptTag({ path: path.join(modules, scripts[kind]) });
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
  return overSocketIo(seen, () => received.next('token_expiring'), ask);
}

describe('clients', { concurrency: 4 }, () => {
  for (const [name, open] of Object.entries(clients)) {
    const skip = name.startsWith('Chromium') ? noBrowser('Chromium') : notInstalled(name);
    test(name, { skip }, (t) => checkClient(t, name, open));
  }
});

test('every client of the table is tested', () => {
  const inNode = Object.keys(expected).filter((name) => !/ython|httpx|Chromium/.test(name));
  assert.deepEqual([...inNode, ...Object.keys(clients)], Object.keys(expected));
});

test('clients whose tokens have expired return with new ones', async (t) => {
  const server = await start(t);
  let asked = 0;
  // Clients on a busy machine connect within the life of the first token.
  const nextToken = () => user('42', { exp: now() + (asked++ ? 600 : 10) });
  // socket.io-client asks its application for each attempt.
  const socket = io(server.http, { forceNew: true, reconnectionDelay: 10, auth: (send) => send({ token: nextToken() }) });
  t.after(() => socket.disconnect());
  await event(socket, 'connect');
  await event(socket, 'disconnect');
  await event(socket, 'connect');
  assert.equal(asked, 2);
  for (const transport of ['sse', 'polling']) {
    asked = 0;
    const stentor = connect(server.http, { transport, backoff: { initialMs: 10 }, getToken: nextToken });
    t.after(() => stentor.close());
    const feed = stentor.feed('user/42');
    await event({ once: (name, then) => feed.on(name, then) }, 'change');
    assert.deepEqual(feed.document, { user: '42' });
    await until(`it returns by ${transport}`, () => stentor.state === 'open' && asked >= 2);
  }
});
