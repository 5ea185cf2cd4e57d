// Schedules on a real Redis or NATS in which messages were once lost, repeated or reordered. The simulation of the cluster has the same ones as seeds.
import assert from 'node:assert/strict';
import WebSocket from 'ws';
import { metric } from '../admin.mjs';
import { feedsFrom, until, upstream } from '../harness.mjs';
import { node, onEachEngine } from '../nodes.mjs';
import { plain } from '../sockets.mjs';

const connect = (t, server) => plain(t, new WebSocket(`${server.ws}/ws`));

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
    const begun = performance.now();
    await Promise.all(left.map(async ({ next }) => {
      // The last version follows the end of the node, which may fetch until then.
      for (let [before, isLast] = [begun, false]; !isLast;) {
        isLast = isOver;
        await next();
        const at = performance.now();
        assert.ok(at - before <= POLL_INTERVAL_MS + 500, `${at - before} ms`);
        before = at;
      }
    }));
  }
});
