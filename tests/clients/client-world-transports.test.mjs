// The transports of @stentor/client on a virtual clock: the first one of a page, the return to it, and sessions over HTTP.
import assert from 'node:assert/strict';
import test from 'node:test';
import { connect } from '../../clients/js/src/index.js';
import { World, live, records } from './client-world.mjs';

test('auto: data comes over HTTP while the first WebSocket is slow, and moves to it without a flicker', async (t) => {
  const world = new World(t);
  world.server.socketDelayMs = 3_000;
  const connection = world.connect(t, { transport: 'auto' });
  const [opened, errors] = [[], records(connection, 'error')];
  connection.on('state', (state, { transport }) => state === 'open' && opened.push(transport));
  const feed = connection.feed('a');
  const states = records(feed, 'state');
  const versions = records(feed, 'change');
  const room = connection.room('lobby');
  const [roomStates, heard] = [records(room, 'state'), records(room, 'message')];
  const published = connection.publish('lobby', 0);
  await world.pass(1_000);
  await published;
  assert.deepEqual([connection.state, feed.state, room.state, world.server.attempts.length], ['open', 'live', 'joined', 1]);
  world.server.publish();
  // Between the answer of the WebSocket and the end of the stream.
  world.after(2_035, () => world.server.publish());
  // Before, while and after the WebSocket takes over.
  let said = 0;
  for (let ms = 1_900; ms <= 2_150; ms += 10) world.after(ms, () => world.server.say('lobby', ++said));
  const answered = [];
  for (const ms of [2_010, 2_025, 2_060]) world.after(ms, () => answered.push(connection.emitWithAck('hello', ms)));
  await world.pass(2_200);
  assert.deepEqual(await Promise.all(answered), [2_010, 2_025, 2_060]);
  assert.deepEqual(heard, Array.from({ length: said + 1 }, (_, n) => n));
  assert.deepEqual(opened, ['sse', 'websocket']);
  assert.deepEqual([feed.state, states, versions], ['live', ['live'], [{ n: 1 }, { n: 2 }, { n: 3 }]]);
  assert.deepEqual([room.state, roomStates, errors, world.server.attempts.length], ['joined', ['joined'], [], 1]);
  await world.pass(3_000);
  assert.deepEqual([world.server.streams.size, world.server.sessions.size], [0, 0]);
  assert.deepEqual(world.server.received.filter(({ type }) => type === 'subscribe').map(({ feed, room, offset }) => [feed ?? room, offset]), [['a', undefined], ['lobby', undefined], ['a', 3], ['lobby', undefined]]);
  // The server has spoken WebSocket to this page.
  const { requests } = world.server;
  world.server.stop();
  world.server.isUp = true;
  await world.pass(10_000);
  assert.deepEqual([connection.state, connection.transport, world.server.requests], ['open', 'websocket', requests]);
});

test('auto: a WebSocket that opens in time, or never', async (t) => {
  const world = new World(t);
  const { connection } = await live(t, world, { transport: 'auto' });
  await world.pass(10_000);
  assert.deepEqual([connection.transport, world.server.requests], ['websocket', 0]);

  world.server.socketDelayMs = 1_000_000;
  const blocked = world.connect(t, { transport: 'auto' });
  const errors = records(blocked, 'error');
  blocked.feed('a');
  const room = blocked.room('lobby');
  const published = blocked.publish('lobby', 1).catch(({ code }) => code);
  await world.pass(1_000);
  assert.equal(await published, undefined);
  await world.pass(9_500);
  assert.deepEqual([blocked.state, blocked.transport, room.state, errors], ['open', 'sse', 'joined', []]);
});

test('auto: a WebSocket that fails before its replacement opens', async (t) => {
  const world = new World(t);
  world.latencyMs = 400;
  world.server.refusal = () => 1006;
  const connection = world.connect(t, { transport: 'auto', heartbeatTimeoutMs: 60_000 });
  connection.feed('a');
  const room = connection.room('lobby');
  const published = connection.publish('lobby', 1).catch(({ code }) => code);
  await world.pass(4_000);
  assert.deepEqual([connection.state, connection.transport, room.state, await published], ['open', 'sse', 'joined', undefined]);
});

test('the return to the first transport opens one connection, and feeds stay live', async (t) => {
  const world = new World(t);
  world.server.socketDelayMs = 1_000_000;
  const connection = world.connect(t, { transport: ['websocket', 'sse'], preferredRetryMs: 20_000 });
  const feed = connection.feed('a');
  await world.pass(15_000);
  assert.deepEqual([connection.transport, feed.state], ['sse', 'live']);
  const before = world.server.attempts.length;
  const states = records(feed, 'state');
  world.server.socketDelayMs = 500;
  await world.pass(45_000);
  assert.deepEqual([connection.transport, feed.state, states, world.server.attempts.length - before], ['websocket', 'live', [], 1]);
});

