// Three nodes behind nginx and behind HAProxy, which send each request to the next node: polling sessions, streams and upgrades
// work all the same, because nodes pass requests on to the one that has the session.
import assert from 'node:assert/strict';
import { setTimeout as passed } from 'node:timers/promises';
import test, { after, describe } from 'node:test';
import { Socket as EngineIo6 } from 'engine.io-client';
import { io } from 'socket.io-client';
import SockJS from 'sockjs-client';
import { connect } from '../../../clients/js/src/index.js';
import { admin, metric } from '../admin.mjs';
import { serve, until, upstream } from '../harness.mjs';
import { known } from '../nodes.mjs';
import { haproxy, missing as missingProxy, nginx } from '../proxies.mjs';
import { missing as missingNats, nats } from '../nats.mjs';
import { missing as missingRedis, redis } from '../redis.mjs';
import { config, everything, exercise } from '../transports.mjs';

const NODES = ['a', 'b', 'c'];

/** A cluster of three nodes that know each other. */
async function cluster(t, url, start = redis) {
  const engine = await start(t);
  const node = (name) => serve(t, { config: `${config(url)}
[cluster]
engine = "${engine.url}"
node = "${name}"
secret = "known-to-all-the-nodes"
`, args: ['--cores', '2'] });
  const servers = await Promise.all(NODES.map(node));
  await known(servers);
  return { engine, servers };
}

const address = (server) => server.http.replace('http://', '');
// Each request to the next node; the connections to them are shared by all clients.
const proxies = {
  nginx: (t, servers) => nginx(t, servers[0], { changes: [
    [`server ${address(servers[0])};`, servers.map((server) => `server ${address(server)};`).join('\n')],
  ] }),
  haproxy: (t, servers) => haproxy(t, servers[0], { changes: [
    [`    server stentor1 ${address(servers[0])} check`, ['balance roundrobin', ...servers.map((server, n) => `server stentor${n} ${address(server)} check`)].map((line) => `    ${line}`).join('\n')],
  ] }),
};

const skip = missingRedis;
// Until the file's tests have ended: their clients end first.
const api = await upstream({ after });
const { servers } = skip ? {} : await cluster({ after }, api.url);

const sum = async (name) => (await Promise.all(servers.map((server) => metric(server, name)))).reduce((a, b) => a + b);

/** Clients that connect again by themselves, or are made to. `works` tells whether one has just got an answer. */
const soon = { reconnectionDelay: 100, reconnectionDelayMax: 500, forceNew: true };
const socketIo = (transports) => (t, at) => {
  const socket = io(at.http, { ...soon, transports });
  t.after(() => socket.disconnect());
  return { works: async () => socket.connected && socket.timeout(1_000).emitWithAck('join_room', 'somewhere').then(({ ok }) => ok, () => false) };
};

/** `connect` opens a connection: { send, close }; it calls `heard`, and `lost`, once, at the end. */
const again = (connect) => (t, at) => {
  let socket;
  let ended = false;
  let number = 0;
  const heard = new Set();
  const open = () => { if (!ended) socket = connect(at, (text) => heard.add(text), () => setTimeout(open, 100)); };
  open();
  t.after(() => { ended = true; socket.close(); });
  return {
    works: async () => {
      const text = `message ${number++}`;
      socket.send(text);
      for (let tries = 0; tries < 20 && !heard.has(text); tries++) await passed(50);
      return heard.has(text);
    },
  };
};

const sockJs = (transport) => again((at, heard, lost) => {
  const socket = new SockJS(`${at.http}/echo`, null, { transports: [transport], timeout: 5_000 });
  socket.onmessage = ({ data }) => heard(data);
  socket.onclose = lost;
  return { send: (text) => socket.readyState === SockJS.OPEN && socket.send(text), close: () => socket.close() };
});

const engineIo = again((at, heard, lost) => {
  const socket = new EngineIo6(at.http, { transports: ['polling'] });
  socket.on('message', (data) => { const { id } = JSON.parse(data); if (id) heard(id); });
  socket.on('error', () => {});
  socket.on('close', lost);
  // Any answer of `stentor.v1`.
  return { send: (id) => socket.readyState === 'open' && socket.send(JSON.stringify({ id, type: 'unsubscribe', room: 'none' })), close: () => socket.close() };
});

