#!/usr/bin/env node
// Takes the screenshots of the status page for the documentation: docs/status-desktop.png and docs/status-phone.png.
//
//     scripts/status-screenshots.mjs [--seconds 64] [--out docs]
//
// The server has clients of four protocols, messages, feeds, and one feed whose API fails. --seconds is the time for which it runs before,
// and more than that is the range of the charts: with less than a minute, the charts are short. The server is target/debug/stentor, or that of
// STENTOR_BIN. Needs Chromium, and the packages of tests/clients (npm ci --prefix tests/clients).
import http from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { setTimeout as passed } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { admin } from '../tests/clients/admin.mjs';
import { launch } from '../tests/clients/browsers.mjs';
import { event, root, serve, upstream } from '../tests/clients/harness.mjs';

const packages = createRequire(path.join(root, 'tests/clients/harness.mjs'));
const { io } = packages('socket.io-client');
const WebSocket = packages('ws');

const CLIENTS = 48;
const FEEDS = 6;
const BYTES_MAX = 300_000;

const { values: { seconds, out } } = parseArgs({ options: { seconds: { type: 'string', default: '64' }, out: { type: 'string', default: path.join(root, 'docs') } } });
const ends = [];
const t = { after: (end) => ends.unshift(end) };

/** Connects a client of one of the protocols, from an address of its own. */
async function connect(server, n) {
  const localAddress = `127.0.0.${2 + (n % 9)}`;
  if (n % 4 === 0) {
    const request = http.get(`${server.http}/sse/matches/${n % FEEDS}`, { localAddress });
    t.after(() => request.destroy());
    const [response] = await event(request, 'response', undefined, 'error');
    response.on('error', () => {}).resume();
  } else if (n % 4 === 1) {
    const socket = new WebSocket(`${server.ws}/ws`, { localAddress });
    t.after(() => socket.close());
    await event(socket, 'open', undefined, 'error');
    for (const about of [{ room: 'lobby' }, { feed: `matches/${n % FEEDS}` }]) socket.send(JSON.stringify({ type: 'subscribe', ...about }));
  } else {
    const socket = io(server.http, { transports: n % 4 === 2 ? ['websocket'] : ['polling', 'websocket'], forceNew: true, reconnection: false, localAddress });
    t.after(() => socket.close());
    await event(socket, 'connect', undefined, 'connect_error');
    await admin(server, 'join', { sessions: [socket.id], join: ['lobby', `game/${n % 5}`] });
  }
}

/** Calls a function until the end, with pauses. */
function repeat(pause_ms, act) {
  let isOver = false;
  t.after(() => { isOver = true; });
  (async () => {
    while (!isOver) {
      await act();
      await passed(pause_ms);
    }
  })().catch((error) => { if (!isOver) throw error; });
}

async function take() {
  const origin = await upstream(t);
  for (let n = 0; n < FEEDS; n += 1) origin.documents.set(`matches/${n}`, () => ({ match: n, at: Date.now(), score: [n, 1], text: 'x'.repeat(2_000) }));
  origin.documents.set('news/1', (_, response) => response.writeHead(503).end());
  const feed = (name) => `[[feeds]]\nname = "${name}"\nprefix = "${name}/"\nurl = "${origin.url}/"\npoll_interval = "1s"\n`;
  const server = await serve(t, { config: `${feed('matches')}${feed('news')}` });
  const failing = http.get(`${server.http}/sse/news/1`).on('error', () => {});
  t.after(() => failing.destroy());
  let published = 0;
  repeat(200, () => admin(server, 'publish', { room: 'lobby', event: 'move', data: { n: (published += 1), text: 'x'.repeat(500 + (published % 7) * 300) } }));

  const browser = await launch('Chromium');
  t.after(() => browser.close());
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, timezoneId: 'UTC', colorScheme: 'light' });
  await page.goto(server.admin);
  for (let n = 0; n < CLIENTS; n += 1) {
    await connect(server, n);
    await passed((Number(seconds) * 1_000) / CLIENTS);
  }
  await page.locator('label[for="ranges-1"]').click();
  await page.locator('#findings .error').waitFor();
  const shoot = async (name, options) => {
    const file = path.join(out, name);
    const { length } = await page.screenshot({ path: file, ...options });
    if (length > BYTES_MAX) throw new Error(`${file} has ${length} bytes, more than ${BYTES_MAX}`);
    console.log(`${file}: ${length} bytes`);
  };
  await page.locator('#list tbody button').nth(9).waitFor();
  // The list is cut off, so that the picture stays small.
  await page.evaluate(() => document.querySelectorAll('#list tbody tr:nth-child(n + 13)').forEach((row) => row.remove()));
  await shoot('status-desktop.png', { fullPage: true });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.evaluate(() => new Promise((resolve) => { requestAnimationFrame(() => requestAnimationFrame(resolve)); }));
  await shoot('status-phone.png');
}

try {
  await take();
} finally {
  for (const end of ends) await end();
}
