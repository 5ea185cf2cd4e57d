// The demo's API, which a visitor stops for a while. In Chromium.
import assert from 'node:assert/strict';
import test from 'node:test';
import { missing } from '../browsers.mjs';
import { demo } from '../demo.mjs';
import { PATIENCE_MS } from '../harness.mjs';

test('a visitor stops the API, and the page keeps what it shows', { skip: missing('Chromium') }, async (t) => {
  const { page, errors, more } = await demo(t, 'Chromium', [], { width: 1280, height: 860 });
  const wait = { timeout: PATIENCE_MS };
  const contains = (id, text) => page.waitForFunction(([id, text]) => document.getElementById(id).textContent.includes(text), [id, text], wait);
  await more(2);
  await page.locator('#stop').focus();
  await page.keyboard.press('Enter');
  await contains('stopped', 'The API answers with 503 for');
  await contains('place', 'stale: ');
  await contains('stopped', 'marked as stale');
  assert.match(await page.locator('#score').innerText(), /\d+\D+\d+/, 'the documents stay');
  assert.equal(await page.locator('#linktext').innerText(), 'live over WebSocket');
  await contains('stopped', 'No client had to reconnect.');
  await more(2);
  assert.equal(await page.locator('#stop').getAttribute('aria-disabled'), null);
  assert.deepEqual(errors, []);
});
