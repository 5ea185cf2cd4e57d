// Schedules on a real Redis or NATS in which messages were once lost, repeated or reordered. The simulation of the cluster has the same ones as seeds.
import assert from 'node:assert/strict';
import test from 'node:test';
import WebSocket from 'ws';
import { metric, publish, push } from '../admin.mjs';
import { continuous } from '../chaos/check.mjs';
import { feedsFrom, introduced, serve, until, upstream } from '../harness.mjs';
import { now } from '../members.mjs';
import { missing as withoutNats, nats } from '../nats.mjs';
import { known, node, onEachEngine } from '../nodes.mjs';
import { proxy } from '../proxy.mjs';
import { missing as withoutRedis, redis } from '../redis.mjs';
import { cut, plain, reconnect, socketIo } from '../sockets.mjs';

const HISTORY = '[rooms]\nhistory_length = 100\npublish = true\n';
const RECOVERY = '[socketio]\nrecovery_ttl = "1min"\n';

const numbers = (count) => Array.from({ length: count }, (_, n) => n);
const connect = (t, server) => plain(t, new WebSocket(`${server.ws}/ws`));

/** The engine as a node reaches it by a proxy. */
const behind = (engine, link) => ({ url: engine.url.replace(/\d+$/, new URL(link.url).port) });

/** Whether a node has its engine after so many losses of the connection. */
const isBack = async (server, losses) => await metric(server, 'cluster_connection_losses_total') >= losses && await metric(server, 'cluster_engine_up') === 1;

onEachEngine('what is published after the `ok` of a room that was empty arrives, also if it is published at once', async (t, start) => {
  const engine = await start(t);
  // Cores that order a room, and others.
  const server = await node(t, engine, 'a', `[server]\ncores = 4\n${HISTORY}`);
  const { send, next } = await connect(t, server);
  const first = async (name, value) => {
    for (;;) {
      const message = await next();
      if (message[name] === value) return message;
      assert.equal(message.type, 'ok', JSON.stringify(message));
    }
  };
  for (const waits of [false, true]) {
    for (const n of numbers(15)) {
      const room = `${waits} ${n}`;
      // A room that was left has a position, and one that nobody was in has none.
      for (const before of [0, 3]) {
        send({ id: 'subscribe', type: 'subscribe', room });
        if (waits) await first('id', 'subscribe');
        for (const data of [1, 2, 3]) send({ type: 'publish', room, data });
        const received = [await first('type', 'message'), await first('type', 'message'), await first('type', 'message')];
        assert.deepEqual(received.map(({ data, offset }) => [data, offset]), [1, 2, 3].map((data) => [data, before + data]), room);
        send({ id: 'unsubscribe', type: 'unsubscribe', room });
      }
    }
  }
});

// Until a node whose engine has stalled reads its rooms, and until it has connected again.
const stalls = [
  ['for a moment', async (server, link, rooms) => {
    await until('the node reads the rooms', async () => (await metric(server, 'cluster_history_rooms_reading')) === rooms);
    link.flow();
  }],
  ['for so long that it connects again', async (server, link) => {
    const isUp = (is) => until(`engine_up is ${is}`, async () => (await metric(server, 'cluster_engine_up')) === is);
    await isUp(0);
    link.flow();
    await isUp(1);
  }],
];
for (const [how_long, end] of stalls) onEachEngine(`clients that leave a node whose engine stalled ${how_long} miss nothing, or begin anew`, async (t, start) => {
  const engine = await start(t);
  const link = await proxy(t, engine.url);
  const servers = await Promise.all([node(t, behind(engine, link), 'a', HISTORY + RECOVERY), node(t, engine, 'b', HISTORY + RECOVERY)]);
  const [a, b] = servers;
  await known(servers);
  const rooms = numbers(40).map((n) => `room ${n}`);
  const later = numbers(90).map((n) => n + 2);
  const all = (data) => publish(b, ...rooms.map((room) => ({ room, event: 'news', data })));
  const clients = await Promise.all(rooms.map((room) => socketIo(t, a.http, { rooms: [room], transports: ['websocket'] })));
  const news = ({ seen }) => seen.filter(([name]) => name === 'news').map(([, data]) => data);
  const watchers = await Promise.all(rooms.map(async (room) => {
    const watcher = await connect(t, b);
    await watcher.ask({ type: 'subscribe', room });
    return watcher;
  }));
  await all(1);
  await until('the first message', () => clients.every((client) => news(client).length === 1));
  link.stall();
  for (const data of later) await all(data);
  // Other clients come to the node with positions that it doesn't know, so that it has to read the rooms.
  for (const [n, { next }] of watchers.entries()) {
    let last;
    do last = await next(); while (last.data !== later.at(-1));
    const { send } = await connect(t, a);
    send({ type: 'subscribe', room: rooms[n], epoch: last.epoch, offset: last.offset });
  }
  await Promise.all(clients.map(cut));
  await end(a, link, rooms.length);
  const recovered = await Promise.all(clients.map((client) => reconnect(client, b)));
  await Promise.all(clients.map((client, n) => recovered[n] || client.emitWithAck('join', rooms[n])));
  await all('last');
  for (const [n, client] of clients.entries()) {
    await until('the last message', () => news(client).at(-1) === 'last');
    if (recovered[n]) assert.deepEqual(news(client), [1, ...later, 'last'], `client ${n}`);
  }
  t.diagnostic(`${recovered.filter(Boolean).length} of ${clients.length} are recovered`);
});

