// Who is in a room, as real clients see it: plain WebSocket, @stentor/client and Socket.IO, on one node and on two with a real engine.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import test from 'node:test';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { connect } from '../../clients/js/src/index.js';
import { event, inbox, serve, within } from './harness.mjs';
import { missing as withoutNats, nats } from './nats.mjs';
import { missing as withoutRedis, redis, until } from './redis.mjs';

const SECRET = '0123456789abcdef0123456789abcdef';
const ISSUER = 'https://id.example.com/';
const ROOM = 'chat/7';

/** A token whose user is shown with a name, and may see who is in rooms unless told not to. */
function token(user, maySee = true) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const now = Math.floor(Date.now() / 1000);
  const stentor = { info: { name: user.toUpperCase() }, allow: maySee ? [{ rooms: ['chat/*'], allow: ['presence'] }] : [] };
  const text = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ iss: ISSUER, sub: user, iat: now, exp: now + 600, stentor })}`;
  return `${text}.${createHmac('sha256', SECRET).update(text).digest('base64url')}`;
}

const config = `
[rooms]
presence = ["chat/"]
presence_grace = "4s"
[auth]
[[auth.issuers]]
issuer = "${ISSUER}"
algorithms = ["HS256"]
keys = [{ secret = "${SECRET}" }]
[[permissions]]
rooms = ["chat/*"]
allow = ["subscribe"]
[[rules]]
event = "join"
join = ["{}"]
ack = true
[[rules]]
event = "leave"
leave = ["{}"]
ack = true
`;

/** A client of `stentor.v1`: `ask(message)` gives the answer, `notice()` the next notice. */
async function plain(t, server, user, maySee) {
  const socket = new WebSocket(`${server.ws}/ws`, ['stentor.v1'], { headers: { Authorization: `Bearer ${token(user, maySee)}` } });
  t.after(() => socket.terminate());
  const messages = inbox(socket);
  await once(socket, 'open');
  const { session } = await messages.json();
  const notices = [];
  let id = 0;
  const next = async (wanted) => {
    const message = await within(messages.json(), `a message for ${user}`);
    if (message.type === 'presence' && message.id === undefined) notices.push(message);
    return wanted(message);
  };
  const ask = async (message) => {
    id += 1;
    socket.send(JSON.stringify({ id, ...message }));
    for (;;) {
      let answer;
      if (await next((message) => (answer = message).id === id)) return answer;
    }
  };
  const notice = async () => {
    while (!notices.length) await next(() => false);
    return notices.shift();
  };
  return { socket, session, ask, notice };
}

/** @stentor/client in the room: its connection, its presence, and what that emitted about others. */
function watcher(t, server, user, maySee) {
  const connection = connect(server.http, { WebSocket, getToken: () => token(user, maySee) });
  t.after(() => connection.close());
  const presence = connection.room(ROOM).presence();
  const seen = [];
  for (const name of ['join', 'leave', 'error']) presence.on(name, (what) => what.user !== user && seen.push([name, what.user ?? what.code]));
  return { connection, presence, seen };
}

async function socketio(t, server, user, maySee) {
  const socket = io(server.http, { forceNew: true, transports: ['websocket'], auth: { token: token(user, maySee) } });
  t.after(() => socket.disconnect());
  socket.notices = [];
  socket.on('stentor:presence', (notice) => socket.notices.push(notice));
  await event(socket, 'connect');
  assert.deepEqual(await within(socket.emitWithAck('join', ROOM), 'the answer to join'), { ok: true });
  socket.presence = (options) => within(socket.emitWithAck('stentor:presence', ROOM, ...(options ? [options] : [])), 'the members');
  return socket;
}

const users = (members) => members.map(({ user }) => user).sort();

/** Until a watcher's list is current, and of these users. */
const shows = ({ presence }, ...wanted) => until(`${wanted} are there`, () => presence.isCurrent && `${users(presence.members)}` === `${wanted}`, 60_000);

test('clients of each protocol see who is in a room', async (t) => {
  const server = await serve(t, { config });
  const ada = watcher(t, server, 'ada');
  await shows(ada, 'ada');
  const [{ since, ...own }] = ada.presence.members;
  assert.deepEqual(own, { session: ada.connection.session, user: 'ada', info: { name: 'ADA' } });
  assert.ok(Math.abs(Date.now() - since) < 60_000, `${since}`);

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

test('without the permission, clients learn the number of members only, and as members only', async (t) => {
  const server = await serve(t, { config });
  const ada = watcher(t, server, 'ada');
  await shows(ada, 'ada');
  const eve = await plain(t, server, 'eve', false);
  assert.equal((await eve.ask({ type: 'presence', room: ROOM, members: false })).code, 'not_allowed');
  assert.equal((await eve.ask({ type: 'subscribe', room: ROOM, presence: true })).code, 'not_allowed');
  assert.equal((await eve.ask({ type: 'subscribe', room: ROOM })).type, 'ok');
  assert.equal((await eve.ask({ type: 'presence', room: ROOM })).code, 'not_allowed');
  assert.equal((await eve.ask({ type: 'presence', room: ROOM, members: false })).count, 2);
  const fay = watcher(t, server, 'fay', false);
  await until('the client reports it', () => fay.seen.length);
  assert.deepEqual([fay.seen, fay.presence.members, fay.presence.isCurrent], [[['error', 'not_allowed']], [], false]);
  const gus = await socketio(t, server, 'gus', false);
  for (const options of [undefined, { subscribe: true }]) {
    const { ok, code } = await gus.presence(options);
    assert.deepEqual([ok, code], [false, 'not_allowed']);
  }
  assert.equal((await gus.presence({ members: false })).count, 4);
  await shows(ada, 'ada', 'eve', 'fay', 'gus');
  assert.deepEqual(gus.notices, []);
});

for (const [name, startEngine, skip] of [['Redis', redis, withoutRedis], ['NATS', nats, withoutNats]]) {
  test(`members of all nodes are seen on each, and those of a dead node leave (${name})`, { skip }, async (t) => {
    const engine = await startEngine(t);
    const node = (name) => serve(t, { config: `${config}[cluster]\nengine = "${engine.url}"\nnode = "${name}"\nsecret = "known-to-all-nodes"\n` });
    const [a, b] = await Promise.all([node('a'), node('b')]);
    // A node asks those that it knows. It may see members of others before.
    for (const server of [a, b]) await until('the nodes know each other', async () => (await (await fetch(`${server.admin}/api/v1/nodes`)).json()).nodes.length === 2);
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
      const listed = await (await fetch(`${server.admin}/api/v1/rooms/members?room=${encodeURIComponent(ROOM)}`)).json();
      const same = all.members.map(({ user, since, ...rest }) => ({ ...rest, user: { id: user, issuer: ISSUER }, since: Math.floor(since / 1000) }));
      assert.deepEqual(listed, { members: same, count: 4 });
      const asked = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ rooms: [ROOM] }) };
      const { sessions } = await (await fetch(`${server.admin}/api/v1/sessions`, asked)).json();
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
}

function bySession(one, other) {
  return one.session < other.session ? -1 : 1;
}
