// Servers and emitters of python-socketio share rooms with Stentor, and through it with those of Node: a client of Stentor receives what
// both say, and both receive what it says.
import { Emitter } from '@socket.io/redis-emitter';
import assert from 'node:assert/strict';
import test from 'node:test';
import { admin, metric } from '../admin.mjs';
import { client, nodeServer, received, redisClient, settled, stentor } from '../bridge.mjs';
import { bytes, missing as missingProgram, startClient } from '../foreign.mjs';
import { event, until } from '../harness.mjs';
import { missing as missingRedis, redis } from '../redis.mjs';

const SERVER = 'server of python-socketio 5';
const EMITTER = 'emitter of python-socketio 5';
const skip = missingRedis || missingProgram(SERVER);
const bridge = 'adapter = "python"';

/** A program in Python that takes one command after the other. */
function program(t, name, url) {
  const started = startClient(t, name, url);
  const run = async (command) => {
    started.send(command);
    await started.next({ type: 'done' });
  };
  return { ...started, run };
}

async function pythonServer(t, engine) {
  const server = program(t, SERVER, engine.url);
  const { port } = await server.next({ type: 'port' });
  return { ...server, url: `http://127.0.0.1:${port}` };
}

/** Two servers of each kind, with a client in `red` on each. */
async function all(t) {
  const engine = await redis(t);
  const servers = await Promise.all([pythonServer(t, engine), pythonServer(t, engine), stentor(t, engine, { bridge }), stentor(t, engine, { bridge })]);
  const clients = await Promise.all(servers.map((server) => client(t, server, ['red'])));
  const [python, , own, other] = servers;
  await until('all hear each other', async () => {
    await python.run({ emit: 'met', data: [1] });
    await admin(own, 'publish', { namespace: '/', event: 'met', data: 2 });
    return clients.every(({ seen }) => [1, 2].every((by) => seen.some(([name, from]) => name === 'met' && from === by)));
  });
  // A message of Stentor to all follows what a server has said before.
  const seen = async (emit) => {
    const lists = await received([own, other], clients, emit);
    return lists.map((list) => list.filter(([name]) => name !== 'met'));
  };
  return { engine, python, own, clients, ids: clients.map(({ id }) => id), seen };
}

const times4 = (list) => Array(4).fill(list);

test('messages of servers in Python and of Stentor reach the clients of both, once', { skip }, async (t) => {
  const { python, own, clients, ids, seen } = await all(t);
  const data = { text: 'Ä "quoted"', list: [1, null, 2.5] };
  assert.deepEqual(await seen(() => python.run({ emit: 'news', data: [data], room: 'red' })), times4([['news', data]]));
  assert.deepEqual(await seen(() => python.run({ emit: 'news', data: [data] })), times4([['news', data]]));
  assert.deepEqual(await seen(() => python.run({ emit: 'news', data: [1, 'two', bytes(Buffer.from([0, 255]))], room: ['red', 'blue'] })), times4([['news', 1, 'two', Buffer.from([0, 255])]]));
  assert.deepEqual(await seen(() => python.run({ emit: 'news', room: 'nobody' })), times4([]));
  const without = [[], [['news', 1]], [], [['news', 1]]];
  assert.deepEqual(await seen(() => python.run({ emit: 'news', data: [1], room: 'red', skip_sid: [ids[0], ids[2]] })), without);
  assert.deepEqual(await seen(() => admin(own, 'emit', { rooms: ['red'], except: { sessions: [ids[0], ids[2]] }, event: 'news', data: 1 })), without);
  assert.deepEqual(await seen(() => admin(own, 'publish', { room: 'red', event: 'news', data })), times4([['news', data]]));
  for (const [n, socket] of clients.entries()) {
    const only = times4([]).map((each, i) => (i === n ? [['personal', n]] : each));
    assert.deepEqual(await seen(() => python.run({ emit: 'personal', data: [n], room: socket.id })), only);
    assert.deepEqual(await seen(() => admin(own, 'emit', { sessions: [socket.id], event: 'personal', data: n })), only);
    const others = times4([['say', { room: 'red', n }]]).map((each, i) => (i === n ? [] : each));
    assert.deepEqual(await seen(() => socket.emitWithAck('say', { room: 'red', n })), others);
  }
});

