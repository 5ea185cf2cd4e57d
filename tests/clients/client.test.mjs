// @stentor/client by itself: patches, back-off, what it makes of a server's advice (servers of the test's own), what it
// keeps while it is offline.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import test from 'node:test';
import WebSocket, { WebSocketServer } from 'ws';
import { Backoff } from '../../clients/js/src/backoff.js';
import { connect, applyPatch } from '../../clients/js/src/index.js';
import { httpSocket } from '../../clients/js/src/transports/http.js';
import { freeze } from './client.mjs';
import { until, website, within } from './harness.mjs';

/** The next event of a connection or a feed for which `wanted` holds. */
function next(emitter, name, wanted = () => true) {
  return within(new Promise((resolve) => {
    const off = emitter.on(name, (...details) => {
      if (!wanted(...details)) return;
      off();
      resolve(details);
    });
  }), `the event ${name}`);
}

const isState = (state) => (now) => now === state;

test('patches are what RFC 6902 says', () => {
  const check = (before, patch, after) => {
    freeze(before);
    freeze(patch);
    const text = JSON.stringify(before);
    const name = JSON.stringify(patch);
    if (after === undefined) assert.throws(() => applyPatch(before, patch), name);
    else assert.equal(JSON.stringify(applyPatch(before, patch)), JSON.stringify(after), name);
    assert.equal(JSON.stringify(before), text);
  };
  const add = (path, value) => ({ op: 'add', path, value });
  const replace = (path, value) => ({ op: 'replace', path, value });
  const remove = (path) => ({ op: 'remove', path });
  const move = (from, path) => ({ op: 'move', from, path });
  check({ a: 1 }, [], { a: 1 });
  check({ a: 1 }, [add('/b', [2])], { a: 1, b: [2] });
  check({ a: 1 }, [add('/a', 2)], { a: 2 });
  check([1, 3], [add('/1', 2)], [1, 2, 3]);
  check([1, 2], [add('/2', 3), add('/-', 4)], [1, 2, 3, 4]);
  check([1], [add('/2', 3)], undefined);
  check([1], [add('/01', 3)], undefined);
  check([1], [add('/x', 3)], undefined);
  check({}, [add('/a/b', 3)], undefined);
  check({ a: 1 }, [add('/a/b', 3)], undefined);
  check({ a: null }, [add('/a/b', 3)], undefined);
  check({}, [{ op: 'add', path: '/a' }], undefined);
  check({ a: 1 }, [replace('/a', null)], { a: null });
  check({ a: 1 }, [replace('/b', 2)], undefined);
  check([1], [replace('/0', 2)], [2]);
  check([1], [replace('/1', 2)], undefined);
  check([1], [replace('/-', 2)], undefined);
  check({ a: 1 }, [replace('', [1])], [1]);
  check(1, [add('', { a: 1 }), add('/b', 2)], { a: 1, b: 2 });
  check({ a: 1, b: 2 }, [remove('/a')], { b: 2 });
  check({ a: 1 }, [remove('/b')], undefined);
  check([1, 2, 3], [remove('/1')], [1, 3]);
  check([1], [remove('/-')], undefined);
  check({ a: 1 }, [remove('')], undefined);
  check({ a: { b: 1 }, c: [] }, [move('/a/b', '/c/0')], { a: {}, c: [1] });
  check([1, 2, 3], [move('/0', '/2')], [2, 3, 1]);
  check([1, 2, 3], [move('/2', '/0')], [3, 1, 2]);
  check({ a: { b: 1 } }, [move('/a', '/a/b')], undefined);
  check({ 'a/b': 1, 'm~n': 2, '~1': 3 }, [replace('/a~1b', 4), replace('/m~0n', 5), replace('/~01', 6)], { 'a/b': 4, 'm~n': 5, '~1': 6 });
  check({ '': { '': 1 } }, [replace('//', 2)], { '': { '': 2 } });
  check({ a: 1 }, [replace('a', 2)], undefined);
  check({ a: 1 }, [{ op: 'test', path: '/a', value: 1 }], undefined);
  check({}, [add('/toString', 1)], { toString: 1 });
  check({}, [replace('/toString', 1)], undefined);
  check(JSON.parse('{"__proto__":{"a":1}}'), [replace('/__proto__/a', 2)], JSON.parse('{"__proto__":{"a":2}}'));
  check({}, [add('/__proto__', { polluted: true })], JSON.parse('{"__proto__":{"polluted":true}}'));
  check({}, [add('/__proto__/polluted', true)], undefined);
  assert.equal({}.polluted, undefined);
  // All or nothing.
  check({ a: [1] }, [add('/a/-', 2), remove('/b')], undefined);
});

