// Notices: a backend is told what happens. all/hook-notices.test.mjs has those of several nodes.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import test from 'node:test';
import WebSocket from 'ws';
import { samples } from './admin.mjs';
import { clock, serve, until } from './harness.mjs';
import { hook, noticeBackend, secret } from './hook-backends.mjs';
import { ask, plain, socketIo } from './sockets.mjs';

test('notices arrive in order, again if need be, and signed', async (t) => {
  const notices = [];
  let failures = 2;
  const url = await noticeBackend(t, (body, response, request) => {
    const [, time, signature] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(request.headers['stentor-signature']);
    assert.equal(signature, createHmac('sha256', secret).update(`${time}.`).update(body).digest('hex'));
    if (failures-- > 0) return response.writeHead(503).end();
    const parsed = JSON.parse(body);
    assert.deepEqual(Object.keys(parsed), ['version', 'node', 'notices']);
    notices.push(...parsed.notices);
    response.end();
  });
  const on = ['connected', 'disconnected', 'subscribed', 'occupied', 'vacated'];
  const server = await serve(t, {
    config: hook('log', url, `on = ${JSON.stringify(on)}\nrooms_max = 9\nsecret = "${secret}"`) + '[[rules]]\nevent = "join"\njoin = ["{}"]\nack = true\n',
  });
  const arrived = (count) => until(`${count} notices`, () => notices.length >= count);
  const happened = clock();
  const ada = await socketIo(t, server.http, { transports: ['websocket'] });
  assert.equal((await ask(ada, 'join', 'r')).ok, true);
  const bob = await plain(t, new WebSocket(`${server.ws}/ws`));
  await bob.ask({ type: 'subscribe', room: 'r' });
  await arrived(5);
  const { id } = ada;
  ada.disconnect();
  await arrived(6);
  await bob.ask({ type: 'unsubscribe', room: 'r' });
  await arrived(7);
  assert.deepEqual(notices.map(({ sequence }) => sequence), [1, 2, 3, 4, 5, 6, 7]);
  const shown = notices.map(({ notice, connection, room }) => [notice, connection?.session, room].filter(Boolean).join(' '));
  assert.deepEqual(shown, [
    `connected ${id}`, 'occupied r', `subscribed ${id} r`, `connected ${bob.session}`, `subscribed ${bob.session} r`,
    `disconnected ${id}`, 'vacated r',
  ]);
  assert.deepEqual(notices[0].connection, { session: id, protocol: 'socketio', namespace: '/', address: '127.0.0.1' });
  assert.deepEqual(notices[5].connection, { session: id, namespace: '/', rooms: ['r'] });
  assert.ok(happened(notices[0].at_ms));
  assert.equal((await samples(server, 'hook_notices_total'))['hook="log",kind="connected"'], 2);
  assert.equal((await samples(server, 'hook_notices_dropped_total'))['hook="log"'], 0);
  assert.equal((await samples(server, 'hook_request_failures_total'))['hook="log",cause="unavailable"'], 2);
});

test('a notice that the backend cannot handle keeps no others', async (t) => {
  const notices = [];
  const url = await noticeBackend(t, (body, response) => {
    const parsed = JSON.parse(body).notices;
    if (parsed.some(({ room }) => room === 'poison')) return response.writeHead(500).end();
    notices.push(...parsed);
    response.end();
  });
  const server = await serve(t, { config: hook('log', url, 'on = ["occupied"]') });
  const client = await plain(t, new WebSocket(`${server.ws}/ws`));
  for (const room of ['a', 'b', 'poison', 'c', 'd']) {
    await client.ask({ type: 'subscribe', room });
  }
  await until('the notices', () => notices.length >= 4);
  assert.deepEqual(notices.map(({ room }) => room), ['a', 'b', 'c', 'd']);
  assert.deepEqual(notices.map(({ sequence }) => sequence), [1, 2, 4, 5]);
  // It is sent again until it has failed for a minute.
  assert.equal((await samples(server, 'hook_notices_dropped_total'))['hook="log"'], 0);
  assert.equal((await samples(server, 'hook_waiting_notices'))['hook="log"'], 1);
});
