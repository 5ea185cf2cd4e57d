// @stentor/socket.io: a worker with the real socket.io, against a scripted server.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { Server } from 'socket.io';
import { attach } from '../../clients/socketio-server/src/index.js';
import { linkServer, handshake } from './link-server.mjs';

/** A worker with a link: { io, link, server, connection }. */
async function worker(t, { options = {}, settings = {}, setup = () => {}, welcome } = {}) {
  const io = new Server(options);
  t.after(() => io.close());
  const server = await linkServer(t);
  const link = attach(io, server.url, { name: 'w', signals: false, settle: 0, ...settings });
  setup(io);
  const listening = link.listen();
  const connection = await server.connection();
  connection.welcome(welcome);
  await listening;
  return { io, link, server, connection };
}

/** Opens a session with a socket in `/`. Gives the socket. */
async function connected(io, connection, handle) {
  const connecting = once(io, 'connection');
  connection.write(['OPEN', handle, false, handshake(`s${handle}`)], ['MESSAGE', handle, ['0{"user":"Ann"}']]);
  const [socket] = await connecting;
  return socket;
}

test('a worker presents itself, and its server has the sessions of Stentor', async (t) => {
  const events = [];
  const { io, link, connection } = await worker(t, {
    options: { pingInterval: 1_000 },
    settings: { token: 'secret', onCrash: 'redeliver' },
    setup: (io) => io.on('connection', (socket) => socket.on('echo', (text, answer) => {
      events.push(text);
      socket.join('room');
      answer(text);
      io.to('room').except('other').emit('news', Buffer.from('b'));
    })),
  });
  const { instance, ...hello } = connection.hello;
  assert.match(instance, /^[0-9a-f]{16}$/);
  assert.deepEqual(hello, {
    v: [1], link: null, received: 0, name: 'w', parser: 'json', recovery: null, on_crash: 'redeliver', asks: false, http: null,
    options: {
      path: '/socket.io', serveClient: true, pingInterval: 1_000, pingTimeout: 20_000, upgradeTimeout: 10_000, maxHttpBufferSize: 1e6,
      transports: ['polling', 'websocket'], allowUpgrades: true, httpCompression: { threshold: 1024 }, cors: false, allowEIO3: false,
    },
  });
  assert.equal(connection.request.headers.authorization, 'Bearer secret');
  assert.deepEqual(await connection.read('NSP').then(({ namespace, name }) => [namespace, name]), [0, '/']);

  const socket = await connected(io, connection, 1);
  const { rooms, state, id, pid } = await connection.read('ADD');
  assert.deepEqual([id, pid, rooms, state.auth], [socket.id, '', [socket.id], { user: 'Ann' }]);
  assert.deepEqual((await connection.read('SEND')).messages, [`0{"sid":"${socket.id}"}`]);
  assert.equal(socket.handshake.address, '192.0.2.1');
  assert.deepEqual([io.engine.clientsCount, link.stats().sessions], [1, 1]);

  connection.write(['MESSAGE', 1, ['21["echo","hi"]']]);
  assert.deepEqual((await connection.read('JOIN')).rooms, ['room']);
  // The answer acknowledges the message that caused it.
  const answer = await connection.read('SEND');
  assert.deepEqual([answer.messages, answer.ack, events], [['31["hi"]'], 2, ['hi']]);
  const broadcast = await connection.read('BROADCAST');
  assert.deepEqual([broadcast.rooms, broadcast.except, broadcast.messages], [['room'], ['other'], ['51-["news",{"_placeholder":true,"num":0}]', Buffer.from('b')]]);

  const disconnected = once(socket, 'disconnect');
  connection.write(['CLOSED', 1, 'ping timeout', '']);
  assert.deepEqual((await disconnected)[0], 'ping timeout');
  assert.equal(io.engine.clientsCount, 0);
});

