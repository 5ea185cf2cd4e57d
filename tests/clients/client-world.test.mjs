// @stentor/client when networks change, machines sleep, tokens expire and proxies interfere, on a virtual clock.
import assert from 'node:assert/strict';
import test from 'node:test';
import { connect } from '../../clients/js/src/index.js';
import { randomTests } from './client-random.mjs';
import { World, live, records } from './client-world.mjs';

test('another network: a check finds a dead connection, and a second one opens beside it', async (t) => {
  const world = new World(t);
  const { connection, feed } = await live(t, world);
  const states = records(connection, 'state');
  world.isOnline = false;
  world.say('offline');
  assert.equal(feed.state, 'stale');
  await world.pass(500);
  world.move();
  world.isOnline = true;
  world.say('online');
  world.server.publish();
  await world.pass(3_000);
  assert.deepEqual([connection.state, feed.state, feed.document], ['open', 'live', { n: 2 }]);
  assert.deepEqual(states, ['open']);
  assert.equal(world.server.attempts.length, 2);
});

test('offline and online with a connection that lives: no second one, and the feed is live again', async (t) => {
  const world = new World(t);
  const { connection, feed } = await live(t, world);
  world.say('offline');
  assert.equal(feed.state, 'stale');
  world.say('online');
  await world.pass(100);
  assert.deepEqual([connection.state, feed.state, world.server.attempts.length], ['open', 'live', 1]);
  // What the server says of its upstream stays.
  for (const socket of world.server.sockets) socket.say({ type: 'state', feed: 'a', state: 'stale', reason: 'upstream' });
  await world.pass(100);
  world.say('online');
  await world.pass(100);
  assert.deepEqual([feed.state, feed.reason], ['stale', 'upstream']);
});

test('a slow network: the old connection wins the race, and no race follows another one at once', async (t) => {
  const world = new World(t);
  const { connection, feed } = await live(t, world);
  world.latencyMs = 2_000;
  world.say('online');
  await world.pass(5_000);
  assert.deepEqual([connection.state, feed.state, world.server.attempts.length], ['open', 'live', 2]);
  assert.equal(connection.session, '1-s1');
  // The next one waits for 6 s, but feeds aren't called live meanwhile.
  world.say('online');
  await world.pass(3_500);
  assert.equal(feed.state, 'stale');
  await world.pass(1_500);
  assert.equal(feed.state, 'live');
  assert.equal(world.server.attempts.length, 2);
});

test('pings while nothing happens: one per `ping_ms` at most', async (t) => {
  const world = new World(t);
  await live(t, world);
  await world.pass(600_000);
  const pings = world.server.received.filter(({ type }) => type === 'ping').length;
  assert.ok(pings > 0 && pings <= 24, `${pings} pings`);
});

test('a page that is looked at again is checked after ten seconds of silence', async (t) => {
  const world = new World(t);
  const { feed } = await live(t, world);
  const pings = () => world.server.received.filter(({ type }) => type === 'ping').length;
  world.show(false);
  world.show(true);
  await world.pass(9_000);
  world.show(false);
  world.show(true);
  await world.pass(100);
  assert.equal(pings(), 0);
  await world.pass(2_000);
  world.move();
  world.show(false);
  world.show(true);
  world.server.publish();
  await world.pass(4_000);
  assert.deepEqual([feed.state, feed.document.n], ['live', 2]);
});

test('sleep is noticed when the machine wakes, a wall clock that goes back changes nothing', async (t) => {
  const world = new World(t);
  const { connection, feed } = await live(t, world);
  world.wallMs -= 3_600_000;
  await world.pass(32_000);
  const pings = world.server.received.filter(({ type }) => type === 'ping').length;
  assert.equal(pings, 1);
  world.hibernate(600_000);
  world.server.publish();
  // A tick of the heartbeat, the time for a sign of life, and a connection.
  await world.pass(6_250 + 3_000 + 500);
  assert.deepEqual([connection.state, feed.state, feed.document.n], ['open', 'live', 2]);
});

