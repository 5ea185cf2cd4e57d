// Three nodes behind nginx and behind HAProxy, which send each request to the next node: polling sessions, streams and upgrades
// work all the same, because nodes pass requests on to the one that has the session.
import assert from 'node:assert/strict';
import test, { after, describe } from 'node:test';
import { serve, upstream } from './harness.mjs';
import { haproxy, missing as missingProxy, nginx } from './proxies.mjs';
import { missing as missingRedis, redis, until } from './redis.mjs';
import { config, everything, exercise } from './transports.mjs';

const NODES = ['a', 'b', 'c'];

const metric = async (server, name) => {
  const text = await (await fetch(`${server.admin}/metrics`)).text();
  return [...text.matchAll(new RegExp(`^stentor_${name}(?:\\{.*\\})? (\\S+)$`, 'gm'))].reduce((sum, [, value]) => sum + Number(value), 0);
};

/** A cluster of three nodes that know each other. */
async function cluster(t, url) {
  const engine = await redis(t);
  const node = (name) => serve(t, { config: `${config(url)}
[cluster]
engine = "${engine.url}"
node = "${name}"
secret = "known-to-all-the-nodes"
`, args: ['--cores', '2'] });
  const servers = await Promise.all(NODES.map(node));
  const known = async (server) => (await (await fetch(`${server.admin}/api/v1/nodes`)).json()).nodes.length === NODES.length;
  for (const server of servers) await until('all nodes are known', () => known(server));
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

describe('without stickiness', { concurrency: 1 }, () => {
  for (const [name, proxy] of Object.entries(proxies)) {
    test(`every transport delivers behind ${name}`, { skip: skip || missingProxy(name) }, async (t) => {
      const at = await proxy(t, servers);
      await exercise(t, { server: servers[0], api, at, room: `round-${name}`, way: everything, nodes: true });
      assert.ok(await sum('relays_total') > 200, 'requests were passed on');
      assert.ok(await sum('relays_received_total') > 200, 'and taken');
      assert.equal(await sum('cluster_relay_failures_total'), 0);
      assert.equal(await sum('cluster_sockjs_claims_failed_total'), 0);
    });
  }

  test('nothing is left when the clients have gone', { skip }, async () => {
    await until('nothing is passed on any more', async () => await sum('relayed_connections') === 0);
    await until('no name is claimed any more', async () => await sum('cluster_sockjs_claims') === 0);
  });
});
