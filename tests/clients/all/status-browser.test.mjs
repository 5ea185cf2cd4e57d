// The status page of the admin port in real browsers, and `stentor top`, which shows the same figures.
import assert from 'node:assert/strict';
import http from 'node:http';
import test, { after, describe } from 'node:test';
import axe from 'axe-core';
import { io } from 'socket.io-client';
import { issuer, token } from '../admin.mjs';
import { browserNames, missing, openPage, sharedBrowsers } from '../browsers.mjs';
import { errorsOf } from '../demo.mjs';
import { event, PATIENCE_MS, run, serve, upstream } from '../harness.mjs';

const TOKEN = '0123456789abcdef';
const HOSTILE = '<img src=x onerror="document.title=\'owned\'"><script>document.title=\'owned\'</script>';
const config = `[server]\nadmin_token = "${TOKEN}"\n`;
const shared = sharedBrowsers({ after });

/** A server with a Socket.IO client in this namespace, which is in a room with a hostile name. */
async function withClient(t, namespace = '/') {
  const server = await serve(t, { config: `${config}[socketio]\nnamespaces = ["/chat"]\n` });
  const socket = io(`${server.http}${namespace}`, { transports: ['websocket'], reconnection: false });
  t.after(() => socket.close());
  await event(socket, 'connect');
  const headers = { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json' };
  const post = async (name, body) => (await fetch(`${server.admin}/api/v1/${name}`, { method: 'POST', headers, body: JSON.stringify(body) })).json();
  assert.deepEqual(await post('join', { namespace, sessions: [socket.id], join: [HOSTILE] }), { sessions: 1 });
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

/** Opens the row of a list with this text, in the list of this name. */
async function openRow(page, list, text) {
  await page.locator(`label[for="views-${list}"]`).click();
  await page.locator('#list button').filter({ hasText: text }).first().click();
  await page.locator('#actions button').first().waitFor({ state: 'visible', timeout: PATIENCE_MS });
}

for (const browser of browserNames) {
  describe(`in ${browser}`, { skip: missing(browser) }, () => {
    test('the status page asks for the token, and draws what changes', async (t) => {
      const { server, post } = await withClient(t);
      const { page, until, logIn } = await open(t, browser, server);
      assert.equal(await page.locator('#main').isVisible(), false);
      await until(() => document.activeElement.id === 'token');
      await logIn('not the token');
      await until(() => document.querySelector('#state').textContent === 'The server refused the token.');
      assert.equal(await page.evaluate(() => sessionStorage.length), 0);
      await logIn(TOKEN);
      await page.locator('#main').waitFor({ state: 'visible', timeout: PATIENCE_MS });
      assert.match(await page.locator('#state').innerText(), /^version \d.* · ready · up \d+ s/);
      assert.deepEqual(await page.evaluate((token) => [Object.values(sessionStorage), localStorage.length, document.cookie, location.href.includes(token)], TOKEN), [[TOKEN], 0, '', false]);
      assert.equal(await page.locator('#findings').innerText(), 'Nothing.');
      const shows = (chart, text) => until(([chart, text]) => document.querySelector(`#chart-${chart} .legend`)?.textContent.includes(text), [chart, text]);
      await shows('connections', 'connections 1');
      await shows('connections', 'socketio 1');
      const second = io(server.http, { transports: ['websocket'], forceNew: true });
      t.after(() => second.close());
      await shows('connections', 'socketio 2');
      // A rate that isn't 0.
      const isSending = () => page.evaluate(() => /sent (?!0\/s|–)/.test(document.querySelector('#chart-messages .legend')?.textContent));
      while (!await isSending()) await post('publish', { namespace: '/', event: 'news', data: 1 });
      assert.match(await page.locator('#chart-messages .plot').getAttribute('aria-label'), /^Messages, the last 5 minutes\. .*sent /);
      assert.match(await page.locator('#chart-memory h3').innerText(), /^Memory for clients [\d.]+ \S+ of [\d.,]+ [GM]iB \((below )?[\d.]+ %\), by class$/);
      const ink = () => page.locator('#chart-connections canvas').evaluate((canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0));
      assert.ok(await ink(), 'the chart is drawn');
      // A line can be hidden, and the range changed, with the keyboard.
      const toggle = page.locator('#chart-connections .legend button').filter({ hasText: 'socketio' });
      await toggle.focus();
      await page.keyboard.press('Enter');
      assert.equal(await toggle.getAttribute('aria-pressed'), 'false');
      await page.locator('#ranges-5').focus();
      await page.keyboard.press('ArrowRight');
      await until(() => document.querySelector('#chart-messages .plot').getAttribute('aria-label').includes('the last 10 minutes'));
    });

    test('a room with a hostile name is shown as text, and opened', async (t) => {
      const { server, socket } = await withClient(t);
      const { page, errors, until, logIn } = await open(t, browser, server);
      await logIn(TOKEN);
      await openRow(page, 'rooms', HOSTILE);
      await until((id) => document.querySelector('#members').textContent.includes(id), socket.id);
      assert.deepEqual(await page.locator('#members thead th').allTextContents(), ['session', 'send buffer', 'user', 'connected from', 'protocol', 'age']);
      assert.equal(await page.locator('#openedtitle').textContent(), `Room ${HOSTILE}`);
      const heard = event(socket, 'test');
      await page.getByRole('button', { name: 'Publish a test message' }).click();
      assert.equal(await page.locator('#question').textContent(), `Publish a message to room ${HOSTILE} of namespace /?`);
      await page.locator('#sure').click();
      assert.deepEqual(await heard, [{ text: 'hello' }]);
      await until(() => document.querySelector('#outcome').textContent === 'The message is published.');
      assert.equal(await page.title(), 'Stentor status');
      assert.equal(await page.locator('main img, main script').count(), 0);
      // The request without a token, by which the page learns that it needs one, is in the console.
      assert.deepEqual(errors.filter((text) => !text.includes('401')), []);
    });

    test('a session is found and opened, and disconnected once this is confirmed', async (t) => {
      const { server, socket } = await withClient(t);
      const { page, until, logIn } = await open(t, browser, server);
      await logIn(TOKEN);
      await page.locator('#query').fill(socket.id);
      await page.keyboard.press('Enter');
      await openRow(page, 'sessions', socket.id);
      await until(() => document.querySelector('#facts').textContent.includes('<img src=x'));
      assert.match(await page.locator('#facts').innerText(), /socketio[^]*connected from\s+127\.0\.0\.1\s+since\s+20\d\d-\S+Z \(\d+ s\)\s+send buffer\s+0 B[^]*<img src=x/);
      const button = page.getByRole('button', { name: 'Disconnect' });
      await button.click();
      await page.getByRole('button', { name: 'Cancel' }).click();
      await until(() => document.querySelector('#outcome').textContent === 'Cancelled: nothing was done.');
      assert.ok(socket.connected, 'nothing is done without the confirmation');
      const { id } = socket;
      const ended = event(socket, 'disconnect');
      await button.click();
      await page.locator('#sure').click();
      assert.equal((await ended)[0], 'io server disconnect');
      await until(() => document.querySelector('#outcome').textContent === 'Disconnected 1 session.');
      await until(() => /^stateIt has ended\.[^]*connected from127\.0\.0\.1event at \S+Zconnectedevent at \S+Zended: closed by application$/.test(document.querySelector('#facts').textContent));
      // The session is found by its id, although no list has it.
      await until((id) => document.querySelector('#list tbody').textContent.startsWith(`${id}0 B–127.0.0.1socketio, ended`), id);
      await page.locator('#query').fill('');
      await page.keyboard.press('Enter');
      await until(() => document.querySelector('#list tbody').textContent === 'None');
    });

    test('while a session is read, and if this fails, the actions of the last room are gone', async (t) => {
      const { server, socket } = await withClient(t);
      const { page, until, logIn } = await open(t, browser, server);
      await logIn(TOKEN);
      await openRow(page, 'rooms', HOSTILE);
      let fail;
      const held = new Promise((resolve) => { fail = resolve; });
      const reads = '**/api/v1/sessions';
      await page.route(reads, (route) => { held.then(() => route.abort()); });
      await page.locator('label[for="views-sessions"]').click();
      await page.locator('#list button').filter({ hasText: socket.id }).click();
      await until((title) => document.querySelector('#openedtitle').textContent === title, `Session ${socket.id}`);
      const shown = page.locator('#actions button, #facts tr, #members tr');
      assert.equal(await shown.count(), 0);
      fail();
      await until(() => document.querySelector('#outcome').textContent !== '');
      assert.equal(await shown.count(), 0);
      await page.unroute(reads);
      await page.getByRole('button', { name: 'Disconnect' }).click();
      assert.match(await page.locator('#question').innerText(), new RegExp(`^Disconnect session ${socket.id}\\?`));
    });

    test('a session is opened in its namespace, and an address is disconnected unless nodes are missing', async (t) => {
      const { server, socket } = await withClient(t, '/chat');
      const { page, until, logIn } = await open(t, browser, server);
      await logIn(TOKEN);
      await openRow(page, 'sessions', socket.id);
      await page.locator('#facts button').filter({ hasText: HOSTILE }).click();
      await until(() => /^namespace\/chatsessions1send/.test(document.querySelector('#facts').textContent));
      let missing = { missing_nodes: ['b'] };
      await page.route(/\/api\/v1\/sessions\?/, async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, json: { ...await response.json(), ...missing } });
      });
      await openRow(page, 'addresses', '127.0.0.1');
      const button = page.getByRole('button', { name: 'Disconnect' });
      assert.equal(await button.isDisabled(), true);
      assert.match(await page.locator('#actions').innerText(), /Some nodes don’t answer/);
      missing = {};
      await openRow(page, 'addresses', '127.0.0.1');
      await button.click();
      assert.match(await page.locator('#question').innerText(), /^Disconnect 1 session of address 127\.0\.0\.1\?/);
      const ended = event(socket, 'disconnect');
      await page.locator('#sure').click();
      assert.equal((await ended)[0], 'io server disconnect');
      await until(() => document.querySelector('#outcome').textContent === 'Disconnected 1 session.');
      // The page reads the list again after an action: a request in flight would outlive the server.
      await page.unrouteAll({ behavior: 'wait' });
    });

    test('a session shows how it connected, its upgrade and its errors', async (t) => {
      const server = await serve(t, { config });
      const socket = io(server.http, { reconnection: false });
      t.after(() => socket.close());
      await event(socket, 'connect');
      if (socket.io.engine.transport.name !== 'websocket') await event(socket.io.engine, 'upgrade');
      assert.equal((await socket.timeout(PATIENCE_MS).emitWithAck('subscribe', '//')).code, 'bad_key');
      const { page, until, logIn } = await open(t, browser, server);
      await logIn(TOKEN);
      await openRow(page, 'sessions', socket.id);
      await until(() => /event at \d\d:\d\d:\d\dZconnected by pollingevent at \d\d:\d\d:\d\dZchanged to websocketevent at \S+Zrequest refused: bad_key/.test(document.querySelector('#facts').textContent));
    });

    test('a pushed document is in the list of keys', async (t) => {
      const server = await serve(t, { config });
      const put = await fetch(`${server.admin}/api/v1/feeds/news/1`, { method: 'PUT', headers: { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json' }, body: '{"n":1}' });
      assert.equal(put.status, 200);
      const { page, until, logIn } = await open(t, browser, server);
      await logIn(TOKEN);
      await page.locator('label[for="views-keys"]').click();
      await page.locator('#list button').filter({ hasText: 'news/1' }).click();
      await until(() => document.querySelector('#facts').textContent === 'statelivesourcepushed by a backenddocument7 Bsubscribers0');
      assert.equal(await page.locator('#actions button').count(), 0);
      await page.route(/\/api\/v1\/feeds\?/, async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, json: { ...await response.json(), missing_nodes: ['b', 'c'] } });
      });
      await until(() => document.querySelector('#facts').textContent.endsWith('subscribers0, without those of b, c, which didn’t answer'));
      // A request in flight would outlive the server.
      await page.unrouteAll({ behavior: 'wait' });
    });

    test('the keyboard reaches the search by a link, and the header fits on 400 pixels', async (t) => {
      const { server } = await withClient(t);
      const { page, until, logIn } = await open(t, browser, server);
      await page.setViewportSize({ width: 400, height: 800 });
      await logIn(TOKEN);
      await until(() => document.querySelector('#chart-cpu .legend')?.textContent.includes('core 0'));
      await page.locator('#theme').focus();
      await page.keyboard.press('Tab');
      assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the search');
      const isShown = () => page.evaluate(() => document.activeElement.getBoundingClientRect().width > 50);
      assert.ok(await isShown());
      await page.keyboard.press('Enter');
      await until(() => document.activeElement.id === 'query');
      // The state has a line of its own, below the name and the button.
      const [name, theme, state] = await Promise.all(['h1', '#theme', '#state'].map((of) => page.locator(of).boundingBox()));
      assert.ok(state.y >= name.y + name.height && state.width > 350, JSON.stringify(state));
      assert.ok(theme.y < name.y + name.height, 'the button is beside the name');
    });

    test('what is wrong is at the top, with a document that helps and an action that explains', async (t) => {
      const origin = await upstream(t);
      origin.documents.set('matches/8', (_, response) => response.writeHead(503).end());
      const server = await serve(t, { config: `${config}[[feeds]]\nname = "matches"\nprefix = "matches/"\nurl = "${origin.url}/"\n` });
      const subscriber = http.get(`${server.http}/sse/matches/8`);
      t.after(() => subscriber.destroy());
      await event(subscriber, 'response', undefined, 'error');
      const { page, until, logIn } = await open(t, browser, server);
      await logIn(TOKEN);
      await until(() => /^Error: The feed matches\/8 of the upstream matches has been failing for \d+ s\. Last failure: .*503/.test(document.querySelector('#findings').textContent));
      await page.locator('label[for="views-keys"]').click();
      await until(() => /^keystatesubscribers[^]*matches\/8stale1[1-9]/.test(document.querySelector('#list').textContent));
      await openRow(page, 'keys', 'matches/8');
      await until(() => /^statestalereason.*503.*stale since20\d\d-\S+Z \(\d+ s\)last successnonenext fetch(now|in \d+ s)upstreammatchesURLhttp:\/\/127\.0\.0\.1:\d+\/matches\/8failed fetches in a row[1-9]/.test(document.querySelector('#facts').textContent));
      await openRow(page, 'feeds', 'matches');
      await page.getByRole('button', { name: 'Fetch a key now' }).click();
      assert.equal(await page.locator('#field-key').inputValue(), 'matches/8');
      await page.locator('#sure').click();
      await until(() => /503/.test(document.querySelector('#outcome').textContent));
      await page.locator('#findings a').click();
      await page.waitForURL(/\/docs\/feeds\.html#when-a-fetch-fails$/, { timeout: PATIENCE_MS });
      assert.equal(await page.locator('#when-a-fetch-fails').innerText(), 'When a fetch fails');
    });

    for (const [scheme, width] of [['light', 1280], ['dark', 1280], ['light', 390], ['dark', 390]]) {
      test(`axe finds nothing, and nothing is wider than the page, ${scheme}, ${width} wide`, async (t) => {
        const { server, socket } = await withClient(t);
        const { page, until, logIn } = await open(t, browser, server);
        await page.setViewportSize({ width, height: 860 });
        await page.emulateMedia({ colorScheme: scheme });
        const check = async () => {
          await page.evaluate(axe.source);
          const { violations } = await page.evaluate(() => window.axe.run(document));
          assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => `${html.slice(0, 120)}: ${failureSummary}`)]), []);
          assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
        };
        await page.locator('#login').waitFor({ state: 'visible', timeout: PATIENCE_MS });
        await check();
        await logIn(TOKEN);
        await until(() => document.querySelector('#chart-cpu .legend')?.textContent.includes('core 0'));
        await openRow(page, 'rooms', HOSTILE);
        await page.locator('#members button').waitFor({ state: 'visible', timeout: PATIENCE_MS });
        await check();
        await openRow(page, 'sessions', socket.id);
        await check();
        await page.getByRole('button', { name: 'Disconnect' }).click();
        await check();
      });
    }
  });
}

