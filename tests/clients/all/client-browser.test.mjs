// @stentor/client in Chromium and Firefox, as a page loads it: /stentor.js from the server, and the libraries of Socket.IO and SockJS
// where the transport needs them.
import assert from 'node:assert/strict';
import http from 'node:http';
import path from 'node:path';
import test, { after, describe } from 'node:test';
import { browserNames, missing, sharedBrowsers } from '../browsers.mjs';
import { feedsFrom, modules, PATIENCE_MS, root, serve, upstream } from '../harness.mjs';
import { proxy, random } from '../proxy.mjs';

const client = path.join(root, 'clients/js/dist/stentor.js');
const libraries = { 'socket.io': 'socket.io-client/dist/socket.io.min.js', sockjs: 'sockjs-client/dist/sockjs.min.js' };
const TRANSPORTS = ['websocket', 'sse', 'polling', 'socket.io', 'sockjs'];

const shared = sharedBrowsers({ after });

const config = (api, more = '') => `
${more}
[heartbeat]
interval = "300ms"
timeout = "300ms"
[limits]
request_timeout = "300ms"
${feedsFrom(api.url)}`;

const version = (n) => ({ n, events: Array.from({ length: 20 + (n % 5) }, (_, i) => ({ id: n - i, text: `at ${n - i}`.padEnd(100, '.') })) });

/** Loads the client into a page at `address`, and connects to the server at `url`: only what `connect` reports. */
async function connected(t, browser, address, url, transport) {
  const context = await (await shared(browser)).newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  await page.goto(address);
  if (libraries[transport]) await page.addScriptTag({ path: path.join(modules, libraries[transport]) });
  await page.addScriptTag({ path: client });
  await page.evaluate(([url, transport]) => {
    window.states = [];
    window.errors = [];
    window.stentor = window.Stentor.connect(url, { transport, backoff: { initialMs: 100, maxMs: 200 } });
    window.stentor.on('error', ({ code, message, retry }) => window.errors.push({ code, message, retry }));
    window.stentor.on('state', (state) => window.states.push(state));
    window.stentor.feed('a');
  }, [url, transport]);
  const until = (holds) => page.waitForFunction(holds, undefined, { timeout: PATIENCE_MS, polling: 20 });
  return { page, until };
}

/** A page at `address` that follows the feed `a` of the server at `url`, and says in `window.seen` what it had. */
async function open(t, browser, address, url, transport, options) {
  const context = await (await shared(browser)).newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  const errors = [];
  page.on('pageerror', ({ message }) => {
    // Firefox reports as errors of the page what happens to its WebSockets and requests when a connection is cut.
    const isCut = /^(Firefox can’t establish a connection|The connection to wss?:)|no root element found/;
    if (!isCut.test(message)) errors.push(message);
  });
  await page.goto(address);
  for (const name of [transport].flat()) {
    if (libraries[name]) await page.addScriptTag({ path: path.join(modules, libraries[name]) });
  }
  await page.addScriptTag({ url: `${url}/stentor.js` });
  await page.evaluate(([url, transport, options]) => {
    const stentor = window.Stentor.connect(url, { transport, backoff: { initialMs: 20, maxMs: 200 }, heartbeatTimeoutMs: 1_000, connectTimeoutMs: 2_000, ...options });
    const feed = stentor.feed('a');
    window.seen = { all: [], states: [], kinds: [] };
    feed.on('state', (state) => window.seen.states.push(state));
    feed.on('change', (document, { kind }) => {
      window.seen.all.push(document.n);
      window.seen.kinds.push(kind);
    });
    Object.assign(window, { stentor, feed });
  }, [url, transport, options]);
  const has = async (n) => {
    const isThere = (n) => window.feed.document?.n === n && window.feed.state === 'live';
    await page.waitForFunction(isThere, n, { timeout: PATIENCE_MS, polling: 20 }).catch(async () => {
      const what = await page.evaluate(() => `${window.stentor.state} by ${window.stentor.transport}, ${window.feed.state}: ${window.feed.reason}; ${JSON.stringify(window.seen)}`);
      assert.fail(`version ${n} did not come: ${what}`);
    });
  };
  const was = (state) => page.waitForFunction((state) => window.feed.state === state || window.seen.states.includes(state), state, { timeout: PATIENCE_MS, polling: 20 });
  const seen = async () => {
    const { seen, document, transport } = await page.evaluate(() => ({ seen: window.seen, document: window.feed.document, transport: window.stentor.transport }));
    assert.deepEqual(errors, []);
    assert.deepEqual(seen.all, [...seen.all].sort((a, b) => a - b), 'never an older version after a newer one');
    assert.deepEqual(document, version(document.n));
    return { ...seen, transport };
  };
  return { page, has, was, seen };
}

