// The room of the demo's page: two tabs, Socket.IO's own client and curl share a chat and a reaction counter.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import test, { describe } from 'node:test';
import { browserNames, missing } from '../browsers.mjs';
import { demo, errorsOf, inRoom, libraries } from '../demo.mjs';
import { PATIENCE_MS } from '../harness.mjs';

const viewport = { width: 1280, height: 860 };
const wait = { timeout: PATIENCE_MS };

/** Waits until the page shows this message, as `NAME TEXT`. */
const shows = (page, message) => page.waitForFunction((message) => [...document.querySelectorAll('#log p')].some((p) => p.textContent === message), message, wait);
const counts = (page, text) => page.waitForFunction((text) => [...document.querySelectorAll('#reactions b')].map((b) => b.textContent).join(' ') === text, text, wait);
const nameOf = async (page) => (await page.locator('#message').getAttribute('placeholder')).replace('Message as ', '');
const say = async (page, text) => {
  await page.locator('#message').fill(text);
  await page.keyboard.press('Enter');
};
const shell = (command) => {
  const { status, stdout, stderr } = spawnSync('sh', ['-c', command], { encoding: 'utf8', timeout: PATIENCE_MS });
  assert.equal(status, 0, stderr);
  return stdout;
};

/** Opens what the link under the code opens. */
async function secondTab(page, client) {
  await page.locator(`label[for="code-${client}"]`).click();
  const opened = page.context().waitForEvent('page');
  await page.locator('#second').click();
  const tab = await opened;
  const errors = errorsOf(tab);
  await inRoom(tab, client);
  return { tab, errors };
}

