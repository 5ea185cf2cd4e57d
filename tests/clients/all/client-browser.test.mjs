// @stentor/client in Chromium and Firefox, as a page loads it: /stentor.js from the server, and the libraries of Socket.IO and SockJS
// where the transport needs them.
import assert from 'node:assert/strict';
import http from 'node:http';
import path from 'node:path';
import test, { after, describe } from 'node:test';
import { browserNames, missing, openPage, sharedBrowsers } from '../browsers.mjs';
import { TRANSPORTS, version } from '../client.mjs';
import { elsewhere, feedsFrom, modules, PATIENCE_MS, root, serve, upstream, website } from '../harness.mjs';
import { proxy, random } from '../proxy.mjs';

const libraries = { 'socket.io': 'socket.io-client/dist/socket.io.min.js', sockjs: 'sockjs-client/dist/sockjs.min.js' };
const shared = sharedBrowsers({ after });

const config = (api, more = '') => `
${more}
[heartbeat]
interval = "300ms"
timeout = "300ms"
[limits]
request_timeout = "300ms"
${feedsFrom(api.url)}`;

/** A page at `address` that follows the feed `a` of the server at `url`, and says in `window.seen` what it had. The client comes from `script`. */
async function open(t, browser, address, url, transport, { script = { url: `${url}/stentor.js` }, ...options } = {}) {
  const page = await openPage(t, shared(browser), 'about:blank');
  const errors = [];
  page.on('pageerror', ({ message }) => {
    // Firefox reports as errors of the page what happens to its WebSockets and requests when a connection is cut or forbidden.
    const isCut = /^(Firefox can’t establish a connection|The connection to wss?:|The page’s settings blocked)|no root element found|Reason: CORS request did not succeed/;
    if (!isCut.test(message)) errors.push(message);
  });
  await page.goto(address);
  for (const name of [transport].flat()) {
    if (libraries[name]) await page.addScriptTag({ path: path.join(modules, libraries[name]) });
  }
  await page.addScriptTag(script);
  await page.evaluate(([url, transport, options]) => {
    const stentor = window.Stentor.connect(url, { transport, backoff: { initialMs: 20, maxMs: 200 }, heartbeatTimeoutMs: 1_000, connectTimeoutMs: 2_000, ...options });
    window.seen = { all: [], states: [], kinds: [], connection: [], reasons: [], errors: [], printed: [] };
    const print = console.error;
    console.error = (text) => print(text, window.seen.printed.push(text));
    stentor.on('state', (state, { reason }) => {
      window.seen.connection.push(state);
      window.seen.reasons.push(reason);
    });
    stentor.on('error', ({ code, message, retry }) => window.seen.errors.push({ code, message, retry }));
    const feed = stentor.feed('a');
    feed.on('state', (state) => window.seen.states.push(state));
    feed.on('change', (document, { kind }) => {
      window.seen.all.push(document.n);
      window.seen.kinds.push(kind);
    });
    Object.assign(window, { stentor, feed });
  }, [url, transport, options]);
  const until = (holds, value) => page.waitForFunction(holds, value, { timeout: PATIENCE_MS, polling: 20 });
  const has = (n) => until((n) => window.feed.document?.n === n && window.feed.state === 'live', n).catch(async () => {
    const what = await page.evaluate(() => `${window.stentor.state} by ${window.stentor.transport}, ${window.feed.state}: ${window.feed.reason}; ${JSON.stringify(window.seen)}`);
    assert.fail(`version ${n} did not come: ${what}`);
  });
  const was = (state) => until((state) => window.feed.state === state || window.seen.states.includes(state), state);
  const seen = async () => {
    const { seen, document, transport } = await page.evaluate(() => ({ seen: window.seen, document: window.feed.document, transport: window.stentor.transport }));
    assert.deepEqual(errors, []);
    assert.deepEqual(seen.all, [...seen.all].sort((a, b) => a - b), 'never an older version after a newer one');
    assert.deepEqual(document, version(document.n));
    return { ...seen, transport };
  };
  return { page, until, has, was, seen };
}

