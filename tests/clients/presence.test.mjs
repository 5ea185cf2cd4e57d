// Who is in a room, as real clients see it, on one node. all/presence.test.mjs has two nodes with a real engine.
import assert from 'node:assert/strict';
import test from 'node:test';
import { clock, serve, until, within } from './harness.mjs';
import { config, plain, ROOM, shows, socketio, users, watcher } from './presence.mjs';

test('clients of each protocol see who is in a room', async (t) => {
  const server = await serve(t, { config });
  const happened = clock();
  const ada = watcher(t, server, 'ada');
  await shows(ada, 'ada');
  const [{ since, ...own }] = ada.presence.members;
  assert.deepEqual(own, { session: ada.connection.session, user: 'ada', info: { name: 'ADA' } });
  assert.ok(happened(since), `${since}`);

  const bob = await plain(t, server, 'bob');
  assert.equal((await bob.ask({ type: 'subscribe', room: ROOM, presence: true })).type, 'ok');
  await shows(ada, 'ada', 'bob');
  const answer = await bob.ask({ type: 'presence', room: ROOM });
  assert.deepEqual([answer.count, users(answer.members), typeof answer.version, answer.incomplete], [2, ['ada', 'bob'], 'number', undefined]);
  assert.deepEqual(answer.members.find(({ user }) => user === 'ada'), { ...own, since });

  const cleo = await socketio(t, server, 'cleo');
  const asked = await cleo.presence({ subscribe: true });
  assert.deepEqual([asked.ok, asked.room], [true, ROOM]);
  // Its own membership is in the list, or else in the next notice.
  assert.equal(asked.count, asked.members.length);
  await until('the Socket.IO client knows all', () => cleo.notices.length || asked.count === 3);
  const known = [...asked.members, ...cleo.notices.flatMap(({ joined }) => joined)];
  assert.deepEqual(users(known), ['ada', 'bob', 'cleo']);
  assert.equal(known.find(({ user }) => user === 'cleo').session, cleo.id);
  let notice;
  do notice = await bob.notice(); while (!notice.joined.some(({ session }) => session === cleo.id));
  assert.equal(notice.count, 3);
  assert.deepEqual(notice.joined.find(({ user }) => user === 'cleo').info, { name: 'CLEO' });
  await shows(ada, 'ada', 'bob', 'cleo');
  assert.equal(ada.presence.count, 3);

  // A user who returns in time neither leaves nor joins: not for the others, and not in their own list.
  const dan = watcher(t, server, 'dan');
  await shows(dan, 'ada', 'bob', 'cleo', 'dan');
  await shows(ada, 'ada', 'bob', 'cleo', 'dan');
  const before = ada.connection.session;
  ada.connection.reconnect();
  do notice = await bob.notice(); while (!notice.replaced);
  assert.deepEqual([notice.joined, notice.left, notice.count], [[], [], 4]);
  await until('it is connected again', () => ada.connection.session && ada.connection.session !== before);
  const [{ since: newer, ...returned }] = notice.replaced;
  assert.deepEqual(returned, { ...own, session: ada.connection.session, replaces: before });
  assert.ok(newer >= since);
  await shows(ada, 'ada', 'bob', 'cleo', 'dan');
  await until('the Socket.IO client is told', () => cleo.notices.some(({ replaced }) => replaced?.[0].replaces === before));

  // Who leaves the room is gone at once, whose connection ends after the grace.
  await cleo.presence({ subscribe: false });
  assert.deepEqual(await within(cleo.emitWithAck('leave', ROOM), 'the answer to leave'), { ok: true });
  do notice = await bob.notice(); while (!notice.left.length);
  assert.deepEqual([notice.left, notice.count], [[{ session: cleo.id, user: 'cleo' }], 3]);
  bob.socket.terminate();
  await shows(ada, 'ada', 'dan');
  await shows(dan, 'ada', 'dan');
  // Bob's end came after Ada's: her grace is over, too.
  assert.deepEqual(ada.seen, [['join', 'bob'], ['join', 'cleo'], ['join', 'dan'], ['leave', 'cleo'], ['leave', 'bob']]);
  assert.deepEqual(dan.seen, [['leave', 'cleo'], ['leave', 'bob']]);
  assert.equal(dan.presence.count, 2);
});

test('without the permission, clients are told so', async (t) => {
  const server = await serve(t, { config });
  const fay = watcher(t, server, 'fay', false);
  await until('the client reports it', () => fay.seen.length);
  assert.deepEqual([fay.seen, fay.presence.members, fay.presence.isCurrent], [[['error', 'not_allowed']], [], false]);
  const gus = await socketio(t, server, 'gus', false);
  assert.equal((await gus.presence({ subscribe: true })).code, 'not_allowed');
  assert.equal((await gus.presence({ members: false })).ok, true);
});
