// Three nodes on a real Redis, with real clients on each: rooms, commands of the admin API, a node that dies, an engine that is away.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import test from 'node:test';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { event, inbox, introduced, run, serve, within } from './harness.mjs';
import { missing, redis, until } from './redis.mjs';

const skip = missing;
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

test('rooms span nodes, for every protocol and publisher', { skip }, async (t) => {
  const engine = await redis(t);
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
  // From each node, in order, once: to its own members and to those of the others, but not to the sender.
  for (const [n, sender] of sockets.entries()) {
    const others = sockets.filter((socket) => socket !== sender);
    const last = others.map((socket) => new Promise((resolve) => socket.on('say', (data) => data.n === 99 && resolve())));
    for (let i = 0; i < 100; i++) sender.emit('say', { room: 'lobby', from: n, n: i });
    await within(Promise.all(last), `100 messages of client ${n}`);
    for (const socket of others) {
      const numbers = socket.seen.filter(([name, data]) => name === 'say' && data.from === n).map(([, data]) => data.n);
      assert.deepEqual(numbers, Array.from({ length: 100 }, (_, i) => i));
    }
    await messages.until((message) => message.data?.from === n && message.data.n === 99);
  }
  for (const socket of sockets) assert.equal(socket.seen.filter(([name]) => name === 'say').length, 200, 'nothing twice, nothing to its sender');
  // Binary, from the backend of any node.
  const binary = sockets.map((socket) => event(socket, 'news'));
  await post(servers[1], 'publish', { room: 'lobby', event: 'news', data: { text: 'Ä "quoted"' } });
  for (const [data] of await Promise.all(binary)) assert.deepEqual(data, { text: 'Ä "quoted"' });
});

test('commands of the admin API concern the sessions of all nodes', { skip }, async (t) => {
  const engine = await redis(t);
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

test('a node that dies is named, then forgotten, and nobody else notices', { skip }, async (t) => {
  const engine = await redis(t);
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name)));
  const [first, second] = await Promise.all([member(t, servers[0], 'red'), member(t, servers[1], 'red')]);
  await meet(servers.slice(0, 2), [first, second], 'red');
  await known(servers);
  servers[2].child.kill('SIGSTOP');
  t.after(() => servers[2].child.kill('SIGCONT'));
  assert.deepEqual(await post(servers[0], 'join', { rooms: ['red'], join: ['green'] }), { sessions: 2, missing_nodes: ['c'] });
  servers[2].child.kill('SIGKILL');
  await until('the dead node is forgotten', async () => (await nodes(servers[0])).length === 2);
  assert.deepEqual(await post(servers[0], 'join', { rooms: ['red'], join: ['blue'] }), { sessions: 2 });
  const news = event(second, 'news');
  await post(servers[0], 'publish', { room: 'red', event: 'news', data: 1 });
  assert.deepEqual(await news, [1]);
});

test('while the engine is away each node serves its own clients, and all of them when it is back', { skip }, async (t) => {
  const engine = await redis(t);
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

test('strangers on the same engine are refused, and other clusters are apart', { skip }, async (t) => {
  const engine = await redis(t);
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

test('an engine that is not there is a clear error, and no secret is in it', { skip }, async (t) => {
  const engine = await redis(t);
  const start = (url) => run('serve', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--config', url);
  const { mkdtempSync, rmSync, writeFileSync } = await import('node:fs');
  const { tmpdir } = await import('node:os');
  const folder = mkdtempSync(`${tmpdir()}/stentor-`);
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const wrong = [
    ['redis://127.0.0.1:1', /can't join the cluster at redis:\/\/127\.0\.0\.1:1/],
    [`redis://:topsecret@127.0.0.1:${engine.port}`, /can't join the cluster at redis:\/\/…@127\.0\.0\.1/],
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