test('the first transport is tried again after a race has replaced an attempt with it', async (t) => {
  const world = new World(t);
  world.server.socketDelayMs = 1_000_000;
  let token = 'good';
  const connection = world.connect(t, { transport: ['websocket', 'sse'], preferredRetryMs: 20_000, getToken: () => token });
  connection.feed('a');
  const attempt = async () => {
    const { length } = world.server.attempts;
    while (world.server.attempts.length === length) await world.pass(100);
  };
  await attempt();
  await world.pass(11_000);
  assert.equal(connection.transport, 'sse');
  // The race waits for its token until the first transport is tried.
  let release;
  token = new Promise((resolve) => { release = resolve; });
  world.say('online');
  await world.pass(0);
  token = 'good';
  await attempt();
  // The current connection answers a check before the race has opened.
  const { session } = connection;
  world.say('online');
  await world.pass(world.latencyMs);
  release('good');
  await world.pass(1_000);
  assert.equal(connection.session, session, 'the race is dropped');
  world.server.socketDelayMs = 0;
  await world.pass(60_000);
  assert.equal(connection.transport, 'websocket');
});

test('seven tabs over HTTP: three streams, polls for the rest, and other requests are answered', async (t) => {
  for (const transport of ['sse', 'polling']) {
    const world = new World(t);
    const held = world.share(t);
    const tabs = Array.from({ length: 7 }, () => world.connect(t, { transport }));
    const feeds = tabs.map((tab) => tab.feed('a'));
    const errors = tabs.map((tab) => records(tab, 'error'));
    const open = () => world.server.streams.size + world.server.waiting.size;
    const have = (n) => assert.deepEqual(feeds.map(({ state, document }) => `${state} ${document?.n}`), Array(7).fill(`live ${n}`), transport);
    await world.pass(4_000);
    have(1);
    assert.deepEqual([open(), held.size], [3, 3]);
    const own = world.server.fetch('http://server.test/own').then(({ ok }) => ok);
    await world.pass(100);
    assert.equal(await Promise.race([own, 'waits']), true);
    world.server.publish();
    await world.pass(3_000);
    have(2);
    // A place that is left is taken.
    feeds.slice(0, 3).forEach((feed) => feed.close());
    await world.pass(20_000);
    assert.equal(open(), 3);
    world.server.publish();
    await world.pass(3_000);
    assert.deepEqual(feeds.slice(3).map(({ document }) => document.n), Array(4).fill(3));
    world.say('pagehide');
    await world.pass(100);
    assert.deepEqual([open(), held.size], [0, 0]);
    assert.deepEqual(errors.flat(), []);
    tabs.forEach((tab) => tab.close());
  }
});

test('another network over HTTP: a second session opens at once beside the dead one, and no feed flickers', async (t) => {
  for (const transport of ['sse', 'polling']) {
    const world = new World(t);
    const { connection, feed } = await live(t, world, { transport });
    const room = connection.room('lobby');
    await world.pass(100);
    const [states, feedStates, roomStates, heard] = [records(connection, 'state'), records(feed, 'state'), records(room, 'state'), records(room, 'message')];
    world.move();
    world.server.publish();
    world.say('online');
    // A session, and the subscriptions by it.
    await world.pass(200);
    world.server.say('lobby', 1);
    await world.pass(100);
    assert.deepEqual([feed.document.n, connection.session, heard], [2, '1-h2', [1]], transport);
    assert.deepEqual([states, feedStates, roomStates], [['open'], [], []], transport);
    // The dead session is ended, too.
    await world.pass(3_000);
    assert.equal(world.server.sessions.size, 1, transport);
    connection.close();
  }
});

test('another kind of network over HTTP, and the session lives: it stays, and few others open however often that is reported', async (t) => {
  for (const transport of ['sse', 'polling']) {
    const world = new World(t);
    let opened = 0;
    const fetch = (url, options) => {
      opened += url.pathname === '/ndjson';
      return world.server.fetch(url, options);
    };
    const { connection, feed } = await live(t, world, { transport, fetch });
    const states = records(feed, 'state');
    for (let n = 0; n < 60; n++) {
      world.say('online');
      await world.pass(1_000);
    }
    assert.deepEqual([connection.session, feed.state, states], ['1-h1', 'live', []], transport);
    assert.deepEqual([opened, world.server.sessions.size], [7, 1], transport);
    connection.close();
  }
});

