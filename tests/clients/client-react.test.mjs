// The stores and the React hooks of @stentor/client, on a virtual clock: what they subscribe to, and what components see.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import test from 'node:test';
import { connect } from '../../clients/js/src/index.js';
import { useConnection, useFeed, useRoom } from '../../clients/js/src/react.js';
import { connectionStore, feedStore, roomStore } from '../../clients/js/src/store.js';
import { World } from './client-world.mjs';
import { root } from './harness.mjs';

// The copy of React that the hooks have.
const library = createRequire(path.join(root, 'clients/js/package.json'));
const { act, createElement, StrictMode, Suspense } = library('react');
const { renderToString } = library('react-dom/server');
const { create } = library('react-test-renderer');
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

/** A page: `show(element)`, `pass(ms)`, and the text that it shows. */
async function page(t, world) {
  // The renderer for tests is deprecated, but needs no document.
  const error = t.mock.method(console, 'error', () => {});
  globalThis.window = globalThis;
  t.after(() => { delete globalThis.window; });
  let shown;
  await act(async () => { shown = create(null, { unstable_isConcurrent: true }); });
  const text = (node) => (Array.isArray(node) ? node.map(text).join('|') : node?.children ? text(node.children) : node ?? '');
  return {
    show: (element) => act(async () => shown.update(createElement(StrictMode, null, element))),
    pass: (ms) => act(async () => world.pass(ms)),
    text: () => text(shown.toJSON()),
    errors: () => error.mock.calls.map(({ arguments: [message] }) => `${message}`).filter((message) => !message.includes('deprecated')),
  };
}

const asked = ({ server }) => server.received.filter(({ type }) => type !== 'ping').map(({ type, feed, room }) => `${type} ${feed ?? room}`);

test('a component subscribes once, also in StrictMode, and its feed is closed five seconds after the last one is gone', async (t) => {
  const world = new World(t);
  const stentor = world.connect(t);
  const Feed = ({ name }) => {
    const { document, state } = useFeed(stentor, name);
    return createElement('p', null, document ? `${document.n} ${state}` : state);
  };
  const both = (...names) => createElement('div', null, names.map((name, n) => createElement(Feed, { key: n, name })));
  const { show, pass, text, errors } = await page(t, world);
  await show(both('a', 'a'));
  assert.equal(text(), 'loading|loading');
  await pass(1_000);
  assert.equal(text(), '1 live|1 live');
  world.server.publish();
  await pass(100);
  assert.equal(text(), '2 live|2 live');
  assert.deepEqual(asked(world), ['subscribe a']);
  // Another page of the application, and back.
  await show(null);
  await pass(4_000);
  await show(both('a'));
  assert.equal(text(), '2 live');
  await pass(10_000);
  assert.deepEqual(asked(world), ['subscribe a']);
  await show(both('b'));
  assert.equal(text(), 'loading');
  await pass(10_000);
  assert.equal(text(), '2 live');
  assert.deepEqual(asked(world), ['subscribe a', 'subscribe b', 'unsubscribe a']);
  await show(null);
  await pass(10_000);
  assert.deepEqual(asked(world).slice(3), ['unsubscribe b']);
  assert.deepEqual(errors(), []);
});

test('options of a subscription are passed on, and `initial` stands in for the first document', async (t) => {
  const world = new World(t);
  const stentor = world.connect(t);
  const seen = [];
  const Feed = ({ rate }) => {
    const { document, state } = useFeed(stentor, 'a', { rate, initial: { n: 0 } });
    seen.push(document);
    return `${document.n} ${state}`;
  };
  const { show, pass, text } = await page(t, world);
  await show(createElement(Feed, { rate: 2 }));
  assert.equal(text(), '0 loading');
  await pass(1_000);
  assert.equal(text(), '1 live');
  await show(createElement(Feed, { rate: 3 }));
  await pass(1_000);
  assert.equal(text(), '1 live');
  assert.deepEqual(world.server.received.map(({ rate }) => rate).filter(Boolean), [2, 3]);
  assert.ok(seen.every(Boolean));
});

test('with `suspense`, a component waits for its first document, but not for a connection that is paused', async (t) => {
  const world = new World(t);
  world.server.socketDelayMs = 7_000;
  const check = async (stentor, name) => {
    const Feed = () => {
      const { document, state } = useFeed(stentor, name, { suspense: true });
      return document ? `${document.n} ${state}` : state;
    };
    const shown = await page(t, world);
    await shown.show(createElement(Suspense, { fallback: 'waiting' }, createElement(Feed)));
    return shown;
  };
  const stentor = world.connect(t, { transport: 'websocket' });
  const shown = await check(stentor, 'a');
  assert.equal(shown.text(), 'waiting');
  await shown.pass(6_900);
  assert.equal(shown.text(), 'waiting');
  await shown.pass(1_000);
  assert.equal(shown.text(), '1 live');
  await shown.pass(20_000);
  assert.deepEqual(asked(world), ['subscribe a']);
  // A component that is gone before it has waited long enough.
  const gone = await check(stentor, 'b');
  await gone.show(null);
  await gone.pass(40_000);
  assert.deepEqual(asked(world), ['subscribe a', 'subscribe b', 'unsubscribe b']);
  assert.equal((await check(world.connect(t, { autoConnect: false }), 'a')).text(), 'loading');
});

