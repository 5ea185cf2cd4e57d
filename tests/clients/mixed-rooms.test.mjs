// One room, members on every protocol: socket.io-client 4.8, 3.1 and 2.5 by polling and WebSocket, and plain WebSocket,
// at `stentor serve --app rooms`. Publications come from the admin API and the command line.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import test from 'node:test';
import { io as io4 } from 'socket.io-client';
import io1 from 'socket.io-client-1';
import io2 from 'socket.io-client-2';
import io3 from 'socket.io-client-3';
import WebSocket from 'ws';
import { publish } from './admin.mjs';
import { event, feedsFrom, inbox, introduced, run, serve, upstream, within } from './harness.mjs';

const versions = { 4.8: io4, 3.1: io3, 2.5: io2, 1.7: io1 };
// 1.7 encodes text in its own way, which needs a setting.
const kinds = ['4.8', '3.1', '2.5'].flatMap((version) => ['polling', 'websocket'].map((transport) => ({ version, transport })));

const rules = '[[rules]]\nevent = "join_room"\njoin = ["{}"]\nack = true\n';

/** A Socket.IO client, connected, that keeps what arrives: `socket.seen` is a list of [event, ...arguments]. */
async function connect(t, server, { version, transport }, options = {}) {
  const socket = versions[version](server.http, { forceNew: true, transports: [transport], ...options });
  t.after(() => socket.disconnect());
  socket.seen = [];
  // 2.5 knows no onAny.
  const onevent = socket.onevent;
  socket.onevent = function keep(packet) {
    socket.seen.push(packet.data);
    onevent.call(this, packet);
    socket.wake?.();
  };
  await event(socket, 'connect');
  return socket;
}

/** Fails unless the first events for which `wanted` holds are these. Behind their arguments may stand an offset, for recovery. */
async function receives(socket, expected, wanted) {
  const seen = await events(socket, expected.length, wanted);
  assert.deepEqual(seen.map((one, n) => one.slice(0, expected[n].length)), expected);
}

/** The first events for which `wanted` holds, `count` of them. */
async function events(socket, count, wanted = () => true) {
  const found = () => socket.seen.filter(wanted);
  await within((async () => {
    while (found().length < count) await new Promise((resolve) => { socket.wake = resolve; });
  })(), `${count} events, of which came ${JSON.stringify(socket.seen)}`);
  return found().slice(0, count);
}

const isReady = ([name]) => name === 'ready';

const ask = (socket, ...args) => within(new Promise((resolve) => socket.emit(...args, (...answer) => resolve(answer))), `the answer to ${args[0]}`);

/** A plain WebSocket, welcomed and subscribed. */
async function plain(t, server, subscription) {
  const socket = new WebSocket(`${server.ws}/ws`);
  t.after(() => socket.terminate());
  const messages = inbox(socket);
  await once(socket, 'open');
  assert.equal((await messages.json()).type, 'welcome');
  socket.send(JSON.stringify({ id: 1, type: 'subscribe', ...subscription }));
  await messages.until((message) => message.type === 'ok');
  return messages;
}

test('text of a client 1.7 that polls reaches the others, and theirs reaches it', async (t) => {
  const server = await serve(t, { config: `[socketio]\npolling_1 = true\n\n${rules}\n[[rules]]\nevent = "say"\nbroadcast = ["{}"]\nexcept_sender = true\n` });
  const old = await connect(t, server, { version: 1.7, transport: 'polling' });
  const others = await Promise.all(['4.8', '2.5'].map((version) => connect(t, server, { version, transport: 'websocket' })));
  const all = [old, ...others];
  for (const socket of all) await ask(socket, 'join_room', 'ü');
  for (const [n, socket] of all.entries()) {
    const text = `${n} é€😀`;
    socket.emit('say', 'ü', text);
    for (const other of all.filter((one) => one !== socket)) await receives(other, [['say', 'ü', text]], (one) => one[2] === text);
  }
});

