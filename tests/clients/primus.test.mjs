// Primus's client as npm's `primus` 8 generates it, in Node: values, heartbeats, ids, feeds, coming back.
import assert from 'node:assert/strict';
import test from 'node:test';
import { event, feedsFrom, queue, serve, upstream, within } from './harness.mjs';
import { Primus, VALUES } from './primus.mjs';
import { proxy } from './proxy.mjs';

/** A client that is open; `next()` is what it gets. It comes back soon when it is cut off. */
async function connect(t, url, options = {}) {
  const socket = new Primus(url, { reconnect: { min: 20, max: 200 }, ...options });
  // Its timers as well.
  t.after(() => socket.destroy());
  const data = queue();
  // The library runs in a realm of its own, whose objects assertions don't take for equal.
  socket.on('data', (value) => data.put(JSON.parse(JSON.stringify(value))));
  await event(socket, 'open', undefined, 'error');
  return { socket, next: () => data.next('data') };
}

const idOf = (socket) => within(new Promise((resolve) => socket.id(resolve)), 'the id');

test('values come back as they were', async (t) => {
  const server = await serve(t, { args: ['--app', 'echo'] });
  const { socket, next } = await connect(t, server.http);
  for (const value of VALUES) socket.write(value);
  for (const value of VALUES) assert.deepEqual(await next(), value);
  const id = await idOf(socket);
  assert.match(id, /^[\w-]{20}$/);
  assert.equal(await idOf(socket), id);
});

test('it is pinged, answers, and is thereby kept', async (t) => {
  const server = await serve(t, { args: ['--app', 'echo'], config: '[heartbeat]\ninterval = "200ms"\ntimeout = "1min"\n' });
  // A client of this version doesn't ping, but ends a connection on which it isn't pinged.
  const { socket, next } = await connect(t, server.http, { pingTimeout: 60_000 });
  let ended = false;
  for (const name of ['close', 'end', 'reconnect']) socket.on(name, () => { ended = true; });
  for (let n = 0; n < 10; n++) await event(socket, 'outgoing::pong');
  assert.equal(ended, false);
  socket.write('still here');
  assert.equal(await next(), 'still here');
});

test('a client that is cut off comes back, with its feed', async (t) => {
  const api = await upstream(t);
  api.documents.set('scores/8', { n: 1 });
  const server = await serve(t, { config: feedsFrom(api.url), args: ['--cores', '2'] });
  const way = await proxy(t, server.http);
  const { socket, next } = await connect(t, `${way.url}?resourceId=scores%2F8`);
  const snapshot = async (n) => {
    for (;;) {
      const message = await next();
      if (message.type === 'snapshot' && message.data.n === n) return assert.equal(message.feed, 'scores/8');
    }
  };
  await snapshot(1);
  api.documents.set('scores/8', { n: 2 });
  await snapshot(2);
  for (let n = 3; n < 6; n++) {
    const back = event(socket, 'reconnected');
    way.cut();
    await back;
    api.documents.set('scores/8', { n });
    await snapshot(n);
  }
});

test('when the server goes away, clients come back to the next one', async (t) => {
  const [server, other] = await Promise.all([1, 2].map(() => serve(t, { args: ['--app', 'echo'] })));
  const way = await proxy(t, server.http);
  const { socket, next } = await connect(t, way.url);
  const back = event(socket, 'reconnected');
  way.target = other.http;
  server.child.kill('SIGTERM');
  await back;
  socket.write('here');
  assert.equal(await next(), 'here');
});