/** @stentor/client, whose requests reach its session on any node. */
const stentor = (transport) => (t, at) => {
  const connection = connect(at.http, { transport, backoff: { initialMs: 100, maxMs: 500 } });
  t.after(() => connection.close());
  return { connection, works: () => connection.emitWithAck('join_room', 'somewhere', { timeoutMs: 1_000 }).then(() => true, () => false) };
};

const going = {
  '@stentor/client by sse': stentor('sse'),
  '@stentor/client by polling': stentor('polling'),
  'Socket.IO by polling': socketIo(['polling']),
  'Socket.IO with an upgrade': socketIo(['polling', 'websocket']),
  'Engine.IO by polling': engineIo,
  ...Object.fromEntries(['xhr-polling', 'xhr-streaming', 'eventsource', 'websocket'].map((transport) => [`SockJS by ${transport}`, sockJs(transport)])),
};

describe('without stickiness', { concurrency: 1 }, () => {
  for (const [name, proxy] of Object.entries(proxies)) {
    test(`every transport delivers behind ${name}`, { skip: skip || missingProxy(name) }, async (t) => {
      const at = await proxy(t, servers);
      await exercise(t, { server: servers[0], api, at, room: `round-${name}`, way: everything, nodes: true });
      // How many polls it takes depends on how many messages each finds.
      await until('requests were passed on', async () => await sum('relays_total') > 50);
      await until('they were taken', async () => await sum('relays_received_total') > 50);
      assert.equal(await sum('cluster_relay_failures_total'), 0);
      assert.equal(await sum('cluster_sockjs_claims_failed_total'), 0);
    });
  }

  for (const [name, proxy] of Object.entries(proxies)) {
    test(`@stentor/client sends and receives in order behind ${name}, each message once`, { skip: skip || missingProxy(name) }, async (t) => {
      const at = await proxy(t, servers);
      await Promise.all(['sse', 'polling'].map(async (transport) => {
        const { connection } = stentor(transport)(t, at);
        const room = connection.room(`ordered-${name}-${transport}`);
        const heard = [];
        room.on('message', (n) => heard.push(n));
        await until(`joined by ${transport}`, () => room.state === 'joined');
        const all = Array.from({ length: 200 }, (_, n) => n);
        for (const n of all) {
          const published = connection.publish(room.name, n);
          // Alone, and many together.
          if (n % 10) await published;
        }
        await until(() => `${heard.length} messages by ${transport}`, () => heard.length >= all.length);
        assert.deepEqual(heard, all);
      }));
    });
  }

  test('nothing is left when the clients have gone', { skip }, async () => {
    await until('nothing is passed on any more', async () => await sum('relayed_connections') === 0);
    await until('no name is claimed any more', async () => await sum('cluster_sockjs_claims') === 0);
  });

  test('on NATS as well', { skip: missingNats || missingProxy('nginx') }, async (t) => {
    const { servers: nodes } = await cluster(t, api.url, nats);
    const at = await proxies.nginx(t, nodes);
    await exercise(t, { server: nodes[0], api, at, room: 'nats', way: everything, nodes: true });
  });

  for (const [name, proxy] of Object.entries(proxies)) {
    test(`clients go on with another node when theirs dies behind ${name}`, { skip: skip || missingProxy(name) }, async (t) => {
      const { servers: nodes } = await cluster(t, api.url);
      const at = await proxy(t, nodes);
      const all = Object.entries(going).flatMap(([what, open]) => Array.from({ length: 4 }, () => ({ what, client: open(t, at) })));
      const work = (when) => Promise.all(all.map(({ what, client }) => until(`${what} works ${when}`, client.works)));
      await work('before');
      nodes[2].child.kill('SIGKILL');
      await work('after');
      // The others have forgotten it.
      for (const node of nodes.slice(0, 2)) await until('it is forgotten', async () => (await admin(node, 'nodes')).nodes.length === 2);
      const failures = () => Promise.all(nodes.slice(0, 2).map((node) => metric(node, 'cluster_relay_failures_total')));
      const before = await failures();
      await exercise(t, { server: nodes[0], api, at, room: `rest-${name}`, way: everything, nodes: true });
      assert.deepEqual(await failures(), before);
    });
  }
});
