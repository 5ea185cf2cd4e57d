// Three nodes on a real Redis or NATS, with real clients on each: rooms, commands of the admin API, a node that dies, an engine that is away.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import test from 'node:test';
import WebSocket from 'ws';
import { admin, issuer, metric, token } from '../admin.mjs';
import { event, inbox, introduced, run, serve, temporary, until, within } from '../harness.mjs';
import { config, known, meet, member, node, nodes, onEachEngine, roomsSpanNodes } from '../nodes.mjs';
import { missing as withoutRedis, redis } from '../redis.mjs';

onEachEngine('rooms span nodes, for every protocol and publisher', (t, startEngine) => roomsSpanNodes(t, startEngine, ['a', 'b', 'c']));

onEachEngine('commands of the admin API concern the sessions of all nodes', async (t, startEngine) => {
  const engine = await startEngine(t);
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name)));
  const sockets = await Promise.all(servers.map((server) => member(t, server, 'red')));
  await meet(servers, sockets, 'red');
  await known(servers);
  assert.deepEqual((await nodes(servers[0])).map(({ name, this: own }) => [name, own]).sort(), [['a', true], ['b', false], ['c', false]]);
  assert.deepEqual(await admin(servers[0], 'join', { rooms: ['red'], join: ['green'] }), { sessions: 3 });
  const list = await admin(servers[1], 'sessions', { rooms: ['green'] });
  assert.deepEqual([list.count, list.sessions.map(({ id }) => id).sort()], [3, sockets.map(({ id }) => id).sort()]);
  assert.deepEqual(list.sessions.map(({ rooms }) => rooms.filter((room) => room === 'green' || room === 'red').sort()), Array(3).fill(['green', 'red']));
  // A session by its id, wherever it is, and the others by an exception.
  const personal = event(sockets[2], 'personal');
  assert.deepEqual(await admin(servers[0], 'emit', { sessions: [sockets[2].id], event: 'personal', data: 7 }), { sessions: 1 });
  assert.deepEqual(await personal, [7]);
  assert.deepEqual(await admin(servers[0], 'leave', { rooms: ['green'], except: { sessions: [sockets[1].id] }, leave: ['green'] }), { sessions: 2 });
  const { rooms } = await admin(servers[2], 'rooms');
  assert.deepEqual(rooms, [{ name: 'green', sessions: 1 }, { name: 'red', sessions: 3 }]);
  const ended = sockets.map((socket) => event(socket, 'disconnect'));
  assert.deepEqual(await admin(servers[1], 'disconnect', { rooms: ['red'], close: true }), { sessions: 3 });
  for (const [reason] of await Promise.all(ended)) assert.equal(reason, 'io server disconnect');
});

onEachEngine('a node that dies is named, then forgotten, and nobody else notices', async (t, startEngine) => {
  const engine = await startEngine(t);
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name)));
  const [first, second, third] = await Promise.all(servers.map((server) => member(t, server, 'red')));
  await meet(servers, [first, second, third], 'red');
  await known(servers);
  const listed = async () => {
    const { count, sessions, missing_nodes: missing } = await admin(servers[0], 'sessions', { rooms: ['red'] });
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
    answer = await admin(servers[0], 'join', { rooms: ['red'], join: ['green'] });
    return answer.missing_nodes;
  });
  assert.deepEqual(answer, { sessions: 2, missing_nodes: ['c'] });
  servers[2].child.kill('SIGKILL');
  await until('the dead node is forgotten', async () => (await nodes(servers[0])).length === 2);
  assert.deepEqual(await admin(servers[0], 'join', { rooms: ['red'], join: ['blue'] }), { sessions: 2 });
  assert.deepEqual(await listed(), { count: 2, ids: ids(first, second), missing: undefined });
  const news = event(second, 'news');
  await admin(servers[0], 'publish', { room: 'red', event: 'news', data: 1 });
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
  await admin(servers[0], 'publish', { room: 'red', event: 'news', data: 'near' });
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
  for (const server of [stranger, other]) await admin(server, 'publish', { room: 'red', event: 'news', data: 1 });
  await until('the stranger is noticed', async () => (await metric(own, 'cluster_frames_refused_total', 'not_authentic')) > 0);
  await meet([own], [here], 'red');
  assert.deepEqual(here.seen.filter(([name]) => name === 'news'), []);
  assert.deepEqual(there.seen.filter(([name]) => name === 'news'), [['news', 1]]);
});

test('an engine that is not there is a clear error, and no secret is in it', { skip: withoutRedis }, async (t) => {
  const engine = await redis(t);
  const start = (url) => run('serve', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--config', url);
  const folder = temporary(t);
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
  let begun = 0;
  await introduced(async () => {
    begun += 1;
    await admin(servers[0], 'publish', { room: 'log', data: { n: -1 } });
  }, clients.map(({ next }) => next()));
  // Publishers on all nodes at once.
  await Promise.all(servers.map(async (server, n) => {
    for (let i = 0; i < 20; i++) await admin(server, 'publish', { room: 'log', data: { n, i } });
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
  await admin(servers[1], 'emit', { rooms: ['log'], data: { n: 9, i: 8 }, except: { sessions: [clients[0].session, clients[2].session] } });
  assert.deepEqual((await clients[1].next()).offset, begun + 61);
  // A request that is repeated at another node publishes nothing.
  for (const server of servers) assert.deepEqual(await admin(server, 'publish', { room: 'log', data: { n: 9, i: 9 }, idempotency_key: 'order-17' }), { published: 1 });
  await admin(servers[1], 'publish', { room: 'log', data: { n: 9, i: 10 } });
  for (const { next } of clients) assert.deepEqual([(await next()).data.i, (await next()).data.i], [9, 10]);
  // A node dies; its client goes to another one and receives what it missed, once.
  const { epoch, offset } = { epoch: seen[0].at(-1).epoch, offset: begun + 63 };
  servers[0].child.kill('SIGKILL');
  for (let i = 0; i < 5; i++) await admin(servers[1], 'publish', { room: 'log', data: { n: 1, i: 100 + i } });
  const resumed = await subscribe(servers[2], { epoch, offset });
  for (let i = 0; i < 5; i++) {
    const message = await resumed.next();
    assert.deepEqual([message.epoch, message.offset, message.data.i], [epoch, offset + 1 + i, 100 + i]);
  }
  await admin(servers[2], 'publish', { room: 'log', data: { n: 2, i: 200 } });
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
  const auth = `[auth]${issuer}
[[permissions]]
topics = ["user:{sub}"]
allow = ["subscribe"]
`;
  const start = (name) => node(t, engine, name, auth);
  const [a, b] = await Promise.all(['a', 'b'].map(start));
  await known([a, b]);
  const [revoked, other] = [token({ sub: '42' }), token({ sub: '43' })];
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
  assert.deepEqual(await admin(a, 'revocations', { subject: '42' }), { sessions: 1 });
  assert.equal((await within(closed, 'the end of the session'))[0], 4407);
  assert.equal(bystander.readyState, WebSocket.OPEN);
  assert.match((await connect(b, revoked))[0], /401/);
  const c = await start('c');
  const list = async (server) => (await admin(server, 'revocations')).revocations.map(({ subject }) => subject);
  await until('the new node has the list', async () => (await list(c)).length === 1);
  assert.deepEqual(await list(c), ['42']);
  assert.match((await connect(c, revoked))[0], /401/);
  assert.equal((await connect(c, other))[0], 'open');
});