/** Makes requests invalid that are about the log of a feed: to Redis by scripts, to NATS by JetStream. */
const withoutFeeds = (text) => text.replace(/(\$1\r\n)\d(\r\n\$\d+\r\n[^\r]*\{feed:)/g, '$1x$2').replace(/"last_by_subj"(:"[^"]*\bfeed\.)/g, '"last_by_subX"$1');

onEachEngine('the feeds of a client that moves to a node which has just connected again do not go back', async (t, start) => {
  const engine = await start(t);
  const link = await proxy(t, engine.url);
  const config = `${RECOVERY}[[feeds]]\nname = "live"\nprefix = "live/"\npush = true\n`;
  const servers = await Promise.all([node(t, engine, 'a', config), node(t, behind(engine, link), 'b', config)]);
  const [a, b] = servers;
  await known(servers);
  const feeds = numbers(20).map((n) => `live/${n}`);
  const pushed = (version) => Promise.all(feeds.map((feed) => push(a, feed, { version })));
  await pushed(1);
  const [client, other] = await Promise.all(servers.map(async (server) => {
    const client = await socketIo(t, server.http, { transports: ['websocket'] });
    client.versions = new Map(feeds.map((feed) => [feed, []]));
    client.on('feed', ({ feed, data }) => data && client.versions.get(feed).push(data.version));
    for (const feed of feeds) await client.emitWithAck('subscribe', feed);
    return client;
  }));
  const have = ({ versions }, version) => until(() => `version ${version}`, () => [...versions.values()].every((of) => of.at(-1) === version));
  for (const one of [client, other]) await have(one, 1);
  const isUp = (is) => until(`engine_up is ${is}`, async () => (await metric(b, 'cluster_engine_up')) === is);
  link.refuses = () => true;
  link.cut();
  await isUp(0);
  for (const version of [2, 3]) await pushed(version);
  await have(client, 3);
  // The node is connected again, but doesn't know the newest versions yet.
  link.changes = withoutFeeds;
  link.refuses = () => false;
  await isUp(1);
  await cut(client);
  assert.equal(await reconnect(client, b), true);
  assert.deepEqual([...other.versions.values()].flat(), feeds.map(() => 1), 'the node lags');
  link.changes = null;
  await pushed(4);
  for (const one of [client, other]) await have(one, 4);
  for (const [feed, versions] of client.versions) assert.deepEqual(versions, [...versions].sort((x, y) => x - y), feed);
});

