// Three nodes on a real Redis or NATS, with real clients on each: rooms, commands of the admin API, a node that dies, an engine that is away.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import test from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import WebSocket from 'ws';
import { websocket } from '../addresses.mjs';
import { admin, issuer, metric, token } from '../admin.mjs';
import { client } from '../client.mjs';
import { event, run, serve, temporary, until, within } from '../harness.mjs';
import { commandsSpanNodes, config, known, meet, member, node, nodes, onEachEngine, roomsSpanNodes } from '../nodes.mjs';
import { proxy } from '../proxy.mjs';
import { missing as withoutRedis, redis } from '../redis.mjs';

onEachEngine('rooms span nodes, for every protocol and publisher', (t, startEngine) => roomsSpanNodes(t, startEngine, ['a', 'b', 'c']));

onEachEngine('commands of the admin API concern the sessions of all nodes', (t, startEngine) => commandsSpanNodes(t, startEngine, ['a', 'b', 'c']));

onEachEngine('a node that stops is named, forgotten when it has died, and no other node notices', async (t, startEngine) => {
  const engine = await startEngine(t);
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name)));
  const sockets = await Promise.all(servers.map((server) => member(t, server, 'red')));
  await meet(servers, sockets, 'red');
  await known(servers);
  const listed = async () => {
    const { sessions, missing_nodes: missing } = await admin(servers[0], 'sessions', { rooms: ['red'] });
    return { ids: sessions.map(({ id }) => id).sort(), missing };
  };
  const answer = (...missing) => ({ ids: sockets.slice(0, 3 - missing.length).map(({ id }) => id).sort(), missing: missing[0] && missing });
  t.after(() => servers[2].child.kill('SIGCONT'));
  // Members of a stopped node are unknown until the node goes on. A thread of it may answer once more before it stops.
  for (const [signal, expected] of [['SIGCONT', answer()], ['SIGSTOP', answer('c')], ['SIGCONT', answer()], ['SIGSTOP', answer('c')]]) {
    servers[2].child.kill(signal);
    await until(signal, async () => isDeepStrictEqual(await listed(), expected));
  }
  assert.deepEqual(await admin(servers[0], 'join', { rooms: ['red'], join: ['green'] }), { sessions: 2, missing_nodes: ['c'] });
  servers[2].child.kill('SIGKILL');
  await until('the dead node is forgotten', async () => (await nodes(servers[0])).length === 2);
  assert.deepEqual(await admin(servers[0], 'join', { rooms: ['red'], join: ['blue'] }), { sessions: 2 });
  const news = event(sockets[1], 'news');
  await admin(servers[0], 'publish', { room: 'red', event: 'news', data: 1 });
  assert.deepEqual(await news, [1]);
});

onEachEngine('a publication that a client repeats at another node: published once in a room with history, otherwise of unknown outcome', async (t, startEngine) => {
  for (const [length, expected] of [[10, 'published'], [0, { code: 'unavailable', outcome: 'unknown' }]]) {
    const engine = await startEngine(t);
    const servers = await Promise.all(['a', 'b'].map((name) => node(t, engine, name, `[rooms]\npublish = true\nhistory_length = ${length}`)));
    await known(servers);
    const between = await proxy(t, servers[0].http);
    const connection = client(t, between.url);
    const heard = [];
    client(t, servers[1].http).room('news').on('message', (data) => heard.push(data));
    const isHeard = (data) => until(data, async () => heard.includes(data) || connection.publish('news', data).then(() => heard.includes(data)));
    await isHeard('ready');
    between.stall();
    const outcome = connection.publish('news', 'once', undefined, { id: 'one' }).then(() => 'published', ({ code, outcome }) => ({ code, outcome }));
    await until('it has arrived', () => heard.includes('once'));
    between.target = servers[1].http;
    between.cut();
    between.flow();
    assert.deepEqual(await outcome, expected);
    await isHeard('last');
    assert.equal(heard.filter((data) => data === 'once').length, 1);
  }
});

onEachEngine('while the engine is away each node serves its own clients, and all of them when it is back', async (t, startEngine) => {
  const engine = await startEngine(t);
  const servers = await Promise.all(['a', 'b'].map((name) => node(t, engine, name)));
  const [first, neighbor, second] = await Promise.all([member(t, servers[0], 'red'), member(t, servers[0], 'red'), member(t, servers[1], 'red')]);
  await meet(servers, [first, neighbor, second], 'red');
  await engine.stop();
  await until('the nodes notice', async () => (await metric(servers[0], 'cluster_engine_up')) === 0);
  const news = [first, neighbor].map((socket) => event(socket, 'news'));
  await admin(servers[0], 'publish', { room: 'red', event: 'news', data: 'near' });
  assert.deepEqual(await Promise.all(news), [['near'], ['near']]);
  await engine.start();
  // A member that came while it was away has to be known as well.
  const late = await member(t, servers[1], 'blue');
  await meet(servers, [first, neighbor, second], 'red');
  await meet(servers, [late], 'blue');
});

