// The tag that `stentor script-tag` prints, and /stentor.js, on pages of another origin in Chromium and Firefox.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import test, { after, describe } from 'node:test';
import { browserNames, missing, openPage, sharedBrowsers } from '../browsers.mjs';
import { PATIENCE_MS, binary, serve, website } from '../harness.mjs';

const shared = sharedBrowsers({ after });
const isolated = { 'Cross-Origin-Embedder-Policy': 'require-corp', 'Cross-Origin-Opener-Policy': 'same-origin' };

describe('the client loads', () => {
  for (const browser of browserNames) {
    test(`in ${browser}`, { skip: missing(browser) }, async (t) => {
      const server = await serve(t);
      const tag = execFileSync(binary, ['script-tag', server.http], { encoding: 'utf8' });
      const wrong = tag.replace('sha384-', 'sha384-0000');
      const scripts = {
        'with its hash': tag,
        'without CORS': `<script src="${server.http}/stentor.js"></script>`,
        'as a module': `<script type="module">import '${server.http}/stentor.js';</script>`,
        'not with another hash': wrong,
      };
      const ended = '<script type="module">window.ended = true;</script>';
      const origin = await website(t, ({ url }, response) => {
        response.writeHead(200, { 'Content-Type': 'text/html', ...isolated }).end(`<!doctype html>${scripts[decodeURIComponent(url.slice(1))]}${ended}`);
      });
      for (const name of Object.keys(scripts)) {
        const page = await openPage(t, shared(browser), `${origin}/${encodeURIComponent(name)}`);
        await page.waitForFunction(() => window.ended, undefined, { timeout: PATIENCE_MS });
        const seen = await page.evaluate(() => [window.crossOriginIsolated, typeof window.Stentor?.connect]);
        assert.deepEqual(seen, [true, name === 'not with another hash' ? 'undefined' : 'function'], name);
      }
    });
  }
});
