// Notices: a backend is told what happens.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import WebSocket from 'ws';
import { serve } from './harness.mjs';
import { ask, connected, hook, metric, noticeBackend, plain, secret } from './hook-backends.mjs';
import { missing as withoutRedis, redis, until } from './redis.mjs';

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
    config: hook('log', url, `on = ${JSON.stringify(on)}\nsecret = "${secret}"`) + '[[rules]]\nevent = "join"\njoin = ["{}"]\nack = true\n',
  });
  const until = async (count) => { while (notices.length < count) await passed(20); };
  const ada = await connected(t, server, { transports: ['websocket'] });
  assert.equal((await ask(ada, 'join', 'r')).ok, true);
  const bob = await plain(t, new WebSocket(`${server.ws}/ws`));
  bob.send({ type: 'subscribe', room: 'r', id: 1 });
  await bob.next();
  await until(5);
  const { id } = ada;
  ada.disconnect();
  await until(6);
  bob.send({ type: 'unsubscribe', room: 'r', id: 2 });
  await until(7);
  assert.deepEqual(notices.map(({ sequence }) => sequence), [1, 2, 3, 4, 5, 6, 7]);
  const shown = notices.map(({ notice, connection, room }) => [notice, connection?.session, room].filter(Boolean).join(' '));
  assert.deepEqual(shown, [
    `connected ${id}`, 'occupied r', `subscribed ${id} r`, `connected ${bob.session}`, `subscribed ${bob.session} r`,
    `disconnected ${id}`, 'vacated r',
  ]);
  assert.deepEqual(notices[0].connection, { session: id, protocol: 'socketio', namespace: '/', address: '127.0.0.1' });
  assert(Math.abs(notices[0].at_ms - Date.now()) < 60_000);
  assert.equal((await metric(server, 'hook_notices_total'))['hook="log",kind="connected"'], 2);
  assert.equal((await metric(server, 'hook_notices_dropped_total'))['hook="log"'], 0);
  assert.equal((await metric(server, 'hook_request_failures_total'))['hook="log",cause="unavailable"'], 2);
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
    client.send({ type: 'subscribe', room, id: room });
    await client.next();
  }
  while (notices.length < 4) await passed(20);
  assert.deepEqual(notices.map(({ room }) => room), ['a', 'b', 'c', 'd']);
  assert.deepEqual(notices.map(({ sequence }) => sequence), [1, 2, 4, 5]);
  assert.equal((await metric(server, 'hook_notices_dropped_total'))['hook="log"'], 1);
});

test('of the nodes that are left, one reports a node that has died', { skip: withoutRedis }, async (t) => {
  const notices = [];
  const url = await noticeBackend(t, (body, response) => {
    const { node, notices: more } = JSON.parse(body);
    notices.push(...more.map((notice) => ({ node, ...notice })));
    response.end();
  });
  const engine = await redis(t);
  const cluster = `[cluster]\nengine = "${engine.url}"\nsecret = "known-to-all-nodes"\n`;
  const servers = await Promise.all([1, 2, 3].map(() => serve(t, { config: hook('log', url, 'on = ["occupied", "vacated", "node_lost"]') + cluster })));
  const found = (wanted) => notices.filter(({ notice }) => notice === wanted);
  for (const server of servers) {
    const client = await plain(t, new WebSocket(`${server.ws}/ws`));
    client.send({ type: 'subscribe', room: 'lobby', id: 1 });
    await client.next();
  }
  await until('all have reported the room', () => found('occupied').length === 3);
  await until('they know each other', async () => {
    const nodes = await Promise.all(servers.map(async ({ admin }) => (await (await fetch(`${admin}/api/v1/nodes`)).json()).nodes.length));
    return nodes.every((count) => count === 3);
  });
  // A room of its own shows its id.
  const victim = servers[2];
  const client = await plain(t, new WebSocket(`${victim.ws}/ws`));
  client.send({ type: 'subscribe', room: 'own', id: 1 });
  await client.next();
  await until('its room', () => found('occupied').some(({ room }) => room === 'own'));
  const { node } = found('occupied').find(({ room }) => room === 'own');
  victim.child.kill('SIGKILL');
  await until('the notice', () => found('node_lost').length > 0, 60_000);
  const lost = found('node_lost');
  assert.deepEqual([...new Set(lost.map(({ lost_node }) => lost_node))], [node]);
  const survivors = found('occupied').map((notice) => notice.node).filter((other) => other !== node).sort();
  assert.deepEqual([...new Set(lost.map((notice) => notice.node))], [survivors[0]], 'the one with the smallest id');
  assert.deepEqual(found('vacated'), [], 'the others still have the room');
});
