// Three nodes on a real Redis or NATS, with real clients on each: rooms, commands of the admin API, a node that dies, an engine that is away.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { applied, event, feedsFrom, inbox, introduced, run, serve, upstream, within } from './harness.mjs';
import { missing as withoutNats, nats } from './nats.mjs';
import { missing as withoutRedis, redis, until } from './redis.mjs';

const SECRET = 'known to all nodes';

const config = (url, name, more = '') => `
[cluster]
engine = "${url}"
node = "${name}"
secret = "${SECRET.replaceAll(' ', '-')}"
${more}
[[rules]]
event = "join"
join = ["{}"]
ack = true
[[rules]]
event = "say"
broadcast = ["{room}"]
ack = true
`;

const node = (t, engine, name, more) => serve(t, { config: config(engine.url, name, more) });

/** A test on each engine. */
const onEachEngine = (what, body) => {
  test(`${what} (Redis)`, { skip: withoutRedis }, (t) => body(t, redis));
  test(`${what} (NATS)`, { skip: withoutNats }, (t) => body(t, nats));
};

const post = async (server, path, body) => {
  const response = await fetch(`${server.admin}/api/v1/${path}`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer));
  return answer;
};

const nodes = async (server) => (await (await fetch(`${server.admin}/api/v1/nodes`)).json()).nodes;

const metric = async (server, name) => {
  const text = await (await fetch(`${server.admin}/metrics`)).text();
  return Number(new RegExp(`^stentor_${name}(?:\\{.*\\})? (\\S+)$`, 'm').exec(text)?.[1]);
};

/** Until each node knows the others. */
const known = (servers) => Promise.all(servers.map((server) => until('all nodes are known', async () => (await nodes(server)).length === servers.length)));

async function member(t, server, room, options = {}) {
  const socket = io(server.http, { forceNew: true, transports: ['websocket'], ...options });
  t.after(() => socket.disconnect());
  socket.seen = [];
  socket.onAny((...args) => socket.seen.push(args));
  await event(socket, 'connect');
  await within(socket.emitWithAck('join', room), 'the answer to join');
  return socket;
}

/** Publishes at every node until every client has heard from each of them: then interest has spread. */
async function meet(servers, sockets, room) {
  const heard = servers.flatMap((_, n) => sockets.map((socket) => new Promise((resolve) => socket.on(`ready ${n}`, resolve))));
  await introduced(() => Promise.all(servers.map((server, n) => post(server, 'publish', { room, event: `ready ${n}`, data: 1 }))), heard);
}

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

/** A client that has what it receives of a feed, by deltas. */
async function follow(t, server, feed) {
  const socket = new WebSocket(`${server.ws}/ws`);
  t.after(() => socket.terminate());
  const follower = { version: 0, deltas: 0, epochs: new Set(), positions: [], states: [] };
  let value;
  socket.on('message', (data) => {
    const message = JSON.parse(data);
    if (message.type === 'snapshot') value = message.data;
    else if (message.type === 'delta') {
      value = message.patch.reduce(applied, value);
      follower.deltas += 1;
    } else {
      if (message.type === 'state') follower.states.push(message.state);
      return;
    }
    assert.ok(value.version >= follower.version, 'the feed went back');
    follower.version = value.version;
    follower.epochs.add(message.epoch);
    follower.positions.push(message.offset);
  });
  await once(socket, 'open');
  socket.send(JSON.stringify({ id: 1, type: 'subscribe', feed, delta: true }));
  return follower;
}

onEachEngine('a document that is pushed to any node reaches all, and is there when that node has died', async (t, startEngine) => {
  const engine = await startEngine(t);
  const start = (name) => node(t, engine, name, '[[feeds]]\nname = "live"\nprefix = "live/"\npush = true\n');
  const servers = await Promise.all(['a', 'b', 'c'].map(start));
  const send = async (server, method, version, query = '') => {
    const body = version && JSON.stringify({ version, filler: 'x'.repeat(2000) });
    const response = await fetch(`${server.admin}/api/v1/feeds/live/1${query}`, { method, body, headers: { 'Content-Type': 'application/json' } });
    const { changed, code } = await response.json();
    return changed ?? code;
  };
  const followers = await Promise.all(servers.slice(0, 2).map((server) => follow(t, server, 'live/1')));
  for (let version = 1; version <= 20; version++) {
    assert.equal(await send(servers[version % 3], 'PUT', version), true);
    await until(`version ${version} everywhere`, () => followers.every((follower) => follower.version === version));
  }
  assert.equal(await send(servers[0], 'PUT', 20), false);
  assert.deepEqual(followers.map(({ epochs, deltas }) => [epochs.size, deltas]), [[1, 19], [1, 19]]);
  assert.deepEqual(followers[0].positions, followers[1].positions);
  assert.equal(await send(servers[0], 'PUT', 21, '?sequence=7'), true);
  assert.equal(await send(servers[1], 'PUT', 22, '?sequence=6'), 'sequence');
  assert.equal(await send(servers[2], 'PUT', 23, '?sequence=8'), true);
  servers[2].child.kill('SIGKILL');
  servers[2] = await start('d');
  followers.push(await follow(t, servers[2], 'live/1'));
  await until('the new node has it', () => followers.every(({ version }) => version === 23));
  assert.deepEqual([...followers[2].epochs], [...followers[0].epochs]);
  assert.equal(await send(servers[1], 'DELETE'), true);
  await until('all know that it is deleted', () => followers.every(({ states }) => states.includes('not_found')));
  assert.equal(await send(servers[2], 'DELETE'), 'not_found');
  await engine.stop();
  assert.equal(await send(servers[0], 'PUT', 24), 'unavailable');
});