test('a server that is silent is left, a late timer alone is no reason', async (t) => {
  const world = new World(t);
  const { connection, feed } = await live(t, world);
  for (const ms of [40_000, 100, 600_000]) {
    world.freeze(ms);
    await world.pass(10_000);
    assert.deepEqual([connection.state, feed.state, world.server.attempts.length], ['open', 'live', 1]);
  }
  const reasons = [];
  feed.on('state', (state, reason) => reasons.push(state, reason));
  world.server.isSilent = true;
  // The server's `ping_ms` with a tick, and the time for an answer.
  await world.pass(35_000);
  assert.deepEqual([connection.state, world.server.attempts.length, ...reasons.slice(0, 2)], ['open', 2, 'stale', 'the server is silent']);
});

test('a page that was frozen checks its connection when it goes on', async (t) => {
  const world = new World(t);
  const { connection } = await live(t, world);
  world.move();
  world.document.dispatchEvent(new Event('resume'));
  await world.pass(3_500);
  assert.deepEqual([connection.state, world.server.attempts.length], ['open', 2]);
});

test('an attempt that hangs begins again when the network changes', async (t) => {
  const world = new World(t);
  const connection = world.connect(t, { transport: 'websocket' });
  world.move();
  await world.pass(2_000);
  assert.equal(connection.state, 'connecting');
  world.say('online');
  await world.pass(200);
  assert.deepEqual([connection.state, world.server.attempts.length], ['open', 2]);
});

test('rooms that wait for a connection don\'t delay it', async (t) => {
  const away = async (rooms) => {
    const world = new World(t, 7);
    world.random = () => 1;
    const connection = world.connect(t, { backoff: { initialMs: 500, maxMs: 30_000 } });
    const errors = records(connection, 'error');
    for (let n = 0; n < rooms; n++) connection.room(`room-${n}`);
    await world.pass(6_000);
    world.server.stop();
    await world.pass(3_000);
    world.server.isUp = true;
    const before = world.nowMs;
    while (connection.state !== 'open') await world.pass(50);
    connection.close();
    assert.deepEqual(errors, []);
    return world.nowMs - before;
  };
  assert.equal(await away(10), await away(0));
});

test('presence that was refused for now is asked for again until it is confirmed, closed, or refused for good', async (t) => {
  const world = new World(t);
  const refusals = { busy: 2, closed: 9, left: 9, secret: 1 };
  world.server.error = ({ type, room, presence }) => {
    if (type === 'subscribe' && presence && refusals[room]-- > 0) return { code: 'busy', message: 'later', retry: room !== 'secret' };
    return undefined;
  };
  const connection = world.connect(t);
  const rooms = Object.keys(refusals).map((name) => connection.room(name));
  const [busy, closed, left, secret] = rooms.map((room) => room.presence());
  const errors = records(busy, 'error');
  for (const presence of [closed, left]) presence.on('error', () => (presence === left && rooms[2].close(), presence.close()));
  await world.pass(10_000);
  assert.deepEqual([busy, closed, left, secret].map(({ isCurrent }) => isCurrent), [true, false, false, false]);
  assert.equal(errors.length, 2);
  const asked = (name) => world.server.received.filter(({ room, presence, type }) => type === 'subscribe' && room === name && presence).length;
  assert.deepEqual(['busy', 'closed', 'left', 'secret'].map(asked), [3, 1, 1, 1]);
});

test('a room says whether it is joined, and an error names it', async (t) => {
  const world = new World(t);
  let refusals = 2;
  world.server.error = ({ type, room }) => {
    if (type !== 'subscribe' || room === undefined) return undefined;
    if (room === 'secret') return { code: 'not_allowed', message: 'no', retry: false };
    return room === 'busy' && refusals-- > 0 ? { code: 'busy', message: 'later', retry: true } : undefined;
  };
  const connection = world.connect(t);
  const errors = records(connection, 'error');
  const [lobby, secret, busy] = ['lobby', 'secret', 'busy'].map((name) => connection.room(name));
  assert.equal(lobby.state, 'joining');
  await world.pass(10_000);
  assert.deepEqual([lobby.state, secret.state, busy.state], ['joined', 'refused', 'joined']);
  assert.deepEqual(errors.map(({ code, room }) => [code, room]), [['not_allowed', 'secret'], ['busy', 'busy'], ['busy', 'busy']]);
  world.server.stop();
  await world.pass(100);
  assert.deepEqual([lobby.state, secret.state], ['joining', 'refused']);
});

