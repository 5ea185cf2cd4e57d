// Hooks: a backend decides what the events of real clients do, and a backend that misbehaves harms nobody but those who ask it.
import assert from 'node:assert/strict';
import { createHmac, generateKeyPairSync, sign } from 'node:crypto';
import { once } from 'node:events';
import { test } from 'node:test';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { admin, now, samples } from './admin.mjs';
import { clock, PATIENCE_MS, serve, statusOf, until, website } from './harness.mjs';
import { backend, hook, secret } from './hook-backends.mjs';
import { ask, plain, socketIo } from './sockets.mjs';

test('an event is a signed request, and its answer joins, acknowledges and emits', async (t) => {
  const { url, seen } = await backend(t, {
    answer: ({ event, arguments: [room, text] }) => event === 'join'
      ? { join: [room], ack: [{ joined: room }, 2] }
      : { emit: [{ event: 'said', arguments: [text, 1], rooms: [room], except_sender: true }, { event: 'echo', data: { text } }] },
  });
  const happened = clock();
  const config = hook('chat', url, `on = ["event"]\nsecret = "${secret}"`) + '[[rules]]\nevent = "ruled"\nack = true\n';
  const server = await serve(t, { config });
  const [ada, bob] = [await socketIo(t, server.http), await socketIo(t, server.http, { transports: ['polling'] })];
  // An acknowledgement of several values is the first of them here.
  assert.deepEqual(await ask(ada, 'join', 'r'), { joined: 'r' });
  assert.deepEqual(await ask(bob, 'join', 'r'), { joined: 'r' });
  assert.deepEqual(await ask(ada, 'ruled'), { ok: true });
  const said = once(bob, 'said');
  const echo = once(ada, 'echo');
  ada.on('said', () => assert.fail('the sender is left out'));
  ada.emit('say', 'r', 'hello', { n: 1 }, Buffer.from('bytes'));
  assert.deepEqual(await said, ['hello', 1]);
  assert.deepEqual(await echo, [{ text: 'hello' }]);

  const { headers, body, questions: [question], method, url: path } = seen[0];
  assert.deepEqual([method, path, headers['content-type']], ['POST', '/hooks?a=1', 'application/json']);
  const [, time, signature] = headers['stentor-signature'].match(/^t=(\d+),v1=([0-9a-f]{64})$/);
  assert.equal(createHmac('sha256', secret).update(`${time}.`).update(body).digest('hex'), signature);
  assert.ok(happened(time * 1_000));
  assert.equal(JSON.parse(body).version, 1);
  assert.deepEqual(question, {
    id: 1, hook: 'event', connection: { session: ada.id, protocol: 'socketio', namespace: '/', address: '127.0.0.1' },
    user: null, event: 'join', arguments: ['r'], acknowledge: true,
  });
  const say = seen.flatMap(({ questions }) => questions).find(({ event }) => event === 'say');
  assert.deepEqual(say.arguments, ['r', 'hello', { n: 1 }, { _placeholder: true, num: 0 }]);
  assert.deepEqual([say.attachments, say.acknowledge], [[Buffer.from('bytes').toString('base64')], false]);
});

test('clients of stentor.v1 send events over WebSocket and SockJS', async (t) => {
  const { url, seen } = await backend(t, { answer: ({ event, arguments: [data] }) => ({ ack: [{ event, data }] }) });
  const server = await serve(t, { config: hook('chat', url, 'on = ["event"]\nevents = ["a*"]') });
  for (const [protocol, connect] of [
    ['websocket', () => new WebSocket(`${server.ws}/ws`)],
    ['sockjs', () => new SockJS(`${server.http}/sockjs`, null, { transports: ['xhr-polling'], timeout: PATIENCE_MS })],
  ]) {
    const client = await plain(t, connect());
    assert.deepEqual(await client.ask({ type: 'event', event: 'add', data: [1] }), { type: 'ok', id: 1, data: { event: 'add', data: [1] } });
    const { type, code } = await client.ask({ type: 'event', event: 'other' });
    assert.deepEqual([type, code], ['error', 'unknown_event']);
    const { connection } = seen.at(-1).questions[0];
    assert.deepEqual(connection, { session: client.session, protocol, namespace: '/', address: '127.0.0.1' });
  }
});

