// Limits per address and session with real clients: who is above one learns it, and other clients are served. docs/limits.md has the
// rules, all/limits.test.mjs the same behind HAProxy and nginx. How long others wait is measured by tests/attack.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import net from 'node:net';
import test from 'node:test';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { request, websocket } from './addresses.mjs';
import { metric } from './admin.mjs';
import { PATIENCE_MS, event, logged, serve, until, within } from './harness.mjs';

const untilMetric = (server, name, holds) => until(name, async () => holds(await metric(server, name)));

/** Fails unless a server answers one message of a client after another, 50 times. */
async function answers(socket) {
  for (let id = 0; id < 50; id++) {
    socket.send(JSON.stringify({ type: 'ping', id }));
    assert.deepEqual(JSON.parse((await event(socket, 'message'))[0]), { type: 'ok', id });
  }
}

test('connections of an address: a flood is refused, and others are served at once', async (t) => {
  const server = await serve(t, { args: ['--cores', '1'], config: '[address_limits]\nconnections_max = 20\nconnections_per_second = 500\n', listen: '0.0.0.0:0' });
  const at = server.http.replace('0.0.0.0', '127.0.0.1');
  const good = await websocket(t, at.replace('http', 'ws'), { localAddress: '127.0.0.2' });
  const flood = Array.from({ length: 600 }, () => net.connect({ port: Number(new URL(at).port), host: '127.0.0.1', localAddress: '127.0.0.3' }).on('error', () => {}));
  t.after(() => flood.forEach((socket) => socket.destroy()));
  await untilMetric(server, 'connections_limited_total', (value) => value >= 500);
  const answer = await request(`${at}/healthz`, { from: '127.0.0.3' }).catch((error) => error.code);
  assert.ok(answer === 'ECONNRESET' || (answer.status === 429 && Number(answer.retryAfter) >= 1), JSON.stringify(answer));
  for (const from of ['127.0.0.2', '127.0.0.4']) assert.equal((await request(`${at}/healthz`, { from })).status, 200);
  assert.ok((await websocket(t, at.replace('http', 'ws'), { localAddress: '127.0.0.4' })).readyState === WebSocket.OPEN);
  await answers(good);
  const line = await logged(server, (line) => JSON.stringify(line).includes('address_limits.connections'), 'the limit');
  assert.ok(JSON.stringify(line).includes('127.0.0.3'), JSON.stringify(line));
  // The flood ends, and its address is served again.
  flood.forEach((socket) => socket.destroy());
  await until('the address is served', async () => (await request(`${at}/healthz`, { from: '127.0.0.3' }).catch(() => ({}))).status === 200);
});

test('socket.io-client: errors in acknowledgements, and no new session above the limit', async (t) => {
  const server = await serve(t, { config: `
[address_limits]
sessions_max = 2
[session_limits]
messages_per_second = 5
[[rules]]
event = "say"
broadcast = ["*"]
ack = true
` });
  const open = (transports) => {
    const socket = io(server.http, { forceNew: true, transports, reconnection: false });
    t.after(() => socket.disconnect());
    return socket;
  };
  for (const transports of [['polling'], ['websocket']]) {
    const socket = open(transports);
    await event(socket, 'connect', PATIENCE_MS, 'connect_error');
    // Five at once, and another one each 200 ms: most of these are refused, however slow the machine is.
    const answers = await Promise.all(Array.from({ length: 500 }, (_, n) => within(socket.emitWithAck('say', n), 'an acknowledgement')));
    assert.ok(answers.slice(0, 5).every(({ ok }) => ok));
    assert.ok(answers.some(({ code }) => code === 'too_many_requests'));
    assert.ok(answers.every(({ ok, code }) => ok || code === 'too_many_requests'));
  }
  const third = open(['websocket']);
  await within(new Promise((resolve) => third.once('connect_error', resolve)), 'the refusal');
  assert.equal((await request(`${server.http}/socket.io/?EIO=4&transport=polling`)).status, 429);
  await untilMetric(server, 'sessions_limited_total', (value) => value >= 2);
});

const hasIpv6 = await new Promise((resolve) => { const probe = net.createServer().once('error', () => resolve(false)).listen(0, '::1', () => probe.close(() => resolve(true))); });

