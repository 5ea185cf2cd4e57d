// The demo's worker: a chat whose handlers run in Node. The page restarts it while its messages go on. In Chromium.
import assert from 'node:assert/strict';
import test, { describe } from 'node:test';
import axe from 'axe-core';
import { io } from 'socket.io-client';
import { launch, missing } from '../browsers.mjs';
import { demo, errorsOf, libraries, workerPackages } from '../demo.mjs';
import { PATIENCE_MS, binary, program, temporary, until } from '../harness.mjs';

const viewport = { width: 1280, height: 860 };
const wait = { timeout: PATIENCE_MS };

const textOf = (page, id) => page.locator(`#${id}`).textContent();
const numberOf = async (page, id) => Number.parseInt((await textOf(page, id)).replaceAll(',', ''), 10);
/** Waits until so many more messages have been answered. */
async function answered(page, more) {
  const least = (await numberOf(page, 'answered') || 0) + more;
  await until(`${least} answers`, async () => await numberOf(page, 'answered') >= least);
}
const isRunning = (pid) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

describe("the demo's worker", { skip: missing('Chromium') }, () => {
  test('messages go on while the page restarts it', async (t) => {
    const { page, errors } = await demo(t, 'Chromium', ['--libraries', workerPackages(t)], viewport);
    await answered(page, 3);
    const first = await numberOf(page, 'process');
    const opened = page.context().waitForEvent('page');
    await page.evaluate(() => { window.open('/'); });
    const second = await opened;
    const others = errorsOf(second);
    await answered(second, 1);

    for (let n = 0; n < 2; n++) {
      const before = await numberOf(page, 'process');
      // By keyboard. The button keeps the focus, and acts once for each process.
      await page.locator('#restart').focus();
      await page.keyboard.press('Enter');
      await page.keyboard.press('Enter');
      await page.locator('#ask').fill(`still there ${n}?`);
      await page.keyboard.press('Enter');
      await page.waitForFunction((before) => document.querySelector('#process').textContent !== before, `${before}`, wait);
      const next = await numberOf(page, 'process');
      assert.match(await textOf(page, 'restarted'), new RegExp(`^Process ${next} has continued for process ${before} after \\d+\\.\\d s\\.$`));
      await page.waitForFunction(() => !document.querySelector('#restart').hasAttribute('aria-disabled'), null, wait);
      for (const each of [page, second]) {
        await each.waitForFunction((said) => document.querySelector('#heard').textContent.includes(said), `still there ${n}?`, wait);
        await answered(each, 3);
        assert.equal(await numberOf(each, 'process'), next);
        assert.equal(await textOf(each, 'order'), 'each once, in order');
        assert.equal(await textOf(each, 'dropped'), '0');
      }
      assert.equal(isRunning(before), false);
    }
    assert.notEqual(await numberOf(page, 'process'), first);
    for (const found of [errors, others]) assert.deepEqual(found, []);
  });

  test('a worker that is killed is replaced, and none outlives the demo', async (t) => {
    const { says, child, closed } = program(t, binary, ['demo', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--libraries', workerPackages(t)]);
    const [, url] = await says(/ready (http:\/\/127\.0\.0\.1:\d+)/);
    const instance = await launch('Chromium');
    t.after(() => instance.close());
    const page = await instance.newPage();
    await page.goto(`${url}/`);
    await answered(page, 2);
    const first = await numberOf(page, 'process');
    process.kill(first, 'SIGKILL');
    await page.waitForFunction((first) => document.querySelector('#process').textContent !== first, `${first}`, wait);
    await answered(page, 2);
    const last = await numberOf(page, 'process');
    child.kill('SIGKILL');
    await closed;
    await until('the worker ends', () => !isRunning(last));
  });

  for (const colorScheme of ['light', 'dark']) {
    test(`axe finds nothing, and nothing sticks out, ${colorScheme}`, async (t) => {
      const { page, errors } = await demo(t, 'Chromium', ['--libraries', workerPackages(t)], viewport);
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await answered(page, 2);
      await page.locator('#ask').fill('hello');
      await page.keyboard.press('Enter');
      await page.locator('#heard p').waitFor(wait);
      await page.evaluate(axe.source);
      for (const width of [1280, 1081, 820, 390, 320]) {
        await page.setViewportSize({ width, height: 860 });
        const { violations } = await page.evaluate(() => window.axe.run('#worker', { resultTypes: ['violations'] }));
        assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => `${html.slice(0, 120)}: ${failureSummary}`)]), []);
        const { scroll, client, card } = await page.evaluate(() => {
          const worker = document.querySelector('#worker');
          return { scroll: document.documentElement.scrollWidth, client: document.documentElement.clientWidth, card: worker.scrollWidth - worker.clientWidth };
        });
        assert.equal(scroll, client, `${width}: nothing sticks out`);
        assert.ok(card <= 1, `${width}: the card isn't cropped`);
      }
      assert.deepEqual(errors, []);
    });
  }

  test('without Node, or without its packages, it is hidden', async (t) => {
    const { page, errors } = await demo(t, 'Chromium', ['--libraries', libraries], viewport);
    await page.locator('#roomstate[data-state="open"]').waitFor(wait);
    assert.equal(await page.locator('#worker').isVisible(), false, 'without the package');
    const { says } = program(t, binary, ['demo', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--libraries', workerPackages(t)], { env: { ...process.env, PATH: temporary(t) } });
    const [, url] = await says(/ready (http:\/\/127\.0\.0\.1:\d+)/);
    await page.goto(`${url}/`);
    await page.locator('#roomstate[data-state="open"]').waitFor(wait);
    assert.equal(await page.locator('#worker').isVisible(), false, 'without Node');
    assert.deepEqual(errors, []);
  });

  test('a demo that others can reach restarts nothing', async (t) => {
    const { says } = program(t, binary, ['demo', '--listen', '0.0.0.0:0', '--admin', '127.0.0.1:0', '--libraries', workerPackages(t)]);
    const [, port] = await says(/ready http:\/\/0\.0\.0\.0:(\d+)/);
    const socket = io(`http://127.0.0.1:${port}`, { path: '/demo/worker/', transports: ['websocket'], forceNew: true });
    t.after(() => socket.close());
    const [, first] = await new Promise((resolve) => { socket.emit('count', (...answer) => resolve(answer)); });
    socket.emit('restart');
    // The next message comes after it.
    for (const wrong of [1, null, {}]) socket.emit('count', wrong);
    const [handled, second] = await new Promise((resolve) => { socket.emit('count', (...answer) => resolve(answer)); });
    assert.deepEqual([handled, second], [5, first]);
    const facts = await (await fetch(`http://127.0.0.1:${port}/demo/facts.js`)).text();
    assert.match(facts, /"canRestart":false/);
  });
});
