// What Socket.IO's own servers ask of each other, asked by them of Stentor and by Stentor's admin API of them. A server that doesn't
// answer keeps the others waiting for 5 seconds; Stentor's answers have to be there long before.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import test from 'node:test';
import notepack from 'notepack.io';
import { admin, issuer, ISSUER, metric, token } from '../admin.mjs';
import { client, four, nodeServer, redisClient, sorted, stentor } from '../bridge.mjs';
import { clock, event, until, within } from '../harness.mjs';
import { missing, redis } from '../redis.mjs';

const skip = missing;
/** Less than the time after which Socket.IO's servers give up. */
const SOON_MS = 3_000;

test('a Node server sees who a client of Stentor is, and none of its secrets', { skip }, async (t) => {
  const engine = await redis(t);
  const [{ io }, own] = await Promise.all([nodeServer(t, engine), stentor(t, engine, { more: `[auth]\nanonymous = "allow"\n${issuer}` })]);
  const happened = clock();
  const found = async (id) => (await within(io.in(id).fetchSockets(), 'the answers', SOON_MS))[0];
  const anyone = await client(t, own, []);
  const socket = await found(anyone.id);
  const { headers, address, time, issued, xdomain, secure, url, query, auth, ...others } = socket.handshake;
  assert.deepEqual([address, xdomain, secure, url, query, auth, others], ['127.0.0.1', false, false, '/socket.io/?EIO=4&transport=websocket', { EIO: '4', transport: 'websocket' }, {}, {}]);
  assert.match(headers.host, /^127\.0\.0\.1:/);
  assert.ok(happened(issued) && Date.parse(time) === issued, `${time} ${issued}`);
  // The socket can be acted on.
  const personal = event(anyone, 'personal');
  socket.emit('personal', 1);
  assert.deepEqual(await personal, [1]);

  const secret = 'hush';
  const extraHeaders = { 'user-agent': `agent "${'x'.repeat(300)}`, origin: own.http, cookie: secret, 'x-forwarded-for': secret, referer: secret };
  const spy = await client(t, own, [], { transports: ['polling', 'websocket'], query: { secret }, extraHeaders });
  const { handshake } = await found(spy.id);
  assert.deepEqual([handshake.headers['user-agent'].length, handshake.headers.origin, handshake.xdomain, handshake.query.transport], [256, own.http, true, 'polling']);
  assert.ok(!JSON.stringify(handshake).includes(secret), JSON.stringify(handshake));

  for (const [sub, info] of [['ada "1"', { name: 'Ä' }], ['bob', undefined]]) {
    const bearer = token({ sub, ...(info && { stentor: { info } }) });
    const { id } = await client(t, own, [], { auth: { token: bearer }, query: { token: bearer }, extraHeaders: { authorization: `Bearer ${bearer}` } });
    const { data, handshake } = await found(id);
    assert.deepEqual(data, { user: { id: sub, issuer: ISSUER }, ...(info && { info }) });
    assert.ok(!JSON.stringify(handshake).includes(bearer), JSON.stringify(handshake));
  }
});

test('the admin API concerns the sockets of all servers', { skip }, async (t) => {
  const { own, first, clients, ids } = await four(t);
  const list = await within(admin(own, 'sessions', { rooms: ['red'] }), 'the answers', SOON_MS);
  assert.deepEqual([list.count, sorted(list.sessions.map(({ id }) => id)), list.missing_nodes], [4, sorted(ids), undefined]);
  for (const session of list.sessions) assert.deepEqual([session.protocol, session.rooms], ['socketio', ['red']]);
  // The others are asked, not waited for.
  await admin(own, 'join', { rooms: ['red'], except: { sessions: [ids[3]] }, join: ['green', 'blue'] });
  const rooms = async () => (await admin(own, 'rooms')).rooms;
  await until('they have joined', async () => (await rooms()).some(({ name, sessions }) => name === 'green' && sessions === 3));
  assert.deepEqual(await rooms(), [{ name: 'blue', sessions: 3 }, { name: 'green', sessions: 3 }, { name: 'red', sessions: 4 }]);
  await admin(own, 'leave', { sessions: [ids[0], ids[2]], leave: ['green'] });
  await until('they have left', async () => (await rooms()).some(({ name, sessions }) => name === 'green' && sessions === 1));
  assert.deepEqual([...first.of('/').sockets.get(ids[0]).rooms].sort(), sorted([ids[0], 'red', 'blue']));
  const { count } = await admin(own, 'sessions', { rooms: ['red'], except: { rooms: ['green'] } });
  assert.equal(count, 3);
  const ended = clients.slice(1).map((socket) => event(socket, 'disconnect'));
  await admin(own, 'disconnect', { rooms: ['red'], except: { sessions: [ids[0]] } });
  await Promise.all(ended);
  assert.ok(clients[0].connected);
});