test('a room: its state, its messages, and how to publish', async (t) => {
  const world = new World(t);
  const stentor = world.connect(t);
  let publish;
  const functions = new Set();
  const Room = () => {
    const room = useRoom(stentor, 'lobby', { messagesMax: 2 });
    publish = room.publish;
    functions.add(publish);
    return `${room.state} ${room.messages.map(({ id, event, data }) => `${id} ${event} ${data}`).join(', ')}`;
  };
  const { show, pass, text } = await page(t, world);
  await show(createElement(Room));
  assert.equal(text(), 'joining ');
  await pass(1_000);
  assert.equal(text(), 'joined ');
  for (const data of ['one', 'two', 'three']) for (const socket of world.server.sockets) socket.say({ type: 'message', room: 'lobby', event: 'said', data });
  const published = publish('four', 'said');
  await pass(1_000);
  await published;
  assert.equal(text(), 'joined 3 said three, 4 said four');
  assert.deepEqual(asked(world), ['subscribe lobby', 'publish lobby']);
  assert.deepEqual(world.server.received.at(-1).data, 'four');
  await show(null);
  await pass(6_000);
  assert.deepEqual(asked(world).slice(2), ['unsubscribe lobby']);
  // StrictMode renders each component twice.
  assert.ok(functions.size <= 2);
});

test('the state of a connection', async (t) => {
  const world = new World(t);
  const stentor = world.connect(t);
  const Status = () => {
    const { state, transport, reason = '' } = useConnection(stentor);
    return `${state} ${transport} ${reason}`;
  };
  const { show, pass, text } = await page(t, world);
  await show(createElement(Status));
  assert.equal(text(), 'connecting websocket ');
  await pass(1_000);
  assert.equal(text(), 'open websocket ');
  await act(async () => stentor.pause());
  assert.equal(text(), 'paused websocket paused');
});

test('a page that is rendered on a server opens nothing, whatever the address', (t) => {
  const world = new World(t);
  for (const [address, autoConnect] of [['/live', true], ['http://server.test', false], ['http://server.test', true]]) {
    const stentor = connect(address, { WebSocket: world.WebSocket, autoConnect });
    const opened = ['feed', 'room'].map((name) => t.mock.method(stentor, name));
    const Page = () => {
      const plain = useFeed(stentor, 'a');
      const awaited = useFeed(stentor, 'a', { suspense: true });
      const given = useFeed(stentor, 'a', { initial: { n: 5 } });
      const room = useRoom(stentor, 'lobby');
      const { state } = useConnection(stentor);
      return [plain.state, awaited.state, given.document.n, room.state, state].join(' ');
    };
    assert.equal(renderToString(createElement(Page)), 'loading loading 5 joining paused');
    assert.deepEqual(opened.map(({ mock }) => mock.callCount()), [0, 0]);
    stentor.close();
  }
});

test('a store calls each subscriber at once and with each value, until it unsubscribes', async (t) => {
  const world = new World(t);
  const stentor = world.connect(t);
  const store = feedStore(stentor, 'a');
  const values = [[], []];
  const ends = values.map((list) => store.subscribe(({ document, state }) => list.push(`${document?.n} ${state}`)));
  assert.deepEqual(values, [['undefined loading'], ['undefined loading']]);
  assert.equal(feedStore(stentor, 'a'), store);
  await world.pass(1_000);
  ends[0]();
  ends[0]();
  world.server.publish();
  await world.pass(100);
  assert.deepEqual(values.map((list) => list.at(-1)), ['1 live', '2 live']);
  assert.deepEqual(store.get(), { document: { n: 2 }, state: 'live', reason: '' });
  ends[1]();
  await world.pass(4_900);
  assert.deepEqual(asked(world), ['subscribe a']);
  await world.pass(200);
  assert.deepEqual(asked(world), ['subscribe a', 'unsubscribe a']);
  // A store that was closed can be subscribed to again.
  const again = [];
  store.subscribe(({ state }) => again.push(state));
  await world.pass(1_000);
  assert.equal(again.at(-1), 'live');
  world.server.error = ({ room }) => (room === 'secret' ? { code: 'not_allowed', message: 'no', retry: false } : undefined);
  const rooms = ['lobby', 'secret'].map((name) => roomStore(stentor, name));
  rooms.forEach((room) => room.subscribe(() => {}));
  const connection = connectionStore(stentor);
  const states = [];
  const end = connection.subscribe(({ state }) => states.push(state));
  await world.pass(100);
  assert.deepEqual(rooms.map((room) => room.get()), [{ state: 'joined', reason: '', messages: [] }, { state: 'refused', reason: 'no', messages: [] }]);
  stentor.pause();
  end();
  await world.pass(10_000);
  stentor.resume();
  await world.pass(1_000);
  assert.deepEqual(states, ['open', 'paused']);
});
