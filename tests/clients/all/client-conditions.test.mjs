// @stentor/client in Chromium and Firefox under the conditions that pages meet: networks that change, fail or are in the way, servers that are away, tokens, cookies, clocks and tabs.
// A scripted proxy is between the page and the server. all/client-world.test.mjs has the same conditions at random, on a virtual clock.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test, { after, describe } from 'node:test';
import { admin, issuer, metric, now, push, token } from '../admin.mjs';
import { user } from '../auth.mjs';
import { browserNames, missing, openPage, sharedBrowsers } from '../browsers.mjs';
import { version } from '../client.mjs';
import { gateway } from '../gateway.mjs';
import { binary, elsewhere, feedsFrom, modules, PATIENCE_MS, root, serve, until, upstream, website } from '../harness.mjs';
import { clientPage, connectedPage } from '../pages.mjs';

const shared = sharedBrowsers({ after });
const isWebSocket = (request) => request.isWebSocket;

/** A server whose feeds come from `api.documents`, and a proxy before it. `more` is added to the configuration. */
async function served(t, more = '') {
  const api = await upstream(t);
  api.documents.set('a', version(1));
  const config = `${more}\n${feedsFrom(api.url)}`;
  const server = await serve(t, { config });
  const between = await gateway(t, server.http);
  return { api, config, server, between };
}

/** A page of the proxy's own origin. */
const ownPage = (t, browser, { url }, beside) => clientPage(t, shared(browser), `${url}/healthz`, beside);

/**
 * A page of another origin, and proxies before one server. Firefox delays WebSockets to an address where others have failed, so a connection that
 * fails has a proxy of its own.
 */
async function servedElsewhere(t, browser, count, more = '') {
  const { origin, address } = await elsewhere(t);
  const { server, ...rest } = await served(t, `[origins]\nallow = ["${origin}"]\n${more}`);
  const servers = [];
  while (servers.length < count) servers.push(await gateway(t, server.http));
  return { ...rest, server, servers, page: await clientPage(t, shared(browser), address) };
}

/** Requests for streams. Polls have a bound. */
const isStream = ({ url }) => url.startsWith('/ndjson') && url.includes('received=') && !url.includes('bytes=');
/** The question whether the page's origin may connect. */
const isCheck = ({ url }) => url === '/sse';

