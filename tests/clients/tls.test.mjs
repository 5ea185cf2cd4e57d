// TLS with the clients as they come: each protocol over https and wss, certificates by name, and sessions that are resumed.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import path from 'node:path';
import test, { after } from 'node:test';
import tls from 'node:tls';
import { Socket as EngineIo } from 'engine.io-client';
import { EventSource } from 'eventsource';
import { io } from 'socket.io-client';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { now } from './admin.mjs';
import { event, feedsFrom, queue, serve, temporary, upstream, within } from './harness.mjs';
import { Primus } from './primus.mjs';

const folder = temporary({ after });

/** Makes a certificate: the lines of the configuration, and its text. */
function certificate(name) {
  const [key, file] = [path.join(folder, `${name}.key`), path.join(folder, `${name}.pem`)];
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', `/CN=${name}`,
    '-addext', `subjectAltName=DNS:${name},IP:127.0.0.1`, '-keyout', key, '-out', file], { stdio: 'ignore' });
  return { config: `[[tls]]\ncertificate = "${file}"\nkey = "${key}"\n`, pem: readFileSync(file, 'utf8') };
}

const [local, other] = [certificate('localhost'), certificate('other.example')];
// Not all clients can be given a certificate to trust. Those that can check it.
process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
process.removeAllListeners('warning');

const api = await upstream({ after });
api.documents.set('scores/8/live', { score: [1, 0] });
const server = await serve({ after }, {
  config: `[server]\napp = "echo"\ncores = 2\n[heartbeat]\ninterval = "2s"\n${local.config}${other.config}${feedsFrom(api.url)}`,
});

const TEXTS = ['hello', 'é€😀', 'x'.repeat(100_000)];

test('a request, with a certificate that is trusted', async () => {
  const request = https.get(`${server.http}/healthz`, { ca: local.pem, rejectUnauthorized: true, agent: false, ALPNProtocols: ['h2', 'http/1.1'] });
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
    const socket = new EngineIo(server.http, { transports, ca: local.pem });
    socket.on('message', heard);
    return { opened: event(socket, 'open', undefined, 'error'), send: (text) => socket.send(text), close: () => socket.close() };
  },
  'socket.io-client': (transports, heard) => {
    const socket = io(server.http, { transports, forceNew: true, ca: local.pem });
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

const port = Number(new URL(server.http).port);
const connect = async (t, options) => {
  const socket = tls.connect({ host: '127.0.0.1', port, ...options });
  t.after(() => socket.destroy());
  await within(once(socket, 'secureConnect'), 'the handshake');
  return socket;
};

test('the certificate is that of the name, or the first', async (t) => {
  for (const [servername, expected] of [['localhost', 'localhost'], ['other.example', 'other.example'], ['unknown.example', 'localhost'], ['', 'localhost']]) {
    const socket = await connect(t, { servername });
    assert.equal(socket.getPeerCertificate().subject.CN, expected);
  }
});

for (const version of ['TLSv1.2', 'TLSv1.3']) {
  test(`sessions are resumed with ${version}`, async (t) => {
    const options = { servername: 'localhost', minVersion: version, maxVersion: version };
    const first = await connect(t, options);
    // That of TLS 1.3 comes after the handshake.
    const session = version === 'TLSv1.2' ? first.getSession() : (await within(once(first, 'session'), 'a ticket'))[0];
    assert.equal(first.isSessionReused(), false);
    // On both cores.
    for (let count = 0; count < 6; count++) assert.ok((await connect(t, { ...options, session })).isSessionReused());
  });
}

test('old versions are refused', async () => {
  const socket = tls.connect({ host: '127.0.0.1', port, minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' });
  const [error] = await within(once(socket, 'error'), 'the refusal');
  assert.match(error.code, /PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL|HANDSHAKE_FAILURE/);
});

test('plain HTTP is told that the port speaks TLS', async () => {
  const [response] = await within(once(http.get(`http://127.0.0.1:${port}/healthz`), 'response'), 'the answer');
  assert.equal(response.statusCode, 400);
  assert.equal((await response.toArray()).join(''), 'Plain HTTP was sent to a port that uses TLS.\n');
});

test('metrics count handshakes, and say when certificates expire', async () => {
  const text = await (await fetch(`${server.admin}/metrics`)).text();
  const value = (start) => Number(text.split('\n').find((line) => line.startsWith(start)).split(' ').at(-1));
  assert.ok(value('stentor_tls_handshakes_total{version="1.3",resumed="true"}') >= 6);
  assert.ok(value('stentor_tls_handshakes_total{version="1.2",resumed="false"}') >= 1);
  assert.equal(value('stentor_tls_handshake_failures_total{reason="plain_http"}'), 1);
  const days = (value('stentor_tls_certificate_expiry_timestamp_seconds{') - now()) / 86_400;
  assert.ok(days > 1.9 && days < 2.1, `${days} days`);
});
