// A real browser: the demo's page, and its own WebSocket.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import test from 'node:test';
import { chromium } from 'playwright-core';
import { binary, feedsFrom, serve, upstream } from './harness.mjs';

const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);

async function browser(t) {
  const args = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
  const instance = await chromium.launch({ executablePath, args });
  t.after(() => instance.close());
  return instance.newPage();
}

test('a browser echoes text and bytes, compressed', async (t) => {
  // It ends before the server does, which waits for its idle connections.
  const page = await browser(t);
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
  const page = await browser(t);
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
  assert.ok(strict.log.some((line) => line.includes('allow = [') && line.includes(api.url)), strict.log.join('\n'));
  const open = await serve(t, { config: `[origins]\nallow = ["${api.url}"]\n` });
  assert.equal(await connects(open), true);
});

test("the demo's page shows a live match", async (t) => {
  const child = spawn(binary, ['demo', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'inherit'] });
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
  const page = await browser(t);
  const errors = [];
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()); });
  await page.goto(`${url}/`);
  // Two updates of the live match have arrived and are shown.
  await page.waitForFunction(() => parseInt(document.querySelector('#count')?.textContent, 10) >= 2, null, { timeout: 20_000 });
  assert.match(await page.locator('#score').innerText(), /\d+\D+\d+/);
  assert.deepEqual(errors, []);
});
