// Two nodes on a real Redis, with real clients on each. all/cluster.test.mjs has three nodes, and NATS.
import assert from 'node:assert/strict';
import test from 'node:test';
import { admin } from './admin.mjs';
import { event } from './harness.mjs';
import { known, meet, member, node, roomsSpanNodes } from './nodes.mjs';
import { missing, redis } from './redis.mjs';

test('rooms span two nodes, for every protocol and publisher', { skip: missing }, (t) => roomsSpanNodes(t, redis, ['a', 'b']));

test('commands of the admin API concern the sessions of both nodes', { skip: missing }, async (t) => {
  const engine = await redis(t);
  const servers = await Promise.all(['a', 'b'].map((name) => node(t, engine, name)));
  const sockets = await Promise.all(servers.map((server) => member(t, server, 'red')));
  await meet(servers, sockets, 'red');
  await known(servers);
  const list = await admin(servers[1], 'sessions', { rooms: ['red'] });
  assert.deepEqual(list.sessions.map(({ id }) => id).sort(), sockets.map(({ id }) => id).sort());
  const personal = event(sockets[1], 'personal');
  assert.deepEqual(await admin(servers[0], 'emit', { sessions: [sockets[1].id], event: 'personal', data: 7 }), { sessions: 1 });
  assert.deepEqual(await personal, [7]);
});
