// Who is in a room, as real clients see it on two nodes with a real engine.
import assert from 'node:assert/strict';
import { admin, ISSUER } from '../admin.mjs';
import { serve, until } from '../harness.mjs';
import { known, onEachEngine } from '../nodes.mjs';
import { config, plain, ROOM, shows, socketio, users, watcher } from '../presence.mjs';

onEachEngine('members of all nodes are seen on each, and those of a dead node leave', async (t, startEngine) => {
  const engine = await startEngine(t);
  const node = (name) => serve(t, { config: `${config}[cluster]\nengine = "${engine.url}"\nnode = "${name}"\nsecret = "known-to-all-nodes"\n` });
  const [a, b] = await Promise.all([node('a'), node('b')]);
  // A node asks those that it knows. It may see members of others before.
  await known([a, b]);
  const [ada, bob] = [watcher(t, a, 'ada'), watcher(t, b, 'bob')];
  const [cleo, dan] = [await socketio(t, b, 'cleo'), await plain(t, a, 'dan')];
  assert.equal((await dan.ask({ type: 'subscribe', room: ROOM })).type, 'ok');
  for (const one of [ada, bob]) await shows(one, 'ada', 'bob', 'cleo', 'dan');
  assert.deepEqual(ada.presence.members.sort(bySession), bob.presence.members.sort(bySession));
  assert.deepEqual(ada.presence.members.map(({ info }) => info.name).sort(), ['ADA', 'BOB', 'CLEO', 'DAN']);
  assert.equal(ada.presence.members.find(({ user }) => user === 'cleo').session, cleo.id);

  // Who only asks gets the members of both, in pages as well.
  for (const server of [a, b]) {
    const asker = await plain(t, server, 'zoe');
    const all = await asker.ask({ type: 'presence', room: ROOM });
    assert.deepEqual([all.count, users(all.members), all.version, all.incomplete], [4, ['ada', 'bob', 'cleo', 'dan'], undefined, undefined]);
    const pages = [];
    for (let after; ; ) {
      const page = await asker.ask({ type: 'presence', room: ROOM, limit: 3, after });
      pages.push(...page.members);
      if (!(after = page.next)) break;
    }
    assert.deepEqual(pages, all.members);
    // The admin API lists the same, and describes the sessions of both.
    const listed = await admin(server, `rooms/members?room=${encodeURIComponent(ROOM)}`);
    const same = all.members.map(({ user, since, ...rest }) => ({ ...rest, user: { id: user, issuer: ISSUER }, since: Math.floor(since / 1000) }));
    assert.deepEqual(listed, { members: same, count: 4 });
    const { sessions } = await admin(server, 'sessions', { rooms: [ROOM] });
    const facts = sessions.map(({ user, info, address, protocol }) => [user.id, user.issuer, info.name, address, protocol]).sort();
    const expected = ['ada', 'bob', 'cleo', 'dan'].map((name) => [name, ISSUER, name.toUpperCase(), '127.0.0.1', name === 'cleo' ? 'socketio' : 'websocket']);
    assert.deepEqual(facts, expected);
  }

  // A user who moves to the other node in time neither leaves nor joins.
  dan.socket.terminate();
  const moved = await plain(t, b, 'dan');
  assert.equal((await moved.ask({ type: 'subscribe', room: ROOM })).type, 'ok');
  for (const one of [ada, bob]) await until('he is on the other node', () => one.presence.members.some(({ session }) => session === moved.session));
  await cleo.emitWithAck('leave', ROOM);
  const eve = await plain(t, a, 'eve');
  assert.equal((await eve.ask({ type: 'subscribe', room: ROOM })).type, 'ok');
  for (const one of [ada, bob]) await shows(one, 'ada', 'bob', 'dan', 'eve');

  a.child.kill('SIGKILL');
  await shows(bob, 'bob', 'dan');
  const gone = bob.seen.filter(([what]) => what === 'leave').map(([, user]) => user);
  assert.deepEqual([gone[0], ...gone.slice(1).sort()], ['cleo', 'ada', 'eve'], 'Dan has moved');
  assert.equal(bob.presence.count, 2);
  const { count, members } = await moved.ask({ type: 'presence', room: ROOM });
  assert.deepEqual([count, users(members)], [2, ['bob', 'dan']]);
});

function bySession(one, other) {
  return one.session < other.session ? -1 : 1;
}
