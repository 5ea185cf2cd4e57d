// Real browsers: their own WebSocket and EventSource, and Primus's client.
import assert from 'node:assert/strict';
import test, { describe } from 'node:test';
import { browserNames, launch, missing } from '../browsers.mjs';
import { elsewhere, feedsFrom, logged, PATIENCE_MS, serve, upstream, within } from '../harness.mjs';
import { library, VALUES } from '../primus.mjs';
import { proxy } from '../proxy.mjs';

async function newPage(t, browser) {
  const instance = await launch(browser);
  t.after(() => instance.close());
  return instance.newPage();
}

for (const browser of browserNames) {
  describe(`in ${browser}`, { concurrency: true, skip: missing(browser) }, () => {
    test('text and bytes are echoed, compressed', async (t) => {
      // It ends before the server does, which waits for its idle connections.
      const page = await newPage(t, browser);
      const server = await serve(t, { args: ['--app', 'echo'] });
      // Any page of the same origin will do.
      await page.goto(`${server.http}/healthz`);
      const result = await page.evaluate(async (url) => {
        const socket = new WebSocket(url);
        socket.binaryType = 'arraybuffer';
        await new Promise((resolve, reject) => { socket.onopen = resolve; socket.onerror = reject; });
        const echo = (data) => new Promise((resolve) => { socket.onmessage = (event) => resolve(event.data); socket.send(data); });
        const text = await echo('hé'.repeat(10_000));
        const bytes = new Uint8Array(await echo(new Uint8Array([0, 1, 254, 255])));
        const closed = new Promise((resolve) => { socket.onclose = (event) => resolve([event.code, event.wasClean]); });
        socket.close(1000);
        return { text: text.length, bytes: [...bytes], extensions: socket.extensions, closed: await closed };
      }, `${server.ws}/ws`);
      assert.deepEqual(result.bytes, [0, 1, 254, 255]);
      assert.equal(result.text, 20_000);
      assert.match(result.extensions, /permessage-deflate/);
      assert.deepEqual(result.closed, [1000, true]);
    });

    test('a page of another origin is refused, and allowed when it is listed', async (t) => {
      const { origin, address } = await elsewhere(t);
      const page = await newPage(t, browser);
      const connects = async (server) => {
        await page.goto(address);
        return page.evaluate((url) => new Promise((resolve) => {
          const socket = new WebSocket(url);
          socket.onopen = () => resolve(true);
          socket.onerror = () => resolve(false);
        }), `${server.ws}/ws`);
      };
      const strict = await serve(t);
      assert.equal(await connects(strict), false);
      await logged(strict, (line) => JSON.stringify(line).includes('allow = [') && JSON.stringify(line).includes(origin), 'what to allow');
      const open = await serve(t, { config: `[origins]\nallow = ["${origin}"]\n` });
      assert.equal(await connects(open), true);
    });

    test('an EventSource comes back by itself; from another origin only where it is allowed', async (t) => {
      const page = await newPage(t, browser);
      const api = await upstream(t);
      const server = await serve(t, { config: feedsFrom(api.url), args: ['--cores', '2'] });
      const way = await proxy(t, server.http);
      api.documents.set('a', { n: 1 });
      const { origin, address } = await elsewhere(t);
      /** In the page: how a source begins, with the first document that comes. */
      const begin = (url) => new Promise((resolve) => {
        const source = new EventSource(url);
        window.heard = [];
        source.addEventListener('snapshot', ({ data }) => { window.heard.push(JSON.parse(data).n); resolve('open'); });
        source.onerror = () => { if (source.readyState === EventSource.CLOSED) resolve('refused'); };
      });

      await page.goto(`${way.url}/healthz`);
      assert.equal(await page.evaluate(begin, `${way.url}/sse/a`), 'open');
      way.cut();
      api.documents.set('a', { n: 2 });
      await page.waitForFunction(() => window.heard.length === 2, null, { timeout: PATIENCE_MS });
      assert.deepEqual(await page.evaluate(() => window.heard), [1, 2]);

      await page.goto(address);
      assert.equal(await page.evaluate(begin, `${server.http}/sse/a`), 'refused');
      const open = await serve(t, { config: `${feedsFrom(api.url)}[origins]\nallow = ["${origin}"]\n` });
      assert.equal(await page.evaluate(begin, `${open.http}/sse/a`), 'open');
    });

    test('the client of Primus sends, receives and comes back', async (t) => {
      const page = await newPage(t, browser);
      const server = await serve(t, { args: ['--app', 'echo'] });
      const way = await proxy(t, server.http);
      await page.goto(`${way.url}/healthz`);
      await page.addScriptTag({ content: library });
      const received = await page.evaluate((values) => new Promise((resolve, reject) => {
        const all = [];
        window.socket = new window.Primus({ reconnect: { min: 20, max: 200 } });
        window.socket.on('error', reject);
        window.socket.on('data', (value) => { if (all.push(value) === values.length) resolve(all); });
        for (const value of values) window.socket.write(value);
      }), VALUES);
      assert.deepEqual(received, VALUES);
      const back = page.evaluate(() => new Promise((resolve) => {
        window.socket.removeAllListeners('error');
        window.socket.once('reconnected', () => {
          window.socket.once('data', resolve);
          window.socket.write('back');
        });
      }));
      // The page listens before it is cut off.
      await page.evaluate(() => null);
      way.cut();
      assert.equal(await within(back, 'the way back'), 'back');
    });
  });
}
