// Limits per address and session with real clients, and what operators see of them. docs/limits.md has the rules, crates/edge/tests/edge/client_limits.rs
// what each limit does, all/limits.test.mjs the same behind HAProxy and nginx.
import assert from 'node:assert/strict';
import net from 'node:net';
import test from 'node:test';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { websocket } from './addresses.mjs';
import { metric, reload } from './admin.mjs';
import { PATIENCE_MS, event, logged, request, serve, until, within } from './harness.mjs';

const untilMetric = (server, name, holds) => until(name, async () => holds(await metric(server, name)));

test('connections of an address above its limit are refused and logged, and other addresses served', async (t) => {
  const server = await serve(t, { args: ['--cores', '1'], config: '[address_limits]\nconnections_max = 2\n', listen: '0.0.0.0:0' });
  const of = (localAddress) => websocket(t, server.ws.replace('0.0.0.0', '127.0.0.1'), { localAddress });
  for (let n = 0; n < 2; n++) assert.equal((await of('127.0.0.3')).readyState, WebSocket.OPEN);
  assert.deepEqual(await of('127.0.0.3'), { refused: 429, retryAfter: '5' });
  assert.equal((await of('127.0.0.4')).readyState, WebSocket.OPEN);
  await untilMetric(server, 'connections_limited_total', (value) => value === 1);
  const line = JSON.stringify(await logged(server, (line) => JSON.stringify(line).includes('address_limits.connections'), 'the limit'));
  assert.ok(line.includes('127.0.0.3'), line);
});

test('socket.io-client: errors in acknowledgements, and no new session above the limit', async (t) => {
  const rule = '[[rules]]\nevent = "say"\nbroadcast = ["*"]\nack = true\n';
  const server = await serve(t, { config: `[address_limits]\nsessions_max = 2\n[session_limits]\nmessages_per_second = 5\n${rule}` });
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
    assert.deepEqual(new Set(answers.map(({ ok, code }) => ok || code)), new Set([true, 'too_many_requests']));
  }
  await event(open(['websocket']), 'connect_error');
  await untilMetric(server, 'sessions_limited_total', (value) => value >= 1);
});

const hasIpv6 = await new Promise((resolve) => { const probe = net.createServer().once('error', () => resolve(false)).listen(0, '::1', () => probe.close(() => resolve(true))); });

test('IPv6: a /64 is one address', { skip: !hasIpv6 && 'there is no IPv6' }, async (t) => {
  const server = await serve(t, { listen: '[::]:0', config: '[address_limits]\nconnections_max = 1\n[proxies]\ntrusted = ["::1"]\n' });
  const url = `ws://[::1]:${new URL(server.http).port}`;
  const of = (address, at = url) => websocket(t, at, { headers: { 'X-Forwarded-For': address } });
  for (const [address, refused] of [['2001:db8:0:1::1'], ['2001:db8:0:1:ffff::1', 429], ['2001:db8:0:2::1']]) assert.equal((await of(address)).refused, refused, address);
  // The loopback of version 4 reaches the same listener, and isn't trusted.
  const four = url.replace('[::1]', '127.0.0.1');
  for (const [address, refused] of [['192.0.2.1'], ['192.0.2.2', 429]]) assert.equal((await of(address, four)).refused, refused, address);
});

test('a proxy that is not trusted is named in the log, and in a metric', async (t) => {
  const server = await serve(t, { args: ['--cores', '1'] });
  await Promise.all(Array.from({ length: 120 }, () => websocket(t, server.ws)));
  const { message } = await logged(server, (line) => line.message?.includes('[proxies] trusted'), 'the proxy');
  assert.match(message, /100 % of the sessions come from 127\.0\.0\.1/);
  await untilMetric(server, 'address_share_percent', (value) => value === 100);
});

