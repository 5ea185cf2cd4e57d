// Feeds of three nodes on a real Redis or NATS: documents are pushed to any node, and clients resume on any. cluster-chaos.test.mjs has feeds that one node
// fetches for all.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { EventSource } from 'eventsource';
import WebSocket from 'ws';
import { admin } from '../admin.mjs';
import { client, follow, version } from '../client.mjs';
import { feedsFrom, inbox, queue, until, upstream, within } from '../harness.mjs';
import { known, node, onEachEngine } from '../nodes.mjs';

onEachEngine('a document that is pushed to any node reaches all, and is there when that node has died', async (t, startEngine) => {
  const engine = await startEngine(t);
  const start = (name) => node(t, engine, name, '[[feeds]]\nname = "live"\nprefix = "live/"\npush = true\n');
  const servers = await Promise.all(['a', 'b', 'c'].map(start));
  const send = async (server, method, n, query = '') => {
    const body = n && JSON.stringify(version(n));
    const response = await fetch(`${server.admin}/api/v1/feeds/live/1${query}`, { method, body, headers: { 'Content-Type': 'application/json' } });
    const { changed, code } = await response.json();
    return changed ?? code;
  };
  const following = (server) => follow(client(t, server.http).feed('live/1'));
  const followers = servers.slice(0, 2).map(following);
  for (let n = 1; n <= 20; n++) {
    assert.equal(await send(servers[n % 3], 'PUT', n), true);
    for (const follower of followers) await follower.has(n);
  }
  assert.equal(await send(servers[0], 'PUT', 20), false);
  for (const { changes } of followers) assert.deepEqual(changes.map(({ kind }) => kind), ['snapshot', ...Array(19).fill('delta')]);
  const positions = ({ changes }) => changes.map(({ epoch, offset }) => [epoch, offset]);
  assert.deepEqual(positions(followers[0]), positions(followers[1]));
  for (const [n, sequence, expected, outcome] of [[0, 7, 21, true], [1, 6, 22, 'sequence'], [2, 8, 23, true]]) assert.equal(await send(servers[n], 'PUT', expected, `?sequence=${sequence}`), outcome);
  servers[2].child.kill('SIGKILL');
  servers[2] = await start('d');
  followers.push(following(servers[2]));
  for (const follower of followers) await follower.has(23);
  assert.deepEqual(positions(followers[2]).at(-1), positions(followers[0]).at(-1));
  assert.equal(await send(servers[1], 'DELETE'), true);
  await until('all know that it is deleted', () => followers.every(({ states }) => states.includes('not_found')));
  assert.equal(await send(servers[2], 'DELETE'), 'not_found');
  await engine.stop();
  assert.equal(await send(servers[0], 'PUT', 24), 'unavailable');
});

onEachEngine('a client of a feed resumes on any node, over SSE, with /feed?wait and with stentor.v1', async (t, start) => {
  const engine = await start(t);
  const { documents, url } = await upstream(t);
  const filler = 'x'.repeat(2000);
  documents.set('game', { version: 1, filler });
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name, feedsFrom(url))));
  /** Events of a stream on a node, until it is ended: { next, end }. */
  const stream = (server, id) => {
    const events = queue();
    const source = new EventSource(`${server.http}/sse?feed=game&delta=1`, {
      fetch: (url, options) => fetch(url, { ...options, headers: { ...options.headers, ...(id && { 'Last-Event-ID': id }) } }),
    });
    t.after(() => source.close());
    for (const name of ['snapshot', 'delta']) source.addEventListener(name, ({ data, lastEventId }) => events.put({ name, id: lastEventId, data: JSON.parse(data) }));
    return { next: () => events.next('an event'), end: () => source.close() };
  };
  // It stays, so that one node goes on fetching.
  const first = stream(servers[0]);
  let { name, id, data } = await first.next();
  assert.deepEqual([name, data.version], ['snapshot', 1]);
  // Each node lists the key, with the node that fetches it.
  await known(servers);
  const listed = await Promise.all(servers.map((server) => admin(server, 'feeds?search=game')));
  for (const { feeds } of listed) assert.deepEqual(feeds.map(({ key, node, state }) => [key, node, state]), [['game', listed[0].feeds[0].node, 'live']]);
  assert.match(listed[0].feeds[0].node, /^[abc]$/);
  // To nodes that haven't had the feed, and back, with what was missed as one delta.
  for (const [n, version] of [[1, 2], [2, 3], [0, 4]]) {
    documents.set('game', { version, filler });
    const resumed = stream(servers[n], id);
    ({ name, id, data } = await resumed.next());
    assert.deepEqual([name, data.patch], ['delta', [{ op: 'replace', path: '/version', value: version }]], `on node ${n}`);
    resumed.end();
    assert.equal((await first.next()).id, id);
  }
  // Nothing is sent that the client has.
  const current = stream(servers[1], id);
  documents.set('game', { version: 5, filler });
  ({ name, id, data } = await current.next());
  assert.deepEqual([name, data.patch[0].value], ['delta', 5]);

  const get = async (server, query = '', headers = {}) => {
    const response = await within(fetch(`${server.http}/feed/game${query}`, { headers }), 'the response');
    const body = await response.text();
    return { status: response.status, tag: response.headers.get('etag'), version: body && JSON.parse(body).version };
  };
  // A document has the same tag on each node, once that has it.
  for (const server of servers) await until('version 5 everywhere', async () => (await get(server)).version === 5);
  const { tag } = await get(servers[0]);
  for (const server of servers.slice(1)) assert.deepEqual(await get(server, '', { 'If-None-Match': tag }), { status: 304, tag, version: '' });
  const waits = servers.map((server) => get(server, `?wait=${encodeURIComponent(tag)}`));
  let answered = false;
  waits.forEach((wait) => wait.then(() => { answered = true; }));
  await get(servers[0]);
  assert.equal(answered, false);
  documents.set('game', { version: 6, filler });
  for (const { status, version } of await Promise.all(waits)) assert.deepEqual([status, version], [200, 6]);

  const [, epoch, offset] = id.split('!').map((part) => Number.parseInt(part, 16));
  for (const server of servers) {
    const socket = new WebSocket(`${server.ws}/ws`);
    t.after(() => socket.terminate());
    const messages = inbox(socket);
    await once(socket, 'open');
    socket.send(JSON.stringify({ id: 1, type: 'subscribe', feed: 'game', delta: true, epoch, offset }));
    const message = await within(messages.until(({ type }) => type === 'delta' || type === 'snapshot'), 'what was missed');
    assert.deepEqual([message.type, message.base, message.patch], ['delta', offset, [{ op: 'replace', path: '/version', value: 6 }]]);
  }
});
