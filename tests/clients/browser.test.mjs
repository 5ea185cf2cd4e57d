// Real browsers: the demo's page, and their own WebSocket.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { browserNames, launch, missing } from './browsers.mjs';
import { binary, logged, PATIENCE_MS, serve, upstream } from './harness.mjs';

async function newPage(t, browser) {
  const instance = await launch(browser);
  t.after(() => instance.close());
  return instance.newPage();
}

/** Starts the demo, and opens its page in a window of that size. */
async function demo(t, browser, args, viewport) {
  const child = spawn(binary, ['demo', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  const closed = once(child, 'close');
  t.after(async () => { child.kill('SIGTERM'); await closed; });
  let stdout = '';
  const url = await new Promise((resolve, reject) => {
    child.stdout.on('data', (chunk) => {
      stdout += chunk;
      const found = /http:\/\/127\.0\.0\.1:\d+/.exec(stdout);
      if (found) resolve(found[0]);
    });
    child.once('close', (code) => reject(new Error(`the demo ended with ${code}`)));
  });
  const page = await newPage(t, browser);
  await page.setViewportSize(viewport);
  const errors = [];
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()); });
  await page.goto(`${url}/`);
  const updates = async () => parseInt(await page.locator('#count').textContent(), 10);
  /** Waits until so many more updates of the match have arrived and are shown. */
  const more = async (n) => {
    const least = (await updates()) + n;
    await page.waitForFunction((least) => parseInt(document.querySelector('#count').textContent, 10) >= least, least, { timeout: PATIENCE_MS });
  };
  return { page, errors, more };
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

    test("the demo's page shows live matches, by every transport, and what is replayed", async (t) => {
      const versions = mkdtempSync(path.join(tmpdir(), 'stentor-'));
      t.after(() => rmSync(versions, { recursive: true }));
      const matches = (n) => ({ matches: Array.from({ length: 30 }, (_, i) => ({ team1: `Home ${i}`, team2: `Away ${i}`, date: '2026-06-11', score: { ft: [i === 7 ? n : 0, 1] } })) });
      // More than are replayed before the test ends, so that the page sees one change, however late it is there.
      for (let n = 1; n <= 400; n++) writeFileSync(path.join(versions, `${String(n).padStart(3, '0')}.json`), JSON.stringify(matches(n)));
      const libraries = path.join(path.dirname(fileURLToPath(import.meta.url)), 'node_modules');
      const { page, errors, more } = await demo(t, browser, ['--replay', versions, '--speed', '2', '--libraries', libraries], { width: 1280, height: 860 });
      await more(2);
      assert.match(await page.locator('#score').innerText(), /\d+\D+\d+/);
      assert.equal(await page.locator('#missing').isVisible(), false, 'both libraries are there');
      assert.match(await page.locator('#instead').innerText(), /^instead of 1\d\d kB$/, 'deltas');
      await page.locator('summary').click();
      await more(1);
      assert.ok(await page.locator('#operations li').count() > 1);
      for (const [name, label] of [['sse', 'SSE'], ['polling', 'Polling'], ['socket.io', 'Socket.IO'], ['sockjs', 'SockJS'], ['websocket', 'WebSocket']]) {
        await page.locator(`label[for="transport-${name}"]`).click();
        await page.waitForFunction((text) => document.querySelector('#linktext').textContent === text, `live over ${label}`, { timeout: PATIENCE_MS });
        await more(2);
      }
      // What changed last comes first: without a change seen, it would be the last of the 30.
      await page.waitForFunction(() => /^Home 7\d+ : 1Away 7/.test(document.querySelector('#results li')?.textContent), null, { timeout: PATIENCE_MS });
      assert.equal(await page.locator('#replay').isVisible(), true);
      assert.deepEqual(errors, []);
    });

    test("the demo's page shows which client library is missing", async (t) => {
      const libraries = mkdtempSync(path.join(tmpdir(), 'stentor-'));
      t.after(() => rmSync(libraries, { recursive: true }));
      cpSync(path.join(path.dirname(fileURLToPath(import.meta.url)), 'node_modules/socket.io-client'), path.join(libraries, 'socket.io-client'), { recursive: true });
      const { page, errors } = await demo(t, browser, ['--libraries', libraries], { width: 1280, height: 860 });
      await page.locator('#missing').waitFor({ state: 'visible', timeout: PATIENCE_MS });
      assert.match(await page.locator('#missing').innerText(), /^SockJS is disabled because its client library isn't installed\. .* sockjs-client\.$/);
      assert.equal(await page.locator('#transport-sockjs').isDisabled(), true);
      assert.equal(await page.locator('label[for="transport-socket.io"]').isVisible(), true);
      assert.equal(await page.locator('[id="transport-socket.io"]').isDisabled(), false);
      assert.deepEqual(errors, []);
    });

    test("the demo's page on a phone, and by keyboard", async (t) => {
      const { page, errors, more } = await demo(t, browser, [], { width: 390, height: 844 });
      await more(1);
      // A scrollbar may take some of the width.
      const { scrollWidth, clientWidth } = await page.evaluate(() => ({ scrollWidth: document.documentElement.scrollWidth, clientWidth: document.documentElement.clientWidth }));
      assert.equal(scrollWidth, clientWidth, 'nothing sticks out');
      assert.equal(await page.locator('#replay').isVisible(), false);
      assert.equal(await page.locator('#transport-sockjs').isDisabled(), true, 'without its library');
      assert.equal(await page.locator('#missing').isVisible(), true);
      assert.match(await page.locator('#missing').innerText(), /^Socket\.IO and SockJS are disabled because their client libraries aren't installed\. .*make run.* npm .*--libraries .* socket\.io-client and sockjs-client\.$/);
      const team = await page.locator('#home .name').innerText();
      await page.locator('#match-1').focus();
      await page.keyboard.press('ArrowRight');
      assert.equal(await page.locator('#match-2').isChecked(), true);
      await page.waitForFunction((team) => document.querySelector('#home .name').textContent !== team, team, { timeout: PATIENCE_MS });
      await page.locator('#transport-websocket').focus();
      await page.keyboard.press('ArrowRight');
      await page.waitForFunction(() => document.querySelector('#linktext').textContent === 'live over SSE', null, { timeout: PATIENCE_MS });
      await more(1);
      assert.deepEqual(errors, []);
    });
  });
}