test('a proxy that does not name its client in the configured header counts as the client, and is logged once', async (t) => {
  const server = await serve(t, { config: '[address_limits]\nsessions_max = 1\n[proxies]\ntrusted = ["127.0.0.1"]\nheader = "CF-Connecting-IP"\n' });
  const connect = (headers) => websocket(t, server.ws, { headers });
  for (const [address, refused] of [['192.0.2.1'], ['192.0.2.1', 429], ['192.0.2.2'], ['127.0.0.1']]) assert.equal((await connect({ 'CF-Connecting-IP': address })).refused, refused, address);
  const warned = () => server.log.filter((line) => line.includes('CF-Connecting-IP'));
  assert.deepEqual(warned(), []);
  for (const headers of [{}, { 'CF-Connecting-IP': '192.0.2.3, 192.0.2.4' }, { 'X-Forwarded-For': '192.0.2.3' }]) assert.equal((await connect(headers)).refused, 429);
  const { message } = await logged(server, (line) => JSON.stringify(line).includes('CF-Connecting-IP'), 'the header');
  assert.match(message, /^the header CF-Connecting-IP of a request from the proxy 127\.0\.0\.1 is missing/);
  assert.equal(warned().length, 1);
});

test('connections without a sound PROXY header are closed, logged and counted', async (t) => {
  const server = await serve(t, { config: '[server]\nproxy_protocol = "required"\n[proxies]\ntrusted = ["127.0.0.1"]\n' });
  await assert.rejects(request(`${server.http}/healthz`));
  await untilMetric(server, 'proxy_headers_refused_total', (value) => value === 1);
  await logged(server, (line) => JSON.stringify(line).includes('PROXY protocol header'), 'the refusal');
});

test('a reload changes limits and proxies, also for what is open', async (t) => {
  const config = (connections, messages, more = '') => `[address_limits]\nconnections_max = ${connections}\n[session_limits]\nmessages_per_second = ${messages}\n${more}`;
  const server = await serve(t, { args: ['--cores', '2'], config: config(2, 2) });
  const ping = async (socket) => {
    socket.send(JSON.stringify({ type: 'ping' }));
    const { type, code } = JSON.parse((await event(socket, 'message'))[0]);
    return code ?? type;
  };
  const connect = (more) => websocket(t, server.ws, { localAddress: '127.0.0.2', ...more });
  const open = await connect();
  await connect();
  assert.equal((await connect()).refused, 429);
  assert.deepEqual([await ping(open), await ping(open), await ping(open)], ['ok', 'ok', 'too_many_requests']);

  let changed = await reload(server, config(3, 100_000));
  assert.deepEqual(changed.restart_needed, []);
  assert.deepEqual(changed.applied, ['address_limits.connections_max', 'session_limits.messages_per_second']);
  await until('the new limit', async () => await ping(open) === 'ok');
  assert.equal((await connect()).refused, undefined, 'the third connection');
  assert.equal((await connect()).refused, 429);

  // A lower limit ends nothing that is open.
  await reload(server, config(1, 100_000));
  assert.equal(await ping(open), 'ok');
  assert.equal((await connect()).refused, 429);

  // Each client of a trusted proxy counts by itself.
  const proxies = '[proxies]\ntrusted = ["127.0.0.2"]\n';
  changed = await reload(server, config(1, 100_000, proxies));
  assert.deepEqual([changed.applied, changed.restart_needed], [['proxies.trusted'], []]);
  for (const address of ['192.0.2.1', '192.0.2.2']) {
    for (const refused of [undefined, 429]) assert.equal((await connect({ headers: { 'X-Forwarded-For': address } })).refused, refused, address);
  }

  // What isn't counted at all has no tables.
  changed = await reload(server, `[user_limits]\nsessions_max = 1\n${proxies}`);
  assert.deepEqual(changed.applied, []);
  assert.deepEqual(changed.restart_needed, ['address_limits.connections_max', 'user_limits.sessions_max', 'session_limits.messages_per_second']);
  assert.equal((await connect({ headers: { 'X-Forwarded-For': '192.0.2.1' } })).refused, 429);
});