test('events of one client keep their order, those of many share requests', async (t) => {
  let server;
  const { url, seen } = await backend(t, {
    answer: async ({ arguments: [n] }) => {
      // As a backend that asks others before it answers.
      await statusOf(server.http, '/healthz');
      return { ack: [n] };
    },
  });
  server = await serve(t, { config: hook('chat', url, 'on = ["event"]') });
  const clients = await Promise.all(Array.from({ length: 20 }, () => socketIo(t, server.http, { transports: ['websocket'] })));
  const all = clients.flatMap((client, c) => Array.from({ length: 50 }, (_, n) => ask(client, 'count', n, c)));
  const answers = await Promise.all(all);
  assert.deepEqual(answers, clients.flatMap(() => Array.from({ length: 50 }, (_, n) => n)));
  for (const { questions } of seen) {
    const sessions = questions.map(({ connection }) => connection.session);
    assert.equal(new Set(sessions).size, sessions.length, 'one event of a session at a time');
    assert.ok(questions.length <= 100);
  }
  for (const { id } of clients) {
    const order = seen.flatMap(({ questions }) => questions).filter(({ connection }) => connection.session === id);
    assert.deepEqual(order.map(({ arguments: [n] }) => n), Array.from({ length: 50 }, (_, n) => n));
  }
  assert.ok(seen.length < 800, `${seen.length} requests for 1,000 events`);
});

test('a hook that misbehaves refuses its own clients only, and says why in the metrics', async (t) => {
  const good = await backend(t, { answer: ({ arguments: [n] }) => ({ ack: [n] }) });
  // Answers when others have been answered often.
  let count = 0;
  let release;
  const often = new Promise((resolve) => { release = resolve; });
  const slow = await backend(t, { answer: () => often.then(() => ({ ack: ['late'] })) });
  const answer = (answers) => (response, questions) => response.end(JSON.stringify({ answers: answers(questions) }));
  const bad = {
    timeout: () => {},
    // As many bytes as are taken, without a length; and a length that is never sent.
    too_large: (response) => {
      const chunk = Buffer.alloc(65_536, 0x20);
      const more = () => { while (response.write(chunk)); };
      response.on('drain', more).on('error', () => {});
      more();
    },
    'too_large ': (response) => response.writeHead(200, { 'content-length': 1_000_000_000 }).write('{'),
    status: (response) => response.writeHead(500).end('{"answers":[]}'),
    unavailable: (response) => response.writeHead(503).end('{"answers":[]}'),
    redirect: (response) => response.writeHead(307, { location: good.url }).end(),
    invalid: (response) => response.end('<html>'),
    'invalid ': answer((questions) => questions.map(({ id }) => ({ id, ack: 'no list' }))),
    missing_answer: answer(() => []),
    'missing_answer ': answer((questions) => questions.map(({ id }) => ({ id: id + 1_000, ack: [1] }))),
    'missing_answer  ': answer((questions) => questions.map(({ id }) => ({ id: String(id), ack: [1] }))),
    broken: (response) => response.writeHead(200, { 'content-length': 100 }).write('{', () => response.destroy()),
    'broken ': (response) => response.socket.end('nonsense\r\n\r\n'),
  };
  const hooks = [['good', good], ['slow', slow]].map(([name, { url }]) => hook(name, url, `on = ["event"]\nevents = ["${name}"]`));
  const names = Object.keys(bad);
  for (const [n, name] of names.entries()) {
    const { url } = await backend(t, { respond: bad[name] });
    const timeout = name === 'timeout' ? 'timeout = "500ms"\n' : '';
    hooks.push(hook(`bad${n}`, url, `on = ["event"]\nevents = ["bad${n}"]\n${timeout}secret = "${secret}"`));
  }
  names.push('connect');
  hooks.push(hook(`bad${names.length - 1}`, 'http://127.0.0.1:1/', `on = ["event"]\nevents = ["bad${names.length - 1}"]`));
  const server = await serve(t, { config: hooks.join('') });
  const victim = await socketIo(t, server.http);
  const other = await socketIo(t, server.http);
  let asking = true;
  const unaffected = (async () => {
    while (asking) {
      assert.equal(await ask(other, 'good', count), count);
      if (++count === 20) release();
    }
  })();
  assert.equal(await ask(victim, 'slow'), 'late');
  for (const [n, name] of names.entries()) {
    const refused = await ask(victim, `bad${n}`);
    assert.deepEqual([refused.ok, refused.code], [false, 'unavailable'], name);
    assert.doesNotMatch(refused.message, /127\.0\.0\.1|timeout|invalid/, 'it says nothing about the backend');
    const failures = await samples(server, 'hook_request_failures_total');
    assert.equal(failures[`hook="bad${n}",cause="${name.trim()}"`], 1, name);
    const unanswered = await samples(server, 'hook_unanswered_questions_total');
    assert.equal(unanswered[`hook="bad${n}",cause="${name.trim()}"`], 1, name);
  }
  asking = false;
  await unaffected;
  const held = await samples(server, 'memory_bytes');
  assert.equal(held['class="hooks"'], 0);
  assert.ok(!server.log.join('').includes(secret));
});