test('an expired token is renewed at once, by the same transport; a refused one once', async (t) => {
  const ways = {
    websocket: { transport: ['websocket', 'sse'] },
    sse: { transport: ['sse', 'polling'] },
    sockjs: { transport: ['sockjs', 'sse'] },
    'polls of Socket.IO': { transport: ['socket.io', 'sse'] },
    'WebSockets of Socket.IO': { transport: ['socket.io', 'sse'], ioOptions: { transports: ['websocket'] } },
  };
  for (const [name, options] of Object.entries(ways)) {
    const world = new World(t);
    const reasons = [];
    const tokens = ['old', 'good'];
    world.server.refusal = (token) => (token === 'good' ? undefined : 4505);
    const getToken = ({ reason }) => {
      reasons.push(reason);
      return tokens.length > 1 ? tokens.shift() : tokens[0];
    };
    const connection = world.connect(t, { getToken, ...options });
    await world.pass(200);
    assert.deepEqual([connection.state, connection.transport, reasons], ['open', options.transport[0], ['connect', 'expired']], name);

    // The clock of the backend is wrong: each token has expired.
    world.server.refusal = () => 4505;
    let calls = 0;
    const slow = world.connect(t, { getToken: () => `old ${calls++}`, ...options });
    await world.pass(60_000);
    assert.equal(slow.transport, options.transport[0], name);
    assert.ok(calls > 3 && calls < 15, `${name}: ${calls} attempts`);
    slow.close();

    world.server.refusal = (token) => (token === 'good' ? undefined : 4408);
    const asked = [];
    const check = async (next, expect) => {
      const one = world.connect(t, { ...options, getToken: ({ reason }) => { asked.push(reason); return reason === 'refused' ? next : 'bad'; } });
      await world.pass(1_000);
      assert.deepEqual([one.state, one.transport], [expect, options.transport[0]], name);
      assert.deepEqual(asked.splice(0), ['connect', 'refused'], name);
      one.close();
    };
    await check('good', 'open');
    await check('bad', 'refused');
    await check('worse', 'refused');

    // The token of an open connection expires, and then the user is signed out.
    const later = ['good', 'newer'];
    const lasting = world.connect(t, { ...options, getToken: ({ reason }) => { asked.push(reason); return later.shift(); } });
    await world.pass(10_000);
    world.server.refusal = (token) => (token === 'newer' ? undefined : 4505);
    for (const socket of world.server.sockets) if (socket.token === 'good') socket.lost(4505);
    if (name === 'sse') world.server.endSessions(4505);
    await world.pass(1_000);
    assert.deepEqual([lasting.state, lasting.transport, asked.splice(0)], ['open', options.transport[0], ['connect', 'expired']], name);
  }
});

test('a token that takes long, fails, or fails once while it is renewed', async (t) => {
  const world = new World(t);
  const later = world.connect(t, { getToken: () => new Promise((resolve) => { world.after(12_000, () => resolve('good')); }) });
  await world.pass(12_500);
  assert.equal(later.state, 'open');

  let calls = 0;
  const failing = world.connect(t, { transport: ['websocket', 'sse', 'polling'], getToken: () => { calls += 1; throw new Error('no session'); } });
  const errors = records(failing, 'error');
  await world.pass(11_000);
  assert.deepEqual([failing.transport, errors.length], ['websocket', calls]);
  assert.ok(calls >= 3 && calls <= 8, `${calls} calls`);

  const renewals = ['fails', 'new'];
  const renewed = world.connect(t, { getToken: ({ reason }) => {
    if (reason !== 'expiring') return 'old';
    const next = renewals.shift();
    if (next === 'fails') throw new Error('busy');
    return next;
  } });
  await world.pass(200);
  for (const socket of world.server.sockets) socket.say({ type: 'token_expiring', expires_in_ms: 60_000 });
  await world.pass(5_000);
  assert.deepEqual([renewed.state, renewals], ['open', []]);
  assert.deepEqual(world.server.received.filter(({ type }) => type === 'auth').map(({ token }) => token), ['new']);
});

