// Limits per address and session with real clients, directly and behind HAProxy and nginx: who is above one learns it, and a client
// that isn't is never delayed. docs/limits.md has the rules.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { PATIENCE_MS, event, logged, serve, within } from './harness.mjs';
import { haproxy, missing, nginx } from './proxies.mjs';

/** The sum of a metric. */
async function metric(server, name) {
  const text = await (await fetch(`${server.admin}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line.startsWith(`stentor_${name}`) && !line.startsWith('#'));
  assert.ok(lines.length > 0, `no ${name}`);
  return lines.reduce((sum, line) => sum + Number(line.split(' ').pop()), 0);
}

async function untilMetric(server, name, holds) {
  for (const end = Date.now() + PATIENCE_MS; ; await passed(20)) {
    const value = await metric(server, name);
    if (holds(value)) return value;
    assert.ok(Date.now() < end, `${name} stayed at ${value}`);
  }
}

/** A request from an address of this machine: { status, retryAfter, body }. */
const request = (url, { from, headers, method = 'GET' } = {}) => new Promise((resolve, reject) => {
  const call = http.request(url, { localAddress: from, headers, method, agent: false }, (response) => {
    let body = '';
    response.on('data', (chunk) => (body += chunk));
    response.on('end', () => resolve({ status: response.statusCode, retryAfter: response.headers['retry-after'], body }));
  });
  call.on('error', reject).end();
});

/** A WebSocket: the open socket with its welcome, or { refused: status, retryAfter }. */
function websocket(t, url, options) {
  const socket = new WebSocket(`${url}/ws`, options);
  t.after(() => socket.terminate());
  return within(new Promise((resolve, reject) => {
    socket.once('message', () => resolve(socket));
    socket.once('unexpected-response', (_, response) => resolve({ refused: response.statusCode, retryAfter: response.headers['retry-after'] }));
    socket.once('error', reject);
  }), 'a WebSocket');
}

/** Asks a server again and again until stopped, 50 times at least; then gives the time in ms that one answer in ten exceeded. */
function watch(t, socket, pause_ms) {
  const times = [];
  let stop = false;
  const done = (async () => {
    for (let id = 0; !stop || id < 50; id++) {
      const began = performance.now();
      socket.send(JSON.stringify({ type: 'ping', id }));
      const [answer] = await event(socket, 'message', PATIENCE_MS);
      assert.deepEqual(JSON.parse(answer), { type: 'ok', id });
      times.push(performance.now() - began);
      await passed(pause_ms);
    }
  })();
  done.catch(() => {});
  t.after(() => { stop = true; });
  return async () => {
    stop = true;
    await done;
    times.sort((one, other) => one - other);
    return times[Math.floor(times.length * 0.9)];
  };
}

// Far below what a queue behind the abuser would take.
const ADDED_MS_MAX = 250;

/** Watches a client of a server that somebody floods, and one of a server without anybody else: the machine may delay both. */
async function watchBoth(t, socket, pause_ms) {
  const idle = await serve(t, { args: ['--cores', '1'] });
  const slow = [watch(t, socket, pause_ms), watch(t, await websocket(t, idle.ws), pause_ms)];
  return async () => {
    const [flooded, usual] = await Promise.all(slow.map((stop) => stop()));
    assert.ok(flooded < usual + ADDED_MS_MAX, `one answer in ten took more than ${flooded} ms, and ${usual} ms without a flood`);
  };
}

test('connections of an address: a flood is refused, and others are served at once', async (t) => {
  const server = await serve(t, { args: ['--cores', '1'], config: '[address_limits]\nconnections_max = 20\nconnections_per_second = 500\n', listen: '0.0.0.0:0' });
  const at = server.http.replace('0.0.0.0', '127.0.0.1');
  const good = await websocket(t, at.replace('http', 'ws'), { localAddress: '127.0.0.2' });
  const assertQuick = await watchBoth(t, good, 5);
  const flood = Array.from({ length: 600 }, () => net.connect({ port: Number(new URL(at).port), host: '127.0.0.1', localAddress: '127.0.0.3' }).on('error', () => {}));
  t.after(() => flood.forEach((socket) => socket.destroy()));
  await untilMetric(server, 'connections_limited_total', (value) => value >= 500);
  const answer = await request(`${at}/healthz`, { from: '127.0.0.3' }).catch((error) => error.code);
  assert.ok(answer === 'ECONNRESET' || (answer.status === 429 && Number(answer.retryAfter) >= 1), JSON.stringify(answer));
  for (const from of ['127.0.0.2', '127.0.0.4']) assert.equal((await request(`${at}/healthz`, { from })).status, 200);
  assert.ok((await websocket(t, at.replace('http', 'ws'), { localAddress: '127.0.0.4' })).readyState === WebSocket.OPEN);
  await passed(1_000);
  await assertQuick();
  const line = await logged(server, (line) => JSON.stringify(line).includes('address_limits.connections'), 'the limit');
  assert.ok(JSON.stringify(line).includes('127.0.0.3'), JSON.stringify(line));
  // The flood ends, and its address is served again.
  flood.forEach((socket) => socket.destroy());
  await untilMetric(server, 'connections{', (value) => value <= 4);
  await within((async () => { while ((await request(`${at}/healthz`, { from: '127.0.0.3' }).catch(() => ({}))).status !== 200) await passed(50); })(), 'an answer');
});

test('messages of a session: a flood is answered with errors, and others are served at once', async (t) => {
  const server = await serve(t, { args: ['--cores', '1'], config: '[session_limits]\nmessages_per_second = 100\npublications_per_second = 20\n[rooms]\npublish = true\n' });
  // Slower than its limit.
  const assertQuick = await watchBoth(t, await websocket(t, server.ws), 15);
  const bad = await websocket(t, server.ws);
  const codes = {};
  bad.on('message', (text) => { const { type, code } = JSON.parse(text); codes[code ?? type] = (codes[code ?? type] ?? 0) + 1; });
  const begun = performance.now();
  const flood = setInterval(() => { for (let n = 0; n < 300; n++) bad.send(JSON.stringify({ type: n % 2 ? 'publish' : 'ping', id: n, room: 'r', data: n })); }, 20);
  t.after(() => clearInterval(flood));
  await passed(1_000);
  await untilMetric(server, 'messages_limited_total', (value) => value > 5_000);
  await assertQuick();
  clearInterval(flood);
  await within((async () => { while (!(codes.too_many_requests > 5_000)) await passed(20); })(), 'errors');
  // As many at once as in a second.
  const allowed = 100 + (100 * (performance.now() - begun)) / 1_000;
  assert.ok(codes.ok <= allowed, `${allowed}: ${JSON.stringify(codes)}`);
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
    const begun = performance.now();
    const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => within(socket.emitWithAck('say', n), 'an acknowledgement')));
    const refused = answers.filter(({ code }) => code === 'too_many_requests').length;
    // Five at once, and another one each 200 ms.
    const later = Math.ceil((performance.now() - begun) / 200);
    assert.ok(refused >= 15 - later && refused <= 15, `${refused} of 20 were refused, where ${later} were allowed later`);
    assert.ok(answers.every(({ ok, code }) => ok || code === 'too_many_requests'));
  }
  const third = open(['websocket']);
  await within(new Promise((resolve) => third.once('connect_error', resolve)), 'the refusal');
  assert.equal((await request(`${server.http}/socket.io/?EIO=4&transport=polling`)).status, 429);
  await untilMetric(server, 'sessions_limited_total', (value) => value >= 2);
});

test('a session that sends too much is closed with 4506', async (t) => {
  const server = await serve(t, { config: '[session_limits]\nbytes_per_second = "10kB"\npolicy = "close"\n' });
  const socket = await websocket(t, server.ws);
  for (let n = 0; n < 20; n++) socket.send(JSON.stringify({ type: 'ping', x: 'x'.repeat(1_000) }));
  const [code] = await event(socket, 'close', PATIENCE_MS);
  assert.equal(code, 4506);
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

// Behind a proxy on 127.0.0.1, two clients of other addresses, which claim to be somebody else.
const trusted = '[proxies]\ntrusted = ["127.0.0.1"]\n[address_limits]\nconnections_max = 2\n';
const required = `${trusted}[server]\nproxy_protocol = "required"\n`;
const sends = (header) => ({ changes: [[' check\n', ` check check-send-proxy ${header}\n`]] });
const tcp = [['mode http', 'mode tcp'], ['http-reuse always', ''], ['option forwardfor', ''], ['    http-request set-header X-Forwarded-Proto https if { ssl_fc }\n', ''], ['    http-request set-header X-Forwarded-Proto http if !{ ssl_fc }\n', '']];
const behind = [
  ['HAProxy: docs/deploy/haproxy.cfg', haproxy, {}, trusted],
  ['HAProxy: Forwarded', haproxy, { changes: [['default_backend', 'http-request set-header Forwarded for=%[src]\n    default_backend']] }, trusted.replace('[proxies]\n', '[proxies]\nheader = "forwarded"\n')],
  ['HAProxy: PROXY protocol 1', haproxy, sends('send-proxy'), required],
  ['HAProxy: PROXY protocol 2', haproxy, sends('send-proxy-v2'), required],
  ['HAProxy: PROXY protocol 2 over TCP, with checksums', haproxy, { changes: [...sends('send-proxy-v2 proxy-v2-options crc32c,unique-id').changes, ...tcp] }, required],
  ['nginx: docs/deploy/nginx.conf', nginx, {}, trusted],
];

for (const [name, proxy, options, config] of behind) {
  test(name, { skip: missing(proxy.name) }, async (t) => {
    const server = await serve(t, { args: ['--cores', '2'], config });
    const at = await proxy(t, server, options);
    const of = (localAddress) => websocket(t, at.ws, { localAddress, headers: { 'X-Forwarded-For': '203.0.113.9', Forwarded: 'for=203.0.113.9' } });
    for (let n = 0; n < 2; n++) assert.equal((await of('127.0.0.5')).readyState, WebSocket.OPEN);
    assert.deepEqual(await of('127.0.0.5'), { refused: 429, retryAfter: '5' });
    assert.equal((await of('127.0.0.6')).readyState, WebSocket.OPEN);
    assert.equal((await request(`${at.http}/healthz`, { from: '127.0.0.6' })).status, 200);
    assert.equal(await metric(server, 'proxy_headers_refused_total'), 0);
  });
}

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

  let changed = await reload(config(3, 1000));
  assert.deepEqual(changed.restart_needed, []);
  assert.deepEqual(changed.applied, ['address_limits.connections_max', 'session_limits.messages_per_second']);
  await passed(1_100);
  for (let n = 0; n < 20; n++) assert.equal(await ping(open), 'ok');
  assert.ok((await websocket(t, server.ws, from)).send, 'the third connection');
  assert.equal((await websocket(t, server.ws, from)).refused, 429);

  // A lower limit ends nothing that is open.
  changed = await reload(config(1, 1000));
  assert.equal(await ping(open), 'ok');
  assert.equal((await websocket(t, server.ws, from)).refused, 429);

  // Each client of a trusted proxy counts by itself.
  changed = await reload(config(1, 1000, '[proxies]\ntrusted = ["127.0.0.2"]\n'));
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
