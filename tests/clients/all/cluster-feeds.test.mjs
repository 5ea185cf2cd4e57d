// Feeds of three nodes on a real Redis or NATS: one node fetches for all, and clients resume on any.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import WebSocket from 'ws';
import { applyPatch } from '../../../clients/js/src/index.js';
import { admin, metric } from '../admin.mjs';
import { feedsFrom, inbox, until, upstream, within } from '../harness.mjs';
import { node, onEachEngine } from '../nodes.mjs';

/** A client that has what it receives of a feed, by deltas. */
async function follow(t, server, feed) {
  const socket = new WebSocket(`${server.ws}/ws`);
  t.after(() => socket.terminate());
  const follower = { version: 0, deltas: 0, epochs: new Set(), positions: [], states: [] };
  let value;
  socket.on('message', (data) => {
    const message = JSON.parse(data);
    if (message.type === 'snapshot') value = message.data;
    else if (message.type === 'delta') {
      value = applyPatch(value, message.patch);
      follower.deltas += 1;
    } else {
      if (message.type === 'state') follower.states.push(message.state);
      return;
    }
    assert.ok(value.version >= follower.version, 'the feed went back');
    follower.version = value.version;
    follower.epochs.add(message.epoch);
    follower.positions.push(message.offset);
  });
  await once(socket, 'open');
  socket.send(JSON.stringify({ id: 1, type: 'subscribe', feed, delta: true }));
  return follower;
}

onEachEngine('a document that is pushed to any node reaches all, and is there when that node has died', async (t, startEngine) => {
  const engine = await startEngine(t);
  const start = (name) => node(t, engine, name, '[[feeds]]\nname = "live"\nprefix = "live/"\npush = true\n');
  const servers = await Promise.all(['a', 'b', 'c'].map(start));
  const send = async (server, method, version, query = '') => {
    const body = version && JSON.stringify({ version, filler: 'x'.repeat(2000) });
    const response = await fetch(`${server.admin}/api/v1/feeds/live/1${query}`, { method, body, headers: { 'Content-Type': 'application/json' } });
    const { changed, code } = await response.json();
    return changed ?? code;
  };
  const followers = await Promise.all(servers.slice(0, 2).map((server) => follow(t, server, 'live/1')));
  for (let version = 1; version <= 20; version++) {
    assert.equal(await send(servers[version % 3], 'PUT', version), true);
    await until(`version ${version} everywhere`, () => followers.every((follower) => follower.version === version));
  }
  assert.equal(await send(servers[0], 'PUT', 20), false);
  assert.deepEqual(followers.map(({ epochs, deltas }) => [epochs.size, deltas]), [[1, 19], [1, 19]]);
  assert.deepEqual(followers[0].positions, followers[1].positions);
  assert.equal(await send(servers[0], 'PUT', 21, '?sequence=7'), true);
  assert.equal(await send(servers[1], 'PUT', 22, '?sequence=6'), 'sequence');
  assert.equal(await send(servers[2], 'PUT', 23, '?sequence=8'), true);
  servers[2].child.kill('SIGKILL');
  servers[2] = await start('d');
  followers.push(await follow(t, servers[2], 'live/1'));
  await until('the new node has it', () => followers.every(({ version }) => version === 23));
  assert.deepEqual([...followers[2].epochs], [...followers[0].epochs]);
  assert.equal(await send(servers[1], 'DELETE'), true);
  await until('all know that it is deleted', () => followers.every(({ states }) => states.includes('not_found')));
  assert.equal(await send(servers[2], 'DELETE'), 'not_found');
  await engine.stop();
  assert.equal(await send(servers[0], 'PUT', 24), 'unavailable');
});

onEachEngine('one node fetches a feed for all, and another one when it dies', async (t, startEngine) => {
  const engine = await startEngine(t);
  const { documents, requests, url } = await upstream(t);
  documents.set('game', { version: 1, filler: 'x'.repeat(2000) });
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name, feedsFrom(url))));
  const followers = [];
  for (const server of servers) followers.push(await follow(t, server, 'game'));
  await until('all have the document', () => followers.every(({ version }) => version === 1));
  for (let version = 2; version <= 20; version++) {
    documents.set('game', { version, filler: 'x'.repeat(2000) });
    await until(`version ${version} everywhere`, () => followers.every((follower) => follower.version === version));
  }
  assert.deepEqual(followers.map(({ epochs }) => epochs.size), [1, 1, 1]);
  assert.ok(followers.every(({ deltas }) => deltas >= 15), JSON.stringify(followers));
  assert.deepEqual(followers[0].positions.slice(-5), followers[2].positions.slice(-5));
  const leases = await Promise.all(servers.map((server) => metric(server, 'cluster_leases')));
  assert.deepEqual([...leases].sort(), [0, 0, 1]);
  // One fetch per interval for all nodes, not one for each.
  const holder = leases.indexOf(1);
  const fetched = await Promise.all(servers.map(async (server) => (await admin(server, 'status')).upstreams[0].fetches));
  assert.ok(fetched.every((count, n) => n === holder || count === 0), JSON.stringify(fetched));
  assert.equal(fetched[holder] <= requests.get('game'), true);
  servers[holder].child.kill('SIGKILL');
  documents.set('game', { version: 100, filler: 'x'.repeat(2000) });
  await until('another node fetches it', () => followers.every(({ version }, n) => n === holder || version === 100));
  assert.deepEqual(followers.map(({ epochs }) => epochs.size), [1, 1, 1], 'it goes on in the same epoch');
});

onEachEngine('a client of a feed resumes on any node, over SSE, with /feed?wait and with stentor.v1', async (t, start) => {
  const engine = await start(t);
  const { documents, url } = await upstream(t);
  const filler = 'x'.repeat(2000);
  documents.set('game', { version: 1, filler });
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name, feedsFrom(url))));
  /** Events of a stream on a node, until it is ended: { next, end }. */
  const stream = async (server, id) => {
    const controller = new AbortController();
    t.after(() => controller.abort());
    const headers = id ? { 'Last-Event-ID': id } : {};
    const response = await fetch(`${server.http}/sse?feed=game&delta=1`, { headers, signal: controller.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    const next = async () => {
      for (;;) {
        const end = text.indexOf('\n\n');
        const block = text.slice(0, end);
        if (end >= 0) text = text.slice(end + 2);
        const field = (name) => new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1];
        if (end >= 0 && field('data')) return { name: field('event'), id: field('id'), data: JSON.parse(field('data')) };
        if (end < 0) text += (await within(reader.read(), 'an event')).value;
      }
    };
    return { next, end: () => controller.abort() };
  };
  // It stays, so that one node goes on fetching.
  const first = await stream(servers[0]);
  let { name, id, data } = await first.next();
  assert.deepEqual([name, data.version], ['snapshot', 1]);
  // To nodes that haven't had the feed, and back, with what was missed as one delta.
  for (const [n, version] of [[1, 2], [2, 3], [0, 4]]) {
    documents.set('game', { version, filler });
    const resumed = await stream(servers[n], id);
    ({ name, id, data } = await resumed.next());
    assert.deepEqual([name, data.patch], ['delta', [{ op: 'replace', path: '/version', value: version }]], `on node ${n}`);
    resumed.end();
    assert.equal((await first.next()).id, id);
  }
  // Nothing is sent that the client has.
  const current = await stream(servers[1], id);
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
