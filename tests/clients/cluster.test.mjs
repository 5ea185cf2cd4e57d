// Three nodes on a real Redis or NATS, with real clients on each: rooms, commands of the admin API, a node that dies, an engine that is away.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import WebSocket from 'ws';
import { event, inbox, run, serve, within } from './harness.mjs';
import { config, known, meet, member, metric, node, nodes, onEachEngine, post } from './nodes.mjs';
import { missing as withoutRedis, redis, until } from './redis.mjs';

onEachEngine('rooms span nodes, for every protocol and publisher', async (t, startEngine) => {
  const engine = await startEngine(t);
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name)));
  const sockets = await Promise.all([
    member(t, servers[0], 'lobby'),
    member(t, servers[1], 'lobby', { transports: ['polling'] }),
    member(t, servers[2], 'lobby'),
  ]);
  await meet(servers, sockets, 'lobby');
  const plain = new WebSocket(`${servers[2].ws}/ws`);
  t.after(() => plain.terminate());
  const messages = inbox(plain);
  await once(plain, 'open');
  plain.send(JSON.stringify({ id: 1, type: 'subscribe', room: 'lobby' }));
  await messages.until((message) => message.type === 'ok');
  // From each node, in order, once: to its own members, the sender among them, and to those of the others.
  for (const [n, sender] of sockets.entries()) {
    const last = sockets.map((socket) => new Promise((resolve) => socket.on('say', (data) => data.n === 99 && resolve())));
    for (let i = 0; i < 100; i++) sender.emit('say', { room: 'lobby', from: n, n: i });
    await within(Promise.all(last), `100 messages of client ${n}`);
    for (const socket of sockets) {
      const numbers = socket.seen.filter(([name, data]) => name === 'say' && data.from === n).map(([, data]) => data.n);
      assert.deepEqual(numbers, Array.from({ length: 100 }, (_, i) => i));
    }
    await messages.until((message) => message.data?.from === n && message.data.n === 99);
  }
  for (const socket of sockets) assert.equal(socket.seen.filter(([name]) => name === 'say').length, 300, 'nothing twice');
  const news = sockets.map((socket) => event(socket, 'news'));
  await post(servers[1], 'publish', { room: 'lobby', event: 'news', data: { text: 'Ä "quoted"' } });
  for (const [data] of await Promise.all(news)) assert.deepEqual(data, { text: 'Ä "quoted"' });
});

onEachEngine('commands of the admin API concern the sessions of all nodes', async (t, startEngine) => {
  const engine = await startEngine(t);
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name)));
  const sockets = await Promise.all(servers.map((server) => member(t, server, 'red')));
  await meet(servers, sockets, 'red');
  await known(servers);
  assert.deepEqual((await nodes(servers[0])).map(({ name, this: own }) => [name, own]).sort(), [['a', true], ['b', false], ['c', false]]);
  assert.deepEqual(await post(servers[0], 'join', { rooms: ['red'], join: ['green'] }), { sessions: 3 });
  const list = await post(servers[1], 'sessions', { rooms: ['green'] });
  assert.deepEqual([list.count, list.sessions.map(({ id }) => id).sort()], [3, sockets.map(({ id }) => id).sort()]);
  assert.deepEqual(list.sessions.map(({ rooms }) => rooms.filter((room) => room === 'green' || room === 'red').sort()), Array(3).fill(['green', 'red']));
  // A session by its id, wherever it is, and the others by an exception.
  const personal = event(sockets[2], 'personal');
  assert.deepEqual(await post(servers[0], 'emit', { sessions: [sockets[2].id], event: 'personal', data: 7 }), { sessions: 1 });
  assert.deepEqual(await personal, [7]);
  assert.deepEqual(await post(servers[0], 'leave', { rooms: ['green'], except: { sessions: [sockets[1].id] }, leave: ['green'] }), { sessions: 2 });
  const { rooms } = await (await fetch(`${servers[2].admin}/api/v1/rooms`)).json();
  assert.deepEqual(rooms, [{ name: 'green', sessions: 1 }, { name: 'red', sessions: 3 }]);
  const ended = sockets.map((socket) => event(socket, 'disconnect'));
  assert.deepEqual(await post(servers[1], 'disconnect', { rooms: ['red'], close: true }), { sessions: 3 });
  for (const [reason] of await Promise.all(ended)) assert.equal(reason, 'io server disconnect');
});

