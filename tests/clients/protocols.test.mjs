// Socket.IO and SockJS on the wire, by hand: what stock clients never send or don't show, over a real socket once. crates/edge/tests/edge and
// crates/wire have the rest, and published attacks, each by its id.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import net from 'node:net';
import test, { after } from 'node:test';
import WebSocket from 'ws';
import { event, fixture, inbox } from './harness.mjs';

// In Socket.IO the namespaces `/` and `/custom`, which greet with `auth`, and `message` is sent back.
const server = await fixture({ after }, 'protocol-patient');
const pinging = await fixture({ after }, 'protocol-pings');
const sockjs = await fixture({ after }, 'sockjs');

/** A WebSocket of Socket.IO whose handshake is done: { send, next }. */
async function open(t, at) {
  const socket = new WebSocket(`${at.ws}/socket.io/?EIO=4&transport=websocket`);
  t.after(() => socket.terminate());
  const messages = inbox(socket);
  const { upgrades } = JSON.parse((await messages.next()).data.slice(1));
  assert.deepEqual(upgrades, [], 'there is nothing to upgrade to');
  return { socket, send: (...all) => all.forEach((packet) => socket.send(packet)), next: () => messages.next() };
}

/** The same in the namespace `/`, greeted. */
async function connected(t, at = server) {
  const peer = await open(t, at);
  peer.send('40');
  assert.match((await peer.next()).data, /^40\{/);
  assert.match((await peer.next()).data, /^42\["auth",/);
  return peer;
}

test('packets that are not allowed close the connection, and are not answered', async (t) => {
  const hasSlot = (num) => `451-["message",{"_placeholder":true,"num":${num}}]`;
  for (const packets of [
    // A second CONNECT, and namespaces that are not connected.
    ...['40', '40{}', '42/custom,["message",1]', '41/custom,', '42/random,["message"]', '43/custom,1[]'].map((packet) => [packet]),
    // Events and payloads.
    ...['42[["a"]]', '42"message"', '42null', '42["message"', '42["connect_error"]', '42["removeListener"]', '47["message"]', '4abc', '44"no"',
      '42abc["message"]', '43["no id"]x', '41{"a":1}x', '42["message",1][]', '421["message-with-ack"],'].map((packet) => [packet]),
    // Attachments.
    ['451["message"]'], ['45a-["message"]'], [hasSlot(1), Buffer.of(1)], [hasSlot('"0"'), Buffer.of(1)], ['451-["message",{"_placeholder":true}]', Buffer.of(1)], [Buffer.of(1, 2, 3)],
  ]) {
    const peer = await connected(t);
    peer.send(...packets);
    assert.ok('closed' in await peer.next(), JSON.stringify(packets));
  }
  // Before any CONNECT, and in it.
  for (const packet of ['42["message",1]', '40["a"]', '40"a"', '40true', '40{', '40{}x']) {
    const peer = await open(t, server);
    peer.send(packet);
    assert.ok('closed' in await peer.next(), packet);
  }
});

test('up to ten attachments are taken, empty ones too, and pings may stand between them', async (t) => {
  const peer = await connected(t, pinging);
  const slots = Array.from({ length: 10 }, (_, num) => `{"_placeholder":true,"num":${num}}`).join();
  const attachments = Array.from({ length: 10 }, (_, n) => Buffer.alloc(n, n));
  peer.send(`4510-["message",${slots}]`, ...attachments.slice(0, 9));
  // The server's ping arrives, and is answered, before the last attachment.
  while ((await peer.next()).data !== '2');
  peer.send('3', attachments[9]);
  const received = [];
  while (received.length < 11) {
    const { data } = await peer.next();
    if (data !== '2') received.push(data);
    else peer.send('3');
  }
  assert.deepEqual(received, [`4510-["message-back",${slots}]`, ...attachments]);
});

test('SockJS: preflights, what must not be kept and what may be, HTTP/1.0', async () => {
  const session = (prefix) => `${sockjs.http}/${prefix}/000/${randomUUID()}`;
  const headers = { Origin: 'http://test', 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'a, b, c' };
  const preflight = await fetch(`${session('echo')}/xhr`, { method: 'OPTIONS', headers });
  const answered = ['allow-origin', 'allow-credentials', 'allow-headers', 'allow-methods'].map((name) => preflight.headers.get(`access-control-${name}`));
  assert.deepEqual([preflight.status, await preflight.text(), ...answered], [204, '', 'http://test', 'true', 'a, b, c', 'OPTIONS, POST']);
  const poll = await fetch(`${session('echo')}/xhr`, { method: 'POST' });
  assert.equal(poll.headers.get('access-control-allow-origin'), '*');
  assert.equal(poll.headers.get('cache-control'), 'no-store, no-cache, no-transform, must-revalidate, max-age=0');
  const iframe = await fetch(`${sockjs.http}/echo/iframe-1.6.1.html?t=1`);
  assert.match(iframe.headers.get('cache-control'), /public.*max-age=[1-9]\d{6}/);
  const again = await fetch(`${sockjs.http}/echo/iframe.html`, { headers: { 'If-None-Match': iframe.headers.get('etag') } });
  assert.deepEqual([again.status, await again.text(), again.headers.get('content-type')], [304, '', null]);

  const socket = net.connect(new URL(sockjs.http).port, '127.0.0.1');
  socket.write(`POST ${new URL(session('close')).pathname}/xhr_streaming HTTP/1.0\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n`);
  let text = '';
  socket.on('data', (chunk) => (text += chunk));
  await event(socket, 'close');
  const [head, body] = text.split('\r\n\r\n');
  assert.doesNotMatch(head, /transfer-encoding|content-length/i);
  assert.equal(body, `${'h'.repeat(2_048)}\no\nc[3000,"Go away!"]\n`);
});
