// Real browsers: their own WebSocket.
import assert from 'node:assert/strict';
import test, { describe } from 'node:test';
import { browserNames, launch, missing } from './browsers.mjs';
import { logged, serve, upstream } from './harness.mjs';

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
      const api = await upstream(t);
      api.documents.set('page', (_, response) => response.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>elsewhere</p>'));
      const page = await newPage(t, browser);
      const connects = async (server) => {
        await page.goto(`${api.url}/page`);
        return page.evaluate((url) => new Promise((resolve) => {
          const socket = new WebSocket(url);
          socket.onopen = () => resolve(true);
          socket.onerror = () => resolve(false);
        }), `${server.ws}/ws`);
      };
      const strict = await serve(t);
      assert.equal(await connects(strict), false);
      await logged(strict, (line) => JSON.stringify(line).includes('allow = [') && JSON.stringify(line).includes(api.url), 'what to allow');
      const open = await serve(t, { config: `[origins]\nallow = ["${api.url}"]\n` });
      assert.equal(await connects(open), true);
    });
  });
}
