// Socket.IO clients that reconnect to another node: they keep their id and rooms, and receive what they missed, while the node that served them lives.
import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { io } from 'socket.io-client';
import { event, feedsFrom, until, upstream, within } from '../harness.mjs';
import { admin, samples } from '../admin.mjs';
import { known, meet, node, nodes, onEachEngine } from '../nodes.mjs';
import { missing as withoutRedis, redis } from '../redis.mjs';
import { cut, reconnect, socketIo } from '../sockets.mjs';

/** Nodes whose rooms keep so many messages. */
const cluster = (t, engine, names, history = 0, feeds = '') => Promise.all(names.map((name) => node(t, engine, name, `[socketio]
recovery_ttl = "1min"
namespaces = ["/chat"]
[rooms]
history_length = ${history}
${feeds}`)));

const publish = (server, room, data) => admin(server, 'publish', { room, event: 'news', data });

/** How often this node's clients looked for a socket of another one, by outcome. */
const recoveries = async (server) => {
  const found = Object.entries(await samples(server, 'cluster_recoveries_total')).filter(([, count]) => count > 0);
  return Object.fromEntries(found.map(([labels, count]) => [/"(\w+)"/.exec(labels)[1], count]));
};

/** A client that stays away until it is told to connect. */
async function client(t, server, rooms = [], { way = 'websocket', namespace = '' } = {}) {
  const socket = await socketIo(t, server.http, { namespace, rooms, transports: [way] });
  socket.news = [];
  for (const name of ['news', 'say']) socket.on(name, (data) => socket.news.push(data));
  return socket;
}

onEachEngine('while messages are published on all nodes, clients that move by any transport receive each once and in order', async (t, start) => {
  const engine = await start(t);
  const servers = await cluster(t, engine, ['a', 'b', 'c']);
  await known(servers);
  // A room of all, and one for each client, in which other nodes have no interest before it comes.
  const own = Array.from({ length: 6 }, (_, n) => `own ${n}`);
  const rooms = ['red', ...own];
  const moving = await Promise.all(own.map((room, n) => client(t, servers[n % 3], ['red', room], { way: ['websocket', 'polling'][n % 2] })));
  const ids = moving.map(({ id }) => id);
  const publishers = await Promise.all(servers.map((server) => client(t, server)));
  await meet(servers, moving, 'red');
  for (const [n, socket] of moving.entries()) await meet(servers, [socket], own[n]);
  let runs = true;
  const publishing = publishers.map(async (publisher, from) => {
    let n = 0;
    for (; runs; n++) {
      publisher.emit('say', { room: rooms[n % rooms.length], from, n });
      if (n % 10 === 0) await passed(10);
    }
    return n;
  });
  await Promise.all(moving.map(async (socket, at) => {
    for (let step = 1; step <= 20; step++) {
      await passed(20 * Math.random());
      await cut(socket);
      await passed(30 * Math.random());
      // Now and then back to the node that it comes from.
      const server = servers[(at + step - Math.floor(step / 5)) % 3];
      assert.ok(await reconnect(socket, server), `client ${at}, step ${step}: ${JSON.stringify(await recoveries(server))}`);
      assert.equal(socket.id, ids[at]);
    }
  }));
  runs = false;
  const counts = await Promise.all(publishing);
  const sent = (room) => counts.map((count) => Array.from({ length: Math.ceil((count - rooms.indexOf(room)) / rooms.length) }, (_, i) => rooms.indexOf(room) + i * rooms.length));
  for (const [n, socket] of moving.entries()) {
    const received = (room) => servers.map((_, from) => socket.news.filter((data) => data.room === room && data.from === from).map((data) => data.n));
    const expected = [sent('red'), sent(own[n])];
    const total = expected.flat(2).length;
    await until(() => `${total} messages: ${JSON.stringify([received('red'), received(own[n])])}`, () => socket.news.length >= total);
    assert.deepEqual([received('red'), received(own[n])], expected, `client ${n}`);
    assert.equal(socket.news.length, total);
  }
  // A client is found by its id from any node, with its rooms; a client that leaves doesn't come back.
  const [socket] = moving;
  for (const server of servers) {
    const named = event(socket, 'named');
    assert.deepEqual(await admin(server, 'emit', { sessions: [socket.id], event: 'named', data: 1 }), { sessions: 1 });
    assert.equal((await named)[0], 1);
    const { sessions } = await admin(server, 'sessions', { sessions: [socket.id] });
    assert.deepEqual(sessions[0].rooms.sort(), ['own 0', 'red']);
  }
  socket.disconnect();
  await until('it has left', async () => (await admin(servers[0], 'sessions', { rooms: ['own 0'] })).count === 0);
  assert.equal(await reconnect(socket, servers[1]), false);
  assert.notEqual(socket.id, ids[0]);
});

/** Another client that presents what a client knows. */
function impostor(t, server, { _pid, _lastOffset }) {
  const socket = io(server.http, { forceNew: true, transports: ['websocket'], reconnection: false, autoConnect: false });
  t.after(() => socket.disconnect());
  Object.assign(socket, { _pid, _lastOffset, news: [] });
  socket.on('news', (data) => socket.news.push(data));
  const connected = event(socket, 'connect');
  socket.connect();
  return within(connected, 'the connection').then(() => socket);
}