test('a publication reaches every member of a room, on every protocol, in order', async (t) => {
  const server = await serve(t, { config: rules, args: ['--cores', '2'] });
  const sockets = await Promise.all(kinds.map((kind) => connect(t, server, kind)));
  const outside = await connect(t, server, kinds[0]);
  await Promise.all(sockets.map((socket) => ask(socket, 'join_room', 'news')));
  const raw = await plain(t, server, { room: 'news' });
  await introduced(() => publish(server, { room: 'news', event: 'ready', data: null }), [
    ...sockets.map((socket) => events(socket, 1, isReady)),
    raw.until((message) => message.event === 'ready'),
  ]);

  const published = await run('publish', '--admin', server.admin, '--room', 'news', '--event', 'headline', '{"n":[1,2.5,"é😀"]}');
  assert.equal(published.code, 0, published.stderr);
  for (const socket of sockets) await receives(socket, [['headline', { n: [1, 2.5, 'é😀'] }]], (one) => !isReady(one));
  assert.deepEqual(await raw.until((message) => message.event !== 'ready'), { type: 'message', room: 'news', event: 'headline', data: { n: [1, 2.5, 'é😀'] } });

  const sent = Array.from({ length: 2_000 }, (_, n) => ({ room: 'news', event: 'tick', data: n }));
  await publish(server, ...sent);
  for (const socket of sockets) await receives(socket, sent.map(({ data }) => ['tick', data]), ([name]) => name === 'tick');
  for (const { data } of sent) assert.equal((await raw.json()).data, data);
  assert.deepEqual(outside.seen, []);
});

test('a feed reaches Socket.IO clients and plain WebSocket alike, with its place', async (t) => {
  const api = await upstream(t);
  api.documents.set('matches/8', { score: [0, 0] });
  const server = await serve(t, { config: feedsFrom(api.url), args: ['--cores', '2'] });
  const sockets = await Promise.all(kinds.map((kind) => connect(t, server, kind)));
  await Promise.all(sockets.map((socket) => ask(socket, 'subscribe', 'matches/8')));
  const queried = await connect(t, server, kinds[1], { query: { feed: 'matches/8' } });
  const raw = await plain(t, server, { feed: 'matches/8' });
  const first = await raw.until((message) => message.type === 'snapshot');
  const feeds = (socket, count) => events(socket, count, ([name]) => name === 'feed');
  for (const socket of [...sockets, queried]) {
    const [[, { feed, data, epoch }]] = await feeds(socket, 1);
    assert.deepEqual([feed, data, epoch], ['matches/8', { score: [0, 0] }, first.epoch]);
  }
  api.documents.set('matches/8', { score: [1, 0] });
  const second = await raw.until((message) => message.type === 'snapshot');
  for (const socket of [...sockets, queried]) {
    const [, [, { data, epoch, offset }]] = await feeds(socket, 2);
    assert.deepEqual([data, epoch, offset], [{ score: [1, 0] }, second.epoch, second.offset]);
  }
  await Promise.all(sockets.map((socket) => ask(socket, 'unsubscribe', 'matches/8')));
  api.documents.set('matches/8', { score: [2, 0] });
  await feeds(queried, 3);
  for (const socket of sockets) assert.equal(socket.seen.length, 2);
});

test('chat reaches everybody in the namespace, by the event that was sent', async (t) => {
  const server = await serve(t, { args: ['--app', 'chat', '--cores', '2'] });
  const sockets = await Promise.all(kinds.map((kind) => connect(t, server, kind)));
  const raw = new WebSocket(`${server.ws}/ws`);
  t.after(() => raw.terminate());
  const messages = inbox(raw);
  await once(raw, 'open');
  await introduced(() => sockets[0].emit('ready'), [
    ...sockets.map((socket) => events(socket, 1, isReady)),
    messages.until(([name]) => name === 'ready'),
  ]);
  sockets[0].emit('said', { text: 'é😀' }, [1]);
  for (const socket of sockets) await receives(socket, [['said', { text: 'é😀' }, [1]]], ([name]) => name === 'said');
  assert.deepEqual(await messages.until(([name]) => name === 'said'), ['said', { text: 'é😀' }, [1]]);
  // And a text of a plain client is the event `message`.
  const early = ([name, text]) => name === 'message' && text === 'early';
  await introduced(() => raw.send('early'), sockets.map((socket) => events(socket, 1, early)));
  raw.send('from afar');
  for (const socket of sockets) await receives(socket, [['message', 'from afar']], (one) => one[0] === 'message' && !early(one));
});
