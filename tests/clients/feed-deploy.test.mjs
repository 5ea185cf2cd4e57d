// A deploy of an API whose proxy answers 404 meanwhile: no subscription ends, over five transports.
import assert from 'node:assert/strict';
import http from 'node:http';
import test from 'node:test';
import { transports } from './feed-transports.mjs';
import { feedsFrom, logged, queue, request, serve, upstream, within } from './harness.mjs';

const KEYS = Array.from({ length: 200 }, (_, n) => `k/${n}`);
/** So often each key is answered with 404 at least. */
const ANSWERS = 3;

/** Asks for a key until its document is another one; gives both. */
async function poll(agent, server, key) {
  const documents = [];
  for (let etag; documents.length < 2;) {
    const wait = etag ? `?wait=${encodeURIComponent(etag)}` : '';
    const { status, headers, text } = await request(`${server.http}/feed/${key}${wait}`, { agent });
    // Nothing newer for as long as a request may wait.
    if (status === 204) continue;
    assert.equal(status, 200, `${key}: ${text}`);
    etag = headers.etag;
    documents.push(text);
  }
  return documents;
}

test('no subscription ends while an API answers 404 during a deploy', async (t) => {
  const api = await upstream(t);
  const version = (key, n) => ({ key, n });
  for (const key of KEYS) api.documents.set(key, version(key, 1));
  const server = await serve(t, { config: `
[feeds_limits]
not_found_after = "1h" # A slow machine is no reason to give up a key.
[[sockjs]]
prefix = "/sockjs"
${feedsFrom(api.url)}` });

  // What each subscription is told, in order.
  const courses = [];
  for (const [name, subscribe] of Object.entries(transports)) {
    const course = new Map(KEYS.map((key) => [key, queue()]));
    courses.push([name, course]);
    await subscribe(t, server, KEYS, (key, text) => {
      // The end of a connection concerns all keys.
      for (const steps of key ? [course.get(key)] : course.values()) steps.put(text);
    });
  }
  const agent = new http.Agent({ keepAlive: true });
  t.after(() => agent.destroy());
  const polls = KEYS.map((key) => poll(agent, server, key));
  // A failure is reported below.
  for (const documents of polls) documents.catch(() => {});
  const all = async (expect) => {
    for (const [name, course] of courses) {
      for (const [key, steps] of course) {
        const text = await steps.next(`${name}: ${key} ${expect(key)}`);
        assert.match(text, expect(key), `${name}: ${key} ${text}`);
      }
    }
  };

  await all((key) => new RegExp(`^\\{"key":"${key}","n":1\\}$`));
  let isBack = false;
  for (const key of KEYS) {
    let answers = 0;
    api.documents.set(key, (_, response) => {
      if (isBack && answers >= ANSWERS) return version(key, 1);
      answers += 1;
      return response.writeHead(404).end('no such page');
    });
  }
  await all(() => /^stale: /);
  isBack = true;
  await all(() => /^live: /);
  for (const key of KEYS) api.documents.set(key, version(key, 2));
  await all((key) => new RegExp(`^\\{"key":"${key}","n":2\\}$`));
  const expected = KEYS.map((key) => [1, 2].map((n) => JSON.stringify(version(key, n))));
  assert.deepEqual(await within(Promise.all(polls), 'the last version by long polling'), expected);

  // The log has one line when it begins, which names the URL and the body, and one when it ends.
  const ended = await logged(server, ({ message }) => /^no documents are kept of keys/.test(message), 'the end of the deploy');
  const lines = server.log.map((line) => JSON.parse(line)).filter(({ failure, message }) => failure === 'not_found' || /no document for a key/.test(message));
  const [{ message, cause }, ...others] = lines;
  assert.match(cause, /^the upstream answered 404 to http:\/\/.*\/k\/\d+: no such page; its document stays/);
  assert.deepEqual([message, others], ['fetches fail', [ended]]);
});
