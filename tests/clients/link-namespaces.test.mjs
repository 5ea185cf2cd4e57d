// @stentor/socket.io: the namespaces of a worker, against a scripted server.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { Namespaces } from '../../clients/socketio-server/src/namespaces.js';
import { connected, handshake, worker } from './link-server.mjs';

test('a client can not make a namespace of a long name, or of one name too many', async (t) => {
  const { io, connection } = await worker(t, { setup: (io) => io.of(/^\/d-/) });
  await connected(io, connection, 1);
  await connection.read('SEND');
  const names = ['', 'x'.repeat(253), 'é'.repeat(127)].map((rest) => `/d-${rest}`);
  connection.write(['MESSAGE', 1, names.map((name) => `0${name},`)]);
  assert.equal((await connection.read('NSP')).name, '/d-');
  assert.equal((await connection.read('NSP')).name, names[1]);
  const answers = [];
  while (answers.length < 3) answers.push(...(await connection.read('SEND')).messages);
  assert.deepEqual(answers.filter((answer) => answer.startsWith('4')), [`4${names[2]},{"message":"Invalid namespace"}`]);
  assert.throws(() => io.of(names[2]), /^RangeError: the name of a namespace is longer than 256 bytes/);

  const declared = [];
  let full = 0;
  const namespaces = new Namespaces((_, index, name) => declared.push([index, name]), () => (full += 1));
  const name = (number) => `/${number}`.padEnd(256, '.');
  const adapters = [];
  for (let number = 0; namespaces.hasRoom(name(number)); number += 1) {
    const adapter = { nsp: { name: name(number) } };
    adapter.index = namespaces.declare(name(number), adapter);
    adapters.push(adapter);
  }
  assert.deepEqual(declared.at(-1), [(4 << 20) / 256 - 1, name(declared.length - 1)]);
  assert.ok(namespaces.hasRoom(name(7)), 'it is declared');
  assert.ok(namespaces.admits(name(7)) && !namespaces.admits('x'.repeat(257)));
  assert.equal(full, 0, 'a long name is the mistake of its client');
  assert.ok(!namespaces.admits(name(-1)) && !namespaces.admits(name(-2)));
  assert.equal(full, 1, 'reported once');
  namespaces.forget(adapters[7]);
  assert.deepEqual(declared.at(-1), [7, undefined], 'GONE');
  assert.ok(namespaces.admits(name(-1)));
  const short = new Namespaces(() => {});
  let count = 0;
  for (; short.hasRoom(`/${count}`); count += 1) short.declare(`/${count}`, {});
  assert.equal(count, 65_535);
});

test('the name and the index of a namespace that is gone are free', async (t) => {
  const { io, connection } = await worker(t, {
    options: { cleanupEmptyChildNamespaces: true },
    setup: (io) => io.of(/^\/d-/).on('connection', (socket) => socket.on('disconnect', () => {
      const { nsp } = socket;
      setImmediate(() => nsp.emit('late'));
    })),
  });
  await connected(io, connection, 1);
  const next = async (...names) => {
    for (;;) {
      const { entry, namespace, name } = await connection.any();
      if (names.includes(entry)) return [entry, namespace, ...(name ? [name] : [])];
    }
  };
  assert.deepEqual(await next('NSP'), ['NSP', 0, '/']);
  connection.write(['MESSAGE', 1, ['0/d-a,']]);
  assert.deepEqual(await next('NSP'), ['NSP', 1, '/d-a']);
  assert.deepEqual(await next('ADD'), ['ADD', 1]);
  connection.write(['MESSAGE', 1, ['1/d-a,']]);
  const seen = [];
  while (seen.length < 5) seen.push(await next('NSP', 'DEL', 'GONE', 'BROADCAST'));
  // The application still has the namespace: it's declared again for one broadcast.
  assert.deepEqual(seen, [['DEL', 1], ['GONE', 1], ['NSP', 2, '/d-a'], ['BROADCAST', 2], ['GONE', 2]]);
  // Until Stentor has confirmed it, an entry may still have the old index: it concerns no other namespace.
  connection.write(['MESSAGE', 1, ['0/d-b,']], ['KICK', 1, false, [1]], ['MEMBERS', 2, 0, [1], ['r']]);
  assert.deepEqual(await next('NSP'), ['NSP', 3, '/d-b']);
  connection.write(['VACANT', 1], ['MESSAGE', 1, ['0/d-c,']]);
  assert.deepEqual(await next('NSP'), ['NSP', 1, '/d-c']);
  assert.deepEqual(await next('ADD'), ['ADD', 1]);
  assert.deepEqual([...io.of('/d-b').sockets.values()].map(({ rooms }) => rooms.size), [1]);
  const joined = once(io.of('/d-c').adapter, 'join-room');
  connection.write(['MEMBERS', 1, 0, [1], ['r']]);
  assert.equal((await joined)[0], 'r');
});

