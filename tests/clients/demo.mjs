// Starts the demo, and opens its page.
import assert from 'node:assert/strict';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { launch } from './browsers.mjs';
import { PATIENCE_MS, binary, modules, program, root, temporary } from './harness.mjs';

/** A folder with the client libraries that the page uses. */
export const libraries = modules;

/** A folder of npm packages that has those of the worker. */
export function workerPackages(t) {
  const folder = path.join(temporary(t), 'node_modules');
  mkdirSync(path.join(folder, '@stentor'), { recursive: true });
  for (const name of ['socket.io', 'socket.io-client', 'sockjs-client']) symlinkSync(path.join(libraries, name), path.join(folder, name));
  symlinkSync(path.join(root, 'clients/socketio-server'), path.join(folder, '@stentor/socket.io'));
  return folder;
}

/** Starts the demo on free ports, until the end of the test. */
export async function startDemo(t, ...args) {
  const { says } = program(t, binary, ['demo', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', ...args]);
  return (await says(/ready (http:\/\/127\.0\.0\.1:\d+)/))[1];
}

/** What is wrong in the page's console, from now on. */
export function errorsOf(page) {
  const errors = [];
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()); });
  return errors;
}

/** Starts the demo, and opens its page in a window of that size. */
export async function demo(t, browser, args, viewport) {
  const url = await startDemo(t, ...args);
  const instance = await launch(browser);
  t.after(() => instance.close());
  const page = await instance.newPage();
  await page.setViewportSize(viewport);
  const errors = errorsOf(page);
  await page.goto(`${url}/`);
  const updates = async () => parseInt(await page.locator('#count').textContent(), 10);
  /** Waits until so many more updates of the match have arrived and are shown. */
  const more = async (n) => {
    const least = (await updates()) + n;
    await page.waitForFunction((least) => parseInt(document.querySelector('#count').textContent, 10) >= least, least, { timeout: PATIENCE_MS });
  };
  return { url, page, errors, more };
}

/** Waits until a page is in the room. */
export async function inRoom(page, client) {
  await page.waitForFunction((text) => document.querySelector('#roomstate').textContent === text, `in “lobby” with ${client}`, { timeout: PATIENCE_MS });
}

/** The demo's page shows live matches by every transport, and the documents that are replayed. */
export async function showsMatches(t, browser) {
  const versions = temporary(t);
  const matches = (n) => ({ matches: Array.from({ length: 30 }, (_, i) => ({ team1: `Home ${i}`, team2: `Away ${i}`, date: '2026-06-11', score: { ft: [i === 7 ? n : 0, 1] } })) });
  // More than are replayed before the test ends, so that the page sees one change, however late it is there.
  for (let n = 1; n <= 400; n++) writeFileSync(path.join(versions, `${String(n).padStart(3, '0')}.json`), JSON.stringify(matches(n)));
  const { page, errors, more } = await demo(t, browser, ['--replay', versions, '--speed', '2', '--libraries', libraries], { width: 1280, height: 860 });
  await more(2);
  // 5 scoreboards of 5 kB and a match of 165 kB in deltas. With the first documents, it would be more than half at first.
  const share = parseFloat(await page.locator('#share').textContent());
  assert.ok(share > 0 && share < 25, `deltas are ${share} % of full size`);
  assert.match(await page.locator('#score').innerText(), /\d+\D+\d+/);
  assert.equal(await page.locator('#missing').isVisible(), false, 'both libraries are there');
  assert.match(await page.locator('#instead').innerText(), /^instead of 1\d\d kB$/, 'deltas');
  assert.match(await page.locator('#status').getAttribute('href'), /^http:\/\/127\.0\.0\.1:\d+\/$/);
  assert.equal(await page.locator('#status').isVisible(), true, 'the link to the status page');
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
}
