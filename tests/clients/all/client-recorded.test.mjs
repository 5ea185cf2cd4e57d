// @stentor/client in Node follows recorded documents. client-browser.test.mjs has servers that are paused, and connections that are cut at random.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { client, TRANSPORTS } from '../client.mjs';
import { feedsFrom, root, serve, until, upstream } from '../harness.mjs';

const recorded = path.join(root, '../shared/data/worldcup-2026');

test('recorded documents, by every transport at once', { skip: !existsSync(recorded) && 'the recorded documents are not here' }, async (t) => {
  const versions = readdirSync(recorded).filter((name) => name.endsWith('.json')).sort().map((name) => JSON.parse(readFileSync(path.join(recorded, name))));
  const api = await upstream(t);
  const server = await serve(t, { config: feedsFrom(api.url) });
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
