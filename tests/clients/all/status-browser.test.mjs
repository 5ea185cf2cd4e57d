// The status page of the admin port in real browsers, and `stentor top`, which shows the same.
import assert from 'node:assert/strict';
import test, { after, describe } from 'node:test';
import { io } from 'socket.io-client';
import { browserNames, missing, openPage, sharedBrowsers } from '../browsers.mjs';
import { errorsOf } from '../demo.mjs';
import { event, PATIENCE_MS, run, serve } from '../harness.mjs';

const TOKEN = '0123456789abcdef';
const HOSTILE = '<img src=x onerror="document.title=\'owned\'"><script>document.title=\'owned\'</script>';
const config = `[server]\nadmin_token = "${TOKEN}"\n`;
const shared = sharedBrowsers({ after });

/** A server with a Socket.IO client, which is in a room with a hostile name. */
async function withClient(t) {
  const server = await serve(t, { config });
  const socket = io(server.http, { transports: ['websocket'], reconnection: false });
  t.after(() => socket.close());
  await event(socket, 'connect');
  const headers = { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json' };
  const post = async (name, body) => (await fetch(`${server.admin}/api/v1/${name}`, { method: 'POST', headers, body: JSON.stringify(body) })).json();
  assert.deepEqual(await post('join', { sessions: [socket.id], join: [HOSTILE] }), { sessions: 1 });
  return { server, socket, post };
}

async function open(t, browser, server) {
  const page = await openPage(t, shared(browser), 'about:blank');
  const errors = errorsOf(page);
  await page.goto(server.admin);
  const until = (holds, arg) => page.waitForFunction(holds, arg, { timeout: PATIENCE_MS, polling: 50 });
  const logIn = async (token) => {
    await page.locator('#login').waitFor({ state: 'visible', timeout: PATIENCE_MS });
    await page.locator('#token').fill(token);
    await page.locator('#login button').click();
  };
  return { page, errors, until, logIn };
}

for (const browser of browserNames) {
  describe(`in ${browser}`, { skip: missing(browser) }, () => {
    test('the status page asks for the token, and shows what changes', async (t) => {
      const { server, post } = await withClient(t);
      const { page, until, logIn } = await open(t, browser, server);
      assert.equal(await page.locator('#main').isVisible(), false);
      await logIn('not the token');
      await until(() => document.querySelector('#state').textContent === 'The server refused the token.');
      assert.equal(await page.evaluate(() => sessionStorage.length), 0);
      await logIn(TOKEN);
      await page.locator('#main').waitFor({ state: 'visible', timeout: PATIENCE_MS });
      assert.match(await page.locator('#state').innerText(), /^version \d.* · ready · up \d+ s/);
      assert.deepEqual(await page.evaluate((token) => [Object.values(sessionStorage), localStorage.length, document.cookie, location.href.includes(token)], TOKEN), [[TOKEN], 0, '', false]);
      const value = (i) => page.locator('#trends b').nth(i).innerText();
      await until(() => document.querySelector('#trends b').textContent === '1');
      assert.equal(await value(1), '1', 'sessions');
      await until(() => document.querySelector('#sessions th')?.textContent === 'socketio');
      const protocol = page.locator('#trends figcaption').nth(5);
      await until(() => document.querySelectorAll('#trends figcaption').length === 6);
      assert.equal(await protocol.innerText(), 'Sessions: socketio 1');
      // A second client and a delivery.
      const second = io(server.http, { transports: ['websocket'], forceNew: true });
      t.after(() => second.close());
      await until(() => document.querySelector('#trends b').textContent === '2');
      await until(() => document.querySelectorAll('#trends b')[5].textContent === '2');
      await post('publish', { namespace: '/', event: 'news', data: 1 });
      await until(() => document.querySelectorAll('#trends polyline')[3].getAttribute('points').split(' ').some((point) => point.split(',')[1] === '1.0'));
      assert.match(await page.locator('#memory').innerText(), /all\s+[\d.]+ \S+ of [\d.]+ GiB|all\s+[\d.]+ \S+ of [\d.]+ MiB/);
    });

    test('a room with a hostile name is shown as text', async (t) => {
      const { server } = await withClient(t);
      const { page, errors, until, logIn } = await open(t, browser, server);
      await logIn(TOKEN);
      await until((name) => document.querySelector('#rooms tbody th')?.textContent === name, HOSTILE);
      assert.equal(await page.title(), 'Stentor status');
      assert.equal(await page.locator('main img, main script').count(), 0);
      // The request without a token, by which the page learns that it needs one, is in the console.
      assert.deepEqual(errors.filter((text) => !text.includes('401')), []);
    });

    test('a session is shown, and disconnected by the button', async (t) => {
      const { server, socket } = await withClient(t);
      const { page, until, logIn } = await open(t, browser, server);
      await logIn(TOKEN);
      await page.locator('#id').fill(socket.id);
      await page.locator('#find button').click();
      await until((id) => document.querySelector('#session td')?.textContent === id, socket.id);
      assert.match(await page.locator('#session').innerText(), /socketio[^]*address\s+127\.0\.0\.1\s+since\s+20\d\d-\S+Z \(\d+ s\)\s+send buffer\s+0 B[^]*<img src=x/);
      const ended = event(socket, 'disconnect');
      await page.locator('#disconnect').click();
      assert.equal((await ended)[0], 'io server disconnect');
      await until(() => document.querySelector('#found').textContent === 'The session is disconnected.');
      await page.locator('#find button').click();
      await until(() => document.querySelector('#found').textContent === 'No session has this id.');
    });
  });
}

test('the files of the page need no token, and allow nothing else', async (t) => {
  const server = await serve(t, { config });
  for (const [file, type] of [['', 'text/html'], ['status.js', 'text/javascript'], ['status.css', 'text/css']]) {
    const response = await fetch(`${server.admin}/${file}`);
    assert.equal(response.status, 200, file);
    assert.equal(response.headers.get('content-type'), `${type}; charset=utf-8`);
    assert.match(response.headers.get('content-security-policy'), /^default-src 'none'; script-src 'self'; .*frame-ancestors 'none'$/);
    assert.doesNotMatch(await response.text(), /https?:\/\/(?!www\.w3\.org\/2000\/svg)|innerHTML/);
  }
  assert.equal((await fetch(`${server.admin}/api/v1/status`)).status, 401);
});

test('stentor top prints the status once', async (t) => {
  const { server } = await withClient(t);
  const { code, stdout, stderr } = await run('top', '--once', '--admin', server.admin, '--token', TOKEN);
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(stdout, /^stentor +\d.*, ready, up \d+ s\n/);
  assert.match(stdout, /^connections +1$/m);
  assert.match(stdout, /^memory of clients +[\d.]+ \S+ of [\d.]+ \S+$/m);
  assert.ok(!stdout.includes('\x1b'), 'no escape sequences');
  const refused = await run('top', '--once', '--admin', server.admin);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /wants a token/);
});