// As a Sentinel may do that takes back a promotion.
test('members of a room whose primary is replaced, and then takes its place again, receive nothing twice (Redis)', { skip: withoutRedis }, async (t) => {
  const [first, second] = [await redis(t), await redis(t)];
  const link = await proxy(t, first.url);
  const servers = await Promise.all(['a', 'b'].map((name) => node(t, behind(first, link), name, HISTORY)));
  await known(servers);
  const members = await Promise.all(servers.map((server) => connect(t, server)));
  for (const { ask } of members) await ask({ type: 'subscribe', room: 'log' });
  const epochs = [];
  let data = 0;
  for (const [moves, primary] of [first, second, first].entries()) {
    if (moves > 0) {
      link.target = primary.url;
      link.cut();
      for (const server of servers) {
        await until('the node is connected again', () => isBack(server, moves));
      }
    }
    for (const server of servers) {
      data += 1;
      await publish(server, { room: 'log', data });
      for (const { next } of members) {
        let message = await next();
        // Once for each other primary, before its first message.
        if (moves > 0 && server === servers[0]) {
          assert.equal(message.code, 'history_expired');
          message = await next();
        }
        assert.equal(message.data, data, JSON.stringify(message));
        epochs.push(message.epoch);
      }
    }
  }
  assert.equal(new Set(epochs).size, 3, `the room has a new epoch on each primary: ${epochs}`);
});

/**
 * A client that leaves rooms and comes again with its newest positions, for ever: { logs, positions, have }. `logs` are those of its rooms, as
 * `continuous` has them, and `have` waits until a message is the last one in each.
 */
async function restless(t, server, rooms, before) {
  const { send, next } = await connect(t, server);
  const positions = new Map(before);
  const logs = new Map(rooms.map((room) => [room, []]));
  const subscribe = (room) => {
    const open = positions.get(room) ?? null;
    logs.get(room).push({ open });
    send({ id: ['subscribe', room], type: 'subscribe', room, ...open });
  };
  const receive = async () => {
    for (;;) {
      const message = await next();
      const { type, id, room, epoch, offset, data } = message;
      if (type === 'ok' && id[0] === 'subscribe') send({ id: ['unsubscribe', id[1]], type: 'unsubscribe', room: id[1] });
      else if (type === 'ok') subscribe(id[1]);
      else if (type === 'message') {
        positions.set(room, { epoch, offset });
        logs.get(room).push({ epoch, offset, id: data });
      } else {
        assert.equal(message.code, 'history_expired', JSON.stringify(message));
        logs.get(/"(.*)"/.exec(message.message)[1]).push({ gap: true });
      }
    }
  };
  rooms.forEach(subscribe);
  const failed = receive().catch((error) => error);
  const have = async (data) => {
    const all = until(() => `${data} in each room`, () => [...logs.values()].every((log) => log.findLast(({ id }) => id !== undefined)?.id === data));
    const error = await Promise.race([failed, all]);
    if (error instanceof Error) throw error;
  };
  return { logs, positions, have };
}

onEachEngine('the notice of a new epoch comes before its messages, whatever else a client asks for', async (t, start) => {
  const engine = await start(t, { keeps: false });
  const link = await proxy(t, engine.url);
  const servers = await Promise.all([node(t, behind(engine, link), 'a', HISTORY), node(t, engine, 'b', HISTORY)]);
  const [a, b] = servers;
  await known(servers);
  const rooms = numbers(40).map((n) => `room ${n}`);
  const all = (data) => publish(b, ...rooms.map((room) => ({ room, data })));
  const { ask, next } = await connect(t, b);
  for (const room of rooms) await ask({ type: 'subscribe', room });
  await all('begin');
  const positions = new Map();
  while (positions.size < rooms.length) {
    const { room, epoch, offset } = await next();
    positions.set(room, { epoch, offset });
  }
  const clients = await Promise.all(numbers(3).map(() => restless(t, a, rooms, positions)));
  const epochs = 2;
  for (const epoch of numbers(epochs)) {
    for (const n of numbers(5)) await all(`${epoch}:${n}`);
    await Promise.all(clients.map(({ have }) => have(`${epoch}:4`)));
    // The node hears of the next epoch, of all rooms, when others have published in it.
    link.refuses = () => true;
    link.cut();
    await engine.stop();
    await engine.start();
    await until('the other node is connected again', () => isBack(b, epoch + 1));
    clients.push(await restless(t, a, rooms, clients[0].positions));
    link.refuses = () => false;
    // Clients whose positions are of the epoch before don't receive what was published while they were out.
    await introduced(() => all(`next ${epoch}`), clients.map(({ have }) => have(`next ${epoch}`)));
  }
  let notices = 0;
  const wrong = clients.flatMap(({ logs }, n) => [...logs].flatMap(([room, log]) => {
    notices += log.filter(({ gap }) => gap).length;
    return continuous(log, `client ${n} in ${room}`);
  }));
  t.diagnostic(`${notices} notices`);
  assert.deepEqual(wrong, []);
  assert.ok(notices >= epochs * 3 * rooms.length, `${notices} notices`);
});