for (const browser of browserNames) {
  describe(`in ${browser}`, { concurrency: true, skip: missing(browser) }, () => {
    test('a second tab, Socket.IO and curl are in one room', async (t) => {
      const { page, errors } = await demo(t, browser, ['--libraries', libraries], viewport);
      await inRoom(page, 'stentor.js');
      const one = await nameOf(page);
      // A reaction that the tabs which come later learn of.
      await page.locator('#reaction-fire').click();
      await counts(page, '0 0 1 0');

      const plain = await secondTab(page, 'stentor.js');
      const socketio = await secondTab(page, 'Socket.IO');
      const tabs = [page, plain.tab, socketio.tab];
      await shows(page, `${await nameOf(plain.tab)} joined with stentor.js`);
      await shows(page, `${await nameOf(socketio.tab)} joined with Socket.IO`);
      for (const tab of tabs) await counts(tab, '0 0 1 0');

      const hostile = '<img src=x onerror=alert(1)> & <b>bold</b>';
      for (const [n, tab] of tabs.entries()) {
        await say(tab, `${hostile} ${n}`);
        for (const other of tabs) await shows(other, `${await nameOf(tab)} ${hostile} ${n}`);
      }
      assert.equal(await page.locator('#log img').count(), 0);
      await socketio.tab.locator('#reaction-heart').click();
      for (const tab of tabs) await counts(tab, '0 1 1 0');

      assert.match(shell(`${await page.locator('#terminal').textContent()} -sS`), /"published":2/);
      for (const tab of tabs) {
        await shows(tab, 'curl hello');
        await counts(tab, '1 1 1 0');
      }
      // Nobody's own words are those of another.
      assert.ok(await page.locator('#log .mine').count() >= 1);
      assert.notEqual(one, '');
      for (const found of [errors, plain.errors, socketio.errors]) assert.deepEqual(found, []);
    });

    test('the code beside the room works as it stands', async (t) => {
      const { page, errors } = await demo(t, browser, ['--libraries', libraries], viewport);
      await inRoom(page, 'stentor.js');
      const seen = [];
      page.on('console', (message) => seen.push(message.text()));
      for (const [n, client] of ['stentor.js', 'Socket.IO'].entries()) {
        await page.locator(`label[for="code-${client}"]`).click();
        if (client === 'Socket.IO') await page.waitForFunction(() => 'io' in window, null, wait);
        await page.evaluate(await page.locator('#snippet').textContent());
        await page.waitForFunction((n) => [...document.querySelectorAll('#log p')].filter((p) => p.textContent === 'me hi').length === n, n + 1, wait);
        await counts(page, `${n + 1} 0 0 0`);
      }
      assert.ok(seen.some((text) => text.startsWith('chat')), 'the code shows what it receives');
      await page.locator('label[for="code-Configuration"]').click();
      assert.match(await page.locator('#snippet').textContent(), /^\[rooms\]\npublish = true .*\[\[rules\]\]/s);
      assert.deepEqual(errors, []);
    });

    test('50 messages stay, and nothing that is published breaks the page', async (t) => {
      const { page, errors } = await demo(t, browser, [], viewport);
      await inRoom(page, 'stentor.js');
      const terminal = await page.locator('#terminal').textContent();
      const publish = (...messages) => shell(`${terminal.slice(0, terminal.indexOf("-d '") + 4)}${messages.map((message) => JSON.stringify({ room: 'lobby', ...message })).join('\n')}' -sS`);
      const strange = [null, 7, [], {}, 'only text', { from: {}, text: [] }, { from: 'x'.repeat(1_000), text: 'y'.repeat(10_000) }, { text: 'nameless' }];
      publish(...strange.flatMap((data) => [{ data }, ...['chat', 'reaction', 'counts', 'joined'].map((event) => ({ event, data }))]),
        { event: 'reaction', data: { kind: 'constructor' } }, { event: 'counts', data: { goal: 1e300, heart: -5, fire: '9', wow: 2_000_000 } });
      await shows(page, 'somebody only text');
      await shows(page, 'somebody nameless');
      await shows(page, `${'x'.repeat(24)} ${'y'.repeat(200)}`);
      await counts(page, '0 0 0 999,999');
      publish(...Array.from({ length: 70 }, (_, n) => ({ event: 'chat', data: { from: 'curl', text: `no. ${n}` } })));
      await shows(page, 'curl no. 69');
      assert.equal(await page.locator('#log p').count(), 50);
      // The demo's backend may publish a goal at the same time.
      const shown = (await page.locator('#log p').allTextContents()).filter((text) => text.startsWith('curl '));
      assert.ok(shown.length >= 45);
      assert.deepEqual(shown, Array.from(shown, (_, n) => `curl no. ${n + 70 - shown.length}`));
      assert.equal(await page.locator('#message').getAttribute('maxlength'), '200');
      assert.equal(await page.locator('#second').isVisible(), true);
      await page.locator('label[for="code-Socket.IO"]').click();
      assert.equal(await page.locator('#second').isVisible(), false, 'without its library');
      assert.match(await page.locator('#hint').textContent(), /client library isn't installed/);
      assert.deepEqual(errors, []);
    });
  });
}

describe('in Chromium only', { concurrency: true, skip: missing('Chromium') }, () => {
  test('the demo publishes goals, as a backend would', async (t) => {
    // With this seed, there are goals after 7, 23 and 31 seconds.
    const { page, errors } = await demo(t, 'Chromium', ['--seed', '87'], viewport);
    await page.waitForFunction(() => [...document.querySelectorAll('#log p')].some((p) => /^Scoreboard Goal! .+ \d+–\d+ .+ \(\d+(\+\d+)?'\)$/.test(p.textContent)), null, wait);
    assert.deepEqual(errors, []);
  });

  test('what is copied is said', async (t) => {
    const { page, url, errors } = await demo(t, 'Chromium', [], viewport);
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: url });
    for (const id of ['terminal', 'snippet']) {
      const button = page.locator(`[data-copies="${id}"]`);
      await button.focus();
      await page.keyboard.press('Enter');
      await page.waitForFunction((id) => document.querySelector(`[data-copies="${id}"]`).textContent === 'Copied', id, wait);
      assert.equal(await page.locator('#copied').textContent(), 'Copied to the clipboard');
      assert.equal(await page.locator('#copied').getAttribute('role'), 'status');
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), await page.locator(`#${id}`).textContent());
      await page.waitForFunction((id) => document.querySelector(`[data-copies="${id}"]`).textContent === 'Copy', id, wait);
    }
    // Where a page may not copy, the text is selected.
    await page.evaluate(() => { Object.defineProperty(navigator, 'clipboard', { value: undefined }); });
    await page.locator('[data-copies="terminal"]').click();
    await page.waitForFunction(() => document.querySelector('[data-copies="terminal"]').textContent === 'Press Ctrl+C', null, wait);
    assert.equal(await page.evaluate(() => getSelection().toString()), await page.locator('#terminal').textContent());
    assert.deepEqual(errors, []);
  });
});
