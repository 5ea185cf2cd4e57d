// The browsers that tests run in, as the system has them: Chromium by its own protocol, Firefox by WebDriver BiDi.
//
// Playwright is at the newest version whose WebDriver BiDi commands Debian's firefox-esr knows: 1.65 sends one that it doesn't.
import { existsSync } from 'node:fs';
import { chromium, firefox } from 'playwright-core';
import { PATIENCE_MS } from './harness.mjs';

const chromiumFlags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const browsers = {
  Chromium: {
    executablePath: ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync),
    launch: (executablePath) => chromium.launch({ executablePath, args: chromiumFlags, timeout: PATIENCE_MS }),
  },
  Firefox: {
    executablePath: ['/usr/bin/firefox-esr', '/usr/bin/firefox'].find(existsSync),
    launch: (executablePath) => firefox.launch({ executablePath, channel: 'moz-firefox', timeout: PATIENCE_MS }),
  },
};

/** The names of the browsers, for tests that run in each of them. */
export const browserNames = Object.keys(browsers);

/** Why tests in a browser are skipped; `false` where it is installed. */
export const missing = (name) => !browsers[name].executablePath && `${name} is not installed: run scripts/setup-tests`;

/** Starts a browser of its own, which the caller closes. */
export async function launch(name) {
  const browser = await browsers[name].launch(browsers[name].executablePath);
  // Pages of `newPage` have a context of their own, too. Playwright's default of 30 s is short for a busy machine.
  browser.on('context', (context) => context.setDefaultTimeout(PATIENCE_MS));
  return browser;
}

/** Opens a page at an address, in a browser of its own or a shared one; adds scripts. The page ends with the test. */
export async function openPage(t, browser, address, ...scripts) {
  const context = await (await browser).newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  await page.goto(address);
  for (const script of scripts) await page.addScriptTag(script);
  return page;
}

/** Gives the tests of a file one browser of each name: `await shared('Firefox')` starts it on first use. They end after the tests. */
export function sharedBrowsers({ after }) {
  const started = new Map();
  after(async () => {
    for (const browser of started.values()) await (await browser).close();
  });
  return (name) => {
    if (!started.has(name)) started.set(name, launch(name));
    return started.get(name);
  };
}