test('a connect hook grants permissions', async (t) => {
  const { url } = await backend(t, {
    answer: ({ hook, client, room }) => hook === 'connect'
      ? { allow: true, user: '42', permissions: client.user_agent === 'staff' ? [{ rooms: ['staff/**'], allow: ['subscribe'] }] : [] }
      : { allow: room !== 'staff/secret', code: 'secret' },
  });
  const permissions = '[auth]\nanonymous = "allow"\n[[permissions]]\nrooms = ["open"]\nallow = ["subscribe"]\nto = "anyone"\n';
  const server = await serve(t, { config: permissions + hook('chat', url, 'on = ["connect", "subscribe"]') });
  for (const [agent, expected] of [['staff', ['ok', 'ok', 'secret', 'not_allowed']], ['other', ['ok', 'not_allowed', 'not_allowed', 'not_allowed']]]) {
    const client = await plain(t, new WebSocket(`${server.ws}/ws`, { headers: { 'user-agent': agent } }));
    const answers = [];
    for (const room of ['open', 'staff/a', 'staff/secret', 'elsewhere']) {
      const { type, code } = await client.ask({ type: 'subscribe', room });
      answers.push(code ?? type);
    }
    assert.deepEqual(answers, expected, agent);
  }
});

test('a hook that decides who may subscribe decides who may list members', async (t) => {
  const { url } = await backend(t, { answer: ({ room }) => ({ allow: room !== 'secret', code: 'secret' }) });
  for (const on of ['"subscribe"', '"connect", "subscribe"']) {
    const server = await serve(t, { config: hook('chat', url, `on = [${on}]`) });
    const client = await plain(t, new WebSocket(`${server.ws}/ws`));
    const list = async (room, members) => {
      const { type, code } = await client.ask({ type: 'presence', room, members });
      return code ?? type;
    };
    for (const members of [true, false]) {
      assert.equal(await list('secret', members), 'secret', on);
      assert.notEqual(await list('open', members), 'secret', on);
    }
  }
});

test('users that a hook names are revoked, and those without a token may return', async (t) => {
  const { url } = await backend(t, { answer: ({ client }) => ({ allow: true, user: client.user_agent }) });
  const permissions = '[auth]\nanonymous = "allow"\n[[permissions]]\nrooms = ["x"]\nallow = ["subscribe"]\n';
  const server = await serve(t, { config: permissions + hook('chat', url, 'on = ["connect"]') });
  const open = (user) => new WebSocket(`${server.ws}/ws`, { headers: { 'user-agent': user } });
  const [ada, bob] = [open('ada'), open('bob')];
  await Promise.all([ada, bob].map((socket) => plain(t, socket)));
  const revoke = async (body) => (await admin(server, 'revocations', body)).sessions;
  assert.equal(await revoke({ issued_before: now() + 2 }), 0, 'they have no tokens');
  const ended = once(ada, 'close');
  const revoked = now();
  assert.equal(await revoke({ issuer: 'hook:chat', subject: 'ada' }), 1);
  assert.equal((await ended)[0], 4407);
  assert.equal(bob.readyState, WebSocket.OPEN);
  const returns = () => new Promise((resolve) => {
    open('ada').on('open', () => resolve(101)).on('error', () => {}).on('unexpected-response', (_, { statusCode }) => resolve(statusCode));
  });
  // She is refused for the rest of the second of the revocation, and may return in the next one.
  assert.ok(await returns() === 401 || now() > revoked);
  await until('the next second', async () => await returns() === 101);
});

