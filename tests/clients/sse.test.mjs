// Server-Sent Events with npm's `eventsource`: snapshots, several feeds, and coming back.
import assert from 'node:assert/strict';
import test from 'node:test';
import { EventSource } from 'eventsource';
import { feedsFrom, queue, serve, upstream } from './harness.mjs';
import { proxy } from './proxy.mjs';

/** A server with feeds, and an upstream whose documents the test sets. */
async function feeds(t, config = '') {
  const api = await upstream(t);
  const server = await serve(t, { config: feedsFrom(api.url) + config, args: ['--cores', '2'] });
  return { api, server };
}

/** A source of events: { source, requests, next }. `requests` are those that it made, by their Last-Event-ID. */
function listen(t, url) {
  const requests = queue();
  const source = new EventSource(url, {
    fetch(input, init) {
      requests.put(init.headers['Last-Event-ID']);
      return fetch(input, init);
    },
  });
  t.after(() => source.close());
  const events = queue();
  for (const name of ['snapshot', 'state', 'message']) source.addEventListener(name, ({ data, lastEventId }) => events.put({ name, data: JSON.parse(data), id: lastEventId }));
  return { source, requests, next: () => events.next(`an event of ${url}`) };
}

test('documents come as events, and changes of state', async (t) => {
  const { api, server } = await feeds(t);
  api.documents.set('scores/8/live', { score: [0, 0], text: 'é😀\n' });
  for (const path of ['/sse/scores/8/live', '/sse?feed=scores/8/live', '/sse?resourceId=scores%2F8%2Flive']) {
    const { next } = listen(t, server.http + path);
    const { name, data } = await next();
    assert.deepEqual([name, data], ['snapshot', { score: [0, 0], text: 'é😀\n' }]);
  }
  const { next } = listen(t, `${server.http}/sse/scores/8/live`);
  await next();
  for (let n = 1; n <= 5; n++) {
    api.documents.set('scores/8/live', { score: [n, 0] });
    assert.deepEqual((await next()).data, { score: [n, 0] });
  }
  api.documents.set('scores/8/live', (_, response) => response.writeHead(500).end());
  const { name, data: { feed, state } } = await next();
  assert.deepEqual([name, feed, state], ['state', 'scores/8/live', 'stale']);
});

test('a client that comes back gets what it lacks, and nothing that it has', async (t) => {
  const { api, server } = await feeds(t);
  const way = await proxy(t, server.http);
  api.documents.set('a', { n: 1 });
  api.documents.set('b', { n: 1 });
  const { requests, next } = listen(t, `${way.url}/sse?feed=a&feed=b`);
  assert.equal(await requests.next(), undefined);
  await next();
  const { id } = await next();
  way.cut();
  // It changes while nobody listens, or after: either way it comes once, and the other one doesn't.
  api.documents.set('a', { n: 2 });
  assert.equal(await requests.next('a second request'), id);
  assert.deepEqual((await next()).data, { n: 2 });
  api.documents.set('b', { n: 3 });
  assert.deepEqual((await next()).data, { n: 3 });
});