test('frames without an answer are acknowledged alone, and at once after NOP', async (t) => {
  const { io, connection } = await worker(t);
  await connected(io, connection, 1);
  await connection.read('SEND');
  connection.write(['MESSAGE', 1, ['2["nothing"]']]);
  assert.equal((await connection.read('ack')).ack, 2);
  connection.write(['MESSAGE', 1, ['2["nothing"]']], ['NOP']);
  assert.equal((await connection.read('ack')).ack, 3);
});

test('a session whose request is checked waits for the checks', async (t) => {
  const { io, connection } = await worker(t, {
    options: { allowRequest: (request, answer) => answer('not you', request._query.user === 'Ann') },
    setup: (io) => {
      io.engine.use((request, response, next) => {
        response.setHeader('x-checked', '1');
        response.setHeader('Set-Cookie', 'seen=1');
        if (request._query.user === 'nobody') response.writeHead(302, { location: '/login' }).end('moved');
        else next();
      });
      io.engine.on('initial_headers', (headers) => (headers['x-first'] = 1));
      io.engine.on('headers', (headers) => (headers['x-each'] = 'a'));
    },
  });
  assert.equal(connection.hello.asks, true);
  const open = (handle, user) => connection.write(['OPEN', handle, true, handshake(`s${handle}`, { query: { user } })]);
  const errors = [];
  io.engine.on('connection_error', ({ code, message, context }) => errors.push([code, message, context]));
  open(1, 'Ann');
  assert.deepEqual((await connection.read('ACCEPT')).headers, { first: { 'x-first': '1', 'set-cookie': ['seen=1'] }, all: { 'x-checked': '1', 'x-each': 'a' } });
  open(2, 'Bob');
  const headers = { 'x-checked': '1', 'set-cookie': 'seen=1' };
  assert.deepEqual((await connection.read('REFUSE')).response, { status: 403, code: 4, message: 'not you', headers });
  open(3, 'nobody');
  assert.deepEqual((await connection.read('REFUSE')).response, { status: 302, code: 3, message: 'Bad request', headers: { ...headers, location: '/login' }, body: 'moved' });
  assert.deepEqual(errors, [[4, 'Forbidden', { message: 'not you' }]]);
  // Stentor has accepted this session, because it didn't know of the checks.
  connection.write(['OPEN', 4, false, handshake('s4', { query: { user: 'Bob' } })], ['MESSAGE', 4, ['0']]);
  assert.deepEqual(await connection.read('CLOSE').then(({ handle, discard }) => [handle, discard]), [4, true]);
  assert.equal(io.engine.clientsCount, 1);
});

test('the part of HELLO that changes is sent as CONFIG', async (t) => {
  const http = createServer();
  const { io, connection } = await worker(t, { settings: { http } });
  assert.deepEqual([connection.hello.asks, connection.hello.http], [false, null]);
  io.engine.use((request, response, next) => next());
  assert.deepEqual((await connection.read('CONFIG')).config, { asks: true, http: null });
  http.listen(0, '127.0.0.1');
  const { config } = await connection.read('CONFIG');
  assert.deepEqual(config, { asks: true, http: http.address().port });
  // `io.close()` closes the HTTP server, as it does without Stentor.
  const closed = once(http, 'close');
  io.close();
  await closed;
});

