// The chat of examples/chat/socketio runs on Stentor, and nobody notices when its worker is replaced.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { environment, example, user } from './chat.mjs';
import { program, serve } from './harness.mjs';

test('the chat of the Socket.IO tutorial runs on Stentor, and a new process continues it', async (t) => {
  const folder = example(t);
  const stentor = await serve(t, { config: readFileSync(path.join(folder, 'stentor.toml'), 'utf8') });
  const env = { ...process.env, ...environment(stentor, 0) };
  const start = async () => {
    const worker = program(t, process.execPath, ['server.mjs'], { cwd: folder, env });
    const [, page] = await worker.says(/the chat is at (\S+)/);
    return { ...worker, page };
  };
  const first = await start();
  const page = await fetch(first.page);
  assert.match(await page.text(), /socket\.io\.js/);
  assert.match(page.headers.get('set-cookie'), /^connect\.sid=/);

  const unnamed = user(t, stentor.http, 'no spaces');
  assert.deepEqual(await unnamed.next(), ['connect_error', 'choose a nickname of 1 to 20 letters']);
  // As from a browser on the chat's page.
  const extraHeaders = { Origin: 'http://127.0.0.1:3000' };
  const ann = user(t, stentor.http, 'Ann', { transports: ['websocket'], extraHeaders });
  assert.deepEqual(await ann.next(), ['connect', undefined]);
  const bob = user(t, stentor.http, 'Bob', { transports: ['polling'], extraHeaders });
  assert.deepEqual(await bob.next(), ['connect', undefined]);
  assert.deepEqual(await ann.next(), ['joined', 'Bob']);
  assert.deepEqual(await ann.socket.emitWithAck('users'), ['Ann', 'Bob']);

  await bob.socket.emitWithAck('private', 'Ann', 'psst');
  assert.deepEqual(await ann.next(), ['private', { from: 'Bob', text: 'psst' }]);
  await bob.socket.emitWithAck('room', 'games');
  assert.deepEqual(await ann.next(), ['left', 'Bob']);
  await ann.socket.emitWithAck('room', 'games');
  assert.deepEqual(await bob.next(), ['joined', 'Ann']);

  // A deploy: the new process is there when the old one leaves, and has the old one's sockets.
  const ids = [ann.socket.id, bob.socket.id];
  await first.end();
  const said = ann.socket.emitWithAck('message', 'still there?');
  await start();
  await said;
  for (const each of [ann, bob]) assert.deepEqual(await each.next(), ['message', { from: 'Ann', text: 'still there?' }]);
  assert.deepEqual([ann.socket.id, bob.socket.id], ids);
  assert.deepEqual(await bob.socket.emitWithAck('users'), ['Ann', 'Bob']);
  bob.socket.close();
  assert.deepEqual(await ann.next(), ['left', 'Bob']);
});
