// @stentor/client in Chromium and Firefox: everything that it can do, over each of its transports.
import path from 'node:path';
import test, { after, describe } from 'node:test';
import { browserNames, missing, openPage, sharedBrowsers } from '../browsers.mjs';
import { TRANSPORTS } from '../client.mjs';
import { modules, root } from '../harness.mjs';
import { everything, open } from '../matrix.mjs';

const shared = sharedBrowsers({ after });
const libraries = { 'socket.io': 'socket.io-client/dist/socket.io.min.js', sockjs: 'sockjs-client/dist/sockjs.min.js' };

for (const browser of browserNames) {
  describe(`everything over each transport in ${browser}`, { concurrency: true, skip: missing(browser) }, () => {
    for (const transport of TRANSPORTS) {
      test(transport, (t) => everything(t, transport, async ({ url, options, tokens }) => {
        const scripts = [libraries[transport] && path.join(modules, libraries[transport]), path.join(root, 'clients/js/dist/stentor.js')];
        const page = await openPage(t, shared(browser), `${url}/healthz`, ...scripts.filter(Boolean).map((path) => ({ path })));
        await page.evaluate(`window.open = ${open}`);
        const it = await page.evaluateHandle((details) => window.open(window.Stentor.connect, details), { url, options: { ...options, transport }, tokens });
        return (run, value) => it.evaluate(run, value);
      }));
    }
  });
}
