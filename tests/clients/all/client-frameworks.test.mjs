// The pages of examples/frameworks in Chromium and Firefox, built as their package.json says, with a server and an API.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import test, { after, describe } from 'node:test';
import { browserNames, missing, openPage, sharedBrowsers } from '../browsers.mjs';
import { PATIENCE_MS, program, root, serve, temporary, upstream, website } from '../harness.mjs';

const examples = path.join(root, 'examples/frameworks');
const client = path.join(root, 'clients/js');
const { build } = createRequire(path.join(client, 'package.json'))('esbuild');
const shared = sharedBrowsers({ after });

/** The text of a built example, with the addresses of this test. */
async function bundle(entry, address, options) {
  const { outputFiles: [{ text }] } = await build({
    entryPoints: [path.join(examples, entry)],
    bundle: true,
    jsx: 'automatic',
    write: false,
    nodePaths: [path.join(client, 'node_modules')],
    alias: Object.fromEntries([['', 'index'], ['/react', 'react'], ['/store', 'store']].map(([name, file]) => [`@stentor/client${name}`, path.join(client, `src/${file}.js`)])),
    logLevel: 'silent',
    ...options,
  });
  return text.replaceAll('http://127.0.0.1:8000', address);
}

/** A server as stentor.toml says, whose API has match 8 with this score. */
async function backend(t, origin) {
  const api = await upstream(t);
  const score = (...score) => api.documents.set('match/8', { score });
  score(1, 0);
  const config = readFileSync(path.join(examples, 'stentor.toml'), 'utf8');
  const own = [['http://127.0.0.1:3000', api.url], ['http://127.0.0.1:5000', origin], ['poll_interval = "1s"', 'poll_interval = "50ms"'], ['${MATCH_API_TOKEN}', 'token']];
  const server = await serve(t, { config: own.reduce((text, [from, to]) => text.replaceAll(from, to), config) });
  return { server, score };
}

/** A page and what it shows. Its errors fail the test, among them that a browser and a server have rendered different pages. */
async function look(t, browser, address) {
  const page = await openPage(t, shared(browser), 'about:blank');
  const errors = [];
  page.on('pageerror', ({ message }) => errors.push(message));
  page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
  await page.goto(address);
  const shows = (selector, text) => page.waitForFunction(
    ([selector, text]) => [...document.querySelectorAll(selector)].some((one) => one.textContent.trim() === text), [selector, text], { timeout: PATIENCE_MS, polling: 20 });
  return { page, errors, shows };
}

for (const browser of browserNames) {
  describe(`in ${browser}`, { skip: missing(browser) }, () => {
    for (const [name, entry] of [['react', 'react/main.jsx'], ['vue', 'vue/main.js'], ['html', undefined]]) {
      test(`${name}: a feed, a room and the state of the connection`, async (t) => {
        const files = {};
        const url = await website(t, ({ url }, response) => {
          const found = files[url];
          response.writeHead(found ? 200 : 404, { 'Content-Type': url === '/' ? 'text/html' : 'text/javascript' }).end(found);
        });
        const { server, score } = await backend(t, url);
        files['/'] = readFileSync(path.join(examples, name, 'index.html'), 'utf8').replaceAll('http://127.0.0.1:8000', server.http);
        if (entry) files['/main.js'] = await bundle(entry, server.http);
        files['/favicon.ico'] = ' ';
        const [ann, ben] = [await look(t, browser, url), await look(t, browser, url)];
        for (const { shows } of [ann, ben]) await shows('h1', '1 : 0');
        score(2, 0);
        for (const { shows } of [ann, ben]) {
          await shows('h1', '2 : 0');
          await shows('output', 'open');
        }
        for (const { page } of [ann, ben]) await page.waitForSelector('input:enabled');
        await ann.page.fill('input', 'goal');
        await ann.page.press('input', 'Enter');
        for (const { shows } of [ann, ben]) await shows('li', 'goal');
        assert.deepEqual([ann.errors, ben.errors], [[], []]);
      });
    }

    test('server-rendering: the page has the document before its script runs, and then follows the feed', async (t) => {
      const { server, score } = await backend(t, '*');
      const folder = temporary(t);
      const packages = { platform: 'node', format: 'cjs', define: { 'import.meta.url': '__page' }, banner: { js: "const __page = require('node:url').pathToFileURL(__filename);" } };
      writeFileSync(path.join(folder, 'server.cjs'), await bundle('server-rendering/server.jsx', server.http, packages));
      writeFileSync(path.join(folder, 'browser.js'), await bundle('server-rendering/browser.jsx', server.http));
      const { says } = program(t, process.execPath, [path.join(folder, 'server.cjs'), '0']);
      const [url] = await says(/http:\S+/);
      const html = await fetch(url).then((response) => response.text());
      assert.match(html, /<h1>1 : 0<\/h1>/);
      assert.match(html, /<output>loading<\/output>/);
      const { shows, errors } = await look(t, browser, url);
      await shows('output', 'live');
      score(2, 0);
      await shows('h1', '2 : 0');
      assert.deepEqual(errors, []);
    });
  });
}
