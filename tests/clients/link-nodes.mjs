// Workers beside several nodes of a cluster: @stentor/socket.io with the real socket.io, and clients of each node.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Server } from 'socket.io';
import { io as connect } from 'socket.io-client';
import { attach } from '../../clients/socketio-server/src/index.js';
import { admin, metric } from './admin.mjs';
import { introduced, serve, until, within } from './harness.mjs';
import { known, SECRET } from './nodes.mjs';

const CLIENTS_PER_NODE = 3;

/** A node whose clients are served by workers. */
export const linkNode = (t, engine, name) => serve(t, {
  config: `[cluster]\nengine = "${engine.url}"\nnode = "${name}"\nsecret = "${SECRET.replaceAll(' ', '-')}"\n[[links]]\napp = "chat"\n`,
});

/** A worker beside a node: { io, link }. */
export async function linkWorker(t, server, name, options = {}) {
  const io = new Server(options);
  t.after(() => io.close());
  const link = attach(io, server.admin.replace('http', 'ws'), { name, signals: false, settle: 0 });
  io.on('connection', (socket) => {
    socket.data.who = socket.handshake.auth.who;
    socket.on('join', (room, done) => {
      socket.join(room);
      done();
    });
  });
  io.of('/x');
  await link.listen();
  return { io, link };
}

/** A client of a node. It answers events that want an answer with ten times its number. */
export async function linkClient(t, server, who, transport, seen) {
  const socket = connect(server.http, { forceNew: true, auth: { who }, transports: [transport] });
  t.after(() => socket.close());
  socket.onAny((name, ...args) => {
    if (typeof args.at(-1) === 'function') args.pop()(who * 10);
    seen.push([who, name, ...args]);
  });
  await within(new Promise((resolve) => socket.once('connect', resolve)), `client ${who}`);
  return socket;
}

/** Until each worker knows of `count` workers. */
export const peers = (workers, count) => Promise.all(workers.map(({ link }) => until(`${count} workers`, () => link.stats().peers === count)));