onEachEngine('a client that reconnects before its connection is lost is recovered, and the connection ends', async (t, start) => {
  const engine = await start(t);
  const servers = await cluster(t, engine, ['a', 'b']);
  await known(servers);
  const before = await client(t, servers[0], ['red']);
  await meet(servers, [before], 'red');
  const ended = event(before, 'disconnect');
  const after = await impostor(t, servers[1], before);
  assert.deepEqual([after.recovered, after.id], [true, before.id ?? after.id]);
  await within(ended, 'the end');
  await publish(servers[0], 'red', 1);
  await until('the message', () => after.news.length === 1);
  assert.deepEqual(before.news, []);
  // A pid that was shown already moves the session again: it is a secret of one client.
  const left = event(after, 'disconnect');
  const replayed = await impostor(t, servers[0], after);
  assert.equal(replayed.recovered, true);
  await within(left, 'the end');
});

test('of clients that show the same pid at once, one has the session', { skip: withoutRedis }, async (t) => {
  const engine = await redis(t);
  const servers = await cluster(t, engine, ['a', 'b', 'c']);
  await known(servers);
  for (let n = 0; n < 10; n++) {
    const socket = await client(t, servers[0], ['red']);
    const known = { _pid: socket._pid, _lastOffset: socket._lastOffset };
    const { id } = socket;
    await cut(socket);
    const twins = await Promise.all([1, 2, 1, 2].map((n) => impostor(t, servers[n], known)));
    // One that is recovered later takes it over from an earlier one.
    await until('one has it', async () => (await admin(servers[0], 'sessions', { sessions: [id] })).count === 1 || twins.every(({ recovered }) => !recovered));
    assert.ok(twins.some(({ recovered }) => recovered), 'one is recovered');
    await until('the others have noticed', () => twins.filter((twin) => twin.connected && twin.id === id).length === 1);
    await publish(servers[2], 'red', n);
    const owner = twins.find((twin) => twin.connected && twin.id === id);
    await until('the message', () => owner.news.length === 1);
    for (const twin of twins) twin.disconnect();
  }
});

test('when the node that served a client is killed, the client begins anew at once', { skip: withoutRedis }, async (t) => {
  const engine = await redis(t);
  const servers = await cluster(t, engine, ['a', 'b', 'c']);
  await known(servers);
  const [first, moved] = await Promise.all([client(t, servers[0], ['red']), client(t, servers[0], ['red'])]);
  // One was served by another node at last, and isn't affected.
  const { id } = moved;
  await cut(moved);
  assert.equal(await reconnect(moved, servers[1]), true);
  const gone = event(first, 'disconnect');
  servers[0].child.kill('SIGKILL');
  await gone;
  await until('the dead node is forgotten', async () => (await nodes(servers[2])).length === 2);
  assert.equal(await reconnect(first, servers[2]), false);
  await within(first.emitWithAck('join', 'red'), 'the answer to join');
  await cut(moved);
  await publish(servers[1], 'red', 'missed');
  assert.equal(await reconnect(moved, servers[2]), true);
  assert.equal(moved.id, id);
  await until('the message', () => moved.news.length === 1);
  // Neither waited for the timeout.
  assert.deepEqual(await recoveries(servers[2]), { found: 1, not_found: 1 });
});

onEachEngine('rooms with history, feeds and namespaces move as well', async (t, start) => {
  const engine = await start(t);
  const { documents, url } = await upstream(t);
  documents.set('game', { version: 1 });
  const servers = await cluster(t, engine, ['a', 'b', 'c'], 100, feedsFrom(url));
  await known(servers);
  const main = await client(t, servers[0], ['log']);
  // One connection, two namespaces: each has a pid of its own.
  const chat = main.io.socket('/chat');
  chat.news = [];
  chat.on('say', (data) => chat.news.push(data));
  await event(chat, 'connect');
  await within(chat.emitWithAck('join', 'log'), 'the answer to join');
  const versions = [];
  main.on('feed', ({ data }) => data && versions.push(data.version));
  await within(main.emitWithAck('subscribe', 'game'), 'the answer to subscribe');
  await until('the document', () => versions.at(-1) === 1);
  await meet(servers, [main], 'log');
  const ids = [main.id, chat.id];
  const expected = [];
  const say = async (server, i) => {
    await publish(server, 'log', i);
    expected.push(i);
  };
  for (const [from, to] of [[0, 1], [1, 2], [2, 0], [0, 1]]) {
    await cut(main);
    for (let i = 0; i < 5; i++) await say(servers[from], `${from} ${i}`);
    const publishing = (async () => {
      for (let i = 5; i < 25; i++) await say(servers[i % 3], `${from} ${i}`);
    })();
    const version = versions.length;
    // It connects as soon as the connection is open.
    const reconnected = event(chat, 'connect');
    const recovered = await reconnect(main, servers[to]);
    await reconnected;
    assert.deepEqual([recovered, chat.recovered, main.id, chat.id], [true, true, ...ids], `${from} to ${to}`);
    await publishing;
    await admin(servers[from], 'publish', { room: 'log', namespace: '/chat', event: 'say', data: { to } });
    await until('the messages', () => main.news.length >= expected.length && chat.news.at(-1)?.to === to && versions.length > version);
    assert.deepEqual(main.news, expected, `${from} to ${to}`);
  }
  assert.equal(chat.news.length, 4);
  documents.set('game', { version: 2 });
  await until('the next version', () => versions.at(-1) === 2);
});