test('a patch copies what it touches and shares the rest', () => {
  const value = { fresh: [1] };
  const before = freeze({ a: { deep: [{ n: 1 }, { n: 2 }] }, b: { large: [] } });
  const after = applyPatch(before, [{ op: 'replace', path: '/a/deep/0/n', value: 9 }, { op: 'add', path: '/c', value }, { op: 'add', path: '/c/fresh/-', value: 2 }]);
  assert.equal(after.b, before.b);
  assert.equal(after.a.deep[1], before.a.deep[1]);
  assert.notEqual(after.a.deep[0], before.a.deep[0]);
  assert.deepEqual(value, { fresh: [1] }, 'what a patch brought is not changed either');
  assert.deepEqual(after.c, { fresh: [1, 2] });
});

test('back-off is exponential, bounded, with jitter', (t) => {
  let chance = 1;
  t.mock.method(Math, 'random', () => chance);
  const most = new Backoff();
  assert.deepEqual(Array.from({ length: 8 }, () => most.delayMs()), [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
  most.reset();
  assert.equal(most.delayMs(), 500);
  assert.equal(most.delayMs(1000), 2000, 'on top of what the server asks for');
  chance = 0;
  const least = new Backoff({ initialMs: 100 });
  assert.deepEqual([least.delayMs(), least.delayMs(), least.delayMs(250)], [0, 0, 250]);
  const steady = new Backoff({ initialMs: 100, maxMs: 500, factor: 3 });
  assert.deepEqual([steady.delayMs(), steady.delayMs(), steady.delayMs(), steady.delayMs()], [0, 50, 250, 250]);
});

test('lines are read however they are cut', async () => {
  const text = '{"type":"session","sid":"AbX3"}\n\n{"type":"welcome","session":"é😀"}\n{"type":"disconnect","code":4500,"reason":"bye"}\n';
  const bytes = new TextEncoder().encode(text);
  for (let at = 0; at <= bytes.length; at++) {
    const requests = [];
    const fetch = async (url, { method, body }) => {
      requests.push(`${method} ${url.pathname}${url.search} ${body}`);
      const pieces = [bytes.slice(0, at), bytes.slice(at)];
      const stream = new ReadableStream({ pull: (to) => (pieces.length ? to.enqueue(pieces.shift()) : to.close()) });
      return new Response(stream, { headers: { 'Content-Type': 'application/x-ndjson' } });
    };
    const messages = [];
    const socket = httpSocket(new URL('http://server.test/live/'), { fetch });
    socket.onopen = () => socket.send('{"id":1}');
    socket.onmessage = ({ data }) => data && messages.push(JSON.parse(data).type);
    const why = await within(new Promise((resolve) => { socket.onclose = resolve; }), 'the end');
    assert.deepEqual([messages, why], [['welcome', 'disconnect'], { code: 4500, reason: 'bye' }], `cut at ${at}`);
    assert.deepEqual(requests, ['POST /live/ndjson?received=0 {"id":1}']);
  }
});

/** A server of stentor.v1 that does what the test says: `serve(socket, number)` for each connection. */
async function v1(t, serve) {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await once(server, 'listening');
  const it = { url: `http://127.0.0.1:${server.address().port}`, connections: 0, received: [] };
  server.on('connection', (socket) => {
    it.connections += 1;
    socket.say = (message) => socket.send(JSON.stringify(message));
    /** Ends the connection when the client has received everything. */
    socket.cut = () => socket.once('pong', () => socket.terminate()).ping();
    socket.on('message', (data) => {
      const message = JSON.parse(data);
      it.received.push(message);
      if (!socket.answers || socket.answers(message)) socket.say({ type: 'ok', id: message.id });
    });
    socket.say({ type: 'welcome', session: `s${it.connections}`, ping_ms: 25_000 });
    serve(socket, it.connections);
  });
  t.after(() => {
    for (const client of server.clients) client.terminate();
    server.close();
  });
  return it;
}

function client(t, url, options) {
  const connection = connect(url, { transport: 'websocket', WebSocket, backoff: { initialMs: 20, maxMs: 100 }, ...options });
  t.after(() => connection.close());
  return connection;
}

test('close codes: 44xx is the end, 45xx is not, and 4502 takes longer', async (t) => {
  t.mock.method(Math, 'random', () => 1);
  const check = async (code, expect) => {
    const server = await v1(t, (socket, n) => { if (n === 1) socket.close(code, 'because'); });
    const connection = client(t, server.url, { backoff: { initialMs: 10, maxMs: 1000 } });
    const feed = connection.feed('a');
    const [state, details] = await next(connection, 'state', (now) => now === 'waiting' || now === 'refused');
    assert.equal(state, expect.state, `${code}`);
    assert.deepEqual([details.code, details.reason, details.retryMs], [code, 'because', expect.retryMs]);
    if (state === 'refused') {
      assert.deepEqual([feed.state, feed.reason], ['not_found', 'because']);
      await assert.rejects(connection.publish('room', 1), { code: 'closed' });
      assert.equal(server.connections, 1);
    }
    if (state === 'refused' || code === 4502) connection.reconnect();
    await next(connection, 'state', isState('open'));
    assert.equal(server.connections, 2);
    assert.equal(feed.state, 'loading');
  };
  await check(4403, { state: 'refused', retryMs: undefined });
  await check(4499, { state: 'refused', retryMs: undefined });
  await check(4500, { state: 'waiting', retryMs: 10 });
  await check(4501, { state: 'waiting', retryMs: 10 });
  await check(4502, { state: 'waiting', retryMs: 5010 });
  await check(1001, { state: 'waiting', retryMs: 10 });
});

test('an error that says retry is tried again, another one is not', async (t) => {
  let refusals = 0;
  const server = await v1(t, (socket) => {
    socket.answers = ({ id, type, feed }) => {
      if (type !== 'subscribe' || feed === 'fine') return true;
      if (feed === 'later' && refusals++ >= 2) {
        socket.say({ type: 'ok', id });
        socket.say({ type: 'snapshot', feed, epoch: 1, offset: 1, state: 'live', data: [refusals] });
      } else {
        socket.say({ type: 'error', id, code: feed, message: `no ${feed}`, retry: feed === 'later' });
      }
      return false;
    };
  });
  const connection = client(t, server.url);
  const bad = connection.feed('bad');
  const later = connection.feed('later');
  assert.deepEqual(await next(bad, 'state'), ['not_found', 'no bad']);
  const [document] = await next(later, 'change');
  assert.deepEqual(document, [3]);
  assert.equal(server.received.filter(({ feed }) => feed === 'bad').length, 1);
  // Asking again is the application's decision.
  const again = connection.feed('bad');
  assert.equal(bad.state, 'loading');
  await next(again, 'state', isState('not_found'));
});

test('a feed that does not exist is asked for again after five seconds or more, a refused one never', async (t) => {
  const waits = [];
  const real = globalThis.setTimeout;
  const soon = (ms) => ms >= 5_000 && ms < 5_300;
  t.mock.method(globalThis, 'setTimeout', (then, ms, ...details) => {
    if (soon(ms)) waits.push(Math.floor(ms / 1000));
    return real(then, soon(ms) ? 0 : ms, ...details);
  });
  let asked = 0;
  const server = await v1(t, (socket) => {
    socket.answers = ({ id, type, feed }) => {
      if (type !== 'subscribe') return true;
      if (feed === 'refused') {
        socket.say({ type: 'error', id, code: 'not_allowed', message: 'no', retry: false });
        return false;
      }
      socket.say({ type: 'ok', id });
      asked += 1;
      if (asked < 3) socket.say({ type: 'state', feed, state: 'not_found', reason: 'no such key' });
      else socket.say({ type: 'snapshot', feed, epoch: 1, offset: 1, state: 'live', data: [asked] });
      return false;
    };
  });
  const connection = client(t, server.url);
  const [refused, absent] = [connection.feed('refused'), connection.feed('absent')];
  const states = [];
  absent.on('state', (state) => states.push(state));
  const [document] = await next(absent, 'change');
  assert.deepEqual([document, states, waits], [[3], ['not_found', 'live'], [5, 5]]);
  assert.equal(refused.state, 'not_found');
  assert.equal(server.received.filter(({ feed }) => feed === 'refused').length, 1);
});

test('documents: never older, mended where a delta does not fit, resumed from where they are', async (t) => {
  const server = await v1(t, (socket, n) => {
    if (n > 1) return;
    const delta = (base, offset, patch) => socket.say({ type: 'delta', feed: 'a', epoch: 7, base, offset, patch });
    const snapshot = (offset, data, epoch = 7) => socket.say({ type: 'snapshot', feed: 'a', epoch, offset, state: 'live', data });
    let asked = 0;
    socket.answers = ({ id, feed }) => {
      if (feed !== 'a') return true;
      socket.say({ type: 'ok', id });
      asked += 1;
      if (asked === 1) {
        snapshot(5, { n: 5, list: [] });
        delta(5, 6, [{ op: 'replace', path: '/n', value: 6 }]);
        snapshot(4, { n: 4 });
        delta(4, 5, [{ op: 'replace', path: '/n', value: 5 }]);
        delta(6, 7, [{ op: 'replace', path: '/nothing', value: 7 }]);
        delta(7, 8, [{ op: 'replace', path: '/n', value: 8 }]);
      } else if (asked === 2) {
        snapshot(8, { n: 8 });
        delta(9, 10, [{ op: 'replace', path: '/n', value: 10 }]);
      } else {
        snapshot(10, { n: 10 });
        delta(9, 10, [{ op: 'replace', path: '/n', value: 10 }]);
        snapshot(1, { n: 1 }, 8);
        socket.say({ type: 'state', feed: 'a', state: 'stale', reason: 'no news' });
        socket.cut();
      }
      return false;
    };
  });
  const connection = client(t, server.url);
  const feed = connection.feed('a');
  const seen = [];
  feed.on('change', (document, { kind, epoch, offset }) => {
    freeze(document);
    seen.push([kind, epoch, offset, document.n]);
  });
  await next(feed, 'state', isState('stale'));
  assert.deepEqual(seen, [['snapshot', 7, 5, 5], ['delta', 7, 6, 6], ['snapshot', 7, 8, 8], ['snapshot', 7, 10, 10], ['snapshot', 8, 1, 1]]);
  assert.equal(feed.reason, 'no news');
  await next(connection, 'state', isState('open'));
  await next(feed, 'state', isState('live'));
  assert.deepEqual(server.received.map(({ id, ...rest }) => rest), [
    { type: 'subscribe', feed: 'a' },
    { type: 'subscribe', feed: 'a' },
    { type: 'subscribe', feed: 'a' },
    { type: 'subscribe', feed: 'a', epoch: 8, offset: 1 },
  ]);
});

test('feeds of one key share a subscription, and the last one ends it', async (t) => {
  const server = await v1(t, () => {});
  const connection = client(t, server.url);
  const [one, two] = [connection.feed('a'), connection.feed('a', { rate: 2 })];
  await next(connection, 'state', isState('open'));
  one.close();
  one.close();
  connection.feed('b', { rate: 2 });
  two.close();
  await connection.publish('room', 1);
  assert.deepEqual(server.received.map(({ id, ...rest }) => rest), [
    { type: 'subscribe', feed: 'a' },
    { type: 'subscribe', feed: 'a', rate: 2 },
    { type: 'subscribe', feed: 'b', rate: 2 },
    { type: 'unsubscribe', feed: 'a' },
    { type: 'publish', room: 'room', data: 1 },
  ]);
});

test('what is published offline is queued, in order, bounded; what may have arrived is never sent twice', async (t) => {
  let mute = true;
  const server = await v1(t, (socket, n) => {
    socket.answers = ({ type }) => type !== 'publish' || !mute;
    if (n === 1) server.first = socket;
  });
  const connection = client(t, server.url, { queueMax: 3, queueCharsMax: 200 });
  const outcome = (promise) => promise.then(() => 'taken', ({ code }) => code);
  const list = [1];
  const early = [connection.publish('r', list, 'e'), connection.publish('r'), connection.publish('r', 'three')].map(outcome);
  list.push(2);
  assert.equal(await outcome(connection.publish('r', 4)), 'queue_full');
  await next(connection, 'state', isState('open'));
  await until('three publications', () => server.received.length >= 3);
  assert.equal(await outcome(connection.publish('r', 5)), 'queue_full', 'those without an answer count');
  mute = false;
  server.first.terminate();
  assert.deepEqual(await Promise.all(early), Array(3).fill('connection_lost'));
  assert.equal(await outcome(connection.publish('r', 'x'.repeat(300))), 'too_long');
  const waiting = [connection.publish('r', 6), connection.publish('r', 7)].map(outcome);
  assert.deepEqual(await within(Promise.all(waiting), 'what waited'), ['taken', 'taken']);
  assert.deepEqual(server.received.map(({ id, type, room, ...rest }) => rest), [{ event: 'e', data: [1] }, { data: null }, { data: 'three' }, { data: 6 }, { data: 7 }]);
  connection.close();
  assert.equal(await outcome(connection.publish('r', 8)), 'closed');
});

test('rooms: messages, and the place where to go on', async (t) => {
  const server = await v1(t, (socket, n) => {
    socket.answers = ({ id, room, offset }) => {
      socket.say({ type: 'ok', id });
      if (n === 1) socket.say({ type: 'message', room, event: 'said', epoch: 3, offset: 9, data: 'one' });
      else socket.say({ type: 'message', room, epoch: 3, offset: offset + 1, data: 'two' });
      if (n === 1) socket.cut();
      return false;
    };
  });
  const connection = client(t, server.url);
  const room = connection.room('news');
  const heard = [];
  room.on('message', (data, { event, offset }) => heard.push([data, event, offset]));
  await next(room, 'message', (data) => data === 'two');
  assert.deepEqual(heard, [['one', 'said', 9], ['two', undefined, 10]]);
});

test('whoever hears of a loss may act on it', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const server = await v1(t, (socket, n) => { if (n < 5) socket.close(4500); });
  const connection = client(t, server.url, { backoff: { initialMs: 30, maxMs: 30 } });
  const feed = connection.feed('a');
  connection.on('state', (state) => { if (state === 'waiting' && server.connections % 2) connection.reconnect(); });
  connection.on('state', (state) => { if (state === 'waiting' && !(server.connections % 2)) connection.use(['websocket']); });
  await until('the fifth connection', () => server.connections >= 5 && connection.state === 'open');
  // What was to be tried then is not tried any more.
  t.mock.timers.tick(1_000);
  await connection.publish('room', 1);
  assert.equal(server.connections, 5, 'one connection after the other');
  assert.equal(feed.state, 'loading');
});

test('a server that is busy says when to come back, and one that refuses says so', async (t) => {
  let status = 503;
  const url = await website(t, (_, response) => response.writeHead(status, { 'Retry-After': '2' }).end('no\n'));
  for (const transport of ['sse', 'polling']) {
    status = 503;
    const connection = client(t, url, { transport });
    connection.feed('a');
    const [, busy] = await next(connection, 'state', isState('waiting'));
    assert.ok(busy.retryMs >= 2000, `${busy.retryMs}`);
    status = 403;
    connection.reconnect();
    const [, refused] = await next(connection, 'state', isState('refused'));
    assert.deepEqual([refused.code, refused.reason], [403, 'the server answers 403']);
  }
});

test('what cannot work says so at once', () => {
  assert.throws(() => connect('http://127.0.0.1:1', { transport: 'pigeon' }), { code: 'no_transport', message: /pigeon/ });
  assert.throws(() => connect('http://127.0.0.1:1', { transport: [] }), { code: 'no_transport' });
});