test('a hook decides about subscriptions and publications, and its answers are kept', async (t) => {
  const { url, seen } = await backend(t, {
    answer: ({ hook, room, feed }) => {
      const name = room ?? feed;
      if (name.includes('secret')) return { allow: false, code: 'too_secret', message: `${hook} ${name}`, ttl: 60 };
      return { allow: true, ttl: name.includes('kept') ? 60 : 0 };
    },
  });
  const down = 'http://127.0.0.1:1/';
  const config = `[rooms]\npublish = true\n${hook('acl', url, 'on = ["subscribe", "publish"]\nrooms_max = 2\ntopics = ["acl/*"]')}`
    + hook('open', down, 'on = ["subscribe"]\ntopics = ["open/*"]\nwhen_unavailable = "allow"')
    + hook('closed', down, 'on = ["subscribe"]\ntopics = ["closed/*"]');
  const server = await serve(t, { config });
  const client = await plain(t, new WebSocket(`${server.ws}/ws`));
  const request = async (message) => {
    const answer = await client.ask(message);
    return answer.code ?? answer.type;
  };
  const subscribe = (room) => request({ type: 'subscribe', room });
  assert.equal(await subscribe('acl/a'), 'ok');
  assert.equal(await subscribe('acl/secret'), 'too_secret');
  assert.equal(await subscribe('acl/secret'), 'too_secret');
  assert.equal(await request({ type: 'publish', room: 'acl/secret', data: 1 }), 'too_secret');
  assert.equal(await request({ type: 'publish', room: 'acl/a', data: 1 }), 'ok');
  assert.equal(await request({ type: 'subscribe', feed: 'acl/secret/feed' }), 'too_secret');
  for (let n = 0; n < 3; n++) assert.equal(await request({ type: 'publish', room: 'acl/kept', data: 1 }), 'ok');
  const asked = seen.flatMap(({ questions }) => questions).map(({ hook, room, feed }) => `${hook} ${room ?? feed}`);
  assert.deepEqual(asked, [
    'subscribe acl/a', 'subscribe acl/secret', 'publish acl/secret', 'publish acl/a', 'subscribe acl/secret/feed', 'publish acl/kept',
  ]);
  const [first, ...later] = seen.map(({ questions: [{ connection }] }) => connection);
  assert.deepEqual(first, { session: client.session, namespace: '/', rooms: [] });
  assert.deepEqual(later[2], { ...first, rooms: ['acl/a'] });
  assert.equal((await samples(server, 'hook_cached_answers_total'))['hook="acl"'], 3);
  assert.equal(await subscribe('other'), 'ok');
  assert.equal(await subscribe('open/a'), 'ok');
  assert.equal(await subscribe('closed/a'), 'unavailable');
});

test('a hook says who clients are, and which rooms they join', async (t) => {
  const { url, seen } = await backend(t, {
    answer: ({ hook, client, user, info }) => {
      if (hook === 'event') return { ack: [{ user, info }] };
      if (client.token === 'good') return { allow: true, user: '42', info: { name: 'Ada' }, join: ['user:42'] };
      return { allow: false, code: 'token_invalid', message: 'log in first' };
    },
  });
  const server = await serve(t, { config: hook('auth', url, 'on = ["connect", "event"]') });
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  const expected = { user: { id: '42', issuer: 'hook:auth' }, info: { name: 'Ada' } };
  for (const transports of [['websocket'], ['polling']]) {
    const socket = await socketIo(t, server.http, { transports, auth: { token: 'good' } });
    assert.deepEqual(await ask(socket, 'who'), expected);
    const { connection, client } = seen.map(({ questions: [question] }) => question).findLast(({ hook }) => hook === 'connect');
    assert.deepEqual(connection, { session: socket.id, protocol: 'socketio', namespace: '/', address: '127.0.0.1' });
    assert.equal(client.token, 'good');
    const message = once(socket, 'news');
    await admin(server, 'publish', { room: 'user:42', event: 'news', data: 1 });
    assert.deepEqual(await message, [1]);
    await assert.rejects(socketIo(t, server.http, { transports, auth: { token: 'bad' } }), (error) => {
      assert.deepEqual([error.message, error.data.code], ['log in first', 'token_invalid']);
      return true;
    });
  }
  for (const [protocol, connect] of [
    ['websocket', () => new WebSocket(`${server.ws}/ws?token=good`, { headers: { 'user-agent': 'test/1', origin: server.http, traceparent } })],
    ['sockjs', () => new SockJS(`${server.http}/sockjs?token=good`, null, { transports: ['xhr-polling'], timeout: PATIENCE_MS })],
  ]) {
    const client = await plain(t, connect());
    assert.deepEqual((await client.ask({ type: 'event', event: 'who' })).data, expected, protocol);
    // What clients may do otherwise hasn't changed.
    assert.equal((await client.ask({ type: 'publish', room: 'r', data: 1 })).code, 'not_allowed');
  }
  const claimed = seen.map(({ questions: [question] }) => question.client).find((client) => client?.user_agent === 'test/1');
  assert.deepEqual(claimed, { origin: server.http, user_agent: 'test/1', traceparent, token: 'good' });
  await plain(t, new WebSocket(`${server.ws}/ws?token=good`, { headers: { traceparent: `${traceparent}x` } }));
  assert.equal(seen.at(-1).questions[0].client.traceparent, undefined, 'of another form');
  const refused = new WebSocket(`${server.ws}/ws?token=bad`);
  const [, response] = await once(refused, 'unexpected-response');
  assert.equal(response.statusCode, 401);
});