onEachEngine('a node that dies is named, then forgotten, and nobody else notices', async (t, startEngine) => {
  const engine = await startEngine(t);
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name)));
  const [first, second, third] = await Promise.all(servers.map((server) => member(t, server, 'red')));
  await meet(servers, [first, second, third], 'red');
  await known(servers);
  const listed = async () => {
    const { count, sessions, missing_nodes: missing } = await post(servers[0], 'sessions', { rooms: ['red'] });
    return { count, ids: sessions.map(({ id }) => id).sort(), missing };
  };
  const ids = (...sockets) => sockets.map(({ id }) => id).sort();
  assert.deepEqual(await listed(), { count: 3, ids: ids(first, second, third), missing: undefined });
  // What a stopped node's members are is unknown, until it goes on.
  servers[2].child.kill('SIGSTOP');
  await until('it is missing', async () => (await listed()).missing);
  assert.deepEqual(await listed(), { count: 2, ids: ids(first, second), missing: ['c'] });
  servers[2].child.kill('SIGCONT');
  await until('it answers again', async () => !(await listed()).missing);
  assert.deepEqual(await listed(), { count: 3, ids: ids(first, second, third), missing: undefined });
  servers[2].child.kill('SIGSTOP');
  t.after(() => servers[2].child.kill('SIGCONT'));
  // A thread of it may answer once more before it stops.
  let answer;
  await until('it no longer answers', async () => {
    answer = await post(servers[0], 'join', { rooms: ['red'], join: ['green'] });
    return answer.missing_nodes;
  });
  assert.deepEqual(answer, { sessions: 2, missing_nodes: ['c'] });
  servers[2].child.kill('SIGKILL');
  await until('the dead node is forgotten', async () => (await nodes(servers[0])).length === 2);
  assert.deepEqual(await post(servers[0], 'join', { rooms: ['red'], join: ['blue'] }), { sessions: 2 });
  assert.deepEqual(await listed(), { count: 2, ids: ids(first, second), missing: undefined });
  const news = event(second, 'news');
  await post(servers[0], 'publish', { room: 'red', event: 'news', data: 1 });
  assert.deepEqual(await news, [1]);
});

onEachEngine('while the engine is away each node serves its own clients, and all of them when it is back', async (t, startEngine) => {
  const engine = await startEngine(t);
  const servers = await Promise.all(['a', 'b'].map((name) => node(t, engine, name)));
  const [first, neighbor, second] = await Promise.all([member(t, servers[0], 'red'), member(t, servers[0], 'red'), member(t, servers[1], 'red')]);
  await meet(servers, [first, neighbor, second], 'red');
  await engine.stop();
  await until('the nodes notice', async () => (await metric(servers[0], 'cluster_engine_up')) === 0);
  const news = [first, neighbor].map((socket) => event(socket, 'news'));
  await post(servers[0], 'publish', { room: 'red', event: 'news', data: 'near' });
  assert.deepEqual(await Promise.all(news), [['near'], ['near']]);
  await engine.start();
  // A member that came while it was away has to be known as well.
  const late = await member(t, servers[1], 'blue');
  await meet(servers, [first, neighbor, second], 'red');
  await meet(servers, [late], 'blue');
});

onEachEngine('strangers on the same engine are refused, and other clusters are apart', async (t, startEngine) => {
  const engine = await startEngine(t);
  const [own, other] = await Promise.all([node(t, engine, 'a'), node(t, engine, 'b', 'prefix = "other:"')]);
  const stranger = await serve(t, { config: config(engine.url, 'c').replace('known', 'guess') });
  const [here, there] = await Promise.all([member(t, own, 'red'), member(t, other, 'red')]);
  await meet([own], [here], 'red');
  for (const server of [stranger, other]) await post(server, 'publish', { room: 'red', event: 'news', data: 1 });
  await until('the stranger is noticed', async () => (await metric(own, 'cluster_frames_refused_total')) >= 0
    && /reason="not_authentic"\} [1-9]/.test(await (await fetch(`${own.admin}/metrics`)).text()));
  await meet([own], [here], 'red');
  assert.deepEqual(here.seen.filter(([name]) => name === 'news'), []);
  assert.deepEqual(there.seen.filter(([name]) => name === 'news'), [['news', 1]]);
});

