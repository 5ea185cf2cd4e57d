// @stentor/socket.io: a worker with the real socket.io, against a scripted server.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { Server } from 'socket.io';
import { attach } from '../../clients/socketio-server/src/index.js';
import { connected, handshake, linkServer, worker } from './link-server.mjs';

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
    v: [1], link: null, received: 0, name: 'w', parser: 'json', recovery: null, on_crash: 'redeliver', asks: false, http: null, errors: false,
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
  const open = (handle, user, transport = 'polling') => connection.write(['OPEN', handle, true, handshake(`s${handle}`, { transport, query: { user } })]);
  const errors = [];
  io.engine.on('connection_error', ({ code, message, context }) => errors.push([code, message, context]));
  open(1, 'Ann');
  assert.deepEqual((await connection.read('ACCEPT')).headers, { first: { 'x-first': '1', 'set-cookie': ['seen=1'] }, all: { 'x-checked': '1', 'x-each': 'a' } });
  open(2, 'Bob');
  const headers = { 'x-checked': '1', 'set-cookie': 'seen=1' };
  assert.deepEqual((await connection.read('REFUSE')).response, { status: 403, code: 4, message: 'not you', headers });
  open(3, 'nobody');
  assert.deepEqual((await connection.read('REFUSE')).response, { status: 302, code: 3, message: 'Bad request', headers: { ...headers, location: '/login' }, body: 'moved' });
  open(5, 'Bob', 'websocket');
  const { status, body } = (await connection.read('REFUSE')).response;
  assert.deepEqual([status, body], [400, 'not you']);
  assert.deepEqual(errors, Array(2).fill([4, 'Forbidden', { message: 'not you' }]));
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
  assert.deepEqual((await connection.read('CONFIG')).config, { asks: true, http: null, errors: false });
  http.listen(0, '127.0.0.1');
  const { config } = await connection.read('CONFIG');
  assert.deepEqual(config, { asks: true, http: http.address().port, errors: false });
  // Requests that Stentor refuses itself are reported from now on.
  const refused = once(io.engine, 'connection_error');
  assert.equal((await connection.read('CONFIG')).config.errors, true);
  connection.write(['CONN_ERROR', { code: 1, message: 'Session ID unknown', context: { sid: 'x' }, req: handshake('', { url: '/a?sid=x' }) }]);
  const [{ req, ...error }] = await refused;
  assert.deepEqual(error, { code: 1, message: 'Session ID unknown', context: { sid: 'x' } });
  assert.deepEqual([req.url, req.method], ['/a?sid=x', 'GET']);
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
  const last = refused[1][0];
  assert.deepEqual(refused.sort(), [[1, '1/gone,'], [2, '1']]);
  // Both were members of rooms, in which Stentor would still deliver to them.
  assert.equal((await connection.read('DEL')).handle, last);
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

// Broadcasts of other workers may take effect between two entries.
test('a resumed socket has all its rooms in one entry', async (t) => {
  const { connection } = await worker(t);
  const resume = async (handle, count, length) => {
    const rooms = Array.from({ length: count }, (_, n) => `${n}`.padEnd(length, 'x'));
    connection.write(['RESUME', handle, { ...handshake(`s${handle}`), sockets: [{ nsp: '/', id: `i${handle}`, pid: '', rooms, data: {} }] }]);
    return (await connection.read('ADD')).rooms.length;
  };
  assert.deepEqual([await resume(1, 300, 0), await resume(2, 65_534, 0)], [301, 65_535]);
  // No entry has more rooms, and no frame more bytes.
  assert.deepEqual([await resume(3, 65_535, 0), await resume(4, 250, 60_000)], [200, 200]);
});

test('a client learns that its socket was disconnected while no worker had it', async (t) => {
  const { io, connection } = await worker(t, { options: { allowEIO3: true }, setup: (io) => io.of('/other') });
  const socket = (nsp, fields = {}) => ({ nsp, id: `i${nsp}`, pid: '', rooms: [], data: {}, ...fields });
  const lost = (nsp) => socket(nsp, { id: '', disconnected: true });
  connection.write(['RESUME', 1, { ...handshake('s1'), sockets: [socket('/'), lost('/other')] }]);
  assert.deepEqual((await connection.read('SEND')).messages, ['1/other,']);
  const { handle, number } = await connection.read('DEL');
  assert.equal(handle, 1);
  assert.ok(number > 0 && io.of('/other').sockets.size === 0 && io.sockets.sockets.size === 1);
  // A client of version 2 can't be without the main namespace.
  connection.write(['RESUME', 2, { ...handshake('s2'), protocol: 3, sockets: [lost('/')] }]);
  assert.deepEqual((await connection.read('SEND')).messages, ['1']);
  assert.deepEqual(await connection.read('CLOSE').then((close) => [close.handle, close.discard]), [2, false]);
});