test('a session of a former process continues with real sockets, before its messages', async (t) => {
  const events = [];
  const { io, link, connection } = await worker(t, {
    setup: (io) => {
      io.use((socket, next) => {
        socket.user = socket.handshake.auth.user;
        next(socket.user === 'Eve' ? new Error('refused') : undefined);
      });
      io.on('connection', (socket) => {
        events.push(['connection', socket.id, socket.recovered, socket.user, socket.data, [...socket.rooms].sort()]);
        socket.on('a', (...args) => events.push(['a', ...args]));
      });
      io.of(/^\/dynamic-\d$/).on('connection', (socket) => events.push(['connection', socket.nsp.name, socket.id]));
    },
  });
  const socket = (nsp, id, user) => ({ nsp, id, pid: '', rooms: [id, 'r'], data: { n: 1 }, auth: { user }, time: 'then', issued: 7 });
  connection.write(
    ['RESUME', 1, { ...handshake('s1'), upgraded: true, sockets: [socket('/', 'one', 'Ann'), socket('/dynamic-1', 'two', 'Ann'), socket('/gone', 'three', 'Ann')] }],
    ['MESSAGE', 1, ['2["a",1]']],
    ['MEMBERS', 0, 0, [1], ['joined']],
    ['RESUME', 2, { ...handshake('s2'), sockets: [socket('/', 'four', 'Eve')] }],
  );
  const refused = [await connection.read('SEND'), await connection.read('SEND')].map(({ handle, messages }) => [handle, ...messages]);
  assert.deepEqual(refused.sort(), [[1, '1/gone,'], [2, '1']]);
  connection.write(['MESSAGE', 1, ['2["a",2]']], ['NOP']);
  await connection.read('ack');
  assert.deepEqual(events, [
    ['connection', 'one', true, 'Ann', { n: 1 }, ['joined', 'one', 'r']],
    ['connection', '/dynamic-1', 'two'],
    ['a', 1],
    ['a', 2],
  ]);
  const one = io.sockets.sockets.get('one');
  assert.deepEqual([one.handshake.issued, one.conn.upgraded, link.stats().resumed], [7, true, 2]);
});

test('messages that wait for a middleware of a resumed session are not acknowledged', async (t) => {
  let go;
  const { connection } = await worker(t, { setup: (io) => io.use((socket, next) => (go = next)).on('connection', () => {}) });
  connection.write(['RESUME', 1, { ...handshake('s1'), sockets: [{ nsp: '/', id: 'one', pid: '', rooms: [], data: {} }] }]);
  connection.write(['MESSAGE', 1, ['2["a"]']], ['NOP']);
  assert.equal((await connection.read('ack')).ack, 1);
  go();
  assert.equal((await connection.read('ADD')).ack, 2);
});

test('a handover gives sessions back with their data, and ends the link', async (t) => {
  const { io, link, connection } = await worker(t);
  const socket = await connected(io, connection, 1);
  socket.data.name = 'Ann';
  const disconnected = once(socket, 'disconnect');
  const steps = [];
  const over = link.handover({ hook: () => steps.push('hook') }).then(() => steps.push('over'));
  assert.deepEqual((await connection.read('BYE')).bye, { mode: 'handover' });
  connection.write(['MESSAGE', 1, ['2["last"]']]);
  connection.write(['DRAINED']);
  const { handle, namespace, data } = await connection.read('RELEASED');
  assert.deepEqual([handle, namespace, data], [1, 0, '{"name":"Ann"}']);
  assert.equal((await disconnected)[0], 'server shutting down');
  const { bye, ack } = await connection.read('BYE');
  assert.deepEqual([bye, ack, steps], [{ mode: 'done' }, 3, ['hook']]);
  connection.write();
  connection.write(['NOP']);
  await over;
  await connection.closed;
  assert.deepEqual(steps, ['hook', 'over']);
  await assert.rejects(link.listen(), { code: 'closed' });
});

test('one session is given back when Stentor asks', async (t) => {
  const { io, connection } = await worker(t);
  const socket = await connected(io, connection, 1);
  connection.write(['RELEASE', 1]);
  const socketsOf = async () => [(await connection.read('RELEASED')).namespace, (await connection.read('RELEASED')).namespace];
  assert.deepEqual(await socketsOf(), [0, 0xffff]);
  assert.deepEqual([socket.connected, io.engine.clientsCount], [false, 0]);
});

test('`io.close()` ends the sessions', async (t) => {
  const { io, connection } = await worker(t);
  const socket = await connected(io, connection, 1);
  const disconnected = once(socket, 'disconnect');
  io.close();
  assert.equal((await disconnected)[0], 'server shutting down');
  assert.deepEqual((await connection.read('BYE')).bye, { mode: 'stop' });
});

