// Workers of python-socketio: the tests of clients/python-socketio, and the chat of examples/chat/python on a real Stentor.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { user } from '../chat.mjs';
import { program, root, serve } from '../harness.mjs';

const python = path.join(root, 'tests/clients/.venv/bin/python');
const env = { ...process.env, PYTHONPATH: path.join(root, 'clients/python-socketio'), PYTHONDONTWRITEBYTECODE: '1' };
const example = path.join(root, 'examples/chat/python');

test('the tests of the package for python-socketio pass', () => {
  const { status, stderr } = spawnSync(python, ['-m', 'unittest', 'discover', '-s', path.join(root, 'tests/clients/python-socketio')], { env, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
});

/** Stentor, with a function that starts a worker of the chat. */
async function chat(t) {
  const stentor = await serve(t, { config: readFileSync(path.join(example, 'stentor.toml'), 'utf8') });
  const start = async () => {
    const worker = program(t, python, ['server.py'], { cwd: example, env: { ...env, STENTOR: stentor.admin.replace('http', 'ws') } });
    await worker.says(/the chat is open/);
    return worker;
  };
  return { stentor, start };
}

async function annAndBob(t, stentor) {
  const ann = user(t, stentor.http, 'Ann', { transports: ['websocket'] });
  assert.deepEqual(await ann.next(), ['connect', undefined]);
  const bob = user(t, stentor.http, 'Bob', { transports: ['polling'] });
  assert.deepEqual(await bob.next(), ['connect', undefined]);
  assert.deepEqual(await ann.next(), ['joined', 'Bob']);
  return { ann, bob, both: [ann, bob], ids: [ann.socket.id, bob.socket.id] };
}

test('the chat of python-socketio runs on Stentor, and a new process continues it', async (t) => {
  const { stentor, start } = await chat(t);
  const first = await start();
  const unnamed = user(t, stentor.http, 'no spaces');
  assert.deepEqual(await unnamed.next(), ['connect_error', 'choose a nickname of 1 to 20 letters']);
  const { ann, bob, both, ids } = await annAndBob(t, stentor);

  await bob.socket.emitWithAck('private', 'Ann', 'psst');
  assert.deepEqual(await ann.next(), ['private', { from: 'Bob', text: 'psst' }]);
  await bob.socket.emitWithAck('picture', Buffer.from([0, 1, 255]));
  assert.deepEqual(await ann.next(), ['picture', { from: 'Bob', data: Buffer.from([0, 1, 255]) }]);
  await bob.socket.emitWithAck('room', 'games');
  assert.deepEqual(await ann.next(), ['left', 'Bob']);
  await ann.socket.emitWithAck('room', 'games');
  assert.deepEqual(await bob.next(), ['joined', 'Ann']);

  // A deploy: nobody notices, and a message that was sent meanwhile is handled by the next process.
  first.child.kill('SIGTERM');
  const said = ann.socket.emitWithAck('message', 'still there?');
  assert.deepEqual(await first.closed, [0, null]);
  await start();
  await said;
  for (const each of both) assert.deepEqual(await each.next(), ['message', { from: 'Ann', text: 'still there?' }]);
  assert.deepEqual([ann.socket.id, bob.socket.id], ids);
  bob.socket.close();
  assert.deepEqual(await ann.next(), ['left', 'Bob']);
});

test('the chat survives the crash of one of its workers', async (t) => {
  const { stentor, start } = await chat(t);
  const first = await start();
  const { ann, bob, both, ids } = await annAndBob(t, stentor);
  await start();
  const cid = user(t, stentor.http, 'Cid');
  assert.deepEqual(await cid.next(), ['connect', undefined]);
  for (const each of both) assert.deepEqual(await each.next(), ['joined', 'Cid']);
  await cid.socket.emitWithAck('message', 'from the other worker');
  for (const each of [...both, cid]) assert.deepEqual(await each.next(), ['message', { from: 'Cid', text: 'from the other worker' }]);

  first.child.kill('SIGKILL');
  await once(first.child, 'exit');
  for (const [i, each] of both.entries()) {
    await each.socket.emitWithAck('message', `${i}`);
    for (const other of [...both, cid]) assert.deepEqual(await other.next(), ['message', { from: ['Ann', 'Bob'][i], text: `${i}` }]);
  }
  assert.deepEqual([ann.socket.id, bob.socket.id], ids);
});