test('rooms are kept in Stentor, and mirrored in the order of the calls', async (t) => {
  const { io, connection } = await worker(t, { welcome: { servers: 2 } });
  const socket = await connected(io, connection, 1);
  await connection.read('ADD');
  io.in('a').except(['b', 'c']).socketsJoin(['d', 'e']);
  io.local.socketsLeave('d');
  io.to('d').volatile.compress(false).emit('x');
  io.in('a').disconnectSockets(true);
  const { rooms, except, targets, change, flags } = await connection.read('SELECT');
  assert.deepEqual([rooms, except, targets, change, flags], [['a'], ['b', 'c'], ['d', 'e'], 0, 0]);
  assert.deepEqual(await connection.read('SELECT').then((entry) => [entry.targets, entry.change, entry.flags]), [['d'], 1, 4]);
  assert.deepEqual(await connection.read('BROADCAST').then((entry) => [entry.rooms, entry.flags]), [['d'], 1 | 2]);
  assert.deepEqual(await connection.read('SELECT').then((entry) => [entry.rooms, entry.change, entry.flags]), [['a'], 2, 32]);

  // Leaving everything isn't a disconnect: the socket may join again.
  socket.leaveAll();
  socket.join('again');
  assert.equal((await connection.read('DEL')).handle, 1);
  assert.deepEqual((await connection.read('ADD')).rooms, ['again']);

  const joined = once(io.of('/').adapter, 'join-room');
  connection.write(['MEMBERS', 0, 0, [1, 99], ['other']]);
  assert.deepEqual(await joined, ['other', socket.id]);
  const disconnected = once(socket, 'disconnect');
  connection.write(['KICK', 0, false, [1]]);
  assert.equal((await disconnected)[0], 'server namespace disconnect');
  assert.deepEqual((await connection.read('SEND')).messages, ['1']);
});

test('changes of `socket.data` are saved, also for a socket that is added again', async (t) => {
  const { io, connection } = await worker(t, { settings: { stateInterval: 1 }, setup: (io) => io.on('connection', (socket) => socket.on('name', (name) => (socket.data.name = name))) });
  const socket = await connected(io, connection, 1);
  connection.write(['MESSAGE', 1, ['2["name","Ann"]']]);
  assert.deepEqual(await connection.read('STATE').then(({ handle, namespace, data }) => [handle, namespace, data]), [1, 0, '{"name":"Ann"}']);
  socket.leaveAll();
  socket.join('again');
  assert.equal((await connection.read('STATE')).data, '{"name":"Ann"}');
});

test('`socket.data` that a new process empties are saved as such', async (t) => {
  const { connection } = await worker(t, { settings: { stateInterval: 1 }, setup: (io) => io.on('connection', (socket) => socket.on('clear', () => (socket.data = {}))) });
  const sockets = [{ nsp: '/', id: 'one', pid: '', rooms: ['one'], data: { name: 'Ann' } }];
  connection.write(['RESUME', 1, { ...handshake('s1'), sockets }], ['MESSAGE', 1, ['2["clear"]']]);
  while ((await connection.read('STATE')).data !== '{}');
});

