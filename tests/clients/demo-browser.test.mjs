// The demo's page in real browsers: matches over every transport, and on a phone.
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { describe } from 'node:test';
import { browserNames, missing } from './browsers.mjs';
import { demo, libraries } from './demo.mjs';
import { PATIENCE_MS } from './harness.mjs';

for (const browser of browserNames) {
  describe(`in ${browser}`, { concurrency: true, skip: missing(browser) }, () => {
    test("the demo's page shows live matches, by every transport, and what is replayed", async (t) => {
      const versions = mkdtempSync(path.join(tmpdir(), 'stentor-'));
      t.after(() => rmSync(versions, { recursive: true }));
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
      const some = mkdtempSync(path.join(tmpdir(), 'stentor-'));
      t.after(() => rmSync(some, { recursive: true }));
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
