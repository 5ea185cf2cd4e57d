// npm ws, as it comes: an echo. mixed-rooms.test.mjs has rooms, chat and feeds; crates/edge/tests/edge/websocket.rs has the rest.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import test from 'node:test';
import WebSocket from 'ws';
import { inbox, serve } from './harness.mjs';

for (const perMessageDeflate of [false, true]) {
  test(`echo with ws, permessage-deflate ${perMessageDeflate}`, async (t) => {
    const server = await serve(t, { args: ['--app', 'echo'] });
    const socket = new WebSocket(`${server.ws}/ws`, { perMessageDeflate });
    const messages = inbox(socket);
    await once(socket, 'open');
    assert.equal(socket.extensions.includes('permessage-deflate'), perMessageDeflate);
    for (const text of ['', 'hello', 'é'.repeat(40_000), 'x'.repeat(900_000)]) {
      socket.send(text);
      assert.deepEqual(await messages.next(), { data: text, binary: false });
    }
    const bytes = randomBytes(300_000);
    socket.send(bytes);
    assert.deepEqual((await messages.next()).data, bytes);
    // In fragments, a ping between them.
    socket.send('one ', { fin: false });
    socket.ping('in between');
    await once(socket, 'pong');
    socket.send('message', { fin: true });
    assert.equal((await messages.next()).data, 'one message');
    socket.close(4001, 'bye');
    // Code and reason come back, as from ws.
    assert.deepEqual(await messages.next(), { closed: 4001, reason: 'bye' });
  });
}