const POLL_INTERVAL_MS = 2000;

onEachEngine('after SIGTERM to the node that fetches a feed, the others receive the next version within an interval and half a second', async (t, start) => {
  const engine = await start(t);
  const { documents, url } = await upstream(t);
  let version = 0;
  documents.set('game', () => ({ version: ++version }));
  const nodes = await Promise.all(['a', 'b', 'c'].map(async (name) => {
    const server = await node(t, engine, name, `[server]\ndrain_window = "1s"\n${feedsFrom(url, `${POLL_INTERVAL_MS}ms`)}`);
    const { ask, next } = await connect(t, server);
    await ask({ type: 'subscribe', feed: 'game', delta: false });
    return { server, next };
  }));
  const newer = async ({ next }, than) => { while ((await next()).data.version <= than); };
  for (let left = nodes; left.length > 1;) {
    const holder = await until('a node fetches', async () => {
      const leases = await Promise.all(left.map(({ server }) => metric(server, 'cluster_leases')));
      return left[leases.indexOf(1)];
    });
    left = left.filter((node) => node !== holder);
    await Promise.all(left.map((node) => newer(node, version)));
    let isOver = false;
    holder.server.closed.then(() => { isOver = true; });
    holder.server.child.kill('SIGTERM');
    const begun = now();
    await Promise.all(left.map(async ({ next }) => {
      // The last version follows the end of the node, which may fetch until then.
      for (let [before, isLast] = [begun, false]; !isLast;) {
        isLast = isOver;
        await next();
        const at = now();
        assert.ok(at - before <= POLL_INTERVAL_MS + 500, `${at - before} ms`);
        before = at;
      }
    }));
  }
});

const alone = async () => undefined;
for (const [what, start, skip] of [['on one node alone', alone, false], ['Redis', redis, withoutRedis], ['NATS', nats, withoutNats]]) {
  test(`what has expired isn't delivered, and a room with a member keeps its epoch (${what})`, { skip }, async (t) => {
    const engine = await start(t);
    const config = `${HISTORY}history_ttl = "2s"\n`;
    const servers = engine ? await Promise.all(['a', 'b'].map((name) => node(t, engine, name, config))) : [await serve(t, { config })];
    const member = await connect(t, servers[0]);
    const say = async (data) => {
      await publish(servers[0], { room: 'log', data });
      return member.next();
    };
    await member.ask({ type: 'subscribe', room: 'log' });
    const { epoch, offset } = await say(1);
    await say(2);
    const resumed = async () => {
      const { socket, ask, next } = await connect(t, servers.at(-1));
      await ask({ type: 'subscribe', room: 'log', epoch, offset });
      const { code, data } = await next();
      socket.close();
      assert.equal(data ?? 2, 2);
      return code;
    };
    await until('it has expired', async () => await resumed() === 'history_expired');
    const third = await say(3);
    assert.deepEqual([third.epoch, third.offset], [epoch, 3]);
    if (!engine?.command) return;
    member.socket.close();
    for (const server of servers) await until('nobody is in the room', async () => (await metric(server, 'cluster_history_rooms')) === 0);
    const keys = async () => (await engine.command('KEYS', '*{room:*')).split('\r\n').filter((line) => line.includes('{room:'));
    for (const key of await keys()) {
      const left_ms = Number((await engine.command('PTTL', key)).slice(1));
      // Answers to publishers last for five minutes, for those that repeat a message.
      assert.ok(left_ms > 0 && left_ms <= (key.includes('}:key:') ? 300_000 : 62_000), `${key}: ${left_ms} ms`);
      await engine.command('PEXPIRE', key, '1');
    }
    await until('the room is gone', async () => (await keys()).length === 0);
  });
}