test('workers answer each other\'s questions', async (t) => {
  const asked = [];
  const { io, connection } = await worker(t, { welcome: { servers: 3 }, setup: (io) => io.on('ask', (question, answer) => (asked.push(question), answer(Buffer.from('yes')))) });
  const socket = await connected(io, connection, 1);
  const pack = (...args) => io.encoder.encode({ type: 2, nsp: '/', data: ['', ...args] });

  const sockets = io.in('r').fetchSockets();
  const { link, namespace, body: { id, ...body } } = await connection.read('RELAY');
  assert.deepEqual([link, namespace, body], [0, 0, { kind: 'fetch', nsp: '/', opts: { rooms: ['r'], except: [], flags: {} } }]);
  const described = { id: 'far', handshake: { auth: {} }, rooms: ['r'], data: { a: 1 } };
  connection.write(['RELAYED', 0, 8, { kind: 'sockets', id, sockets: [described] }, []], ['RELAYED', 0, 9, { k: 'none', id }, []]);
  assert.deepEqual((await sockets).map((found) => [found.id, found.data]), [['far', { a: 1 }]]);

  const answers = io.serverSideEmitWithAck('ask', 1);
  const emitted = await connection.read('RELAY');
  for (const from of [8, 9]) connection.write(['RELAYED', 0, from, { kind: 'emitted', id: emitted.body.id }, pack(from)]);
  assert.deepEqual(await answers, [8, 9]);

  const acknowledged = io.timeout(60_000).emitWithAck('all');
  const broadcast = await connection.read('RELAY');
  const own = await connection.read('BROADCAST');
  assert.deepEqual([own.flags, own.messages], [4, [`2${own.messages[0].match(/\d+/)[0].slice(1)}["all"]`]]);
  connection.write(['MESSAGE', 1, [`3${own.messages[0].match(/\d+/)[0].slice(1)}["near"]`]]);
  const answer = (from, kind, fields, messages = []) => ['RELAYED', 0, from, { kind, id: broadcast.body.id, ...fields }, messages];
  connection.write(answer(8, 'count', { count: 1 }), answer(9, 'count', { count: 0 }), answer(8, 'ack', {}, pack('far')));
  assert.deepEqual((await acknowledged).sort(), ['far', 'near']);

  // The others' questions.
  connection.write(['RELAYED', 0, 8, { kind: 'fetch', nsp: '/', id: 3, opts: { rooms: [], except: [], flags: {} } }, []]);
  const mine = await connection.read('RELAY');
  assert.deepEqual([mine.link, mine.body.kind, mine.body.id, mine.body.sockets.map((found) => found.id)], [8, 'sockets', 3, [socket.id]]);
  connection.write(['RELAYED', 0, 8, { kind: 'emit', nsp: '/', id: 4 }, pack('ask', Buffer.from('b'))]);
  assert.deepEqual((await connection.read('RELAY')).messages, pack(Buffer.from('yes')));
  assert.deepEqual(asked, [Buffer.from('b')]);
  connection.write(['RELAYED', 0, 8, { kind: 'broadcast', nsp: '/none', id: 5, opts: { rooms: [], except: [] } }, pack('x')]);
  assert.deepEqual((await connection.read('RELAY')).body, { id: 5, kind: 'count', count: 0 });
});

test('a client that returns in time recovers what Stentor has kept', async (t) => {
  const { io, connection } = await worker(t, { options: { connectionStateRecovery: {} } });
  assert.deepEqual(connection.hello.recovery, { maxDisconnectionDuration: 120_000, skipMiddlewares: true });
  const socket = await connected(io, connection, 1);
  const { pid } = await connection.read('ADD');
  assert.equal(pid, socket.pid);
  socket.emit('news');
  const { rooms, flags, offset, messages } = await connection.read('BROADCAST');
  assert.deepEqual([rooms, flags, messages], [[socket.id], 16, [`2["news","${offset}"]`]]);
  connection.write(['CLOSED', 1, 'transport close', '']);
  assert.equal((await connection.read('PERSIST')).pid, pid);
  // With other data, the application would take the socket for what it isn't.
  const unkept = await connected(io, connection, 3);
  unkept.data.users = [1n];
  connection.write(['CLOSED', 3, 'transport close', '']);

  const recovering = once(io, 'connection');
  connection.write(['OPEN', 2, false, handshake('s2')], ['MESSAGE', 2, [`0${JSON.stringify({ pid, offset })}`]]);
  const { request, ...shown } = await connection.read('RESTORE');
  assert.deepEqual([shown.handle, shown.pid, shown.offset], [2, pid, offset]);
  connection.write(['RESTORED', request, { sid: socket.id, rooms: [socket.id, 'r'], data: { a: 1 } }]);
  const [recovered] = await recovering;
  assert.deepEqual([recovered.id, recovered.recovered, recovered.data, [...recovered.rooms].sort()], [socket.id, true, { a: 1 }, [socket.id, 'r'].sort()]);
  assert.deepEqual((await connection.read('ADD')).rooms.sort(), [socket.id, 'r'].sort());
  assert.deepEqual((await connection.read('SEND')).messages, [`0{"sid":"${socket.id}","pid":"${pid}"}`]);
  connection.write(['CLOSED', 2, 'transport close', '']);
  assert.equal((await connection.read('PERSIST')).pid, pid);
});