test('a message names a session like a room, in answers and in the admin API', async (t) => {
  const { url, seen } = await backend(t, {
    answer: ({ hook, arguments: [rooms, more] = [] }) => hook === 'connect'
      ? { allow: true, join: ['all'], emit: [{ event: 'hello', data: 1 }, { event: 'came', data: 2, rooms: ['all'], except_sender: true }] }
      : { emit: [{ event: 'said', data: 3, rooms, ...more }], ack: [] },
  });
  const config = `[rooms]\npublish = true\n${hook('chat', url, 'on = ["connect", "event"]\nrooms_max = 1')}`;
  const server = await serve(t, { config });
  const [ada, bob] = [await socketIo(t, server.http), await socketIo(t, server.http, { transports: ['polling'] })];
  const eve = await plain(t, new WebSocket(`${server.ws}/ws`));
  const texts = (socket) => socket.seen.map((args) => args.join(' ')).sort();
  const received = (socket, ...expected) => until(`${expected} of ${texts(socket)}`, () => {
    if (texts(socket).join() !== [...expected].sort().join()) return false;
    socket.seen.length = 0;
    return true;
  });
  await received(ada, 'hello 1', 'came 2', 'came 2');
  await received(bob, 'hello 1', 'came 2');
  assert.equal((await eve.next()).event, 'hello', 'after the welcome');

  await ask(ada, 'say', [bob.id, ada.id, 'all']);
  await received(ada, 'said 3');
  await received(bob, 'said 3');
  await ask(ada, 'say', [bob.id], { volatile: true });
  await received(bob, 'said 3');
  await ask(ada, 'say', [eve.session]);
  const unreceived = async (count) => until(`${count} without recipients`, async () => (await samples(server, 'hook_emit_without_recipients_total'))['hook="chat"'] === count);
  await unreceived(1);  // When Ada came, nobody else was there.
  await ask(ada, 'say', ['nowhere']);
  await unreceived(2);
  const { connection } = seen.findLast(({ questions: [{ event }] }) => event === 'say').questions[0];
  assert.deepEqual([connection.rooms, connection.more_rooms], [['all'], undefined]);

  await admin(server, 'publish', { room: bob.id, event: 'news', data: 4, volatile: true });
  await admin(server, 'emit', { rooms: [bob.id, 'all'], except: { rooms: [ada.id] }, event: 'news', data: 5 });
  await received(bob, 'news 4', 'news 5');
  await received(ada);
  // To clients, the id is no room.
  for (const room of [ada.id, bob.id, eve.session]) {
    for (const type of ['subscribe', 'publish']) assert.equal((await eve.ask({ type, room, data: 6 })).code, 'not_allowed', `${type} ${room}`);
  }
  const { id } = bob;
  bob.disconnect();
  await until('the end of the session', async () => (await admin(server, 'sessions', { sessions: [id] })).count === 0);
  await ask(ada, 'say', [id]);
  await unreceived(3);
  assert.equal((await eve.ask({ type: 'subscribe', room: id })).code, 'not_allowed', 'the session has ended');
});

