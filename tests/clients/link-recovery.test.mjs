// Connection state recovery with workers: real socket.io on both sides, and Stentor between them.
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { test } from 'node:test';
import { Server } from 'socket.io';
import { io as client } from 'socket.io-client';
import { attach } from '../../clients/socketio-server/src/index.js';
import { metric } from './admin.mjs';
import { queue, root, serve, temporary, until } from './harness.mjs';

test('any worker recovers a client, which receives what it missed', async (t) => {
  const stentor = await serve(t, { config: '[[links]]\napp = "chat"\n' });
  const connections = queue();
  let middlewares = 0;
  const worker = async (name) => {
    const io = new Server({ connectionStateRecovery: {} });
    t.after(() => io.close());
    const link = attach(io, stentor.admin.replace('http', 'ws'), { name, signals: false, settle: 0 });
    io.use((socket, next) => ((middlewares += 1), next()));
    io.on('connection', (socket) => {
      if (!socket.handshake.auth.isWitness) connections.put({ io, link, socket });
      if (socket.recovered) return;
      socket.join('room');
      socket.data = { name: 'Ann' };
    });
    await link.listen();
    return { io, link };
  };
  const workers = [await worker('a'), await worker('b')];
  // Workers have no common order: the next one goes on when a client that stays has the last one's message.
  const witness = client(stentor.http, { forceNew: true, auth: { isWitness: true } });
  t.after(() => witness.close());
  const seen = queue();
  witness.on('missed', seen.put);
  await once(witness, 'connect');

  for (const transport of ['websocket', 'polling']) {
    const socket = client(stentor.http, { forceNew: true, transports: [transport], reconnection: false });
    t.after(() => socket.close());
    const events = queue();
    socket.onAny((...args) => events.put(args.slice(0, 2)));
    const owner = await connections.next();
    socket.connected || await once(socket, 'connect');
    const { id } = socket;
    owner.io.emit('seen', 1);
    assert.deepEqual(await events.next(), ['seen', 1]);

    const lost = once(owner.socket, 'disconnect');
    socket.io.engine.close();
    await lost;
    await until('Stentor keeps the socket', async () => await metric(stentor, 'link_recovery_sockets') === 1);
    const ran = middlewares;
    const [first, second] = workers;
    first.io.emit('missed', 1);
    assert.equal(await seen.next(), 1);
    second.io.except('room').emit('excepted');
    second.io.to('elsewhere').emit('elsewhere');
    second.io.volatile.emit('volatile');
    second.io.to('room').except('other').emit('missed', Buffer.from('2'));
    assert.deepEqual(await seen.next(), Buffer.from('2'));
    second.io.to(id).emit('missed', 3);
    // The worker leaves, another one comes.
    const [leaving] = workers.splice(workers.findIndex((each) => each.io === owner.io), 1);
    await leaving.link.handover();
    workers.push(await worker('c'));
    workers[1].io.emit('missed', 4);
    assert.equal(await seen.next(), 4);

    const connected = once(socket, 'connect');
    socket.connect();
    await connected;
    const again = await connections.next();
    assert.deepEqual([socket.recovered, socket.id, again.socket.id, again.socket.recovered], [true, id, id, true]);
    assert.deepEqual([[...again.socket.rooms].sort(), again.socket.data], [[id, 'room'].sort(), { name: 'Ann' }]);
    assert.equal(middlewares, ran, 'middlewares are skipped');
    workers[0].io.to('room').emit('live');
    for (const expected of [['missed', 1], ['missed', Buffer.from('2')], ['missed', 3], ['missed', 4]]) assert.deepEqual(await events.next(), expected);
    assert.equal((await events.next())[0], 'live');
    const left = once(again.socket, 'disconnect');
    socket.disconnect();
    await left;
  }
  for (const { io } of workers) await io.close();
});

test('a client whose worker hangs is recovered by another', async (t) => {
  const stentor = await serve(t, { config: '[[links]]\napp = "chat"\n' });
  const STENTOR = stentor.admin.replace('http', 'ws');
  const options = { connectionStateRecovery: {} };
  const env = { ...process.env, STENTOR, RECORD: path.join(temporary(t), 'record'), OPTIONS: JSON.stringify(options) };
  const hanging = fork(path.join(root, 'tests/clients/counting-worker.mjs'), { env });
  t.after(() => hanging.kill('SIGKILL'));
  await once(hanging, 'message');
  const io = new Server(options);
  t.after(() => io.close());
  await attach(io, STENTOR, { name: 'other', signals: false }).listen();

  // The hanging worker has the first and the third client, so the client that returns goes to the other worker.
  const connect = async () => {
    const socket = client(stentor.http, { forceNew: true, transports: ['websocket'], reconnectionDelay: 500, randomizationFactor: 0 });
    t.after(() => socket.close());
    await once(socket, 'connect');
    return socket;
  };
  const socket = await connect();
  const second = await connect();
  await connect();
  const [there] = await io.local.fetchSockets();
  assert.equal(there.id, second.id);
  second.disconnect();
  const { id } = socket;
  const counted = once(socket, 'counted');
  await socket.emitWithAck('count', 1, 0);
  await counted;
  await until('workers have acknowledged all', async () => await metric(stentor, 'link_unacknowledged_bytes') === 0);
  hanging.kill('SIGSTOP');
  io.on('connection', (found) => found.emit('hello'));
  socket.io.engine.close();
  await once(socket, 'hello');
  assert.deepEqual([socket.recovered, socket.id], [true, id]);
});
