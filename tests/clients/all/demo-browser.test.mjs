// The demo's page in real browsers: matches over every transport, missing libraries, and on a phone. demo.test.mjs has Chromium's matches.
import assert from 'node:assert/strict';
import { cpSync } from 'node:fs';
import path from 'node:path';
import test, { describe } from 'node:test';
import { browserNames, missing } from '../browsers.mjs';
import { demo, libraries, showsMatches } from '../demo.mjs';
import { PATIENCE_MS, temporary } from '../harness.mjs';

test('live matches in Firefox, by every transport', { skip: missing('Firefox') }, (t) => showsMatches(t, 'Firefox'));

for (const browser of browserNames) {
  describe(`in ${browser}`, { concurrency: true, skip: missing(browser) }, () => {
    test("the demo's page shows which client library is missing", async (t) => {
      const some = temporary(t);
      cpSync(path.join(libraries, 'socket.io-client'), path.join(some, 'socket.io-client'), { recursive: true });
      const { page, errors } = await demo(t, browser, ['--libraries', some], { width: 1280, height: 860 });
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