test('connections that are reset early lead to the next transport, those that the server ends don\'t', async (t) => {
  const check = async (code, expect) => {
    const world = new World(t);
    world.server.opened = (socket) => world.after(500, () => socket.lost(code));
    const connection = world.connect(t, { transport: ['websocket', 'sse'], fetch: () => new Promise(() => {}), backoff: { initialMs: 50, maxMs: 50 } });
    const used = new Set();
    connection.on('state', (_, { transport }) => used.add(transport));
    await world.pass(5_000);
    assert.deepEqual([...used], expect, `${code}`);
    connection.close();
  };
  await check(1006, ['websocket', 'sse']);
  await check(1001, ['websocket']);
  await check(4500, ['websocket']);
});

test('a captive portal, and a page in place of the server', async (t) => {
  for (const transport of ['sse', 'polling']) {
    const world = new World(t);
    const fetch = async () => new Response('<html>Sign in</html>', { headers: { 'Content-Type': 'text/html', ETag: '"65012345-264"' } });
    const connection = world.connect(t, { transport, fetch });
    const states = records(connection, 'state');
    const reasons = [];
    connection.on('state', (_, { reason }) => reason && reasons.push(reason));
    const feed = connection.feed('a');
    await world.pass(3_000);
    assert.ok(!states.includes('open') && feed.state === 'loading', transport);
    assert.equal(reasons[0], 'something else answers in place of the server: text/html');
    connection.close();
  }
});

test('a Content-Security-Policy without the server', async (t) => {
  const world = new World(t);
  const hanging = class { close() {} };
  const connection = world.connect(t, { transport: 'websocket', WebSocket: hanging });
  const reasons = [];
  connection.on('state', (_, { reason }) => reasons.push(reason));
  await world.pass(10);
  const violation = (blockedURI) => Object.assign(new Event('securitypolicyviolation'), { blockedURI, effectiveDirective: 'connect-src' });
  world.document.dispatchEvent(violation('wss://elsewhere.test/ws'));
  assert.equal(connection.state, 'connecting');
  world.document.dispatchEvent(violation('ws://server.test/ws'));
  const expected = ['refused', "the page's Content-Security-Policy forbids ws://server.test: add it to connect-src"];
  assert.deepEqual([connection.state, reasons.at(-1)], expected);
  // Firefox throws an exception.
  const blocked = class { constructor() { throw Object.assign(new Error(''), { name: 'NS_ERROR_CONTENT_BLOCKED' }); } };
  const other = world.connect(t, { transport: 'websocket', WebSocket: blocked });
  other.on('state', (_, { reason }) => reasons.push(reason));
  await world.pass(10);
  assert.deepEqual([other.state, reasons.at(-1)], expected);
});

test('a message that is too long is refused before it is sent', async (t) => {
  const world = new World(t);
  world.server.welcome = { message_bytes_max: 1_000 };
  const { connection } = await live(t, world);
  const outcome = (data) => connection.publish('r', data).then(() => 'sent', ({ code, retry }) => [code, retry]);
  // Two bytes for each.
  const long = outcome('é'.repeat(600));
  const short = outcome('x'.repeat(900));
  const huge = outcome('x'.repeat(1_000_001));
  await world.pass(100);
  assert.deepEqual([await long, await short, await huge], [['too_long', false], 'sent', ['too_long', false]]);
  assert.equal(world.server.received.filter(({ type }) => type === 'publish').length, 1);
});