onEachEngine('one node fetches a feed for all, and another one when it dies', async (t, startEngine) => {
  const engine = await startEngine(t);
  const { documents, requests, url } = await upstream(t);
  documents.set('game', { version: 1, filler: 'x'.repeat(2000) });
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name, feedsFrom(url))));
  const followers = [];
  for (const server of servers) followers.push(await follow(t, server, 'game'));
  await until('all have the document', () => followers.every(({ version }) => version === 1));
  for (let version = 2; version <= 20; version++) {
    documents.set('game', { version, filler: 'x'.repeat(2000) });
    await until(`version ${version} everywhere`, () => followers.every((follower) => follower.version === version));
  }
  assert.deepEqual(followers.map(({ epochs }) => epochs.size), [1, 1, 1]);
  assert.ok(followers.every(({ deltas }) => deltas >= 15), JSON.stringify(followers));
  assert.deepEqual(followers[0].positions.slice(-5), followers[2].positions.slice(-5));
  const leases = await Promise.all(servers.map((server) => metric(server, 'cluster_leases')));
  assert.deepEqual([...leases].sort(), [0, 0, 1]);
  // One fetch per interval for all nodes, not one for each.
  const holder = leases.indexOf(1);
  const fetched = await Promise.all(servers.map(async (server) => (await (await fetch(`${server.admin}/api/v1/status`)).json()).upstreams[0].fetches));
  assert.ok(fetched.every((count, n) => n === holder || count === 0), JSON.stringify(fetched));
  assert.equal(fetched[holder] <= requests.get('game'), true);
  servers[holder].child.kill('SIGKILL');
  documents.set('game', { version: 100, filler: 'x'.repeat(2000) });
  await until('another node fetches it', () => followers.every(({ version }, n) => n === holder || version === 100));
  assert.deepEqual(followers.map(({ epochs }) => epochs.size), [1, 1, 1], 'it goes on in the same epoch');
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

onEachEngine('a client of a feed resumes on any node, over SSE, with /feed?wait and with stentor.v1', async (t, start) => {
  const engine = await start(t);
  const { documents, url } = await upstream(t);
  const filler = 'x'.repeat(2000);
  documents.set('game', { version: 1, filler });
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name, feedsFrom(url))));
  /** Events of a stream on a node, until it is ended: { next, end }. */
  const stream = async (server, id) => {
    const controller = new AbortController();
    t.after(() => controller.abort());
    const headers = id ? { 'Last-Event-ID': id } : {};
    const response = await fetch(`${server.http}/sse?feed=game&delta=1`, { headers, signal: controller.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    const next = async () => {
      for (;;) {
        const end = text.indexOf('\n\n');
        const block = text.slice(0, end);
        if (end >= 0) text = text.slice(end + 2);
        const field = (name) => new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1];
        if (end >= 0 && field('data')) return { name: field('event'), id: field('id'), data: JSON.parse(field('data')) };
        if (end < 0) text += (await within(reader.read(), 'an event')).value;
      }
    };
    return { next, end: () => controller.abort() };
  };
  // It stays, so that one node goes on fetching.
  const first = await stream(servers[0]);
  let { name, id, data } = await first.next();
  assert.deepEqual([name, data.version], ['snapshot', 1]);
  // To nodes that haven't had the feed, and back, with what was missed as one delta.
  for (const [n, version] of [[1, 2], [2, 3], [0, 4]]) {
    documents.set('game', { version, filler });
    const resumed = await stream(servers[n], id);
    ({ name, id, data } = await resumed.next());
    assert.deepEqual([name, data.patch], ['delta', [{ op: 'replace', path: '/version', value: version }]], `on node ${n}`);
    resumed.end();
    assert.equal((await first.next()).id, id);
  }
  // Nothing is sent that the client has.
  const current = await stream(servers[1], id);
  documents.set('game', { version: 5, filler });
  ({ name, id, data } = await current.next());
  assert.deepEqual([name, data.patch[0].value], ['delta', 5]);

  const get = async (server, query = '', headers = {}) => {
    const response = await within(fetch(`${server.http}/feed/game${query}`, { headers }), 'the response');
    const body = await response.text();
    return { status: response.status, tag: response.headers.get('etag'), version: body && JSON.parse(body).version };
  };
  // A document has the same tag on each node, once that has it.
  for (const server of servers) await until('version 5 everywhere', async () => (await get(server)).version === 5);
  const { tag } = await get(servers[0]);
  for (const server of servers.slice(1)) assert.deepEqual(await get(server, '', { 'If-None-Match': tag }), { status: 304, tag, version: '' });
  const waits = servers.map((server) => get(server, `?wait=${encodeURIComponent(tag)}`));
  let answered = false;
  waits.forEach((wait) => wait.then(() => { answered = true; }));
  await get(servers[0]);
  assert.equal(answered, false);
  documents.set('game', { version: 6, filler });
  for (const { status, version } of await Promise.all(waits)) assert.deepEqual([status, version], [200, 6]);

  const [, epoch, offset] = id.split('!').map((part) => Number.parseInt(part, 16));
  for (const server of servers) {
    const socket = new WebSocket(`${server.ws}/ws`);
    t.after(() => socket.terminate());
    const messages = inbox(socket);
    await once(socket, 'open');
    socket.send(JSON.stringify({ id: 1, type: 'subscribe', feed: 'game', delta: true, epoch, offset }));
    const message = await within(messages.until(({ type }) => type === 'delta' || type === 'snapshot'), 'what was missed');
    assert.deepEqual([message.type, message.base, message.patch], ['delta', offset, [{ op: 'replace', path: '/version', value: 6 }]]);
  }
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