test('IPv6: a /64 is one address', { skip: !hasIpv6 && 'there is no IPv6' }, async (t) => {
  const server = await serve(t, { listen: '[::]:0', config: '[address_limits]\nconnections_max = 3\n[proxies]\ntrusted = ["::1"]\n' });
  const url = `ws://[::1]:${new URL(server.http).port}`;
  const of = (address) => websocket(t, url, { headers: { 'X-Forwarded-For': address } });
  for (let n = 1; n <= 3; n++) assert.equal((await of(`2001:db8:0:1::${n}`)).readyState, WebSocket.OPEN);
  assert.deepEqual(await of('2001:db8:0:1:ffff::1'), { refused: 429, retryAfter: '5' });
  assert.equal((await of('2001:db8:0:2::1')).readyState, WebSocket.OPEN);
  // The loopback of version 4 reaches the same listener, and isn't trusted.
  const four = (n) => websocket(t, url.replace('[::1]', '127.0.0.1'), { headers: { 'X-Forwarded-For': `192.0.2.${n}` } });
  for (let n = 1; n <= 3; n++) assert.equal((await four(n)).readyState, WebSocket.OPEN);
  assert.equal((await four(4)).refused, 429);
});

test('a proxy that is not trusted is named in the log, and in a metric', async (t) => {
  const server = await serve(t, { args: ['--cores', '1'] });
  await Promise.all(Array.from({ length: 120 }, () => websocket(t, server.ws)));
  const { message } = await logged(server, (line) => line.message?.includes('[proxies] trusted'), 'the proxy');
  assert.match(message, /100 % of the sessions come from 127\.0\.0\.1/);
  await untilMetric(server, 'address_share_percent', (value) => value === 100);
});

test('connections without a sound PROXY header are closed, logged and counted', async (t) => {
  const server = await serve(t, { config: '[server]\nproxy_protocol = "required"\n[proxies]\ntrusted = ["127.0.0.1"]\n' });
  await assert.rejects(request(`${server.http}/healthz`));
  const port = Number(new URL(server.http).port);
  const socket = net.connect(port, '127.0.0.1');
  socket.write('PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  const [answer] = await event(socket, 'data', PATIENCE_MS);
  assert.match(String(answer), /^HTTP\/1.1 200 /);
  await untilMetric(server, 'proxy_headers_refused_total', (value) => value === 1);
  await logged(server, (line) => JSON.stringify(line).includes('PROXY protocol header'), 'the refusal');
});

test('a reload changes limits and proxies, also for what is open', async (t) => {
  const config = (connections, messages, more = '') => `[address_limits]
connections_max = ${connections}
[session_limits]
messages_per_second = ${messages}
${more}`;
  const server = await serve(t, { args: ['--cores', '2'], config: config(2, 2) });
  const reload = async (text) => {
    writeFileSync(server.configFile, text);
    const answer = await fetch(`${server.admin}/api/v1/reload`, { method: 'POST' });
    assert.equal(answer.status, 200);
    return answer.json();
  };
  const ping = async (socket) => {
    socket.send(JSON.stringify({ type: 'ping' }));
    const { type, code } = JSON.parse((await event(socket, 'message'))[0]);
    return code ?? type;
  };
  const from = { localAddress: '127.0.0.2' };
  const open = await websocket(t, server.ws, from);
  await websocket(t, server.ws, from);
  assert.equal((await websocket(t, server.ws, from)).refused, 429);
  assert.deepEqual([await ping(open), await ping(open), await ping(open)], ['ok', 'ok', 'too_many_requests']);

  let changed = await reload(config(3, 100_000));
  assert.deepEqual(changed.restart_needed, []);
  assert.deepEqual(changed.applied, ['address_limits.connections_max', 'session_limits.messages_per_second']);
  await until('the new limit', async () => await ping(open) === 'ok');
  await answers(open);
  assert.ok((await websocket(t, server.ws, from)).send, 'the third connection');
  assert.equal((await websocket(t, server.ws, from)).refused, 429);

  // A lower limit ends nothing that is open.
  changed = await reload(config(1, 100_000));
  assert.equal(await ping(open), 'ok');
  assert.equal((await websocket(t, server.ws, from)).refused, 429);

  // Each client of a trusted proxy counts by itself.
  changed = await reload(config(1, 100_000, '[proxies]\ntrusted = ["127.0.0.2"]\n'));
  assert.deepEqual([changed.applied, changed.restart_needed], [['proxies.trusted'], []]);
  for (const address of ['192.0.2.1', '192.0.2.2']) {
    const client = { ...from, headers: { 'X-Forwarded-For': address } };
    assert.ok((await websocket(t, server.ws, client)).send, address);
    assert.equal((await websocket(t, server.ws, client)).refused, 429);
  }

  // What isn't counted at all has no tables.
  changed = await reload('[user_limits]\nsessions_max = 1\n[proxies]\ntrusted = ["127.0.0.2"]\n');
  assert.deepEqual(changed.applied, []);
  assert.deepEqual(changed.restart_needed, ['address_limits.connections_max', 'user_limits.sessions_max', 'session_limits.messages_per_second']);
  assert.equal((await websocket(t, server.ws, { ...from, headers: { 'X-Forwarded-For': '192.0.2.1' } })).refused, 429);
});
