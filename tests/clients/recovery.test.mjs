// Socket.IO clients that reconnect to another node: they keep their id and rooms, and receive what they missed, while the node that served them lives.
import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { io } from 'socket.io-client';
import { event, introduced, serve, within } from './harness.mjs';
import { missing, redis, until } from './redis.mjs';

const skip = missing;

const config = (url, name, secret = 'known-to-all-its-nodes', more = '') => `
[cluster]
engine = "${url}"
node = "${name}"
secret = "${secret}"
[socketio]
recovery_ttl = "1min"
namespaces = ["/chat"]
[rooms]
history_length = 0
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

const cluster = (t, engine, names, ...rest) => Promise.all(names.map((name) => serve(t, { config: config(engine.url, name, ...rest) })));

const post = async (server, path, body) => {
  const response = await fetch(`${server.admin}/api/v1/${path}`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer));
  return answer;
};

const publish = (server, room, data) => post(server, 'publish', { room, event: 'news', data });

const nodes = async (server) => (await (await fetch(`${server.admin}/api/v1/nodes`)).json()).nodes;

const known = (servers) => Promise.all(servers.map((server) => until('all nodes are known', async () => (await nodes(server)).length === servers.length)));

/** How often this node's clients looked for a socket of another one, by outcome. */
const recoveries = async (server) => {
  const text = await (await fetch(`${server.admin}/metrics`)).text();
  const found = text.matchAll(/^stentor_cluster_recoveries_total\{outcome="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries([...found].map(([, outcome, count]) => [outcome, Number(count)]).filter(([, count]) => count > 0));
};

/** A client that stays away until it is told to connect. */
async function client(t, server, rooms = [], { way = 'websocket', namespace = '' } = {}) {
  const socket = io(server.http + namespace, { forceNew: true, transports: [way], reconnection: false });
  t.after(() => socket.disconnect());
  socket.news = [];
  socket.on('news', (data) => socket.news.push(data));
  socket.on('say', (data) => socket.news.push(data));
  await within(event(socket, 'connect'), 'the connection');
  for (const room of rooms) await within(socket.emitWithAck('join', room), 'the answer to join');
  return socket;
}

/** Ends a client's connection as when a network goes away. */
async function cut(socket) {
  const { engine } = socket.io;
  const gone = event(socket, 'disconnect');
  if (engine.transport.ws) engine.transport.ws.terminate();
  else {
    engine.transport._pollXhr?.abort?.();
    engine._onClose('transport error');
  }
  await gone;
}

async function reconnect(socket, server) {
  socket.io.uri = server.http;
  const connected = event(socket, 'connect');
  socket.connect();
  await within(connected, 'the connection');
  return socket.recovered;
}

/** Publishes at every node until every client has heard from each of them: then interest has spread. */
async function meet(servers, sockets, room) {
  const heard = servers.flatMap((_, n) => sockets.map((socket) => new Promise((resolve) => socket.on(`ready ${n}`, resolve))));
  await introduced(() => Promise.all(servers.map((server, n) => post(server, 'publish', { room, event: `ready ${n}`, data: 1 }))), heard);
}

for (const way of ['websocket', 'polling']) {
  test(`by ${way}, a client is recovered on any node, again and again`, { skip }, async (t) => {
    const engine = await redis(t);
    const servers = await cluster(t, engine, ['a', 'b', 'c']);
    await known(servers);
    const socket = await client(t, servers[0], ['red', 'green'], { way });
    const { id } = socket;
    await meet(servers, [socket], 'red');
    const expected = [];
    const say = async (server, room, data) => {
      await publish(server, room, data);
      expected.push(data);
    };
    await say(servers[0], 'red', 'seen');
    await until('the first message', () => socket.news.length === 1);
    // Back to the node that it began on at the end, and to one where it was before.
    for (const [from, to] of [[0, 1], [1, 2], [2, 1], [1, 0], [0, 0], [0, 2]]) {
      await cut(socket);
      await say(servers[from], 'red', `missed on ${from}`);
      // Those of other nodes have to have arrived where the client was.
      await say(servers[from], 'green', `and in the other room`);
      assert.equal(await reconnect(socket, servers[to]), true, `${from} to ${to}`);
      assert.equal(socket.id, id);
      await say(servers[to], 'green', `on ${to}`);
      await until('the messages', () => socket.news.length >= expected.length);
      assert.deepEqual(socket.news, expected, `${from} to ${to}`);
      // By its id as well, from any node.
      for (const server of servers) {
        const named = event(socket, 'named');
        assert.deepEqual(await post(server, 'emit', { sessions: [id], event: 'named', data: to }), { sessions: 1 });
        assert.equal((await within(named, 'the event'))[0], to);
      }
    }
    assert.deepEqual(await recoveries(servers[1]), { found: 2 });
    assert.deepEqual(await recoveries(servers[0]), { found: 1 });
    const list = await post(servers[0], 'sessions', { rooms: ['red'] });
    assert.deepEqual([list.count, list.sessions[0].rooms.sort()], [1, ['green', 'red']]);
    // A client that leaves doesn't come back.
    socket.disconnect();
    assert.equal(await reconnect(socket, servers[1]), false);
    assert.notEqual(socket.id, id);
  });
}

test('while messages are published on all nodes, a client that moves receives each once and in order', { skip }, async (t) => {
  const engine = await redis(t);
  const servers = await cluster(t, engine, ['a', 'b', 'c']);
  await known(servers);
  const moving = await Promise.all([0, 1, 2, 0, 1, 2].map((n) => client(t, servers[n], ['red', 'blue'])));
  const publishers = await Promise.all(servers.map((server) => client(t, server)));
  await meet(servers, moving, 'red');
  await meet(servers, moving, 'blue');
  let runs = true;
  const counts = await (async () => {
    const publishing = publishers.map(async (publisher, from) => {
      let n = 0;
      for (; runs; n++) {
        publisher.emit('say', { room: ['red', 'blue'][n % 2], from, n });
        if (n % 5 === 0) await passed(1);
      }
      return n;
    });
    const move = async (socket, at) => {
      for (let step = 1; step <= 12; step++) {
        await passed(20 * Math.random());
        await cut(socket);
        await passed(30 * Math.random());
        assert.equal(await reconnect(socket, servers[(at + step) % 3]), true);
      }
    };
    await Promise.all(moving.map((socket, n) => move(socket, n % 3)));
    runs = false;
    return Promise.all(publishing);
  })();
  const total = counts.reduce((a, b) => a + b);
  for (const [n, socket] of moving.entries()) {
    await until(`all messages for ${n}: ${socket.news.length} of ${total}`, () => socket.news.length >= total, 10_000);
    for (const from of servers.keys()) {
      // Rooms are separate channels; within one, each publisher's messages are in order.
      for (const parity of [0, 1]) {
        const numbers = socket.news.filter((data) => data.from === from && data.n % 2 === parity).map((data) => data.n);
        assert.deepEqual(numbers, Array.from({ length: Math.ceil((counts[from] - parity) / 2) }, (_, i) => 2 * i + parity), `client ${n}, publisher ${from}`);
      }
    }
    assert.equal(socket.news.length, total);
  }
});
