// Tabs that share a connection (@stentor/client/shared), on a virtual clock: who leads, what followers receive, and what happens when tabs end, freeze or sign out.
import assert from 'node:assert/strict';
import test from 'node:test';
import { randomTests } from './tabs-random.mjs';
import { tabs } from './tabs-world.mjs';

test('eight tabs share one connection: feeds, rooms, publications and events', async (t) => {
  for (const transport of ['websocket', 'sse', 'polling']) {
    const { world, server, opened, check, connections } = await tabs(t, 8, { transport });
    check(opened, transport);
    assert.equal(connections(), 1, transport);
    server.publish();
    server.say('lobby', 1);
    await world.pass(500);
    check(opened, transport);
    const answers = opened.map(({ run, connection }, n) => run(() => connection.emitWithAck('say', n)));
    const published = opened[5].run(() => opened[5].connection.publish('lobby', 2));
    await world.pass(500);
    assert.deepEqual(await Promise.all(answers), [0, 1, 2, 3, 4, 5, 6, 7]);
    await published;
    assert.deepEqual(opened.map(({ heard }) => heard), Array(8).fill([1, 2]), transport);
    assert.deepEqual(opened.map(({ versions }) => versions.map(({ n }) => n)), Array(8).fill([1, 2]), transport);
    // A tab that comes later gets the newest document; those that have it receive nothing new.
    assert.equal(server.received.filter(({ type }) => type === 'subscribe' && type.room).length, 0);
    for (const { run, connection } of opened) run(() => connection.close());
    await world.pass(1_000);
    assert.equal(connections(), 0, transport);
  }
});

test('a feed that the last tab closes is unsubscribed from, and one tab\'s end changes nothing for others', async (t) => {
  const { world, server, opened, check, open } = await tabs(t, 3);
  const [, second] = opened;
  second.run(() => second.feed.close());
  second.run(() => second.room.close());
  await world.pass(100);
  assert.equal(server.received.filter(({ type }) => type === 'unsubscribe').length, 0);
  server.publish();
  server.say('lobby', 1);
  await world.pass(100);
  assert.deepEqual([second.versions.length, second.heard], [1, []]);
  second.run(() => second.connection.close());
  const late = open();
  await world.pass(1_000);
  check([opened[0], opened[2], late], 'late');
  assert.deepEqual(late.versions, [{ n: 2 }]);
  for (const tab of [opened[0], opened[2], late]) tab.run(() => [tab.feed.close(), tab.room.close()]);
  await world.pass(100);
  assert.deepEqual(server.received.filter(({ type }) => type === 'unsubscribe').map(({ feed, room }) => feed ?? room).sort(), ['a', 'lobby']);
});

test('the tab that leads ends: another one leads at once, without a gap or a duplicate', async (t) => {
  for (const transport of ['websocket', 'sse', 'polling']) {
    for (const end of ['kill', 'close', 'pause']) {
      const { world, server, browser, opened, check, connections } = await tabs(t, 4, { transport });
      const leader = browser.leader(transport);
      assert.equal(leader, opened[0]);
      server.say('lobby', 1);
      await world.pass(100);
      if (end === 'kill') browser.kill(leader);
      else leader.run(() => leader.connection[end]());
      server.publish();
      server.say('lobby', 2);
      await world.pass(1_500);
      server.say('lobby', 3);
      await world.pass(500);
      const left = opened.slice(1);
      check(left, `${transport} ${end}`);
      assert.equal(connections(), 1, `${transport} ${end}`);
      assert.deepEqual(left.map(({ heard }) => heard), Array(3).fill([1, 2, 3]), `${transport} ${end}`);
      assert.deepEqual(left.map(({ versions }) => versions.map(({ n }) => n)), Array(3).fill([1, 2]));
      assert.deepEqual(left.flatMap(({ errors }) => errors), []);
      for (const tab of left) tab.run(() => tab.connection.close());
    }
  }
});

test('a leader that is frozen is replaced, and follows when it goes on', async (t) => {
  const { world, server, browser, opened, check, connections } = await tabs(t, 4);
  const leader = browser.leader('websocket');
  server.say('lobby', 0);
  await world.pass(100);
  leader.isFrozen = true;
  server.publish();
  server.say('lobby', 1);
  await world.pass(6_500);
  check(opened.slice(1), 'frozen');
  assert.notEqual(browser.leader('websocket'), leader);
  server.say('lobby', 2);
  await world.pass(60_000);
  leader.isFrozen = false;
  await world.pass(3_000);
  check(opened, 'thawed');
  assert.equal(connections(), 1);
  assert.deepEqual(opened.map(({ heard }) => heard), Array(4).fill([0, 1, 2]));
  assert.deepEqual(opened.flatMap(({ errors }) => errors), []);
});