onEachEngine('strangers on the same engine are refused, and other clusters are apart', async (t, startEngine) => {
  const engine = await startEngine(t);
  const [own, other] = await Promise.all([node(t, engine, 'a'), node(t, engine, 'b', 'prefix = "other:"')]);
  const stranger = await serve(t, { config: config(engine.url, 'c').replace('known', 'guess') });
  const [here, there] = await Promise.all([member(t, own, 'red'), member(t, other, 'red')]);
  await meet([own], [here], 'red');
  for (const server of [stranger, other]) await admin(server, 'publish', { room: 'red', event: 'news', data: 1 });
  await until('the stranger is noticed', async () => (await metric(own, 'cluster_frames_refused_total', 'not_authentic')) > 0);
  await meet([own], [here], 'red');
  assert.deepEqual(here.seen.filter(([name]) => name === 'news'), []);
  assert.deepEqual(there.seen.filter(([name]) => name === 'news'), [['news', 1]]);
});

test('an engine that is not there is a clear error, and no secret is in it', { skip: withoutRedis }, async (t) => {
  const engine = await redis(t);
  const start = (url) => run('serve', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--config', url);
  const folder = temporary(t);
  const wrong = [
    ['redis://127.0.0.1:1', /can't join the cluster at redis:\/\/127\.0\.0\.1:1/],
    [`redis://nobody:topsecret@127.0.0.1:${engine.port}`, /can't join the cluster at redis:\/\/…@127\.0\.0\.1/],
    ['nats://nobody:topsecret@127.0.0.1:1', /can't join the cluster at nats:\/\/…@127\.0\.0\.1:1/],
    ['mysql://127.0.0.1', /there is no engine `mysql:\/\/`/],
  ];
  for (const [url, expected] of wrong) {
    const file = `${folder}/stentor.toml`;
    writeFileSync(file, config(url, 'a'));
    const { code, stdout, stderr } = await within(start(file), 'the end');
    assert.notEqual(code, 0);
    assert.match(stderr, expected);
    assert.doesNotMatch(stdout + stderr, /topsecret/);
  }
});

onEachEngine('a message to a room with history is published when the engine has it', async (t, startEngine) => {
  const engine = await startEngine(t);
  const server = await node(t, engine, 'a', '[rooms]\nhistory_length = 100\n[limits]\ndecision_timeout = "2s"\n');
  const publish = async (n) => {
    const response = await fetch(`${server.admin}/api/v1/publish`, { method: 'POST', headers: { 'Content-Type': 'application/x-ndjson' }, body: `{"room":"log","data":${n}}\n{"room":"log","data":${n + 1}}` });
    return [response.status, await response.json()];
  };
  assert.deepEqual(await publish(1), [200, { published: 2 }]);
  await engine.stop();
  const [status, answer] = await publish(3);
  assert.deepEqual([status, answer.published, answer.error.line, answer.error.code], [503, 0, 1, 'unavailable']);
  await engine.start();
  await until('it is accepted again', async () => (await publish(5))[0] === 200);
});

onEachEngine('a user revoked on one node is out on all, and on those that start later', async (t, startEngine) => {
  const engine = await startEngine(t);
  const auth = `[auth]${issuer}[[permissions]]\ntopics = ["user:{sub}"]\nallow = ["subscribe"]\n`;
  const start = (name) => node(t, engine, name, auth);
  const [a, b] = await Promise.all(['a', 'b'].map(start));
  await known([a, b]);
  const [revoked, other] = ['42', '43'].map((sub) => ({ headers: { Authorization: `Bearer ${token({ sub })}` } }));
  const [socket, bystander] = await Promise.all([revoked, other].map((options) => websocket(t, b.ws, options)));
  const closed = event(socket, 'close');
  assert.deepEqual(await admin(a, 'revocations', { subject: '42' }), { sessions: 1 });
  assert.equal((await closed)[0], 4407);
  assert.equal(bystander.readyState, WebSocket.OPEN);
  const c = await start('c');
  await until('the new node has the list', async () => (await admin(c, 'revocations')).revocations.length === 1);
  for (const server of [b, c]) {
    assert.equal((await websocket(t, server.ws, revoked)).refused, 401);
    assert.equal((await websocket(t, server.ws, other)).readyState, WebSocket.OPEN);
  }
});