test('a publication that isn\'t answered in time: whether it was sent is known, or said to be unknown', async (t) => {
  const world = new World(t);
  const { connection } = await live(t, world, { publishTimeoutMs: 2_000 });
  const outcome = (...options) => connection.publish('r', 1, undefined, ...options).then(() => 'sent', (error) => [error.code, error.outcome, error.retry]);
  assert.equal(await Promise.all([outcome(), world.pass(100)]).then(([first]) => first), 'sent');
  world.server.error = ({ type }) => (type === 'publish' ? { code: 'not_allowed', message: 'no', retry: false } : undefined);
  const refused = outcome();
  await world.pass(100);
  assert.deepEqual(await refused, ['not_allowed', 'not_published', false]);
  world.server.error = () => undefined;
  world.server.isSilent = true;
  const silent = outcome();
  const patient = outcome({ timeoutMs: 20_000 });
  await world.pass(2_100);
  assert.deepEqual(await silent, ['timeout', 'unknown', true]);
  world.server.stop();
  await world.pass(100);
  assert.deepEqual(await patient, ['connection_lost', 'unknown', true]);
  const offline = outcome();
  await world.pass(2_100);
  assert.deepEqual(await offline, ['timeout', 'not_published', true]);
  // It isn't sent later.
  const before = world.server.received.length;
  Object.assign(world.server, { isSilent: false, isUp: true });
  await world.pass(30_000);
  assert.equal(connection.state, 'open');
  assert.deepEqual(world.server.received.slice(before).filter(({ type }) => type === 'publish'), []);
});

test('a publication with an id is repeated after a lost connection, and published once', async (t) => {
  const world = new World(t);
  const { connection } = await live(t, world);
  const messages = records(connection.room('r'), 'message');
  const outcome = (data, options) => connection.publish('r', data, undefined, options).then(() => 'sent', (error) => [error.code, error.outcome]);
  const received = () => world.server.received.filter(({ type }) => type === 'publish').map(({ data, first_session }) => (first_session ? [data, first_session] : data));
  const cut = async () => {
    const { isUp } = world.server;
    world.server.stop();
    world.server.isUp = isUp;
    await world.pass(5_000);
    assert.equal(connection.state, 'open');
  };
  await world.pass(100);

  // The answer is lost, or the publication itself. The repeated ones come first, in order, and name the session of the first attempt.
  const { session } = connection;
  world.server.forgetsAnswers = true;
  const answered = ['arrived', 'without an id'].map((data) => outcome(data, data === 'arrived' ? { id: 'one' } : {}));
  await world.pass(100);
  world.server.isSilent = true;
  answered.push(outcome('lost', { id: 'two' }));
  await world.pass(100);
  Object.assign(world.server, { isSilent: false, forgetsAnswers: false });
  const ignore = connection.on('state', (state) => state === 'waiting' && answered.push(outcome('later', { id: 'three' })));
  await cut();
  ignore();
  assert.deepEqual(await Promise.all(answered), ['sent', ['connection_lost', 'unknown'], 'sent', 'sent']);
  assert.deepEqual(received(), ['arrived', 'without an id', ['arrived', session], ['lost', session], 'later']);
  assert.deepEqual(messages, ['arrived', 'without an id', 'lost', 'later']);

  // Another node, or the next process, can't know. The application may repeat it, too: the client knows where it was first.
  world.server.forgetsAnswers = true;
  const moved = outcome('moved', { id: 'four' });
  await world.pass(100);
  Object.assign(world.server, { life: 2, published: new Set(), forgetsAnswers: false });
  await cut();
  assert.deepEqual([await moved, messages.at(-1)], [['unavailable', 'unknown'], 'moved']);
  assert.deepEqual((await Promise.all([outcome('moved', { id: 'four' }), world.pass(100)]))[0], ['unavailable', 'unknown']);

  // Nothing is repeated after its timeout, after its time, or once the connection is closed; and whether it was published isn't known then.
  world.server.isSilent = true;
  const limited = outcome('limited', { id: 'five', timeoutMs: 1_000 });
  await world.pass(1_100);
  world.server.isSilent = false;
  await cut();
  assert.deepEqual([await limited, received().flat().includes('limited')], [['timeout', 'unknown'], false]);
  const refused = outcome('refused', { id: 'eight' });
  world.server.isSilent = true;
  await world.pass(100);
  world.server.isSilent = false;
  world.server.error = ({ data }) => (data === 'refused' ? { code: 'not_allowed', message: 'no', retry: false } : undefined);
  await cut();
  assert.deepEqual(await refused, ['not_allowed', 'unknown']);
  world.server.isSilent = true;
  const [late, impatient] = [outcome('late', { id: 'six' }), outcome('impatient', { id: 'nine', timeoutMs: 5_000 })];
  await world.pass(100);
  world.server.stop();
  await world.pass(250_000);
  Object.assign(world.server, { isSilent: false, isUp: true });
  const count = received().length;
  await world.pass(60_000);
  assert.deepEqual([await late, await impatient], [['timeout', 'unknown'], ['timeout', 'unknown']]);
  world.server.isSilent = true;
  const closed = outcome('closed', { id: 'seven' });
  await world.pass(100);
  connection.close();
  assert.deepEqual([await closed, received().slice(count)], [['closed', 'unknown'], []]);
});

