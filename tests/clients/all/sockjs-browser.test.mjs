// sockjs-client 1.6 as it comes, in Chromium and Firefox by all of its transports.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test, { after } from 'node:test';
import { browserNames, missing, openPage, sharedBrowsers } from '../browsers.mjs';
import { elsewhere, fixture, modules, serve, website, within } from '../harness.mjs';
import { echoed, TEXTS, use } from '../sockjs.mjs';

const build = path.join(modules, 'sockjs-client/dist/sockjs.min.js');

// Before the server ends, which waits for a browser's idle connections.
const shared = sharedBrowsers({ after });

const server = await fixture({ after }, 'sockjs');

const run = (opened, options) => within(opened.evaluate(use, options), 'the end of the session');

const page = (t, browser, address) => openPage(t, shared(browser), address, { path: build });

/** A page of another origin; and a server that allows it, or only itself. */
async function frames(t, browser, allowed) {
  const { origin, address } = await elsewhere(t);
  const library = await website(t, (_, response) => response.writeHead(200, { 'Content-Type': 'text/javascript' }).end(readFileSync(build)));
  const origins = allowed ? `[origins]\nallow = ["${origin}"]\n` : '';
  const config = `${origins}[[sockjs]]\nprefix = "/echo"\napp = "echo"\nclient_url = "${library}/sockjs.js"\n`;
  const opened = await page(t, browser, address);
  return { opened, own: await serve(t, { config, args: ['--cores', '2'] }) };
}

for (const browser of browserNames) {
  for (const transport of ['websocket', 'xhr-streaming', 'eventsource', 'htmlfile', 'xhr-polling', 'jsonp-polling']) {
    // The response sets document.domain, as the protocol wants it, and the library doesn't: to Firefox these are two origins.
    const noHtmlfile = browser === 'Firefox' && transport === 'htmlfile' && "sockjs-client's htmlfile works in Firefox with no server";
    test(`${browser} by ${transport}`, { skip: missing(browser) || noHtmlfile }, async (t) => {
      const opened = await page(t, browser, `${server.http}/echo`);
      const result = await run(opened, { url: `${server.http}/echo`, transports: [transport], texts: TEXTS });
      assert.deepEqual(result, echoed(transport));
    });
  }

  test(`${browser} from another origin, by each transport that crosses`, { skip: missing(browser) }, async (t) => {
    const opened = await page(t, browser, (await elsewhere(t)).address);
    for (const transport of ['websocket', 'xhr-streaming', 'xhr-polling', 'jsonp-polling']) {
      const result = await run(opened, { url: `${server.http}/echo`, transports: [transport], texts: TEXTS });
      assert.deepEqual(result, echoed(transport));
    }
  });

  test(`${browser} from another origin, in frames`, { skip: missing(browser) }, async (t) => {
    const { opened, own } = await frames(t, browser, true);
    for (const transport of ['iframe-eventsource', 'iframe-htmlfile', 'iframe-xhr-polling']) {
      const result = await run(opened, { url: `${own.http}/echo`, transports: [transport], texts: TEXTS });
      assert.deepEqual(result, echoed(transport));
    }
  });

  test(`${browser}: a frame's requests have the server's own origin: pages that may not connect can't have one`, { skip: missing(browser) }, async (t) => {
    /** In the page: whether the library in a frame has begun to talk. */
    const begins = ({ url, time_ms }) => new Promise((resolve) => {
      window.addEventListener('message', ({ data }) => { if (JSON.parse(data).type === 's') resolve(true); });
      const frame = document.createElement('iframe');
      // Its script runs before the frame counts as loaded; what it says comes a little later.
      frame.onload = () => setTimeout(() => resolve(false), time_ms);
      frame.src = url;
      document.body.append(frame);
    });
    for (const allowed of [true, false]) {
      const { opened, own } = await frames(t, browser, allowed);
      assert.equal(await opened.evaluate(begins, { url: `${own.http}/echo/iframe-1.6.1.html#x`, time_ms: allowed ? 60_000 : 200 }), allowed);
    }
  });

  test(`${browser}: JSONP answers scripts of pages that may connect only`, { skip: missing(browser) }, async (t) => {
    for (const allowed of [true, false]) {
      const { opened, own } = await frames(t, browser, allowed);
      const loaded = await opened.evaluate((url) => new Promise((resolve) => {
        window.callback = resolve;
        const script = document.createElement('script');
        script.onerror = () => resolve('refused');
        script.src = url;
        document.head.append(script);
      }), `${own.http}/echo/000/${allowed}/jsonp?c=callback`);
      assert.equal(loaded, allowed ? 'o' : 'refused');
    }
  });
}
