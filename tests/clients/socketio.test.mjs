// socket.io-client 4.8, 3.1 and 2.5 in Node, as they come: each transport forced, and the upgrade.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import test, { after } from 'node:test';
import { NodeXHR } from 'engine.io-client';
import { Server } from 'socket.io';
import { io as io4 } from 'socket.io-client';
import io2 from 'socket.io-client-2';
import io3 from 'socket.io-client-3';
import { admin } from './admin.mjs';
import { clock, event, fixture, listening, serve, until, ways, within } from './harness.mjs';

// Namespaces, events and answers as the clients' own suites expect them; recovery is on.
const server = await fixture({ after }, 'socketio-client');

const versions = { 4.8: io4, 3.1: io3, 2.5: io2 };

/** A socket of a manager of its own; ends with the test. */
function create(t, version, way, namespace = '', options = {}) {
  const socket = versions[version](`${options.url ?? server.http}${namespace}`, { forceNew: true, reconnectionDelay: 10, ...ways[way], ...options });
  t.after(() => socket.io.engine && socket.disconnect());
  return socket;
}

/** A socket that is connected, and upgraded where it was to be. */
async function connect(t, version, way, ...rest) {
  const socket = create(t, version, way, ...rest);
  const upgraded = way === 'upgrade' && new Promise((resolve) => {
    const wait = () => socket.io.engine.once('upgrade', resolve);
    if (socket.io.engine) wait();
    else socket.io.once('open', wait);
  });
  await event(socket, 'connect');
  if (upgraded) await within(upgraded, 'the upgrade');
  assert.equal(socket.io.engine.transport.name, way === 'polling' ? 'polling' : 'websocket');
  return socket;
}

/** The arguments with which an event is acknowledged. */
const ask = (socket, ...args) => within(new Promise((resolve) => socket.emit(...args, (...answer) => resolve(answer))), `the answer to ${args[0]}`);

/** The error with which a namespace is refused, as text, in every version. */
const refusal = async (socket, version) => {
  const [error] = await event(socket, version === '2.5' ? 'error' : 'connect_error');
  return typeof error === 'string' ? error : error.message;
};

