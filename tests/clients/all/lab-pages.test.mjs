// The pages of the lab for everybody: on a phone, on paper, by keyboard, in light and dark. In Chromium.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after, before, describe } from 'node:test';
import { pathToFileURL } from 'node:url';
import axe from 'axe-core';
import { missing, sharedBrowsers } from '../browsers.mjs';
import { binary, root } from '../harness.mjs';

const published = path.join(root, 'docs/results/2026-11-24');
const lab = path.join(path.dirname(binary), 'stentor-lab');
const folder = mkdtempSync(path.join(tmpdir(), 'stentor-lab-pages-'));
// Of two results: one with bounds, one with plots of published figures.
const [echo, chat] = ['echo-25k-20261124T025954Z', 'chat-rtt-20261124T030931Z'];
const pages = ['index', echo, chat, 'compare', 'history'];
// The width of A4 between margins of 12 mm, in CSS pixels.
const PAPER = 703;

describe('a page of the lab', { skip: missing('Chromium') }, () => {
  const shared = sharedBrowsers({ after });
  after(() => rmSync(folder, { recursive: true, force: true }));
  before(() => {
    const at = (name) => path.join(folder, name);
    for (const name of [echo, chat]) copyFileSync(path.join(published, `${name}.json`), at(`${name}.json`));
    const run = (...args) => execFileSync(lab, args, { stdio: ['ignore', 'ignore', 'inherit'] });
    run('report', folder);
    run('compare', path.join(published, `${echo}.json`), at(`${echo}.json`), '--page', at('compare.html'));
    run('history', 'stentor', '--results', folder, '--page', at('history.html'));
  });

  async function open(t, name, width) {
    const page = await (await shared('Chromium')).newPage({ viewport: { width, height: 844 } });
    t.after(() => page.close());
    await page.goto(pathToFileURL(path.join(folder, `${name}.html`)).href);
    return page;
  }

  /** What is wider than the page, or than its own box: the page first. What scrolls in a box of its own may be. */
  const wide = (page) => page.evaluate(() => {
    const { clientWidth, scrollWidth } = document.documentElement;
    const isCut = (node) => node.getBoundingClientRect().right > clientWidth + 1 && !node.parentElement.closest('.scroll');
    const isPrint = matchMedia('print').matches;
    const found = [...document.querySelectorAll('main *')].filter((node) => isCut(node) || (isPrint && node.matches('.scroll') && node.scrollWidth > node.clientWidth + 1));
    return [scrollWidth > clientWidth && `the page is ${scrollWidth} wide`, ...found.map((node) => node.outerHTML.slice(0, 80))].filter(Boolean);
  });

  for (const name of pages) {
    test(`${name} fits a phone, and a sheet of paper with all that is folded`, async (t) => {
      const page = await open(t, name, 390);
      assert.deepEqual(await wide(page), [], '390 pixels wide');
      await page.setViewportSize({ width: PAPER, height: 1000 });
      await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
      assert.deepEqual(await wide(page), [], 'on paper');
      const printed = await page.evaluate(() => ({
        folded: [...document.querySelectorAll('details > :not(summary)')].filter((node) => !node.checkVisibility({ contentVisibilityAuto: true }) || node.getBoundingClientRect().height === 0).map((node) => node.tagName),
        torn: [...document.querySelectorAll('svg, tr')].filter((node) => getComputedStyle(node).breakInside !== 'avoid').length,
        background: getComputedStyle(document.body).backgroundColor,
        charts: document.querySelectorAll('svg').length,
      }));
      assert.deepEqual({ ...printed, charts: printed.charts > 0 || name === 'compare' }, { folded: [], torn: 0, background: 'rgb(255, 255, 255)', charts: true });
    });

    test(`the text of ${name} has enough contrast, and axe finds nothing`, async (t) => {
      const page = await open(t, name, 1280);
      await page.evaluate(() => document.querySelectorAll('details').forEach((details) => { details.open = true; }));
      await page.evaluate(axe.source);
      for (const colorScheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme });
        const { violations, incomplete, passes } = await page.evaluate((options) => window.axe.run({ exclude: [['svg *']] }, options), colorScheme === 'dark' ? { runOnly: 'color-contrast' } : {});
        const told = ({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => `${html.slice(0, 120)}: ${failureSummary}`)];
        assert.deepEqual([...violations, ...incomplete].map(told), [], colorScheme);
        assert.ok(passes.find(({ id }) => id === 'color-contrast')?.nodes.length > 20, 'the contrast of the text was measured');
        // Of what stands in a chart, axe doesn't know the background.
        const faint = await page.evaluate(() => {
          const luminance = (colour) => {
            const [r, g, b] = colour.match(/[\d.]+/g).map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const fill = (node) => luminance(getComputedStyle(node).fill);
          const ratio = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
          const texts = [...document.querySelectorAll('svg text')];
          return texts.filter((text) => ratio(fill(text), fill(text.closest('svg').querySelector('rect'))) < 4.5).map((text) => text.textContent);
        });
        assert.deepEqual(faint, [], `${colorScheme}, in charts`);
      }
    });
  }

  test('the keyboard reaches links, charts and what is folded, and the focus is visible', async (t) => {
    for (const name of ['index', echo]) {
      const page = await open(t, name, 390);
      const reached = new Set();
      for (let n = 0; n < 80; n++) {
        await page.keyboard.press('Tab');
        const focused = await page.evaluate(() => {
          const node = document.activeElement;
          if (node === document.body) return null;
          const { outlineStyle, outlineWidth } = getComputedStyle(node);
          return { name: node.tagName, text: node.textContent.slice(0, 40), isMarked: outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2 };
        });
        if (!focused) break;
        assert.ok(focused.isMarked, `the focus on ${focused.name} ${focused.text} is visible`);
        if (focused.name === 'SUMMARY') {
          await page.keyboard.press('Enter');
          assert.ok(await page.evaluate(() => document.activeElement.parentElement.open), `${focused.text} unfolds`);
        }
        reached.add(focused.name);
      }
      assert.deepEqual([...reached].sort(), name === 'index' ? ['A', 'DIV'] : ['DIV', 'SUMMARY'], name);
    }
  });

  test('a result is reached from the list by its link', async (t) => {
    const page = await open(t, 'index', 1280);
    await page.getByRole('link', { name: 'chat-rtt' }).click();
    assert.ok(page.url().endsWith(`${chat}.html`), page.url());
    assert.match(await page.locator('.answer').first().innerText(), /^Better than sockjs-node: stentor:sockjs delivers at least /);
  });
});
