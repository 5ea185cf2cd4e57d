// The demo's page for everybody: at each width, in light and dark, by keyboard, with less motion. In Chromium.
import assert from 'node:assert/strict';
import test, { describe } from 'node:test';
import axe from 'axe-core';
import { missing } from '../browsers.mjs';
import { demo, inRoom, libraries } from '../demo.mjs';

const WIDTHS = [1440, 1280, 1241, 1240, 1081, 1080, 1024, 820, 768, 721, 390, 320];

describe("the demo's page", { concurrency: true, skip: missing('Chromium') }, () => {
  test('nothing is cropped, and no column is blank, at any width', async (t) => {
    const { page, more } = await demo(t, 'Chromium', ['--libraries', libraries], { width: 1280, height: 860 });
    await inRoom(page, 'stentor.js');
    await more(2);
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 860 });
      const found = await page.evaluate(() => {
        const { clientWidth, scrollWidth } = document.documentElement;
        const box = (node) => node.getBoundingClientRect();
        const isPhone = matchMedia('(max-width: 720px)').matches;
        const cards = [...document.querySelectorAll('.card'), ...(isPhone ? [] : document.querySelectorAll('#matches label'))].filter((card) => card.checkVisibility());
        // The longest name of a team, and of one that is ahead: that is bold.
        const name = document.querySelector('#match-2 + label div:nth-child(2) span');
        name.textContent = 'Brackwater United';
        name.parentElement.classList.add('ahead');
        if (!isPhone && name.scrollWidth > name.clientWidth) name.closest('label').id = 'cut';
        const outside = cards.filter((card) => box(card).left < 0 || box(card).right > clientWidth || card.scrollWidth > card.clientWidth + 1 || card.id === 'cut');
        const bottoms = (nodes) => nodes.map((node) => Math.round(box(node).bottom));
        // What stands side by side ends at the same height.
        const rows = [
          bottoms([document.querySelector('#room'), document.querySelector('#delivery')]),
          bottoms([...document.querySelectorAll('.stack')].map((stack) => stack.querySelector('.card:last-child'))),
        ];
        const pairs = [...document.querySelectorAll('.stack')].slice(0, 2).map((stack) => stack.querySelector('.card:last-child'));
        return { clientWidth, scrollWidth, outside: outside.map((card) => card.id || card.textContent.slice(0, 40)), rows, pair: bottoms(pairs) };
      });
      assert.equal(found.scrollWidth, found.clientWidth, `${width}: nothing sticks out`);
      assert.deepEqual(found.outside, [], `${width}: no card is cropped`);
      if (width > 1080) for (const row of found.rows) assert.deepEqual(row, row.map(() => row[0]), `${width}: columns end together`);
      else if (width > 720) assert.equal(found.pair[0], found.pair[1], `${width}: columns end together`);
    }
  });

  for (const [scheme, width] of [['light', 1280], ['dark', 1280], ['light', 390], ['dark', 390]]) {
    test(`axe finds nothing, ${scheme}, ${width} wide`, async (t) => {
      const { page, more } = await demo(t, 'Chromium', width === 390 ? [] : ['--libraries', libraries], { width, height: 860 });
      await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
      await inRoom(page, 'stentor.js');
      await page.locator('#message').fill('hello');
      await page.keyboard.press('Enter');
      await more(2);
      await page.evaluate(axe.source);
      const { violations, passes } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations', 'passes'] }));
      assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => `${html.slice(0, 120)}: ${failureSummary}`)]), []);
      const contrast = passes.find(({ id }) => id === 'color-contrast');
      assert.ok(contrast?.nodes.length > 100, 'the contrast of the text was measured');
      // The gradient behind the score can't be measured, so each of its ends is.
      for (const side of ['home', 'away']) {
        const board = await page.evaluate(async (side) => {
          document.querySelector('#board').style.background = `color-mix(in srgb, var(--${side}) 9%, var(--card))`;
          return window.axe.run('#board', { runOnly: 'color-contrast' });
        }, side);
        assert.deepEqual([...board.violations, ...board.incomplete].flatMap(({ nodes }) => nodes.map(({ html, failureSummary }) => `${html}: ${failureSummary}`)), []);
      }
    });
  }

  test('the keyboard reaches everything, and the focus is visible', async (t) => {
    const { page, more } = await demo(t, 'Chromium', ['--libraries', libraries], { width: 1280, height: 860 });
    await inRoom(page, 'stentor.js');
    await more(1);
    const reached = [];
    for (let n = 0; n < 80; n++) {
      await page.keyboard.press('Tab');
      const focused = await page.evaluate(() => {
        const node = document.activeElement;
        if (node === document.body) return null;
        const shown = node.matches('fieldset input') ? node.nextElementSibling : node;
        const { outlineStyle, outlineWidth } = getComputedStyle(shown);
        const box = shown.getBoundingClientRect();
        return {
          name: node.id || (node.dataset.copies && `copy ${node.dataset.copies}`) || node.getAttribute('href') || node.tagName,
          isMarked: outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2,
          isInView: box.bottom > 0 && box.top < innerHeight,
        };
      });
      if (!focused) break;
      assert.ok(focused.isMarked, `the focus on ${focused.name} is visible`);
      assert.ok(focused.isInView, `${focused.name} is in view`);
      reached.push(focused.name);
    }
    for (const name of ['theme', 'match-3', 'transport-websocket', 'log', 'reaction-goal', 'message', 'code-stentor.js', 'snippet', 'copy snippet', 'second', 'terminal', 'copy terminal', 'changes', 'events', '/docs/socketio.html']) {
      assert.ok(reached.includes(name), `${name} is reached: ${reached.join(' ')}`);
    }
    assert.equal(new Set(reached).size, reached.length, 'no control is reached twice');
  });

  test('with reduced motion, nothing moves', async (t) => {
    const { page, more } = await demo(t, 'Chromium', [], { width: 1280, height: 860 });
    await inRoom(page, 'stentor.js');
    const animations = async (reducedMotion) => {
      await page.emulateMedia({ reducedMotion });
      await page.evaluate(() => {
        window.moved = 0;
        const count = () => { window.moved = Math.max(window.moved, document.getAnimations().length); window.counting = requestAnimationFrame(count); };
        cancelAnimationFrame(window.counting);
        count();
      });
      await page.locator('#reaction-wow').click();
      await more(3);
      return page.evaluate(() => window.moved);
    };
    assert.ok(await animations('no-preference') > 0);
    // What has begun ends.
    await page.waitForFunction(() => document.getAnimations().length === 0);
    assert.equal(await animations('reduce'), 0);
  });

  test('the documents are there, and the clock is explained', async (t) => {
    const { url, page, errors } = await demo(t, 'Chromium', [], { width: 1280, height: 860 });
    assert.match(await page.locator('#pace').innerText(), /clock runs 6 times as fast as yours/);
    const links = await page.locator('#docs a').evaluateAll((nodes) => nodes.map((node) => node.getAttribute('href')));
    assert.equal(links.length, 17);
    for (const href of links) {
      await page.goto(url + href);
      assert.equal(await page.locator('h1').count(), 1, href);
      assert.equal(await page.title(), `${await page.locator('h1').textContent()} · Stentor`);
    }
    assert.deepEqual(errors, []);
  });
});