test('cookies are sent to a server of another origin if the page wants it', async (t) => {
  for (const transport of ['sse', 'polling']) {
    for (const withCredentials of [true, undefined]) {
      const world = new World(t);
      const sent = new Set();
      const fetch = (url, options) => {
        sent.add(options.credentials);
        return world.server.fetch(url, options);
      };
      const { connection } = await live(t, world, { transport, fetch, withCredentials });
      await world.pass(20_000);
      assert.deepEqual([...sent], [withCredentials && 'include']);
      connection.close();
    }
  }
});

test('with a token, a page of another origin sends requests to two addresses, which have neither the session nor the token', async (t) => {
  for (const transport of ['sse', 'polling']) {
    for (const [origin, getToken, pattern] of [
      ['http://elsewhere.test', () => 'secret', /^\/ndjson(\/session)?$/],
      ['http://elsewhere.test', undefined, /^\/ndjson(\/sid\d)?\?/],
      ['http://server.test', () => 'secret', /^\/ndjson(\/sid\d)?\?/],
    ]) {
      const world = new World(t);
      world.visit(t, origin);
      const addresses = new Set();
      const fetch = (url, options) => {
        addresses.add(url.pathname + url.search);
        return world.server.fetch(url, options);
      };
      const { connection } = await live(t, world, { transport, fetch, getToken });
      for (const n of [1, 2, 3]) assert.equal(await Promise.all([connection.emitWithAck('say', n), world.pass(1_000)]).then(([answer]) => answer), n);
      world.server.sessions.clear();
      await world.pass(20_000);
      connection.close();
      await world.pass(1_000);
      assert.equal(world.server.sessions.size, 0);
      for (const address of addresses) assert.match(address, pattern);
      assert.ok(getToken && origin !== 'http://server.test' ? addresses.size === 2 : addresses.size > 3, [...addresses].join());
    }
  }
});

test('500 feeds over HTTP: one request opens the session with all of them, another one adds a feed', async (t) => {
  const world = new World(t);
  const requests = [];
  const fetch = (url, options) => {
    requests.push([options.method, options.body.split('\n').length]);
    assert.ok(url.href.length < 100);
    return world.server.fetch(url, options);
  };
  const connection = world.connect(t, { transport: 'sse', fetch });
  const feeds = Array.from({ length: 500 }, (_, n) => connection.feed(`scores/of/match/${n}`));
  const changes = feeds.map((feed) => records(feed, 'change'));
  await world.pass(1_000);
  assert.ok(feeds.every(({ state }) => state === 'live'));
  connection.feed('one-more');
  await world.pass(1_000);
  assert.ok(feeds.every(({ state }, n) => state === 'live' && changes[n].length === 1));
  assert.deepEqual(requests, [['POST', 500], ['POST', 1]]);
});

test('polls while nothing happens: six a minute, and without a place thirty', async (t) => {
  const world = new World(t);
  world.share(t);
  const tabs = Array.from({ length: 4 }, () => world.connect(t, { transport: 'polling' }));
  const feeds = tabs.map((tab) => tab.feed('a'));
  await world.pass(30_000);
  const before = world.server.requests;
  await world.pass(60_000);
  const requests = world.server.requests - before;
  assert.ok(requests >= 3 * 5 + 28 && requests <= 3 * 6 + 31, `${requests} requests`);
  world.server.publish();
  await world.pass(2_200);
  assert.ok(feeds.every(({ document }) => document.n === 2));
});

test('messages over HTTP: one request at a time, in order, each once however often it is repeated', async (t) => {
  for (const transport of ['sse', 'polling']) {
    const world = new World(t);
    // Requests that get no answer: half of them have arrived.
    let isBroken = false;
    let open = 0;
    const fetch = async (url, options) => {
      if (!/n=/.test(url.search)) return world.server.fetch(url, options);
      assert.equal(++open, 1, 'one at a time');
      try {
        if (isBroken && world.random() < 0.4) throw new TypeError('Failed to fetch');
        const response = await world.server.fetch(url, options);
        if (isBroken && world.random() < 0.5) throw new TypeError('Failed to fetch');
        if (isBroken && world.random() < 0.3) return new Response('', { status: 502 });
        return response;
      } finally {
        open -= 1;
      }
    };
    const { connection } = await live(t, world, { transport, fetch });
    const heard = records(connection.room('r'), 'message');
    await world.pass(1_000);
    isBroken = true;
    const answers = [];
    for (let n = 0; n < 40; n++) {
      answers.push(connection.publish('r', n), connection.emitWithAck('say', { n }));
      await world.pass(100);
    }
    await world.pass(60_000);
    isBroken = false;
    await world.pass(5_000);
    assert.deepEqual(heard, Array.from({ length: 40 }, (_, n) => n), transport);
    assert.deepEqual((await Promise.all(answers)).filter(Boolean), Array.from({ length: 40 }, (_, n) => ({ n })));
    assert.equal(connection.state, 'open');
    connection.close();
    await world.pass(1_000);
    assert.equal(world.server.sessions.size, 0, 'the session ends with the connection');
  }
});