for (const browser of browserNames) {
  describe(`in ${browser}`, { concurrency: 8, skip: missing(browser) }, () => {
    for (const transport of TRANSPORTS) {
      test(`${transport}: documents, a server that is killed, and one that is paused`, async (t) => {
        const api = await upstream(t);
        api.documents.set('a', version(1));
        let server = await serve(t, { config: config(api) });
        const between = await proxy(t, server.http);
        const { page, has, was, seen } = await open(t, browser, `${between.url}/healthz`, between.url, transport);
        await has(1);
        api.documents.set('a', version(2));
        await has(2);
        server.child.kill('SIGKILL');
        await was('stale');
        api.documents.set('a', version(3));
        server = await serve(t, { config: config(api) });
        between.target = server.http;
        await has(3);
        await page.evaluate(() => { window.seen.states = []; });
        t.after(() => server.child.kill('SIGCONT'));
        server.child.kill('SIGSTOP');
        await was('stale');
        api.documents.set('a', version(4));
        server.child.kill('SIGCONT');
        await has(4);
        const { all, kinds } = await seen();
        assert.deepEqual([...new Set(all)], [1, 2, 3, 4]);
        if (transport !== 'polling') assert.ok(kinds.includes('delta'));
      });
    }

    for (const transport of TRANSPORTS) {
      test(`${transport}: a proxy cuts connections at random`, async (t) => {
        const seed = Number(process.env.SEED ?? (Math.random() * 2 ** 32) >>> 0);
        t.diagnostic(`SEED=${seed}`);
        const chance = random(seed);
        const api = await upstream(t);
        api.documents.set('a', version(1));
        const server = await serve(t, { config: config(api) });
        const between = await proxy(t, server.http);
        const { has, seen } = await open(t, browser, `${between.url}/healthz`, between.url, transport);
        await has(1);
        between.budget = () => 500 + Math.floor(chance() * (transport === 'polling' ? 10_000 : 3_000));
        between.cut();
        for (let n = 2; n <= 40; n++) {
          api.documents.set('a', version(n));
          await new Promise((resolve) => setTimeout(resolve, 20 + chance() * 100));
        }
        between.budget = () => Infinity;
        await has(40);
        await seen();
        t.diagnostic(`${between.cuts} cuts`);
      });
    }

    test('a list falls back where WebSockets are cut off', async (t) => {
      const api = await upstream(t);
      api.documents.set('a', version(1));
      const server = await serve(t, { config: config(api) });
      const between = await proxy(t, server.http, { refuses: (head) => /upgrade: websocket/i.test(head) });
      const { has, seen } = await open(t, browser, `${between.url}/healthz`, between.url, ['websocket', 'sse', 'polling'], { heartbeatTimeoutMs: PATIENCE_MS, connectTimeoutMs: PATIENCE_MS });
      await has(1);
      assert.equal((await seen()).transport, 'sse');
    });

    for (const transport of TRANSPORTS) {
      test(`${transport}: a page of an origin that is refused`, async (t) => {
        const api = await upstream(t);
        api.documents.set('page', (_, response) => response.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>elsewhere</p>'));
        const server = await serve(t);
        const { page, until } = await connected(t, browser, `${api.url}/page`, server.http, transport);
        await until(() => window.errors.length > 0);
        const { errors, states } = await page.evaluate(() => ({ errors: window.errors, states: window.states }));
        assert.deepEqual(errors[0], { code: 'origin_refused', message: `the server refuses ${api.url}: see [origins] allow`, retry: true });
        assert.ok(!states.includes('open'), states.join());
      });
    }

    test('a proxy that changes the `Host` header makes the server refuse its own pages, which is reported', async (t) => {
      const server = await serve(t);
      const { hostname, port } = new URL(server.http);
      const between = http.createServer(({ url, method, headers }, response) => {
        const request = http.request({ hostname, port, path: url, method, headers: { ...headers, host: 'stentor.internal' } }, (answer) => {
          response.writeHead(answer.statusCode, answer.headers);
          answer.pipe(response);
        });
        // Pages that end abort their requests.
        request.on('error', () => response.destroy()).end();
      });
      await new Promise((resolve) => { between.listen(0, '127.0.0.1', resolve); });
      t.after(() => between.close());
      const url = `http://127.0.0.1:${between.address().port}`;
      const { page, until } = await connected(t, browser, `${url}/healthz`, url, 'websocket');
      await until(() => window.errors.length > 0);
      assert.equal(await page.evaluate(() => window.errors[0].code), 'origin_refused');
    });

    test('a server that is absent, allows the origin, or is behind a proxy that fails, is not reported as refusing it', async (t) => {
      const api = await upstream(t);
      api.documents.set('page', (_, response) => response.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>elsewhere</p>'));
      const server = await serve(t, { config: `[origins]\nallow = ["${api.url}"]\n` });
      // Without WebSockets, the transport fails although the origin is allowed.
      const between = await proxy(t, server.http, { refuses: (head) => /upgrade: websocket/i.test(head) });
      // A proxy's own error page, which no page of another origin may read.
      const broken = http.createServer((_, response) => response.writeHead(403, { 'Content-Type': 'text/html' }).end('<p>blocked</p>'));
      await new Promise((resolve) => { broken.listen(0, '127.0.0.1', resolve); });
      t.after(() => broken.close());
      for (const url of ['http://127.0.0.1:9', between.url, `http://127.0.0.1:${broken.address().port}`]) {
        const { page, until } = await connected(t, browser, `${api.url}/page`, url, 'websocket');
        await until(() => window.states.filter((state) => state === 'waiting').length > 3);
        assert.deepEqual(await page.evaluate(() => window.errors), []);
      }
    });

    for (const transport of TRANSPORTS) {
      test(`${transport}: a page of another origin`, async (t) => {
        const api = await upstream(t);
        api.documents.set('a', version(1));
        api.documents.set('page', (_, response) => response.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>elsewhere</p>'));
        const server = await serve(t, { config: config(api, `[origins]\nallow = ["${api.url}"]`) });
        const between = await proxy(t, server.http);
        const { has, seen } = await open(t, browser, `${api.url}/page`, between.url, transport);
        await has(1);
        api.documents.set('a', version(2));
        await has(2);
        // An event stream says where it was in a header that browsers ask about first.
        between.cut();
        api.documents.set('a', version(3));
        await has(3);
        await seen();
      });
    }
  });
}
