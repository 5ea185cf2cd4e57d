// Notices of several nodes.
import assert from 'node:assert/strict';
import test from 'node:test';
import WebSocket from 'ws';
import { serve, until } from '../harness.mjs';
import { hook, noticeBackend } from '../hook-backends.mjs';
import { plain } from '../sockets.mjs';
import { known } from '../nodes.mjs';
import { missing, redis } from '../redis.mjs';

test('of the nodes that are left, one reports a node that has died', { skip: missing }, async (t) => {
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
    await client.ask({ type: 'subscribe', room: 'lobby' });
  }
  await until('all have reported the room', () => found('occupied').length === 3);
  await known(servers);
  // A room of its own shows its id.
  const victim = servers[2];
  const client = await plain(t, new WebSocket(`${victim.ws}/ws`));
  await client.ask({ type: 'subscribe', room: 'own' });
  await until('its room', () => found('occupied').some(({ room }) => room === 'own'));
  const { node } = found('occupied').find(({ room }) => room === 'own');
  victim.child.kill('SIGKILL');
  await until('the notice', () => found('node_lost').length > 0);
  const lost = found('node_lost');
  assert.deepEqual([...new Set(lost.map(({ lost_node }) => lost_node))], [node]);
  const survivors = found('occupied').map((notice) => notice.node).filter((other) => other !== node).sort();
  assert.deepEqual([...new Set(lost.map((notice) => notice.node))], [survivors[0]], 'the one with the smallest id');
  assert.deepEqual(found('vacated'), [], 'the others still have the room');
});