test('a tab that was away receives what it missed, and the others receive nothing twice', async (t) => {
  const { world, server, opened, check } = await tabs(t, 3);
  const [, , away] = opened;
  server.say('lobby', 1);
  await world.pass(100);
  away.run(() => away.connection.pause());
  for (let n = 2; n <= 300; n++) server.say('lobby', n);
  await world.pass(5_000);
  away.run(() => away.connection.resume());
  await world.pass(2_000);
  check(opened, 'returned');
  const all = Array.from({ length: 300 }, (_, n) => n + 1);
  assert.deepEqual(opened.map(({ heard }) => heard), [all, all, all]);
});

test('another user, nobody signed in, and a newer token of the same user', async (t) => {
  const told = [];
  const token = ['anna.1', 'anna.2', 'ben.1', undefined];
  const asked = [];
  const { world, server, opened, open, check, connections } = await tabs(t, 0);
  for (const n of token.keys()) {
    const tab = open({ getToken: ({ reason }) => {
      asked.push(`${n} ${reason}`);
      return token[n];
    } });
    tab.connection.on('message', (data) => told.push([n, data]));
    await world.pass(100);
  }
  await world.pass(1_000);
  check(opened, 'opened');
  assert.equal(connections(), 3, 'Anna\'s tabs share one');
  for (const socket of server.sockets) socket.say({ type: 'message', data: socket.token ?? 'nobody' });
  await world.pass(100);
  assert.deepEqual(told.sort(), [[0, 'anna.1'], [1, 'anna.1'], [2, 'ben.1'], [3, 'nobody']]);
  // One tab renews the token for all.
  for (const socket of server.sockets) if (socket.token === 'anna.1') socket.say({ type: 'token_expiring' });
  token[0] = 'anna.3';
  await world.pass(100);
  assert.deepEqual(asked.slice(token.length), ['0 expiring']);
  assert.ok(server.received.some(({ type, token }) => type === 'auth' && token === 'anna.3'));
  // The user of the tab that leads signs out, and Ben signs in.
  token[0] = 'ben.2';
  opened[0].run(() => opened[0].connection.reconnect());
  told.length = 0;
  await world.pass(3_000);
  check(opened, 'signed out');
  for (const socket of server.sockets) socket.say({ type: 'message', data: socket.token ?? 'nobody' });
  await world.pass(100);
  assert.deepEqual(told.filter(([n]) => n < 2).sort(), [[0, 'ben.2'], [1, 'anna.2']]);
});

test('tabs with other options or another transport share nothing, and none do without locks', async (t) => {
  const { connections, opened, open, world, check } = await tabs(t, 2);
  open({ heartbeatTimeoutMs: 60_000 });
  open({ locks: null, BroadcastChannel: null });
  open({ transport: 'sse' });
  await world.pass(1_000);
  check(opened, 'all');
  assert.equal(connections(), 4);
});

test('a dead connection is noticed by a check, and all tabs return', async (t) => {
  for (const transport of ['websocket', 'sse']) {
    const { world, server, opened, check, connections } = await tabs(t, 3, { transport });
    world.move();
    server.publish();
    world.say('online');
    await world.pass(6_000);
    check(opened, transport);
    server.stop();
    await world.pass(2_000);
    assert.ok(opened.every(({ feed }) => feed.state === 'stale'));
    server.isUp = true;
    server.publish();
    await world.pass(30_000);
    check(opened, transport);
    assert.equal(connections(), 1);
    assert.deepEqual(opened.flatMap(({ errors }) => errors), []);
    for (const tab of opened) tab.run(() => tab.connection.close());
  }
});

test('while nothing happens, all tabs together send one ping per `ping_ms` at most', async (t) => {
  const { world, server } = await tabs(t, 6);
  await world.pass(600_000);
  const pings = server.received.filter(({ type }) => type === 'ping').length;
  assert.ok(pings > 0 && pings <= 24, `${pings} pings`);
});

test('a transport whose library is missing, and a server that is silent', async (t) => {
  const { world, opened, open } = await tabs(t, 0);
  open({ WebSocket: class { constructor() { throw new Error('no WebSocket'); } } });
  await world.pass(1_000);
  assert.deepEqual([opened[0].connection.state, opened[0].feed.reason], ['refused', 'no WebSocket']);
  world.server.socketDelayMs = 1_000_000;
  const reasons = [];
  const tab = open();
  tab.connection.on('state', (state, { reason }) => reason && reasons.push(reason));
  await world.pass(12_000);
  assert.equal(reasons[0], 'the server is silent');
});

test('where the browser refuses locks, each tab has a connection', async (t) => {
  let requests = 0;
  // A client that asks for ever would hang the test.
  const request = () => new Promise((_, reject) => {
    requests += 1;
    if (requests <= 100) reject(new DOMException('access to the Locks API is denied in this context', 'SecurityError'));
  });
  const { opened, check, connections } = await tabs(t, 2, { locks: { request } });
  check(opened, 'opened');
  assert.equal(connections(), 2);
  assert.ok(requests < 100, `${requests} requests`);
});

// all/client-shared.test.mjs has more of them.
randomTests(50);
