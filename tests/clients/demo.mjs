// Starts the demo, and opens its page.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch } from './browsers.mjs';
import { binary, PATIENCE_MS } from './harness.mjs';

/** A folder with the client libraries that the page uses. */
export const libraries = path.join(path.dirname(fileURLToPath(import.meta.url)), 'node_modules');

/** Starts the demo on free ports, until the end of the test. */
export async function startDemo(t, ...args) {
  const child = spawn(binary, ['demo', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  const closed = once(child, 'close');
  t.after(async () => { child.kill('SIGTERM'); await closed; });
  let stdout = '';
  return new Promise((resolve, reject) => {
    child.stdout.on('data', (chunk) => {
      stdout += chunk;
      const found = /http:\/\/127\.0\.0\.1:\d+/.exec(stdout);
      if (found) resolve(found[0]);
    });
    child.once('close', (code) => reject(new Error(`the demo ended with ${code}`)));
  });
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