test('the end of a session is not acknowledged before what Stentor keeps of it is written', async (t) => {
  const { io, connection } = await worker(t, { options: { connectionStateRecovery: {} } });
  const socket = await connected(io, connection, 1);
  // An entry of the same turn, which is sent before the session ends.
  socket.conn.once('drain', () => io.volatile.emit('drained'));
  connection.write(['RECEIPT', 1], ['CLOSED', 1, 'transport close', '']);
  const { ack } = await connection.read('BROADCAST');
  assert.equal((await connection.read('PERSIST')).ack, ack + 1);
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

test('a worker without a link that hands over gets no further one', async (t) => {
  const { io, link, server, connection } = await worker(t);
  await connected(io, connection, 1);
  const ended = once(link, 'error');
  connection.first('ERROR', { code: 'replaced', message: 'no answer' });
  assert.equal((await ended)[0].code, 'replaced');
  // It is connecting again.
  const again = await server.connection();
  const hook = () => {
    again.welcome({ link: 6 });
    return Promise.race([once(link, 'up'), again.closed]);
  };
  await Promise.all([link.handover({ hook }), again.closed]);
  assert.deepEqual([again.arrived, link.stats().isUp], [0, false]);
});

test('an exception of the application keeps no session from being handed over', async (t) => {
  const { io, link, connection } = await worker(t);
  const socket = await connected(io, connection, 1);
  socket.on('disconnect', () => { throw new Error('handler'); });
  const over = assert.rejects(link.handover({ hook: () => Promise.reject(new Error('hook')) }), { message: 'hook' });
  await connection.read('BYE');
  connection.write(['DRAINED']);
  assert.equal((await connection.read('RELEASED')).data, '{}');
  assert.deepEqual((await connection.read('BYE')).bye, { mode: 'done' });
  connection.write(['NOP']);
  await over;
});

test('one session is given back when Stentor asks and its handlers have had time to finish', async (t) => {
  const { io, connection } = await worker(t, { settings: { settle: 20 } });
  const socket = await connected(io, connection, 1);
  socket.on('slow', async (answer) => {
    await new Promise(setImmediate);
    socket.emit('done');
    answer('ok');
  });
  await connection.read('SEND');
  connection.write(['MESSAGE', 1, ['27["slow"]']], ['RELEASE', 1]);
  const entries = [];
  while (entries.length < 3) {
    const next = await connection.any();
    if (['SEND', 'RELEASED'].includes(next.entry)) entries.push(next.messages ?? next.namespace);
  }
  assert.deepEqual(entries, [['2["done"]'], ['37["ok"]'], 0]);
  assert.equal((await connection.read('RELEASED')).namespace, 0xffff);
  assert.deepEqual([socket.connected, io.engine.clientsCount], [false, 0]);
});

test('a session whose middlewares need longer stays', async (t) => {
  let go;
  const { io, connection } = await worker(t, { setup: (io) => io.of('/slow').use((_, next) => (go = next)) });
  const socket = await connected(io, connection, 1);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  connection.write(['MESSAGE', 1, ['0/slow,']], ['RELEASE', 1]);
  const kept = connection.read('KEPT').then(({ handle }) => handle);
  let handle;
  kept.then((found) => (handle = found));
  while (handle === undefined) {
    t.mock.timers.tick(10);
    await new Promise(setImmediate);
  }
  t.mock.timers.reset();
  assert.equal(handle, 1);
  const told = once(socket, 'later');
  connection.write(['MESSAGE', 1, ['2["later"]']]);
  await told;
  go();
  assert.match((await connection.read('SEND')).messages[0], /^0\/slow,/);
});

test('a session that recovers a former socket is given back with it', async (t) => {
  const { connection } = await worker(t, { options: { connectionStateRecovery: {} } });
  connection.write(['OPEN', 1, false, handshake('s1')], ['MESSAGE', 1, ['0{"pid":"p","offset":"o"}']]);
  const { request } = await connection.read('RESTORE');
  connection.write(['RELEASE', 1]);
  const entries = [];
  while (entries.at(-1) !== 'RELEASED') {
    const { entry, ack } = await connection.any();
    if (['ADD', 'RELEASED'].includes(entry)) entries.push(entry);
    // The worker has handled RELEASE.
    if (entry === 'ack' && ack === 2) connection.write(['RESTORED', request, { sid: 'former', rooms: ['former'], data: {} }]);
  }
  assert.deepEqual(entries, ['ADD', 'RELEASED']);
});

test('`io.close()` ends the sessions', async (t) => {
  const { io, connection } = await worker(t);
  const socket = await connected(io, connection, 1);
  const disconnected = once(socket, 'disconnect');
  io.close();
  assert.equal((await disconnected)[0], 'server shutting down');
  assert.deepEqual((await connection.read('BYE')).bye, { mode: 'stop' });
});

test('a server that was closed may get another link', async (t) => {
  const { io, server } = await worker(t);
  await io.close();
  const link = attach(io, server.url, { signals: false });
  const listening = link.listen();
  const connection = (await server.connection()).welcome();
  await listening;
  await connected(io, connection, 1);
  assert.equal((await connection.read('ADD')).namespace, 0);
  await io.close();
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

test('a worker whose connections break at once does not connect in a tight loop', async (t) => {
  const { server, connection } = await worker(t);
  const timers = t.mock.method(globalThis, 'setTimeout');
  connection.cut();
  for (let n = 0; n < 10; n += 1) (await server.connection()).welcome().cut();
  const delays = timers.mock.calls.map(({ arguments: [, delay] }) => delay);
  assert.ok(delays.filter((delay) => delay === 25).length >= 10, `${delays}`);
});

test('a new link begins without the sessions of the former one', async (t) => {
  const { io, link, server, connection } = await worker(t, { setup: (io) => io.of('/chat') });
  const socket = await connected(io, connection, 1);
  const disconnected = once(socket, 'disconnect');
  connection.cut();
  const again = await server.connection();
  again.welcome({ link: 6, servers: 3 });
  assert.equal((await disconnected)[0], 'server shutting down');
  assert.deepEqual([(await again.read('NSP')).name, (await again.read('NSP')).name], ['/', '/chat']);
  assert.deepEqual([link.stats().link, link.stats().peers, await io.of('/').adapter.serverCount()], [6, 3, 3]);
});

test('a question that the end of the link leaves without an answer fails in time', async (t) => {
  const { io, server, connection } = await worker(t, { welcome: { servers: 2 } });
  const failed = assert.rejects(io.timeout(1_000).fetchSockets(), { message: 'timeout reached: missing 1 responses' });
  await connection.read('RELAY');
  connection.cut();
  (await server.connection()).welcome({ link: 6, servers: 2 });
  await failed;
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
  await assert.rejects(listening, { name: 'LinkError', code: 'token', message: 'Stentor refuses this worker: the token is wrong' });
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

test('CommonJS can load the package', () => {
  const loaded = createRequire(import.meta.url)('../../clients/socketio-server/src/index.js');
  assert.equal(loaded.attach, attach);
});

test('mistakes are reported where they are made', (t) => {
  const http = createServer();
  const check = (make, message) => assert.throws(make, { message });
  check(() => attach({}, 'ws://127.0.0.1'), 'attach(io, url): `io` must be a Server of socket.io');
  check(() => attach(new Server(http), 'ws://127.0.0.1'), 'the Server has an HTTP server already: create it with `new Server(options)`, and pass the HTTP server to attach() as `http`');
  check(() => attach(new Server(), 'ws://127.0.0.1', { tokens: 1 }), /^attach\(\) has no option `tokens`; it has token, app, name, /);
  check(() => attach(new Server(), 'ws://127.0.0.1', { onCrash: 'ignore' }), 'onCrash is one of disconnect, redeliver, drop, not ignore');
  check(() => attach(new Server(), 'there'), 'Invalid URL');
  const io = new Server();
  attach(io, 'ws://127.0.0.1');
  check(() => io.listen(3000), 'the clients of this Server are those of Stentor: call link.listen() instead');
  t.after(() => http.close());
});