test('what is sent right before the end is sent, and then the session ends', async (t) => {
  const world = new World(t);
  const other = records(world.connect(t).room('r'), 'message');
  const { connection } = await live(t, world, { transport: 'sse' });
  const outcomes = ['sent', 'queued'].map((data) => connection.publish('r', data).catch(({ code, outcome }) => [code, outcome]));
  connection.close();
  await world.pass(1_000);
  assert.deepEqual([other, world.server.sessions.size], [['sent', 'queued'], 0]);
  assert.deepEqual(await Promise.all(outcomes), Array(2).fill(['connection_lost', 'unknown']));
});

test('a session that the server doesn\'t know any more, or whose lines were lost, is opened again', async (t) => {
  for (const transport of ['sse', 'polling']) {
    const world = new World(t);
    const { connection, feed } = await live(t, world, { transport });
    const room = connection.room('r');
    await world.pass(100);
    for (const end of [
      () => world.server.sessions.clear(),
      // The answer to the next poll is that lines were lost.
      () => { for (const session of world.server.sessions.values()) session.sent += 1; },
    ]) {
      end();
      // A stream is open until it is used.
      const answer = connection.emitWithAck('hello', 1).catch(({ outcome }) => outcome);
      await world.pass(15_000);
      world.server.publish();
      await world.pass(500);
      assert.deepEqual([connection.state, feed.state, feed.document.n, room.state], ['open', 'live', world.server.version, 'joined'], transport);
      assert.ok([1, 'unknown'].includes(await answer));
    }
    connection.close();
  }
});

test('events: their answers, failures, and messages to this client alone', async (t) => {
  const world = new World(t);
  const { connection } = await live(t, world);
  const [errors, messages] = [records(connection, 'error'), []];
  connection.on('message', (...details) => messages.push(details));
  const answer = connection.emitWithAck('sum', [1, 2]);
  connection.emit('fine');
  await world.pass(100);
  assert.deepEqual(await answer, [1, 2]);
  assert.deepEqual(world.server.received.slice(-2).map(({ type, event, data }) => [type, event, data]), [['event', 'sum', [1, 2]], ['event', 'fine', null]]);
  world.server.error = ({ type }) => (type === 'event' ? { code: 'unknown_event', message: 'no', retry: false } : undefined);
  connection.emit('odd');
  const refused = connection.emitWithAck('odd').catch(({ code }) => code);
  for (const socket of world.server.sockets) socket.say({ type: 'message', event: 'hello', data: 1 });
  await world.pass(100);
  assert.deepEqual([errors.map(({ code }) => code), await refused], [['unknown_event'], 'unknown_event']);
  assert.deepEqual(messages, [[1, { event: 'hello', encoding: undefined }]]);
});

test('a browser without a connection for a request', async (t) => {
  for (const transport of ['sse', 'polling']) {
    const world = new World(t);
    world.server.connectionsMax = 0;
    const connection = world.connect(t, { transport });
    const errors = records(connection, 'error');
    connection.feed('a');
    await world.pass(2_900);
    assert.deepEqual(errors, []);
    await world.pass(200);
    assert.deepEqual([connection.state, errors.map(({ code }) => code)], ['connecting', ['no_response']]);
    connection.close();
  }
});

test('after a network that swallowed packets, the client is soon back at the first transport', async (t) => {
  const world = new World(t);
  const connection = world.connect(t, { transport: ['websocket', 'polling'] });
  const feed = connection.feed('a');
  await world.pass(20_000);
  world.server.socketDelayMs = 1_000_000;
  world.server.stop();
  world.server.isUp = true;
  while (connection.transport !== 'polling' || connection.state !== 'open') await world.pass(1_000);
  const states = records(feed, 'state');
  // One attempt fails.
  await world.pass(15_000);
  world.server.socketDelayMs = 0;
  await world.pass(30_000);
  assert.deepEqual([connection.transport, connection.state, feed.state, states], ['websocket', 'open', 'live', []]);
});

test('a token that fails while the first transport is tried again', async (t) => {
  const world = new World(t);
  world.server.socketDelayMs = 1_000_000;
  let isBroken = false;
  const getToken = () => {
    if (isBroken) throw new Error('no session');
    return 'token';
  };
  const connection = world.connect(t, { transport: ['websocket', 'sse'], getToken });
  connection.feed('a');
  await world.pass(11_000);
  assert.deepEqual([connection.transport, connection.state], ['sse', 'open']);
  isBroken = true;
  world.server.socketDelayMs = 0;
  await world.pass(12_000);
  isBroken = false;
  await world.pass(60_000);
  assert.deepEqual([connection.transport, connection.state], ['websocket', 'open']);
});