test('a server that does not answer is named', { skip }, async (t) => {
  const { engine, own } = await four(t);
  const silent = await redisClient(t, engine.url);
  await silent.subscribe('socket.io-request#/#', () => {});
  const list = await admin(own, 'sessions', { rooms: ['red'] });
  assert.deepEqual([list.count, list.missing_nodes], [4, ['socketio']]);
  assert.equal(await metric(own, 'bridge_requests_incomplete_total'), 1);
});

test('requests in the form of older adapters are answered', { skip }, async (t) => {
  const { engine, clients, ids } = await four(t);
  const [asking, publish] = [await redisClient(t, engine.url), await redisClient(t, engine.url)];
  const answers = [];
  await asking.subscribe('socket.io-response#/#', (text) => answers.push(JSON.parse(text)));
  const ask = async (body, count) => {
    const requestId = randomBytes(4).toString('hex');
    await publish.publish('socket.io-request#/#', JSON.stringify({ uid: 'abcdef', requestId, ...body }));
    const own = () => answers.filter((answer) => answer.requestId === requestId);
    await until('the answers are there', () => own().length === count, SOON_MS);
    return own();
  };
  const found = await ask({ type: 0, rooms: ['red'] }, 4);
  assert.deepEqual(sorted(found.flatMap(({ sockets }) => sockets)), sorted(ids));
  assert.deepEqual((await ask({ type: 0, rooms: ['nobody'] }, 4)).map(({ sockets }) => sockets), [[], [], [], []]);
  // Only the server that has the socket answers.
  for (const sid of [ids[0], ids[2]]) {
    await ask({ type: 2, sid, room: 'old' }, 1);
    assert.deepEqual((await ask({ type: 0, rooms: ['old'] }, 4)).flatMap(({ sockets }) => sockets), [sid]);
    await ask({ type: 3, sid, room: 'old' }, 1);
    assert.deepEqual((await ask({ type: 0, rooms: ['old'] }, 4)).flatMap(({ sockets }) => sockets), []);
    const ended = event(clients[ids.indexOf(sid)], 'disconnect');
    await ask({ type: 4, sid, close: false }, 1);
    await ended;
  }
});

test('a flood of requests of strangers is answered in part', { skip }, async (t) => {
  const engine = await redis(t);
  const own = await stentor(t, engine);
  const here = await client(t, own, ['red']);
  const publish = await redisClient(t, engine.url);
  // Most of it costs the server nothing else, so that a slow one reaches its limit too.
  const flood = publish.multi();
  for (let n = 0; n < 12_000; n++) {
    const rooms = n % 20 ? ['x'.repeat(257)] : [];
    flood.publish('socket.io-request#/#', JSON.stringify({ uid: 'abcdef', type: 5, requestId: `${n}`, opts: { rooms, except: [] } }));
  }
  await flood.exec();
  await until('some are refused', async () => (await metric(own, 'bridge_messages_refused_total', 'reason="rate"')) > 0);
  await until('it goes on', async () => {
    await publish.publish('socket.io#/#red#', notepack.encode(['foreign', { type: 2, data: ['news'], nsp: '/' }, { rooms: ['red'], except: [] }]));
    return here.seen.some(([name]) => name === 'news');
  });
  assert.ok(here.connected);
});