const conditions = {
  'W1: another network: a second connection opens beside the dead one': async (t, browser) => {
    const { api, between } = await served(t);
    const page = await ownPage(t, browser, between);
    const { has, until, read } = await connectedPage(page, between.url, { transport: 'websocket' });
    // Firefox's protocol for tests has no such command.
    const say = (name) => (browser === 'Chromium' ? page.context().setOffline(name === 'offline') : page.evaluate((name) => window.dispatchEvent(new Event(name)), name));
    await has(1);
    between.forget();
    await say('offline');
    await until(([it]) => it.feeds.a.feed.state === 'stale' && it.feeds.a.feed.reason === 'offline');
    api.documents.set('a', version(2));
    await say('online');
    await has(2);
    assert.deepEqual(await read((it) => it.errors), []);
  },

  'W1: another network over HTTP: a second session opens at once, and the feed stays `live`': async (t, browser) => {
    const { api, between } = await served(t);
    const page = await ownPage(t, browser, between);
    for (const [index, transport] of ['sse', 'polling'].entries()) {
      const { has, until, isIn, read } = await connectedPage(page, between.url, { transport, rooms: ['chat'] });
      await Promise.all([has(2 * index + 1), isIn()]);
      // The time for a sign of life never passes.
      await page.evaluate(() => {
        const { setTimeout: set } = window;
        window.setTimeout = (then, ms, ...details) => (ms === 3_000 ? undefined : set(then, ms, ...details));
      });
      // The old session is dead, also if its next poll comes only now.
      let hasNew = false;
      between.decide = ({ url }) => {
        hasNew ||= url.startsWith('/ndjson?');
        return hasNew ? undefined : 'swallow';
      };
      between.forget();
      const before = await read(({ stentor }) => stentor.session);
      api.documents.set('a', version(2 * index + 2));
      await page.evaluate(() => window.dispatchEvent(new Event('online')));
      await has(2 * index + 2);
      await until(([it, before]) => it.stentor.session !== before, before);
      assert.deepEqual(await read(({ states, feeds, errors }) => [states, feeds.a.states, errors]), [['open', 'open'], ['live'], []], transport);
      api.documents.set('a', version(2 * index + 3));
      await has(2 * index + 3);
      await read(({ stentor }) => stentor.close());
    }
  },

  'W2: SIGTERM, and a proxy that answers 502 until the next server is there: the ten lines of docs/fallbacks.md return': async (t, browser) => {
    const { api, config, server, between } = await served(t);
    const keys = ['a', 'b', 'c', 'd'];
    for (const key of keys) api.documents.set(key, version(1));
    const [, listen] = /```js\n(function listen\([^]*?\n}\n)/.exec(readFileSync(`${root}/docs/fallbacks.md`, 'utf8'));
    const page = await openPage(t, shared(browser), `${between.url}/healthz`, { content: listen });
    await page.evaluate(([url, keys]) => {
      window.heard = {};
      for (const key of keys) window.listen(`${url}/sse?feed=${key}`, ({ n }) => { window.heard[key] = n; });
    }, [between.url, keys]);
    const heard = (n) => page.waitForFunction(([keys, n]) => keys.every((key) => window.heard[key] === n), [keys, n], { timeout: PATIENCE_MS });
    await heard(1);
    server.child.kill('SIGTERM');
    await server.closed;
    const failed = new Set();
    between.decide = ({ url }) => {
      failed.add(url.at(5 + '/sse?'.length));
      return { status: 502 };
    };
    await until('each has failed', () => failed.size === keys.length);
    for (const key of keys) api.documents.set(key, version(2));
    between.target = (await serve(t, { config })).http;
    between.decide = () => undefined;
    await heard(2);
  },

  'W3: the server is away: ten rooms return as fast as none': async (t, browser) => {
    const { page, servers } = await servedElsewhere(t, browser, 4);
    const all = [];
    for (const [index, count] of [0, 1, 3, 10].entries()) {
      const rooms = Array.from({ length: count }, (_, n) => `room${n}`);
      all.push({ between: servers[index], ...await connectedPage(page, servers[index].url, { transport: 'websocket', rooms }) });
    }
    for (const { has, isIn } of all) await Promise.all([has(1), isIn()]);
    for (const { between } of all) {
      between.decide = () => 'refuse';
      between.cut();
    }
    for (const { between, until } of all) {
      await until(([it]) => it.waits.length > 3);
      between.attempts = between.requests.length;
      between.decide = () => undefined;
    }
    for (const { between, has, isIn, read } of all) {
      await Promise.all([has(1), isIn()]);
      const { waits, errors } = await read(({ waits, errors }) => ({ waits, errors }));
      // With even chance, the delays are those of the back-off alone.
      assert.deepEqual(waits, [10, 15, 22.5, 33.75, 51.25, 101.875, 150, 150, 150].slice(0, waits.length));
      assert.deepEqual(errors, []);
      assert.equal(between.requests.length - between.attempts, 1, 'the first attempt opens');
    }
  },

  'W4: the first token has expired, or is refused: the same transport with the next one': async (t, browser) => {
    const { between } = await served(t, `[auth]\n${issuer}[[permissions]]\ntopics = ["*"]\nallow = ["subscribe"]`);
    const page = await ownPage(t, browser, between);
    const good = user('42');
    const expired = user('42', { iat: now() - 600, exp: now() - 300 });
    const wrong = token({ sub: '42' }, { secret: 'another secret of 32 characters!' });
    for (const library of ['sockjs-client/dist/sockjs.min.js', 'socket.io-client/dist/socket.io.min.js']) await page.addScriptTag({ path: path.join(modules, library) });
    const socketsOnly = { ioOptions: { transports: ['websocket'] } };
    for (const [transport, more] of [['websocket'], ['sse'], ['polling'], ['sockjs'], ['socket.io'], ['socket.io', socketsOnly]]) {
      const options = { transport: [transport, 'sse', 'polling'], rooms: ['chat'], ...more };
      for (const [first, reason] of [[expired, 'expired'], [wrong, 'refused']]) {
        const { has, isIn, read } = await connectedPage(page, between.url, { ...options, tokens: [first, good] });
        await Promise.all([has(1), isIn()]);
        const seen = await read(({ stentor, waits, asked, errors }) => ({ transport: stentor.transport, waits, asked, errors }));
        assert.deepEqual(seen, { transport, waits: [1], asked: ['connect', reason], errors: [] });
        await read(({ stentor }) => stentor.close());
      }
      const { is, read } = await connectedPage(page, between.url, { ...options, tokens: [wrong, wrong] });
      await is('refused');
      assert.deepEqual(await read(({ asked }) => asked), ['connect', 'refused'], transport);
    }
  },

  'W5: a portal answers everything with a page: it is named, and nothing is `open` or `live`': async (t, browser) => {
    const { page, servers } = await servedElsewhere(t, browser, 4);
    // Everybody may read it, and its tag looks as the server's.
    const headers = { 'Content-Type': 'text/html', ETag: '"65012345-264"', 'Access-Control-Allow-Origin': '*', 'Access-Control-Expose-Headers': 'ETag' };
    const portal = { status: 200, headers, body: '<h1>Sign in to the network</h1>' };
    for (const [index, transport] of ['auto', 'websocket', 'sse', 'polling'].entries()) {
      const between = servers[index];
      between.decide = () => portal;
      const { until, read, has } = await connectedPage(page, between.url, { transport });
      await until(([it]) => it.waits.length > 3);
      const { states, reasons, feed } = await read(({ states, reasons, feeds }) => ({ states, reasons, feed: feeds.a.states }));
      assert.ok(!states.includes('open'), `${transport}: ${states}`);
      assert.deepEqual(feed, [], transport);
      // Browsers don't tell what answers a WebSocket.
      if (transport !== 'websocket') assert.ok(reasons.includes('something else answers in place of the server: text/html'), `${transport}: ${reasons}`);
      between.decide = () => undefined;
      await has(1);
    }
  },

  'W6: a Content-Security-Policy without `ws:`: the reason, and the next transport': async (t, browser) => {
    const headers = { 'Content-Type': 'text/html' };
    const origin = await website(t, (_, response) => response.writeHead(200, headers).end('<p>strict</p>'));
    const { server } = await served(t, `[origins]\nallow = ["${origin}"]`);
    headers['Content-Security-Policy'] = `connect-src ${server.http}`;
    const page = await clientPage(t, shared(browser), origin);
    const { has, read } = await connectedPage(page, server.http, { transport: ['websocket', 'sse'] });
    await has(1);
    const forbidden = `the page's Content-Security-Policy forbids ${server.ws}: add it to connect-src`;
    assert.deepEqual(await read(({ stentor, reasons }) => [stentor.transport, reasons[0]]), ['sse', forbidden]);
  },

  'W7: WebSockets open and are reset: the next transport after three': async (t, browser) => {
    const { api, between } = await served(t, '[rooms]\npublish = true');
    between.decide = (request) => (isWebSocket(request) ? { cutAfter: '"hello"' } : undefined);
    const page = await ownPage(t, browser, between);
    // A connection that ends at once has not lasted, however slow the machine is.
    await page.evaluate(() => { Date.now = performance.now = () => 0; });
    const { has, read } = await connectedPage(page, between.url, { transport: ['websocket', 'sse', 'polling'], rooms: ['chat'] });
    // The client has opened before the message comes.
    await read(({ stentor }) => {
      const greet = () => stentor.state === 'open' && stentor.transport === 'websocket' && stentor.publish('chat', 'hello').catch(() => {});
      stentor.on('state', greet);
      greet();
    });
    await has(1);
    await between.met('a stream', isStream);
    api.documents.set('a', version(2));
    await has(2);
    const { requests } = between;
    assert.equal(requests.slice(0, requests.findIndex(isStream)).filter(isWebSocket).length, 3);
    assert.equal(await read(({ stentor }) => stentor.transport), 'sse');
  },

  'W8: /stentor.js with its hash, as a module, on a page with COEP; compressed, and not sent again': async (t, browser) => {
    const { between } = await served(t);
    const tag = execFileSync(binary, ['script-tag', between.url], { encoding: 'utf8' });
    const scripts = {
      'with its hash': tag,
      'without CORS': `<script src="${between.url}/stentor.js"></script>`,
      'as a module': `<script type="module">import '${between.url}/stentor.js';</script>`,
      'not with another hash': tag.replace('sha384-', 'sha384-0000'),
    };
    const isolated = { 'Cross-Origin-Embedder-Policy': 'require-corp', 'Cross-Origin-Opener-Policy': 'same-origin' };
    const origin = await website(t, ({ url }, response) => {
      response.writeHead(200, { 'Content-Type': 'text/html', ...isolated });
      response.end(`<!doctype html>${scripts[decodeURIComponent(url.slice(1))]}<script type="module">window.ended = true;</script>`);
    });
    const context = await (await shared(browser)).newContext();
    t.after(() => context.close());
    const page = await context.newPage();
    for (const name of Object.keys(scripts)) {
      await page.goto(`${origin}/${encodeURIComponent(name)}`);
      await page.waitForFunction(() => window.ended, undefined, { timeout: PATIENCE_MS });
      const seen = await page.evaluate(() => [window.crossOriginIsolated, typeof window.Stentor?.connect]);
      assert.deepEqual(seen, [true, name === 'not with another hash' ? 'undefined' : 'function'], name);
    }
    const sent = between.requests.filter(({ url, status }) => /^\/stentor/.test(url) && status === 200);
    for (const { answer } of sent) assert.match(answer['content-encoding'], /^(gzip|br)$/);
    assert.match(sent[0].answer['cache-control'], /immutable/);
    // The browser asks whether there is another one.
    await page.evaluate((url) => fetch(url, { cache: 'no-cache' }).then((response) => response.text()), `${between.url}/stentor.js`);
    assert.equal(between.requests.at(-1).status, 304);
  },

  'W9: `getToken` is slow, fails, and fails once for a renewal': async (t, browser) => {
    const { server, between } = await served(t, `[auth]\nrenewal_lead = "60s"\n${issuer}[[permissions]]\ntopics = ["*"]\nallow = ["subscribe"]`);
    const page = await ownPage(t, browser, between);
    const connectTimeoutMs = PATIENCE_MS + 1;
    const isTimed = () => page.evaluate((ms) => window.timers.includes(ms), connectTimeoutMs);
    const slow = await connectedPage(page, between.url, { transport: 'websocket', connectTimeoutMs, tokens: [] });
    await slow.until(([it]) => it.giveToken);
    assert.equal(await isTimed(), false, 'the time of an attempt has not begun');
    assert.equal(between.requests.filter(isWebSocket).length, 0);
    await slow.until(([it, token]) => it.giveToken(token) || true, user('42'));
    await slow.has(1);
    assert.equal(await isTimed(), true);

    const tokens = [null, null, user('42'), null, user('42', { jti: 'renewed' })];
    const { has, until, read } = await connectedPage(page, between.url, { transport: ['websocket', 'sse'], tokens });
    await has(1);
    const failed = { code: 'no_token', message: 'not signed in', retry: true };
    const seen = () => read(({ states, waits, asked, errors }) => ({ states, waits, asked, errors }));
    const expected = { states: ['waiting', 'connecting', 'waiting', 'connecting', 'open'], waits: [10, 20], asked: ['connect', 'connect', 'connect'], errors: [failed, failed] };
    assert.deepEqual(await seen(), expected);
    await admin(server, 'revocations', { subject: '42', action: 'refresh' });
    await until(([it]) => it.asked.length === 5);
    await page.waitForFunction((token) => window.sent.some((text) => text.includes(token)), tokens[4], { timeout: PATIENCE_MS });
    expected.asked.push('expiring', 'expiring');
    expected.errors.push(failed);
    assert.deepEqual(await seen(), expected);
  },

  'W10: 500 feeds by `sse`: one request opens the stream of all': async (t, browser) => {
    const { page, server, servers: [between] } = await servedElsewhere(t, browser, 1, '[[feeds]]\nname = "pushed"\nprefix = "pushed/"\npush = true');
    const feeds = Array.from({ length: 500 }, (_, n) => `pushed/a feed of a page/${n}`.replaceAll(' ', '-'));
    const pushed = (key, n) => push(server, key, { n });
    for (const key of feeds) await pushed(key, 1);
    const { until, has, was, read } = await connectedPage(page, between.url, { transport: 'sse', feeds });
    const all = () => until(([it]) => Object.values(it.feeds).every(({ feed }) => feed.state === 'live'));
    await all();
    await pushed(feeds[7], 2);
    await has(2, feeds[7]);
    between.cut();
    await was('stale', feeds[8]);
    await pushed(feeds[7], 3);
    await has(3, feeds[7]);
    await all();
    const streams = between.requests.filter(isStream).map(({ method, url }) => `${method} ${url}`);
    assert.deepEqual([...new Set(streams)], ['POST /ndjson?received=0']);
    assert.equal(between.requests[0].method, 'POST', 'no preflight');
    // Each feed has resumed from its version.
    assert.deepEqual(await read(({ feeds }) => [...new Set(Object.values(feeds).map(({ all }) => all.join()))]), ['1', '1,2,3']);
    assert.deepEqual(await read(({ errors }) => errors), []);
  },

  'W11: cookies, on a page of another origin of the same site': async (t, browser) => {
    const { origin, address } = await elsewhere(t);
    const auth = `[auth]\ncookie = "session"\n${issuer}[[permissions]]\ntopics = ["*"]\nallow = ["subscribe"]`;
    const named = await served(t, `[origins]\nallow = ["${origin}"]\n${auth}`);
    const all = await served(t, `[origins]\nallow = ["*"]\n${auth}`);
    const page = await clientPage(t, shared(browser), address);
    await page.evaluate((token) => { document.cookie = `session=${token}`; }, user('42'));
    for (const transport of ['websocket', 'sse', 'polling']) {
      const { has } = await connectedPage(page, named.between.url, { transport, withCredentials: true });
      await has(1);
    }
    for (const transport of ['sse', 'polling']) {
      const { is } = await connectedPage(page, named.between.url, { transport });
      await is('refused');
    }
    // The server ignores them where any page may connect, and browsers let none read the answer.
    for (const transport of ['websocket', 'sse', 'polling']) {
      const { until, read } = await connectedPage(page, all.between.url, { transport, withCredentials: true });
      await until(([it]) => it.stentor.state === 'refused' || it.waits.length > 1);
      assert.deepEqual(await read(({ states, feeds }) => [states.includes('open'), feeds.a.all]), [false, []], transport);
    }
    const loads = (credentials) => page.evaluate(([url, credentials]) => fetch(url, { credentials }).then(({ ok }) => ok, () => false), [`${named.between.url}/stentor.js`, credentials]);
    assert.deepEqual([await loads('omit'), await loads('include')], [true, false]);
  },

  'W12: publications that are too long are refused before anything is sent': async (t, browser) => {
    const { between } = await served(t, '[rooms]\npublish = true');
    const page = await ownPage(t, browser, between);
    const { until, isIn, read } = await connectedPage(page, between.url, { transport: 'websocket', rooms: ['chat'], queueCharsMax: 5_000_000 });
    await isIn();
    const outcomes = await read(async ({ stentor }) => {
      const outcome = (data) => stentor.publish('chat', data).then(() => 'published', ({ code, retry, outcome }) => ({ code, retry, outcome }));
      // Fewer characters than the server takes bytes.
      return [await outcome('x'.repeat(1_200_000)), await outcome('€'.repeat(400_000)), await outcome('€'.repeat(300_000))];
    });
    const refused = { code: 'too_long', retry: false, outcome: 'not_published' };
    assert.deepEqual(outcomes, [refused, refused, 'published']);
    await until(([it]) => it.rooms.chat.messages.length > 0);
    assert.deepEqual(await page.evaluate(() => window.sent.filter((text) => text.length > 1_000).map((text) => text.length > 400_000)), [false]);
    assert.deepEqual(await read(({ states, errors }) => [states, errors]), [['open'], []]);
  },

  'W13: the clock goes back an hour, then the server is silent: it is noticed': async (t, browser) => {
    const { api, between } = await served(t);
    const page = await ownPage(t, browser, between);
    const { has, was } = await connectedPage(page, between.url, { transport: 'websocket', heartbeatTimeoutMs: 1_000 });
    await has(1);
    await page.evaluate(() => { window.aheadMs = -3_600_000; });
    between.forget();
    await was('stale');
    api.documents.set('a', version(2));
    await has(2);
  },

  'W13: the clock goes forward, as after sleep: a connection is checked when somebody looks at the page': async (t, browser) => {
    const { api, between } = await served(t);
    const page = await ownPage(t, browser, between);
    const { has, read } = await connectedPage(page, between.url, { transport: 'websocket' });
    await has(1);
    const pings = () => page.evaluate(() => window.sent.filter((text) => JSON.parse(text).type === 'ping').length);
    const looks = () => page.evaluate(() => { document.dispatchEvent(new Event('visibilitychange')); });
    between.forget();
    api.documents.set('a', version(2));
    await page.evaluate(() => { window.aheadMs = 3_600_000; });
    await looks();
    assert.equal(await pings(), 1);
    // The dead connection is silent for longer than the client waits for an answer.
    await has(2);
    assert.equal(between.requests.filter(isWebSocket).length, 2);
    assert.deepEqual(await read(({ errors }) => errors), []);
  },

  'W14: seven tabs by `sse`: three streams, and requests of the page are answered': async (t, browser) => {
    const { api, between } = await served(t);
    const pages = [await ownPage(t, browser, between)];
    while (pages.length < 7) pages.push(await ownPage(t, browser, between, pages[0]));
    const tabs = await Promise.all(pages.map((page) => connectedPage(page, between.url, { transport: 'sse' })));
    for (const n of [1, 2]) {
      api.documents.set('a', version(n));
      for (const { has } of tabs) await has(n);
    }
    assert.equal(await pages[0].evaluate(async () => (await fetch('/healthz')).status), 200);
    assert.equal(await pages[0].evaluate(async () => (await navigator.locks.query()).held.length), 3);
    // A slow machine may need three seconds for a response.
    for (const { read } of tabs) assert.deepEqual(await read(({ errors }) => errors.filter(({ code }) => code !== 'no_response')), []);
  },

  'W15: a poll that the page aborts ends at the server': async (t, browser) => {
    const { api, config } = await served(t);
    const server = await serve(t, { config: `[limits]\nrequest_timeout = "1h"\n${config}` });
    const page = await clientPage(t, shared(browser), `${server.http}/healthz`);
    const { has, read } = await connectedPage(page, server.http, { transport: 'polling' });
    await has(1);
    const sessions = (count) => until(`${count} sessions`, async () => await metric(server, 'sessions') === count);
    api.documents.set('a', version(2));
    await has(2);
    await sessions(1);
    await read(({ stentor }) => stentor.close());
    await sessions(0);
  },

  'W15: the check of the origin is no error in the console': async (t, browser) => {
    const { between } = await served(t);
    const page = await ownPage(t, browser, between);
    const errors = [];
    page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
    between.decide = (request) => (isWebSocket(request) ? 'refuse' : undefined);
    const { until } = await connectedPage(page, between.url, { transport: 'websocket' });
    await until(([it]) => it.waits.length > 1);
    const checks = await between.met('a check of the origin', (request) => isCheck(request) && request.status);
    assert.deepEqual([...new Set(checks.map(({ method, status }) => `${method} ${status}`))], ['POST 204']);
    assert.deepEqual(errors.filter((text) => /status of|405/.test(text)), []);
  },

  'W15: browsers remember the answer to a preflight': async (t, browser) => {
    const { page, servers: [between] } = await servedElsewhere(t, browser, 1);
    const read = (url) => fetch(url, { headers: { Authorization: 'Bearer one' } }).then((response) => response.json()).then(({ n }) => n);
    for (const _ of [1, 2, 3]) assert.equal(await page.evaluate(read, `${between.url}/feed/a`), 1);
    const preflights = between.requests.filter(({ method }) => method === 'OPTIONS');
    assert.equal(preflights[0].answer['access-control-max-age'], '7200');
    // Firefox asks each time while a test drives it.
    if (browser === 'Chromium') assert.equal(preflights.length, 1);
  },

  'W15: a page of another origin with a token: one preflight for the request that opens a session, and one for all others': async (t, browser) => {
    const { api, page, servers: [between] } = await servedElsewhere(t, browser, 1, `[auth]\n${issuer}[[permissions]]\ntopics = ["*"]\nallow = ["subscribe", "publish"]`);
    const good = user('42');
    for (const [index, transport] of ['sse', 'polling'].entries()) {
      // Two sessions, one after the other.
      for (const n of [2 * index + 1, 2 * index + 2]) {
        api.documents.set('a', version(n));
        const { has, isIn, read } = await connectedPage(page, between.url, { transport, rooms: ['chat'], tokens: [good] });
        await Promise.all([has(n), isIn()]);
        for (const _ of [1, 2, 3]) await read(({ stentor }) => stentor.publish('chat', 'hello'));
        await read(({ stentor }) => stentor.close());
      }
    }
    const preflights = between.requests.filter(({ method }) => method === 'OPTIONS').map(({ url }) => url);
    assert.deepEqual([...new Set(preflights)], ['/ndjson', '/ndjson/session']);
    assert.deepEqual([...new Set(between.requests.map(({ url }) => url))], ['/ndjson', '/ndjson/session']);
    // Firefox asks each time while a test drives it.
    if (browser === 'Chromium') assert.equal(preflights.length, 2);
  },

  'W15: the return to WebSocket opens once, and the feed stays `live`': async (t, browser) => {
    const { api, between } = await served(t);
    between.decide = (request) => (isWebSocket(request) ? 'refuse' : undefined);
    const page = await ownPage(t, browser, between);
    const { has, until, isIn, read } = await connectedPage(page, between.url, { transport: ['websocket', 'sse'], rooms: ['chat'], preferredRetryMs: 200 });
    await has(1);
    const attempts = between.requests.length;
    between.decide = () => undefined;
    await until(([it]) => it.stentor.transport === 'websocket' && it.stentor.state === 'open');
    api.documents.set('a', version(2));
    await has(2);
    await isIn();
    assert.ok(between.requests.slice(attempts).filter(isWebSocket).length === 1, 'one WebSocket');
    assert.deepEqual(await read(({ feeds: { a } }) => [a.states, a.all]), [['live'], [1, 2]]);
  },

  'W15: after packets were swallowed, the client returns to WebSocket': async (t, browser) => {
    const { api, between } = await served(t);
    between.decide = (request) => (isWebSocket(request) ? 'swallow' : undefined);
    const page = await ownPage(t, browser, between);
    const { has, until } = await connectedPage(page, between.url, { transport: ['websocket', 'polling'], preferredRetryMs: 200, connectTimeoutMs: 2_000 });
    await has(1);
    await between.met('attempts beside the polls', isWebSocket, 3);
    between.decide = () => undefined;
    await until(([it]) => it.stentor.transport === 'websocket' && it.stentor.state === 'open');
    api.documents.set('a', version(2));
    await has(2);
  },
};

for (const browser of browserNames) {
  describe(`in ${browser}`, { concurrency: 4, skip: missing(browser) }, () => {
    for (const [name, meets] of Object.entries(conditions)) test(name, (t) => meets(t, browser));
  });
}