test('after a broken connection, both sides continue where they were', async (t) => {
  const events = [];
  const { io, link, server, connection } = await worker(t, { setup: (io) => io.on('connection', (socket) => socket.onAny((...event) => events.push(event))) });
  const socket = await connected(io, connection, 1);
  await connection.read('SEND');
  const lost = once(link, 'lost');
  connection.cut();
  await lost;
  socket.emit('kept');
  const again = await server.connection();
  assert.deepEqual([again.hello.link, again.hello.received, again.hello.instance], [5, 1, connection.hello.instance]);
  again.welcome({ resumed: true, received: 1 });
  const { messages, number } = await again.read('SEND');
  // Stentor hasn't received the second frame.
  assert.deepEqual([messages, number], [[`0{"sid":"${socket.id}"}`], 2]);
  assert.deepEqual((await again.read('SEND')).messages, ['2["kept"]']);
  assert.equal(socket.connected, true);
});

test('a new link begins without the sessions of the former one', async (t) => {
  const { io, link, server, connection } = await worker(t, { setup: (io) => io.of('/chat') });
  const socket = await connected(io, connection, 1);
  const disconnected = once(socket, 'disconnect');
  connection.cut();
  const again = await server.connection();
  again.welcome({ link: 6, servers: 3 });
  assert.equal((await disconnected)[0], 'transport close');
  assert.deepEqual([(await again.read('NSP')).name, (await again.read('NSP')).name], ['/', '/chat']);
  assert.deepEqual([link.stats().link, link.stats().peers, await io.of('/').adapter.serverCount()], [6, 3, 3]);
});

test('a server that breaks the protocol loses its link, with one line', async (t) => {
  const { io, link, server, connection } = await worker(t);
  const socket = await connected(io, connection, 1);
  const failed = once(link, 'error');
  connection.raw(Buffer.from('090000000000000015', 'hex'));
  const [error] = await failed;
  assert.deepEqual([error.code, error.message], ['protocol', 'Stentor broke the protocol: the frame has the number 9; expected 2']);
  assert.equal(socket.connected, false);
  const again = await server.connection();
  assert.deepEqual([again.hello.link, again.hello.received], [null, 0]);
});

test('`listen` fails if Stentor refuses the worker for good', async (t) => {
  const server = await linkServer(t);
  const io = new Server();
  const link = attach(io, server.url, { signals: false });
  const errors = [];
  link.on('error', (error) => errors.push(error.code));
  const listening = link.listen();
  const connection = await server.connection();
  connection.first('ERROR', { code: 'token', message: 'the token is wrong' });
  await assert.rejects(listening, { name: 'LinkError', code: 'token', message: 'Stentor has ended the link: the token is wrong' });
  await connection.closed;
  assert.deepEqual(errors, ['token']);
  io.close();
});

test('a worker that is refused for a while tries again', async (t) => {
  const io = new Server();
  t.after(() => io.close());
  const server = await linkServer(t);
  const link = attach(io, server.url, { signals: false });
  const failed = once(link, 'error');
  const listening = link.listen();
  (await server.connection()).first('ERROR', { code: 'too_many_workers', message: 'the application has 64 workers already' });
  assert.equal((await failed)[0].code, 'too_many_workers');
  (await server.connection()).welcome();
  await listening;
});

test('mistakes are reported where they are made', (t) => {
  const http = createServer();
  const check = (make, message) => assert.throws(make, { message });
  check(() => attach({}, 'ws://127.0.0.1'), 'attach(io, url): `io` must be a Server of socket.io');
  check(() => attach(new Server(http), 'ws://127.0.0.1'), 'the Server has an HTTP server already: create it with `new Server(options)`, and pass the HTTP server to attach() as `http`');
  check(() => attach(new Server(), 'ws://127.0.0.1', { tokens: 1 }), /^attach\(\) has no option `tokens`; it has token, app, name, /);
  check(() => attach(new Server(), 'ws://127.0.0.1', { onCrash: 'ignore' }), 'onCrash is one of disconnect, redeliver, drop, not ignore');
  check(() => attach(new Server(), 'there'), 'Invalid URL');
  t.after(() => http.close());
});