/** What a server of socket.io and several workers beside one node can do, workers beside two nodes can, too. */
export async function workersSpanNodes(t, startEngine) {
  const engine = await startEngine(t);
  const servers = [await linkNode(t, engine, 'a'), await linkNode(t, engine, 'b')];
  const [a, b] = await Promise.all(servers.map((server, n) => linkWorker(t, server, `worker ${n}`)));
  await peers([a, b], 2);
  const seen = [];
  const clients = [];
  for (let who = 0; who < 2 * CLIENTS_PER_NODE; who += 1) {
    clients.push(await linkClient(t, servers[Math.floor(who / CLIENTS_PER_NODE)], who, who % 2 ? 'websocket' : 'polling', seen));
  }
  const all = clients.map((_, who) => who);
  const [ofA, ofB] = [all.slice(0, CLIENTS_PER_NODE), all.slice(CLIENTS_PER_NODE)];
  const heard = [a, b].flatMap((_, n) => clients.map((client) => once(client, `ready ${n}`)));
  await introduced(() => [a, b].forEach(({ io }, n) => io.emit(`ready ${n}`)), heard);

  /** The clients that receive what `emit` sends, in the order of their numbers. The worker's next broadcast marks the end. */
  let marks = 0;
  const receivers = async ({ io }, emit, among = clients) => {
    const mark = `mark ${marks += 1}`;
    const ends = among.map((client) => once(client, mark));
    seen.length = 0;
    emit(io);
    io.emit(mark);
    await within(Promise.all(ends), mark);
    return seen.filter(([, name]) => !/^(mark|ready)/.test(name)).map(([who]) => who).sort();
  };

  // Broadcasts and rooms.
  assert.deepEqual(await receivers(a, (io) => io.emit('all', 1, Buffer.from([7]))), all);
  for (const who of all) assert.deepEqual(seen.find(([found, name]) => found === who && name === 'all'), [who, 'all', 1, Buffer.from([7])]);
  await Promise.all([ofA[0], ofB[0]].map((who) => clients[who].emitWithAck('join', 'r')));
  assert.deepEqual(await receivers(b, (io) => io.to('r').emit('room')), [ofA[0], ofB[0]]);
  assert.deepEqual(await receivers(a, (io) => io.to('r').except(clients[ofB[0]].id).emit('room')), [ofA[0]]);
  assert.deepEqual(await receivers(a, (io) => io.local.emit('local')), ofA);
  // A polling client without an open poll doesn't get it.
  const ready = await receivers(b, (io) => io.volatile.emit('volatile'));
  assert.deepEqual(ready.filter((who) => who % 2), all.filter((who) => who % 2));
  for (const [n, who] of [...ofA, ...ofB].entries()) {
    const order = Array.from({ length: 50 }, (_, i) => i);
    await receivers([a, b][n % 2], (io) => order.forEach((i) => io.to(clients[who].id).emit('n', i)));
    assert.deepEqual(seen.filter(([, name]) => name === 'n'), order.map((i) => [who, 'n', i]));
  }

  // Changes to the sockets of all nodes.
  assert.deepEqual(await receivers(a, (io) => { io.socketsJoin('j'); io.to('j').emit('joined'); }), all);
  await until('the other worker knows the room', () => b.io.of('/').adapter.rooms.get('j')?.size === CLIENTS_PER_NODE);
  assert.deepEqual(await receivers(a, (io) => { io.socketsLeave('j'); io.to('j').emit('left'); }), []);
  await until('the other worker has forgotten the room', () => !b.io.of('/').adapter.rooms.has('j'));

  // Questions.
  const described = async ({ io }, room) => (await (room ? io.in(room) : io).fetchSockets()).map(({ id, data, rooms, handshake }) => [data.who, clients[data.who].id === id, rooms.has(id), handshake.query.EIO]).sort();
  const description = (who) => [who, true, true, '4'];
  await within(Promise.all([a, b].map(async (worker) => {
    assert.deepEqual(await described(worker), all.map(description));
    assert.deepEqual(await described(worker, 'r'), [ofA[0], ofB[0]].map(description));
    assert.equal((await worker.io.allSockets()).size, all.length);
  })), 'descriptions of all sockets');
  const told = once(b.io, 'hi');
  a.io.serverSideEmit('hi', 5, Buffer.from('x'));
  assert.deepEqual(await told, [5, Buffer.from('x')]);
  b.io.on('ask', (question, answer) => answer(question + 1));
  assert.deepEqual(await a.io.serverSideEmitWithAck('ask', 41), [42]);
  assert.deepEqual((await b.io.timeout(60_000).emitWithAck('q', 1)).sort((x, y) => x - y), all.map((who) => who * 10));
  const remote = async ({ io }, who) => (await io.fetchSockets()).find(({ data }) => data.who === who);
  assert.equal(await (await remote(a, ofB[1])).timeout(60_000).emitWithAck('one'), ofB[1] * 10);
  const joining = await remote(a, ofB[1]);
  assert.deepEqual(await receivers(a, (io) => { joining.join('alone'); io.to('alone').emit('one'); }), [ofB[1]]);

  // Commands of the backend.
  await known(servers);
  assert.deepEqual(await admin(servers[0], 'join', { app: 'chat', rooms: ['r'], join: ['vip'] }), { sessions: 2 });
  const news = [ofA[0], ofB[0]].map((who) => once(clients[who], 'news'));
  assert.deepEqual(await admin(servers[1], 'emit', { app: 'chat', rooms: ['vip'], event: 'news', data: 7 }), { sessions: 2 });
  for (const [data] of await within(Promise.all(news), 'the news')) assert.equal(data, 7);
  const asked = await admin(servers[0], 'emit', { app: 'chat', rooms: ['vip'], event: 'question', data: 1, ack: { timeout: '60s' } });
  assert.deepEqual({ ...asked, acknowledgements: asked.acknowledgements.flat().sort((x, y) => x - y) }, { sessions: 2, acknowledgements: [ofA[0], ofB[0]].map((who) => who * 10), missing: 0 });
  await Promise.all([a, b].map(({ io }) => until('the worker knows the room', () => io.of('/').adapter.rooms.get('vip')?.size === 1)));
  const { count } = await admin(servers[1], 'sessions', { app: 'chat', namespace: '/' });
  assert.equal(count, all.length);
  const { links } = await admin(servers[0], 'links');
  assert.deepEqual(links.map(({ node, worker, sessions }) => [node, worker, sessions]), [['a', 'worker 0', CLIENTS_PER_NODE], ['b', 'worker 1', CLIENTS_PER_NODE]]);

  // Ends.
  const others = clients.filter((_, who) => who !== ofA[0] && who !== ofB[0]);
  const ends = [ofA[0], ofB[0]].map((who) => once(clients[who], 'disconnect'));
  const atServer = once(b.io.of('/').sockets.get(clients[ofB[0]].id), 'disconnect');
  assert.deepEqual((await receivers(a, (io) => { io.in('r').disconnectSockets(); io.emit('late'); }, others)), all.filter((who) => who !== ofA[0] && who !== ofB[0]));
  for (const [reason] of await within(Promise.all(ends), 'ends')) assert.equal(reason, 'io server disconnect');
  assert.equal((await atServer)[0], 'server namespace disconnect');
  const closed = others.map((client) => once(client, 'disconnect'));
  b.io.disconnectSockets(true);
  for (const [reason] of await within(Promise.all(closed), 'ends')) assert.equal(reason, 'io server disconnect');
  await until('nobody is connected', () => [a, b].every(({ io }) => io.engine.clientsCount === 0));

  // A worker that leaves isn't waited for.
  await b.io.close();
  await peers([a], 1);
  assert.deepEqual(await a.io.fetchSockets(), []);
}