test('while a connect hook is down, clients are refused, or accepted as nobody', async (t) => {
  for (const [policy, isAccepted] of [['refuse', false], ['allow', true]]) {
    const config = hook('auth', 'http://127.0.0.1:1/', `on = ["connect"]\nwhen_unavailable = "${policy}"`);
    const server = await serve(t, { config });
    const attempt = socketIo(t, server.http, { auth: { token: 'any' } });
    if (isAccepted) await attempt;
    else await assert.rejects(attempt, ({ data }) => data?.code === 'unavailable' && data.retry);
  }
});

test('a connect hook is asked about each namespace, wherever the token is', async (t) => {
  const { url, seen } = await backend(t, {
    answer: ({ connection: { namespace = '/' }, client }) => ({ allow: namespace === '/' && client.token === 'good', code: 'not_here' }),
  });
  const config = `[socketio]\nnamespaces = ["/admin"]\n${hook('auth', url, 'on = ["connect"]')}`;
  const server = await serve(t, { config });
  for (const options of [{ query: { token: 'good' } }, { auth: { token: 'good' } }]) {
    const main = await socketIo(t, server.http, options);
    const admin = main.io.socket('/admin', options);
    t.after(() => admin.disconnect());
    const [error] = await Promise.race([once(admin, 'connect_error'), once(admin, 'connect').then(() => [{ data: { code: 'connected' } }])]);
    assert.equal(error.data.code, 'not_here', JSON.stringify(options));
    const { connection, client } = seen.at(-1).questions.at(-1);
    assert.deepEqual([connection.namespace, client.token], ['/admin', 'good']);
  }
});

test('a hook is asked about clients whose token is verified and about what permissions allow', async (t) => {
  const issuer = 'https://id.example.com/';
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const token = (sub, key = privateKey) => {
    const text = `${part({ alg: 'ES256', kid: 'k' })}.${part({ iss: issuer, aud: 'stentor', sub, iat: now(), exp: now() + 600 })}`;
    return `${text}.${sign('sha256', Buffer.from(text), { key, dsaEncoding: 'ieee-p1363' }).toString('base64url')}`;
  };
  // The first client waits for the keys, so its hook is asked later than those of others.
  const keys = await website(t, (_, response) => response.end(JSON.stringify({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'ES256', use: 'sig' }] })));
  const { url, seen } = await backend(t, {
    answer: ({ hook, user, room }) => hook === 'connect'
      ? { allow: user.id !== 'banned', code: 'banned', join: [`own:${user.id}`] }
      : { allow: !room.endsWith('secret') },
  });
  const config = `[auth]
[[auth.issuers]]
issuer = "${issuer}"
audience = "stentor"
algorithms = ["ES256"]
jwks_url = "${keys}/"
[[permissions]]
topics = ["news", "news/*"]
allow = ["subscribe"]
[[rules]]
event = "join"
join = ["{}"]
ack = true
${hook('chat', url, 'on = ["connect", "subscribe"]')}`;
  const server = await serve(t, { config });
  for (const attempt of ['waits for the keys', 'known at once']) {
    const socket = await socketIo(t, server.http, { auth: { token: token('42') } });
    const { questions: [question] } = seen.at(-1);
    assert.deepEqual(question.user, { id: '42', issuer }, attempt);
    assert.equal(question.client.token, undefined, 'a verified token stays in the server');
    const join = async (room) => (await ask(socket, 'join', room)).code ?? 'ok';
    assert.deepEqual([await join('news'), await join('news/secret')], ['ok', 'not_allowed']);
    const before = seen.length;
    assert.equal(await join('other'), 'not_allowed');
    assert.equal(seen.length, before, 'nothing is asked about what permissions deny');
    const message = once(socket, 'news');
    await admin(server, 'publish', { room: 'own:42', event: 'news', data: 1 });
    assert.deepEqual(await message, [1], attempt);
    await assert.rejects(socketIo(t, server.http, { auth: { token: token('banned') } }), ({ data }) => data.code === 'banned');
  }
  const before = seen.length;
  const other = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  await assert.rejects(socketIo(t, server.http, { auth: { token: token('42', other) } }), ({ data }) => data.code === 'token_invalid');
  assert.equal(seen.length, before, 'nothing is asked about forged tokens');
});