for (const version of Object.keys(versions)) {
  for (const way of Object.keys(ways)) {
    test(`${version} by ${way}: events both ways`, async (t) => {
      const socket = await connect(t, version, way);
      // After an event's own arguments there is its place, for recovery.
      socket.emit('hi');
      await event(socket, 'hi');
      socket.emit('false');
      assert.equal((await event(socket, 'false'))[0], false);
      const texts = [];
      socket.on('takeUtf8', (text) => texts.push(text));
      socket.emit('getUtf8');
      // An answer comes after all that was emitted before it.
      await ask(socket, 'echo', 0);
      assert.deepEqual(texts, ['てすと', 'Я Б Г Д Ж Й', 'Ä ä Ü ü ß', 'utf8 — string', 'utf8 — string']);
      socket.emit('getDateObj');
      const [{ date }] = await event(socket, 'takeDateObj');
      assert.match(date, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    });

    test(`${version} by ${way}: acknowledgements both ways`, async (t) => {
      const socket = await connect(t, version, way);
      for (const value of [1, 'é€😀\u2028', null, [], { a: [{ b: 'c' }] }, 'x'.repeat(100_000)]) assert.deepEqual(await ask(socket, 'echo', value), [value]);
      // Many at once are not mixed up.
      const answers = await Promise.all(Array.from({ length: 200 }, (_, n) => ask(socket, 'echo', n)));
      assert.deepEqual(answers, Array.from({ length: 200 }, (_, n) => [n]));
      socket.on('ack', (answer) => answer(5, { test: true }));
      socket.emit('ack');
      await event(socket, 'got it');
    });

    test(`${version} by ${way}: bytes in events and in answers`, async (t) => {
      const socket = await connect(t, version, way);
      socket.emit('doge');
      assert.deepEqual((await event(socket, 'doge'))[0], Buffer.from('asdfasdf'));
      socket.emit('jsonbuff', { hello: 'lol', message: Buffer.from('howdy'), goodbye: 'gotcha' });
      await event(socket, 'jsonbuff-ack');
      socket.emit('abuff1', Buffer.from('abuff1'));
      socket.emit('abuff2', 'please arrive second');
      await event(socket, 'abuff2-ack');
      const bytes = randomBytes(300_000);
      const [{ all: [first, second, third] }] = await ask(socket, 'echo', { all: [bytes, Buffer.alloc(0), 'text'] });
      assert.ok(bytes.equals(first));
      assert.equal(second.length, 0);
      assert.equal(third, 'text');
    });

    test(`${version} by ${way}: namespaces on one connection`, async (t) => {
      const socket = await connect(t, version, way);
      const foo = socket.io.socket('/foo');
      await event(foo, 'connect');
      assert.deepEqual(await ask(foo, 'getId'), [foo.id]);
      assert.deepEqual(await ask(socket, 'getId'), [socket.id]);
      if (version === '2.5') assert.deepEqual([socket.id, foo.id], [socket.io.engine.id, `/foo#${socket.io.engine.id}`]);
      else assert.equal(new Set([socket.id, foo.id, socket.io.engine.id]).size, 3);
      // Leaving one leaves the other where it is.
      foo.disconnect();
      assert.deepEqual(await ask(socket, 'echo', 'still here'), ['still here']);
      foo.connect();
      await event(foo, 'connect');
      foo.disconnect();
    });

    test(`${version} by ${way}: refusals say why`, async (t) => {
      assert.equal(await refusal(create(t, version, way, '/no'), version), 'Auth failed (custom namespace)');
      assert.equal(await refusal(create(t, version, way, '/nowhere'), version), 'Invalid namespace');
      assert.equal(await refusal(create(t, version, way, '', { query: { fail: '1' } }), version), 'Auth failed (main namespace)');
    });

    test(`${version} by ${way}: what the handshake tells`, async (t) => {
      const happened = clock();
      const extraHeaders = { 'X-Test': 'yes' };
      const options = { query: { token: '&=?é', x: 'y' }, auth: { user: 'me', deep: [1] }, extraHeaders, transportOptions: { polling: { extraHeaders }, websocket: { extraHeaders } } };
      const socket = create(t, version, way, '/abc', options);
      const [handshake] = await event(socket, 'handshake');
      assert.deepEqual(Object.keys(handshake).sort(), ['address', 'auth', 'headers', 'issued', 'query', 'secure', 'time', 'url', 'xdomain']);
      assert.equal(handshake.query.token, '&=?é');
      assert.equal(handshake.query.EIO, version === '2.5' ? '3' : '4');
      // 2.5 knows no auth.
      if (version !== '2.5') assert.deepEqual(handshake.auth, options.auth);
      assert.equal(handshake.headers['x-test'], 'yes');
      assert.equal(handshake.xdomain, false);
      assert.match(handshake.address, /127\.0\.0\.1$/);
      assert.match(handshake.url, /^\/socket\.io\/\?/);
      assert.ok(happened(handshake.issued));
    });

    test(`${version} by ${way}: leaving and coming back`, async (t) => {
      const socket = await connect(t, version, way);
      const before = socket.id;
      const left = event(socket, 'disconnect');
      socket.disconnect();
      assert.equal((await left)[0], 'io client disconnect');
      socket.connect();
      await event(socket, 'connect');
      assert.notEqual(socket.id, before);
      assert.deepEqual(await ask(socket, 'echo', 1), [1]);
    });

    test(`${version} by ${way}: a server that ends is noticed`, async (t) => {
      const ending = await fixture(t, 'socketio-client');
      const socket = await connect(t, version, way, '', { url: ending.http, reconnection: false });
      const left = event(socket, 'disconnect');
      ending.child.kill('SIGTERM');
      assert.match((await left)[0], /^(transport close|transport error|io server disconnect)$/);
    });
  }

}

for (const way of Object.keys(ways)) {
  test(`4.8 by ${way}: a lost connection is recovered, without an event before it as well, and again and again`, async (t) => {
    const socket = await connect(t, '4.8', way);
    const { id } = socket;
    assert.equal(socket.recovered, false);
    for (const before of [undefined, 'hi', undefined]) {
      if (before) {
        socket.emit(before);
        await event(socket, before);
      }
      const back = event(socket, 'connect');
      // Without a farewell, as when a network goes away; but the server notices at once.
      cut(socket.io.engine);
      await back;
      assert.deepEqual([socket.id, socket.recovered], [id, true]);
      assert.deepEqual(await ask(socket, 'getId'), [id]);
    }
  });

}

/** Ends the connection under an engine.io-client. */
function cut(engine) {
  const { transport } = engine;
  if (transport.ws) transport.ws.terminate();
  // A poll that is aborted is a client that went away; the client itself learns it as an error.
  else {
    transport._pollXhr?.abort?.();
    engine._onClose?.('transport error');
  }
}

/** Servers with a function that emits an event to all clients, and one that tells whether a client's poll is open. */
const emitters = {
  async 'the package socket.io'(t) {
    const web = createServer();
    const io = new Server(web);
    t.after(() => io.close());
    const url = `http://127.0.0.1:${await listening(t, web)}`;
    return { url, emit: (isVolatile, n) => (isVolatile ? io.volatile : io).emit('news', n), polls: (id) => io.sockets.sockets.get(id).conn.transport.writable };
  },
  async Stentor(t) {
    const stentor = await serve(t);
    const polls = async (id) => (await admin(stentor, 'sessions', { sessions: [id] })).sessions[0].transport === 'polling';
    return { url: stentor.http, emit: (isVolatile, n) => admin(stentor, 'emit', { namespace: '/', event: 'news', data: n, volatile: isVolatile }), polls };
  },
};

for (const [name, start] of Object.entries(emitters)) {
  test(`4.8 by polling: ${name} drops a volatile event while the client has no open poll`, async (t) => {
    const held = [];
    let holds = false;
    /** The client's own polls, which wait while the test `holds` them. */
    class Polling extends NodeXHR {
      doPoll() {
        if (holds) held.push(() => super.doPoll());
        else super.doPoll();
      }
    }
    const { url, emit, polls } = await start(t);
    const socket = await connect(t, '4.8', 'polling', '', { url, transports: [Polling] });
    const seen = [];
    socket.on('news', (n) => seen.push(n));
    const received = (n) => until(`event ${n}`, () => seen.includes(n));
    holds = true;
    await emit(false, 0);
    await until('a poll that is held', () => held.length > 0);
    await emit(true, 1);
    await emit(false, 2);
    holds = false;
    held.shift()();
    await received(2);
    await until('an open poll', () => polls(socket.id));
    await emit(true, 3);
    await received(3);
    assert.deepEqual(seen, [0, 2, 3]);
  });
}