describe('the status page for everybody', { skip: missing('Chromium') }, () => {
  test('a search of users finds them by their own ids only', async (t) => {
    const server = await serve(t, { config: `${config}[auth]\n${issuer}` });
    for (const sub of ['127', '42']) {
      const socket = io(server.http, { transports: ['websocket'], forceNew: true, auth: { token: token({ sub }) } });
      t.after(() => socket.close());
      await event(socket, 'connect', undefined, 'connect_error');
    }
    const { page, until, logIn } = await open(t, 'Chromium', server);
    await logIn(TOKEN);
    const lists = (users) => until((users) => JSON.stringify([...document.querySelectorAll('#list button')].map((button) => button.textContent).sort()) === users, JSON.stringify(users));
    await page.locator('label[for="views-users"]').click();
    await lists(['127', '42']);
    // Both have the address 127.0.0.1.
    await page.locator('#query').fill('127');
    await page.keyboard.press('Enter');
    await lists(['127']);
  });

  test('all sessions of exactly one user are disconnected, however many others match', async (t) => {
    const server = await serve(t, { config: `${config}[auth]\n${issuer}` });
    const connect = async (sub) => {
      const socket = io(server.http, { transports: ['websocket'], forceNew: true, reconnection: false, auth: { token: token({ sub }) } });
      t.after(() => socket.close());
      await event(socket, 'connect', undefined, 'connect_error');
      return socket;
    };
    const [first, second, other] = await Promise.all(['42', '42', '142'].map(connect));
    const { page, until, logIn } = await open(t, 'Chromium', server);
    await logIn(TOKEN);
    await page.locator('label[for="views-users"]').click();
    await page.locator('#list').getByRole('button', { name: '42', exact: true }).click();
    await until(() => /sessions2send buffers/.test(document.querySelector('#facts').textContent));
    assert.equal(await page.locator('#members tbody tr').count(), 2);
    // The page gets one session at a time, and asks again.
    await page.route(/\/api\/v1\/sessions\?/, async (route) => {
      const response = await route.fetch({ url: route.request().url().replace('limit=1000', 'limit=1') });
      await route.fulfill({ response });
    });
    const ended = Promise.all([first, second].map((socket) => event(socket, 'disconnect')));
    await page.getByRole('button', { name: 'Disconnect' }).click();
    assert.match(await page.locator('#question').innerText(), /^Disconnect 2 sessions of user 42\?/);
    await page.locator('#sure').click();
    await ended;
    await until(() => document.querySelector('#outcome').textContent === 'Disconnected 2 sessions.');
    assert.ok(other.connected);
    await page.unrouteAll({ behavior: 'wait' });
  });
});

test('the files of the page need no token, and allow nothing else', async (t) => {
  const server = await serve(t, { config });
  const files = [['', 'text/html'], ...['status', 'api', 'charts', 'dom', 'lists', 'uplot'].map((name) => [`${name}.js`, 'text/javascript']), ['status.css', 'text/css'], ['uplot.css', 'text/css']];
  for (const [file, type] of files) {
    const response = await fetch(`${server.admin}/${file}`);
    assert.equal(response.status, 200, file);
    assert.equal(response.headers.get('content-type'), `${type}; charset=utf-8`);
    assert.match(response.headers.get('content-security-policy'), /^default-src 'none'; script-src 'self'; .*frame-ancestors 'none'$/);
    assert.doesNotMatch(await response.text(), /https?:\/\/(?!www\.w3\.org\/2000\/svg|github\.com\/leeoniya\/uPlot \(v)|innerHTML/);
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
  assert.match(stdout, /^cpu: core 0 +\S/m);
  assert.ok(!stdout.includes('\x1b'), 'no escape sequences');
  const refused = await run('top', '--once', '--admin', server.admin);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /wants a token/);
});
