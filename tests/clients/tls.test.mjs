// TLS with the clients as they come: each protocol over https and wss. crates/edge/tests/edge/tls.rs has certificates by name, sessions that are resumed,
// and what is refused.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import https from 'node:https';
import test, { after } from 'node:test';
import { Socket as EngineIo } from 'engine.io-client';
import { EventSource } from 'eventsource';
import { io } from 'socket.io-client';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { now } from './admin.mjs';
import { certificate } from './certificates.mjs';
import { event, feedsFrom, queue, serve, temporary, upstream, within } from './harness.mjs';
import { Primus } from './primus.mjs';

const folder = temporary({ after });

const { key, certificate: file } = certificate(folder);
const ca = readFileSync(file, 'utf8');
// Not all clients can be given a certificate to trust. Those that can check it.
process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
process.removeAllListeners('warning');

const api = await upstream({ after });
api.documents.set('scores/8/live', { score: [1, 0] });
const server = await serve({ after }, {
  config: `[server]\napp = "echo"\ncores = 2\n[heartbeat]\ninterval = "2s"\n[[tls]]\ncertificate = "${file}"\nkey = "${key}"\n${feedsFrom(api.url)}`,
});

const TEXTS = ['hello', 'é€😀', 'x'.repeat(100_000)];

test('a request, with a certificate that is trusted', async () => {
  const request = https.get(`${server.http}/healthz`, { ca, rejectUnauthorized: true, agent: false, ALPNProtocols: ['h2', 'http/1.1'] });
  const [response] = await within(once(request, 'response'), 'the answer');
  assert.deepEqual([response.statusCode, response.socket.authorized, response.socket.alpnProtocol], [200, true, 'http/1.1']);
  response.resume();
});

test('ws', async (t) => {
  const socket = new WebSocket(`${server.ws}/ws`);
  t.after(() => socket.terminate());
  await within(once(socket, 'open'), 'the connection');
  for (const text of TEXTS) {
    socket.send(text);
    const [data] = await within(once(socket, 'message'), 'the echo');
    assert.equal(data.toString(), text);
  }
  const pinged = await within(once(socket, 'ping'), 'a heartbeat');
  assert.ok(pinged);
  socket.close(1000);
  assert.equal((await within(once(socket, 'close'), 'the end'))[0], 1000);
});

/** How each client connects: gives what sends a text, what closes, and the transport; `heard` gets each text that comes back. */
const clients = {
  'engine.io-client': (transports, heard) => {
    const socket = new EngineIo(server.http, { transports, ca });
    socket.on('message', heard);
    return { opened: event(socket, 'open', undefined, 'error'), send: (text) => socket.send(text), close: () => socket.close() };
  },
  'socket.io-client': (transports, heard) => {
    const socket = io(server.http, { transports, forceNew: true, ca });
    socket.on('say', (text, bytes) => heard(bytes.toString() === text && text));
    return { opened: event(socket, 'connect', undefined, 'connect_error'), send: (text) => socket.emit('say', text, Buffer.from(text)), close: () => socket.close() };
  },
  'sockjs-client': (transports, heard) => {
    const socket = new SockJS(`${server.http}/sockjs`, null, { transports, timeout: 30_000 });
    socket.onmessage = ({ data }) => heard(data);
    const opened = new Promise((resolve, reject) => { Object.assign(socket, { onopen: resolve, onclose: reject }); });
    return { opened: opened.then(() => assert.deepEqual([socket.transport], transports)), send: (text) => socket.send(text), close: () => socket.close() };
  },
  primus: (_, heard) => {
    const socket = new Primus(server.http);
    socket.on('data', heard);
    return { opened: event(socket, 'open', undefined, 'error'), send: (text) => socket.write(text), close: () => socket.end() };
  },
};

for (const [name, ...transports] of [
  ...['engine.io-client', 'socket.io-client'].flatMap((name) => [[name, 'polling'], [name, 'websocket'], [name, 'polling', 'websocket']]),
  ...['websocket', 'xhr-streaming', 'xhr-polling'].map((transport) => ['sockjs-client', transport]),
  ['primus', 'websocket'],
]) {
  test(`${name} over ${transports}`, async (t) => {
    const messages = queue();
    const { opened, send, close } = clients[name](transports, messages.put);
    t.after(close);
    await within(opened, 'the connection');
    for (const text of TEXTS) {
      send(text);
      assert.equal(await messages.next('the echo'), text);
    }
  });
}

test('eventsource', async (t) => {
  const source = new EventSource(`${server.http}/sse/scores/8/live`);
  t.after(() => source.close());
  const document = await within(new Promise((resolve) => source.addEventListener('snapshot', ({ data }) => resolve(JSON.parse(data)))), 'the document');
  assert.deepEqual(document, { score: [1, 0] });
});

test('metrics count handshakes, and say when certificates expire', async () => {
  const text = await (await fetch(`${server.admin}/metrics`)).text();
  const value = (start) => Number(text.split('\n').find((line) => line.startsWith(start)).split(' ').at(-1));
  assert.ok(value('stentor_tls_handshakes_total{version="1.3",resumed="false"}') >= 10);
  const days = (value('stentor_tls_certificate_expiry_timestamp_seconds{') - now()) / 86_400;
  assert.ok(days > 1.9 && days < 2.1, `${days} days`);
});