/** Declares namespaces until the link has no room for a name of 256 bytes. */
function fill(io) {
  const name = (number) => `/${number}`.padEnd(256, '.');
  assert.throws(() => {
    for (let number = 0; ; number += 1) io.of(name(number));
  }, RangeError);
}

const longest = (name) => name.padEnd(256, '-');

test('a worker without room for a name closes the sessions whose sockets need it', async (t) => {
  let allow;
  const { io, link, connection } = await worker(t, {
    options: { cleanupEmptyChildNamespaces: true },
    setup: (io) => {
      io.of(/^\/d-/).use((socket, next) => (socket.conn.id === 's2' ? (allow.socket = next) : next()));
      io.of((name, auth, next) => (name.startsWith('/slow-') ? (allow.name = next) : next(null, false)));
    },
  });
  allow = {};
  const errors = [];
  link.on('error', (error) => errors.push(error.code));
  const [child, slow, other] = ['/d-', '/slow-', '/d-other-'].map(longest);
  for (const handle of [1, 2, 3]) await connected(io, connection, handle);
  const connects = (handle, name) => connection.write(['MESSAGE', handle, [`0${name},`]]);
  connects(1, child);
  while ((await connection.read('NSP')).name !== child);
  const nsp = io.of(child);
  connects(2, child);
  connects(3, slow);
  connection.write(['MESSAGE', 1, [`1${child},`]]);
  await connection.read('GONE');
  fill(io);

  // The application still has the namespace: its broadcasts and changes of rooms have no effect.
  nsp.emit('late');
  nsp.socketsJoin('r');
  const closed = async () => {
    for (;;) {
      const { entry, handle, discard } = await connection.any();
      if (entry === 'CLOSE') return [handle, discard];
      assert.ok(entry !== 'BROADCAST' && entry !== 'SELECT', `${entry} affects another namespace`);
      // A client that receives DISCONNECT for a namespace doesn't connect to it again.
      assert.ok(entry !== 'SEND' || handle < 4, `client ${handle} receives a message`);
    }
  };
  // A middleware accepts a socket in the namespace that is gone.
  allow.socket();
  assert.deepEqual(await closed(), [2, true]);
  // The application allows a name for which there was room before.
  allow.name(null, true);
  let answers = [];
  while (!answers.some((answer) => answer.startsWith('4'))) answers = (await connection.read('SEND')).messages;
  assert.deepEqual(answers, [`4${slow},{"message":"Invalid namespace"}`]);
  const kept = (name, fields) => ({ nsp: name, id: name, pid: '', rooms: [], data: {}, auth: {}, time: 'then', issued: 7, ...fields });
  connection.write(['RESUME', 4, { ...handshake('s4'), sockets: [kept('/'), kept(other)] }]);
  assert.deepEqual(await closed(), [4, true]);
  connection.write(['RESUME', 5, { ...handshake('s5'), sockets: [kept('/'), kept(other, { disconnected: true })] }]);
  assert.deepEqual(await closed(), [5, true]);
  assert.deepEqual(errors, ['limit']);
  assert.deepEqual([...io.sockets.sockets.values()].map((socket) => socket.conn.id), ['s1', 's3']);
});