test('servers in Python and Stentor move each other\'s sockets', { skip }, async (t) => {
  const { python, own, clients, ids, seen } = await all(t);
  await python.run({ enter_room: [ids[2], 'blue'] });
  await admin(own, 'join', { sessions: [ids[0], ids[3]], join: ['blue'] });
  const blue = [[['news', 1]], [], [['news', 1]], [['news', 1]]];
  await until('all three have joined', async () => JSON.stringify(await seen(() => python.run({ emit: 'news', data: [1], room: 'blue' }))) === JSON.stringify(blue));
  await python.run({ leave_room: [ids[2], 'blue'] });
  await admin(own, 'leave', { sessions: [ids[0]], leave: ['blue'] });
  const last = [[], [], [], [['news', 1]]];
  await until('two have left', async () => JSON.stringify(await seen(() => python.run({ emit: 'news', data: [1], room: 'blue' }))) === JSON.stringify(last));
  for (const n of [1, 2]) {
    clients[n].on('question', (text, done) => done(`${text} ${n}`));
    python.send({ call: 'question', data: ['who?'], to: ids[n] });
    assert.deepEqual((await python.next({ type: 'answer' })).answer, `who? ${n}`);
    await python.next({ type: 'done' });
  }
  await python.run({ close_room: 'red' });
  await until('all have left', async () => (await seen(() => admin(own, 'publish', { room: 'red', event: 'news', data: 1 }))).every((list) => list.length === 0));
  const ended = [0, 2].map((n) => event(clients[n], 'disconnect'));
  await python.run({ disconnect: ids[2] });
  await admin(own, 'disconnect', { sessions: [ids[0]] });
  await Promise.all(ended);
  // Python has no way to say so: what it can't do, it isn't asked.
  await admin(own, 'emit', { rooms: ['red'], except: { rooms: ['blue'] }, event: 'news', data: 1 });
  assert.equal(await metric(own, 'bridge_messages_not_sent_total'), 1);
});

test('emitters in Python and in Node share the rooms of Stentor', { skip }, async (t) => {
  const engine = await redis(t);
  const both = { bridge: `[[cluster.socketio]]\nurl = "${engine.url}"\nadapter = "python"` };
  const [python, node, own, other] = await Promise.all([pythonServer(t, engine), nodeServer(t, engine), stentor(t, engine, both), stentor(t, engine, both)]);
  const clients = await Promise.all([own, other].map((server) => client(t, server, ['red'])));
  const [there, elsewhere] = await Promise.all([python, node].map((server) => client(t, server, ['red'])));
  const [ofPython, ofNode] = [program(t, EMITTER, engine.url), new Emitter(await redisClient(t, engine.url))];
  await settled([own, other], clients);
  const twice = (list) => [list, list];
  assert.deepEqual(await received([own, other], clients, () => ofPython.run({ emit: 'news', data: ['from Python'], room: 'red' })), twice([['news', 'from Python']]));
  assert.deepEqual(await received([own, other], clients, () => ofNode.to('red').emit('news', 'from Node')), twice([['news', 'from Node']]));
  // What Stentor says reaches both, and its own nodes once.
  const shared = await received([own, other], [...clients, there, elsewhere], () => admin(own, 'publish', { room: 'red', event: 'news', data: 'from Stentor' }));
  assert.deepEqual(shared, Array(4).fill([['news', 'from Stentor']]));
  await ofPython.run({ close_room: 'red' });
  await until('nobody is left', async () => (await received([own, other], clients, () => ofNode.to('red').emit('news', 1))).every((list) => list.length === 0));
});
