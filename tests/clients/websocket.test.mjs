// npm ws, as it comes, against the three built-in applications.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import test from 'node:test';
import WebSocket from 'ws';
import { publish } from './admin.mjs';
import { feedsFrom, inbox, introduced, run, serve, upstream, within } from './harness.mjs';

async function connect(url, options) {
  const socket = new WebSocket(url, options);
  const messages = inbox(socket);
  await once(socket, 'open');
  return { socket, messages };
}

for (const perMessageDeflate of [false, true]) {
  test(`echo with ws, permessage-deflate ${perMessageDeflate}`, async (t) => {
    const server = await serve(t, { args: ['--app', 'echo'] });
    const { socket, messages } = await connect(`${server.ws}/ws`, { perMessageDeflate });
    assert.equal(socket.extensions.includes('permessage-deflate'), perMessageDeflate);
    for (const text of ['', 'hello', 'é'.repeat(40_000), 'x'.repeat(900_000)]) {
      socket.send(text);
      assert.deepEqual(await messages.next(), { data: text, binary: false });
    }
    const bytes = randomBytes(300_000);
    socket.send(bytes);
    assert.deepEqual((await messages.next()).data, bytes);
    // In fragments, a ping between them.
    socket.send('one ', { fin: false });
    socket.ping('in between');
    await once(socket, 'pong');
    socket.send('message', { fin: true });
    assert.equal((await messages.next()).data, 'one message');
    socket.close(4001, 'bye');
    // Code and reason come back, as from ws.
    assert.deepEqual(await messages.next(), { closed: 4001, reason: 'bye' });
  });
}

test('a message over the limit is answered with 1009, and others go on', async (t) => {
  const server = await serve(t, { args: ['--app', 'echo'] });
  const large = await connect(`${server.ws}/ws`);
  const other = await connect(`${server.ws}/ws`);
  large.socket.send('x'.repeat(1_000_001));
  assert.equal((await large.messages.next()).closed, 1009);
  other.socket.send('still here');
  assert.equal((await other.messages.next()).data, 'still here');
});

test('chat reaches everybody, the sender included, on all cores', async (t) => {
  const server = await serve(t, { args: ['--app', 'chat', '--cores', '2'] });
  const clients = await Promise.all(Array.from({ length: 8 }, () => connect(`${server.ws}/ws`)));
  const hear = ({ messages }, text) => within((async () => { while ((await messages.next()).data !== text); })(), text);
  await introduced(() => clients[0].socket.send('ready'), clients.map((one) => hear(one, 'ready')));
  clients[0].socket.send('to all');
  await Promise.all(clients.map((one) => hear(one, 'to all')));
});

test('a feed is fetched, kept, and each new version is pushed', async (t) => {
  const api = await upstream(t);
  api.documents.set('matches/8', { score: [0, 0] });
  const server = await serve(t, { config: feedsFrom(api.url), args: ['--cores', '2'] });
  const { socket, messages } = await connect(`${server.ws}/ws`);
  assert.equal((await messages.json()).type, 'welcome');
  socket.send(JSON.stringify({ id: 1, type: 'subscribe', feed: 'matches/8' }));
  assert.deepEqual(await messages.json(), { type: 'ok', id: 1 });
  const first = await messages.json();
  assert.equal(first.type, 'snapshot');
  assert.equal(first.feed, 'matches/8');
  assert.deepEqual(first.data, { score: [0, 0] });
  api.documents.set('matches/8', { score: [1, 0] });
  const second = await messages.json();
  assert.deepEqual(second.data, { score: [1, 0] });
  assert.equal(second.epoch, first.epoch);
  assert.equal(second.offset, first.offset + 1);

  // Plain GET, with its entity tag.
  const got = await fetch(`${server.http}/feed/matches/8`);
  assert.equal(got.status, 200);
  assert.deepEqual(await got.json(), { score: [1, 0] });
  const again = await fetch(`${server.http}/feed/matches/8`, { headers: { 'If-None-Match': got.headers.get('etag') } });
  assert.equal(again.status, 304);

  // The key in the path: bodies only; nothing is accepted.
  const raw = await connect(`${server.ws}/ws/matches/8`);
  assert.deepEqual(JSON.parse((await raw.messages.next()).data), { score: [1, 0] });
  raw.socket.send('anything');
  assert.equal((await raw.messages.next()).closed, 4400);
  const query = await connect(`${server.ws}/ws?resourceId=matches%2F8&format=raw`);
  assert.deepEqual(JSON.parse((await query.messages.next()).data), { score: [1, 0] });
});