test('a publication with an id whose answer is lost with the connection that another one has replaced', async (t) => {
  const world = new World(t);
  world.server.socketDelayMs = 2_000;
  const connection = world.connect(t, { transport: 'auto' });
  const room = connection.room('r');
  const messages = records(room, 'message');
  await world.pass(1_500);
  assert.deepEqual([connection.transport, room.state], ['sse', 'joined']);
  world.server.forgetsAnswers = true;
  const answer = connection.publish('r', 'once', undefined, { id: 'one' });
  await world.pass(1_500);
  assert.equal(connection.transport, 'websocket');
  world.server.forgetsAnswers = false;
  await world.pass(5_000);
  await answer;
  assert.deepEqual(messages, ['once']);
});

test('an error of a feed names it', async (t) => {
  const world = new World(t);
  world.server.error = ({ feed }) => (feed === 'secret' ? { code: 'not_allowed', message: 'no', retry: false } : undefined);
  const connection = world.connect(t);
  const errors = records(connection, 'error');
  const feed = connection.feed('secret');
  connection.feed('a');
  await world.pass(1_000);
  assert.deepEqual([feed.state, errors.map(({ code, feed }) => [code, feed])], ['not_found', [['not_allowed', 'secret']]]);
});

test('a connection that is paused connects to nothing, keeps its documents and publications, and resumes', async (t) => {
  const world = new World(t);
  const connection = world.connect(t, { autoConnect: false });
  const feed = connection.feed('a');
  const published = connection.publish('r', 1);
  await world.pass(60_000);
  assert.deepEqual([connection.state, feed.state, world.server.attempts.length], ['paused', 'loading', 0]);
  connection.resume();
  await world.pass(200);
  await published;
  assert.deepEqual([connection.state, feed.state], ['open', 'live']);
  connection.pause();
  assert.deepEqual([connection.state, feed.state, feed.document.n], ['paused', 'stale', 1]);
  for (const name of ['online', 'pagehide', 'pageshow']) world.say(name);
  world.show(false);
  world.show(true);
  connection.use('websocket');
  await world.pass(60_000);
  assert.deepEqual([world.server.attempts.length, world.server.sockets.size], [1, 0]);
  connection.resume();
  connection.resume();
  await world.pass(200);
  assert.deepEqual([connection.state, feed.state, world.server.attempts.length], ['open', 'live', 2]);
});

test('a page that is left closes its connection, and opens one if it comes back', async (t) => {
  const world = new World(t);
  const { connection, feed } = await live(t, world);
  world.say('pagehide');
  await world.pass(1_000);
  assert.deepEqual([connection.state, feed.state, world.server.sockets.size], ['paused', 'stale', 0]);
  world.server.publish();
  world.say('pageshow');
  await world.pass(200);
  assert.deepEqual([connection.state, feed.state, feed.document.n], ['open', 'live', 2]);
});

test('rendering a page on a server opens nothing', async (t) => {
  const world = new World(t);
  for (const address of [undefined, '/live']) {
    const connection = connect(address, { WebSocket: world.WebSocket });
    const feed = connection.feed('a');
    connection.resume();
    connection.reconnect();
    await world.pass(60_000);
    assert.deepEqual([connection.state, feed.state, world.server.attempts.length], ['paused', 'loading', 0]);
  }
  assert.throws(() => connect('live.example.com'), TypeError);
});

// all/client-world.test.mjs has more of them.
randomTests(1_000);