/** A page that follows nothing, as the server refuses it or isn't there: the client is a file. What it reports, once `holds`. */
async function reported(t, browser, address, url, transport, holds) {
  const { page, until } = await open(t, browser, address, url, transport, { script: { path: path.join(root, 'clients/js/dist/stentor.js') }, backoff: { initialMs: 100, maxMs: 200 }, ...PATIENT });
  await until(holds);
  return page.evaluate(() => window.seen);
}

const PATIENT = { heartbeatTimeoutMs: PATIENCE_MS, connectTimeoutMs: PATIENCE_MS };
const hasError = () => window.seen.errors.length > 0;
const hasRetried = () => window.seen.errors.length > 0 && window.seen.connection.length > 12;
const isWebSocket = (head) => /upgrade: websocket/i.test(head);

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
      const between = await proxy(t, server.http, { refuses: isWebSocket });
      const { has, seen } = await open(t, browser, `${between.url}/healthz`, between.url, ['websocket', 'sse', 'polling'], PATIENT);
      await has(1);
      assert.equal((await seen()).transport, 'sse');
    });

    for (const transport of TRANSPORTS) {
      test(`${transport}: a page of an origin that is refused`, async (t) => {
        const { origin, address } = await elsewhere(t);
        const { errors, printed, connection } = await reported(t, browser, address, (await serve(t)).http, transport, hasRetried);
        const message = `the server refuses ${origin}: add to its configuration [origins] allow = ["${origin}"]`;
        assert.deepEqual(errors.filter(({ code }) => code === 'origin_refused'), [{ code: 'origin_refused', message, retry: true }]);
        assert.deepEqual(printed, [message], 'once, although the client retries');
        assert.ok(!connection.includes('open'), connection.join());
      });
    }

    test('a proxy that changes the `Host` header makes the server refuse its own pages, which is reported', async (t) => {
      const server = await serve(t);
      const url = await website(t, ({ url, method, headers }, response) => {
        const outgoing = http.request(`${server.http}${url}`, { method, headers: { ...headers, host: 'stentor.internal' } }, (answer) => {
          response.writeHead(answer.statusCode, answer.headers);
          answer.pipe(response);
        });
        // Pages that end abort their requests.
        outgoing.on('error', () => response.destroy()).end();
      });
      const { errors } = await reported(t, browser, `${url}/healthz`, url, 'websocket', hasError);
      assert.equal(errors[0].code, 'origin_refused');
    });

    test('a server that is absent, allows the origin, or is behind a proxy that fails, is not reported as refusing it', async (t) => {
      const { origin, address } = await elsewhere(t);
      const server = await serve(t, { config: `[origins]\nallow = ["${origin}"]\n` });
      // Without WebSockets, the transport fails although the origin is allowed.
      const between = await proxy(t, server.http, { refuses: isWebSocket });
      // A proxy's own error page, which no page of another origin may read.
      const broken = await website(t, (_, response) => response.writeHead(403, { 'Content-Type': 'text/html' }).end('<p>blocked</p>'));
      for (const url of ['http://127.0.0.1:9', between.url, broken]) {
        const { errors } = await reported(t, browser, address, url, 'websocket', () => window.seen.connection.filter((state) => state === 'waiting').length > 3);
        assert.deepEqual(errors, []);
      }
    });

    for (const transport of TRANSPORTS) {
      test(`${transport}: a page of another origin`, async (t) => {
        const api = await upstream(t);
        api.documents.set('a', version(1));
        const { origin, address } = await elsewhere(t);
        const server = await serve(t, { config: config(api, `[origins]\nallow = ["${origin}"]`) });
        const between = await proxy(t, server.http);
        const { has, seen } = await open(t, browser, address, between.url, transport);
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