/** A client that reconnects to another node is recovered there, and misses and repeats nothing. When its node is gone, it starts a new session. */
export async function clientsReturn(t, startEngine) {
  const engine = await startEngine(t);
  const servers = [await linkNode(t, engine, 'a'), await linkNode(t, engine, 'b')];
  const options = { connectionStateRecovery: {} };
  const workers = await Promise.all(servers.map((server, n) => linkWorker(t, server, `worker ${n}`, options)));
  const [a, b] = workers.map(({ io }) => io);
  a.on('connection', (socket) => (socket.data.name = 'Ann'));
  await peers(workers, 2);
  const seen = [];
  const socket = await linkClient(t, servers[0], 0, 'websocket', seen);
  const numbers = () => seen.filter(([, name]) => name === 'n').map(([, , n]) => n);
  const received = (count) => until(`${count} events`, () => numbers().length >= count);
  const { id } = socket;
  await socket.emitWithAck('join', 'r');
  await introduced(() => b.emit('ready'), [once(socket, 'ready')]);
  b.emit('n', 0);
  await received(1);

  socket.io.reconnection(false);
  const leave = async (server) => {
    socket.io.engine.close();
    await until('the node keeps the socket', async () => await metric(server, 'link_recovery_sockets') === 1);
  };
  const reconnect = async (server) => {
    socket.io.uri = server.http;
    const connected = once(socket, 'connect');
    socket.connect();
    await within(connected, 'the reconnection');
  };
  await leave(servers[0]);
  a.to('r').emit('n', 1);
  b.emit('n', 2);
  a.to(id).emit('n', 3);
  a.to('elsewhere').emit('n', -1);
  await reconnect(servers[1]);
  assert.deepEqual([socket.recovered, socket.id], [true, id]);
  a.emit('n', 4);
  await received(5);
  assert.deepEqual([numbers()[0], numbers().at(-1), [...numbers()].sort()], [0, 4, [0, 1, 2, 3, 4]]);
  const [there] = await b.local.fetchSockets();
  assert.deepEqual([there.id, [...there.rooms].sort(), there.data], [id, [id, 'r'].sort(), { who: 0, name: 'Ann' }]);
  assert.deepEqual(await a.local.fetchSockets(), []);

  await leave(servers[1]);
  servers[1].child.kill('SIGKILL');
  await reconnect(servers[0]);
  assert.deepEqual([socket.recovered, socket.id === id], [false, false]);
}
