// @stentor/client in Node against the real server, by each transport: the server is paused, and a proxy cuts connections at random.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import test, { describe } from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { client, follow, TRANSPORTS, version } from '../client.mjs';
import { feedsFrom, root, serve, until, upstream } from '../harness.mjs';
import { proxy, random } from '../proxy.mjs';

// Short times, so that a paused server is found out soon.
const config = (api, more = '') => `
[heartbeat]
interval = "300ms"
timeout = "300ms"
[limits]
request_timeout = "300ms"
${more}
${feedsFrom(api.url)}`;
const IMPATIENT = { heartbeatTimeoutMs: 1_000, connectTimeoutMs: 1_000 };

describe('faults', { concurrency: true }, () => {
  for (const transport of TRANSPORTS) {
    test(`${transport}: the server is paused`, async (t) => {
      const api = await upstream(t);
      const server = await serve(t, { config: config(api) });
      t.after(() => server.child.kill('SIGCONT'));
      const connection = client(t, server.http, { transport, ...IMPATIENT });
      api.documents.set('a', version(1));
      const feed = connection.feed('a');
      const seen = follow(feed);
      await seen.has(1);
      server.child.kill('SIGSTOP');
      await seen.wasStale();
      // It fails to come back for a while.
      await until(() => `waiting, not ${connection.state}`, () => connection.state === 'waiting');
      await until(() => `connecting, not ${connection.state}`, () => connection.state === 'connecting');
      api.documents.set('a', version(2));
      server.child.kill('SIGCONT');
      await seen.has(2);
    });

    test(`${transport}: a proxy cuts connections at random`, async (t) => {
      const seed = Number(process.env.SEED ?? (Math.random() * 2 ** 32) >>> 0);
      t.diagnostic(`SEED=${seed}`);
      const chance = random(seed);
      const api = await upstream(t);
      const server = await serve(t, { config: config(api) });
      // Often in the middle of a document, of a delta, or of a handshake; always less than all that there is to be sent.
      const most = { polling: 20_000, sse: 12_000 }[transport] ?? 6_000;
      const between = await proxy(t, server.http, { budget: () => Math.floor(chance() * most) });
      const connection = client(t, between.url, { transport, ...IMPATIENT });
      api.documents.set('a', version(1));
      const feed = connection.feed('a');
      const seen = follow(feed);
      for (let n = 2; n <= 80; n++) {
        api.documents.set('a', version(n));
        await passed(20 + chance() * 100);
      }
      between.budget = () => Infinity;
      await seen.has(80);
      assert.ok(between.cuts > 0);
      t.diagnostic(`${between.cuts} cuts, ${seen.changes.length} versions seen`);
    });
  }
});

const recorded = path.join(root, '../shared/data/worldcup-2026');

test('recorded documents, by every transport at once', { skip: !existsSync(recorded) && 'the recorded documents are not here' }, async (t) => {
  const versions = readdirSync(recorded).filter((name) => name.endsWith('.json')).sort().map((name) => JSON.parse(readFileSync(path.join(recorded, name))));
  const api = await upstream(t);
  const server = await serve(t, { config: config(api) });
  const clients = TRANSPORTS.map((transport) => client(t, server.http, { transport }).feed('worldcup'));
  for (const version of versions) {
    api.documents.set('worldcup', version);
    await passed(40);
  }
  const last = versions.at(-1);
  for (const [n, feed] of clients.entries()) {
    await until(() => `${TRANSPORTS[n]} is ${feed.state} at ${feed.offset}`, () => isDeepStrictEqual(feed.document, last));
  }
});
