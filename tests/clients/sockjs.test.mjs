// sockjs-client 1.6 as it comes, by the transports that it has in Node.
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import SockJS from 'sockjs-client';
import { fixture, within } from './harness.mjs';
import { echoed, TEXTS, use } from './sockjs.mjs';

const server = await fixture({ after }, 'sockjs');

const by = (options) => within(use({ SockJS, ...options }), 'the end of the session');

for (const transport of ['websocket', 'xhr-streaming', 'eventsource', 'xhr-polling']) {
  test(`Node by ${transport}`, async () => {
    const result = await by({ url: `${server.http}/echo`, transports: [transport], texts: TEXTS });
    assert.deepEqual(result, echoed(transport));
  });

  test(`Node by ${transport}: many messages, in order`, async () => {
    const texts = Array.from({ length: 500 }, (_, n) => `message ${n}`);
    const result = await by({ url: `${server.http}/echo`, transports: [transport], texts });
    assert.deepEqual(result.received, texts);
  });

  test(`Node by ${transport}: the server says goodbye`, async () => {
    const result = await by({ url: `${server.http}/close`, transports: [transport], texts: [], count: -1 });
    assert.deepEqual(result, { transport, received: [], closed: [3000, 'Go away!', true] });
  });
}

test('Node by broadcast: all transports hear each other', async () => {
  const transports = ['websocket', 'xhr-streaming', 'eventsource', 'xhr-polling'];
  const sockets = transports.map((transport) => new SockJS(`${server.http}/broadcast`, null, { transports: [transport], timeout: 30_000 }));
  await within(Promise.all(sockets.map((socket) => new Promise((resolve) => { socket.onopen = resolve; }))), 'all connections');
  const heard = sockets.map((socket) => new Promise((resolve) => {
    const seen = new Set();
    socket.onmessage = ({ data }) => { if (seen.add(data).size === transports.length) resolve([...seen].sort()); };
  }));
  for (const [n, socket] of sockets.entries()) socket.send(transports[n]);
  for (const seen of await within(Promise.all(heard), 'all messages')) assert.deepEqual(seen, transports.toSorted());
  for (const socket of sockets) socket.close();
});

test('Node: without WebSocket on the server the next transport is taken', async () => {
  const result = await by({ url: `${server.http}/disabled_websocket_echo`, texts: ['x'] });
  assert.equal(result.transport, 'xhr-streaming');
});
