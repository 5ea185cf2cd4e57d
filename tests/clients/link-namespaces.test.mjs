// @stentor/socket.io: the namespaces of a worker, against a scripted server.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { Namespaces } from '../../clients/socketio-server/src/namespaces.js';
import { connected, worker } from './link-server.mjs';

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