test('an unknown key is told, not left hanging', async (t) => {
  const api = await upstream(t);
  const server = await serve(t, { config: feedsFrom(api.url) });
  const raw = await connect(`${server.ws}/ws/no/such/key`);
  assert.equal((await raw.messages.next()).closed, 4404);
  assert.equal((await fetch(`${server.http}/feed/no/such/key`)).status, 404);
  const { socket, messages } = await connect(`${server.ws}/ws`);
  socket.send(JSON.stringify({ type: 'subscribe', feed: 'no/such/key' }));
  const told = await messages.until((m) => m.type === 'state');
  assert.equal(told.state, 'not_found');
});

test('an upstream that fails makes the feed stale, and live again', async (t) => {
  const api = await upstream(t);
  api.documents.set('k', { n: 1 });
  const server = await serve(t, { config: feedsFrom(api.url) });
  const { socket, messages } = await connect(`${server.ws}/ws`);
  socket.send(JSON.stringify({ type: 'subscribe', feed: 'k' }));
  await messages.until((m) => m.type === 'snapshot');
  api.documents.set('k', (_, response) => response.writeHead(500).end());
  const stale = await messages.until((m) => m.type === 'state');
  assert.equal(stale.state, 'stale');
  assert.match(stale.reason, /500/);
  api.documents.set('k', { n: 2 });
  assert.deepEqual((await messages.until((m) => m.type === 'snapshot')).data, { n: 2 });
});

test('stentor publish reaches a room', async (t) => {
  // One core, which knows of a member when it says so.
  const server = await serve(t, { args: ['--cores', '1'] });
  const { socket, messages } = await connect(`${server.ws}/ws`);
  socket.send(JSON.stringify({ id: 'a', type: 'subscribe', room: 'news' }));
  await messages.until((m) => m.type === 'ok' && m.id === 'a');
  const published = await run('publish', '--admin', server.admin, '--room', 'news', '--event', 'headline', '{"n":1}');
  assert.equal(published.code, 0, published.stderr);
  assert.deepEqual(await messages.json(), { type: 'message', room: 'news', event: 'headline', data: { n: 1 } });
  const denied = await run('publish', '--admin', 'http://127.0.0.1:1', '--room', 'news', 'x');
  assert.notEqual(denied.code, 0);
  assert.match(denied.stderr, /127\.0\.0\.1:1/);
});

test('many publications in one request, in order', async (t) => {
  const server = await serve(t, { args: ['--cores', '2'] });
  const { socket, messages } = await connect(`${server.ws}/ws`);
  socket.send(JSON.stringify({ id: 1, type: 'subscribe', room: 'r' }));
  await messages.until((m) => m.type === 'ok');
  await introduced(() => run('publish', '--admin', server.admin, '--room', 'r', '"ready"'), [messages.until((m) => m.data === 'ready')]);
  await publish(server, ...Array.from({ length: 2_000 }, (_, data) => ({ room: 'r', data })));
  assert.equal((await messages.until((m) => m.data !== 'ready')).data, 0);
  for (let n = 1; n < 2_000; n++) assert.equal((await messages.json()).data, n);
  const metrics = await (await fetch(`${server.admin}/metrics`)).text();
  assert.match(metrics, /stentor_deliveries_sent_total/);
});

test('SIGTERM drains: clients are told, the process exits with 0', async (t) => {
  const server = await serve(t, { args: ['--app', 'chat'] });
  const { messages } = await connect(`${server.ws}/ws`);
  server.child.kill('SIGTERM');
  assert.equal((await messages.next()).closed, 4500);
  assert.deepEqual(await server.closed, [0, null]);
});

test('an address in use names the flag', async (t) => {
  const server = await serve(t);
  const second = await run('serve', '--listen', server.http.slice(7), '--admin', '127.0.0.1:0');
  assert.notEqual(second.code, 0);
  assert.match(second.stderr, /--listen/);
  assert.match(second.stderr, /in use/);
});