test('an engine that is not there is a clear error, and no secret is in it', { skip: withoutRedis }, async (t) => {
  const engine = await redis(t);
  const start = (url) => run('serve', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--config', url);
  const folder = mkdtempSync(`${tmpdir()}/stentor-`);
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const wrong = [
    ['redis://127.0.0.1:1', /can't join the cluster at redis:\/\/127\.0\.0\.1:1/],
    [`redis://nobody:topsecret@127.0.0.1:${engine.port}`, /can't join the cluster at redis:\/\/…@127\.0\.0\.1/],
    ['nats://nobody:topsecret@127.0.0.1:1', /can't join the cluster at nats:\/\/…@127\.0\.0\.1:1/],
    ['mysql://127.0.0.1', /there is no engine `mysql:\/\/`/],
  ];
  for (const [url, expected] of wrong) {
    const file = `${folder}/stentor.toml`;
    writeFileSync(file, config(url, 'a'));
    const { code, stdout, stderr } = await within(start(file), 'the end');
    assert.notEqual(code, 0);
    assert.match(stderr, expected);
    assert.doesNotMatch(stdout + stderr, /topsecret/);
  }
});

onEachEngine('rooms with history have one order on all nodes, and a client resumes on another node', async (t, startEngine) => {
  const engine = await startEngine(t);
  const history = '[rooms]\nhistory_length = 100\n';
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name, history)));
  const subscribe = async (server, since = {}) => {
    const socket = new WebSocket(`${server.ws}/ws`);
    t.after(() => socket.terminate());
    const messages = inbox(socket);
    await once(socket, 'open');
    const { session } = await messages.until((message) => message.type === 'welcome');
    socket.send(JSON.stringify({ id: 1, type: 'subscribe', room: 'log', ...since }));
    await messages.until((message) => message.type === 'ok');
    const next = () => within(messages.until((message) => message.type === 'message'), 'a message');
    return { socket, session, next };
  };
  const clients = await Promise.all(servers.map((server) => subscribe(server)));
  // Until messages reach all nodes. On NATS, a member isn't promised those that are published before.
  let reached = 0;
  let begun = 0;
  const first = Promise.all(clients.map(async ({ next }) => { await next(); reached += 1; }));
  for (; reached < 3; begun += 1) {
    await post(servers[0], 'publish', { room: 'log', data: { n: -1 } });
    await Promise.race([first, passed(50)]);
  }
  // Publishers on all nodes at once.
  await Promise.all(servers.map(async (server, n) => {
    for (let i = 0; i < 20; i++) await post(server, 'publish', { room: 'log', data: { n, i } });
  }));
  const seen = await Promise.all(clients.map(async ({ next }) => {
    const all = [];
    while (all.length < 60) {
      const message = await next();
      if (message.data.n >= 0) all.push(message);
    }
    return all;
  }));
  const line = ({ epoch, offset, data }) => `${epoch}:${offset} ${data.n} ${data.i}`;
  assert.deepEqual(seen[1].map(line), seen[0].map(line));
  assert.deepEqual(seen[2].map(line), seen[0].map(line));
  assert.deepEqual(seen[0].map(({ offset }) => offset), Array.from({ length: 60 }, (_, i) => begun + i + 1));
  // A message that isn't for all has a position as well.
  await post(servers[1], 'emit', { rooms: ['log'], data: { n: 9, i: 8 }, except: { sessions: [clients[0].session, clients[2].session] } });
  assert.deepEqual((await clients[1].next()).offset, begun + 61);
  // A request that is repeated at another node publishes nothing.
  for (const server of servers) assert.deepEqual(await post(server, 'publish', { room: 'log', data: { n: 9, i: 9 }, idempotency_key: 'order-17' }), { published: 1 });
  await post(servers[1], 'publish', { room: 'log', data: { n: 9, i: 10 } });
  for (const { next } of clients) assert.deepEqual([(await next()).data.i, (await next()).data.i], [9, 10]);
  // A node dies; its client goes to another one and receives what it missed, once.
  const { epoch, offset } = { epoch: seen[0].at(-1).epoch, offset: begun + 63 };
  servers[0].child.kill('SIGKILL');
  for (let i = 0; i < 5; i++) await post(servers[1], 'publish', { room: 'log', data: { n: 1, i: 100 + i } });
  const resumed = await subscribe(servers[2], { epoch, offset });
  for (let i = 0; i < 5; i++) {
    const message = await resumed.next();
    assert.deepEqual([message.epoch, message.offset, message.data.i], [epoch, offset + 1 + i, 100 + i]);
  }
  await post(servers[2], 'publish', { room: 'log', data: { n: 2, i: 200 } });
  assert.equal((await resumed.next()).data.i, 200);
});

onEachEngine('a message to a room with history is published when the engine has it', async (t, startEngine) => {
  const engine = await startEngine(t);
  const server = await node(t, engine, 'a', '[rooms]\nhistory_length = 100\n[limits]\ndecision_timeout = "2s"\n');
  const publish = async (n) => {
    const response = await fetch(`${server.admin}/api/v1/publish`, { method: 'POST', headers: { 'Content-Type': 'application/x-ndjson' }, body: `{"room":"log","data":${n}}\n{"room":"log","data":${n + 1}}` });
    return [response.status, await response.json()];
  };
  assert.deepEqual(await publish(1), [200, { published: 2 }]);
  await engine.stop();
  const [status, answer] = await publish(3);
  assert.deepEqual([status, answer.published, answer.error.line, answer.error.code], [503, 0, 1, 'unavailable']);
  await engine.start();
  await until('it is accepted again', async () => (await publish(5))[0] === 200);
});

onEachEngine('a user revoked on one node is out on all, and on those that start later', async (t, startEngine) => {
  const engine = await startEngine(t);
  const key = '0123456789abcdef0123456789abcdef';
  const issuer = 'https://id.example.com/';
  const auth = `
[auth]
[[auth.issuers]]
issuer = "${issuer}"
algorithms = ["HS256"]
keys = [{ secret = "${key}" }]
[[permissions]]
topics = ["user:{sub}"]
allow = ["subscribe"]
`;
  const token = (sub) => {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const now = Math.floor(Date.now() / 1000);
    const text = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ iss: issuer, sub, iat: now, exp: now + 600 })}`;
    return `${text}.${createHmac('sha256', key).update(text).digest('base64url')}`;
  };
  const start = (name) => node(t, engine, name, auth);
  const [a, b] = await Promise.all(['a', 'b'].map(start));
  await known([a, b]);
  const [revoked, other] = [token('42'), token('43')];
  /** `open`, or why not. */
  const connect = async (server, bearer) => {
    const socket = new WebSocket(`${server.ws}/ws?token=${bearer}`);
    t.after(() => socket.terminate());
    const state = await within(new Promise((resolve) => {
      socket.on('open', () => resolve('open'));
      socket.on('error', ({ message }) => resolve(message));
    }), 'the answer to the handshake');
    return [state, socket];
  };
  const [[state, socket], [, bystander]] = await Promise.all([connect(b, revoked), connect(b, other)]);
  assert.equal(state, 'open');
  const closed = once(socket, 'close');
  assert.deepEqual(await post(a, 'revocations', { subject: '42' }), { sessions: 1 });
  assert.equal((await within(closed, 'the end of the session'))[0], 4407);
  assert.equal(bystander.readyState, WebSocket.OPEN);
  assert.match((await connect(b, revoked))[0], /401/);
  const c = await start('c');
  const list = async (server) => (await (await fetch(`${server.admin}/api/v1/revocations`)).json()).revocations.map(({ subject }) => subject);
  await until('the new node has the list', async () => (await list(c)).length === 1);
  assert.deepEqual(await list(c), ['42']);
  assert.match((await connect(c, revoked))[0], /401/);
  assert.equal((await connect(c, other))[0], 'open');
});
