// sockjs-client 1.6 as it comes: in Node by the transports that it has there, in Chromium and Firefox by all of them.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test, { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import SockJS from 'sockjs-client';
import { browserNames, missing, sharedBrowsers } from './browsers.mjs';
import { fixture, serve, upstream, within } from './harness.mjs';

const build = path.join(path.dirname(fileURLToPath(import.meta.url)), 'node_modules/sockjs-client/dist/sockjs.min.js');

// Before the server ends, which waits for a browser's idle connections.
const shared = sharedBrowsers({ after });

const server = await fixture({ after }, 'sockjs');

const TEXTS = ['', 'hello', 'é€😀\u2028\u200c\uffff', '\u0000"\\</script>', 'x'.repeat(20_000)];

/** Opens a session, sends, and gives { transport, received, closed }; runs in Node and in a page. */
async function use({ SockJS: Client = globalThis.SockJS, url, transports, texts, count = texts.length }) {
  // By itself the library gives a transport up after some 600 ms.
  const socket = new Client(url, null, { transports, timeout: 30_000 });
  const received = [];
  let transport;
  let late;
  return new Promise((resolve, reject) => {
    socket.onopen = () => {
      transport = socket.transport;
      for (const text of texts) socket.send(text);
    };
    socket.onmessage = ({ data }) => {
      received.push(data);
      if (received.length === count) socket.close(3456, 'done');
    };
    socket.onclose = ({ code, reason, wasClean }) => resolve({ transport, received, closed: [code, reason, wasClean] });
    late = setTimeout(() => reject(new Error(`nothing more after ${received.length} messages`)), 60_000);
  }).finally(() => clearTimeout(late));
}

const echoed = (transport) => ({ transport, received: TEXTS, closed: [3456, 'done', true] });

for (const transport of ['websocket', 'xhr-streaming', 'eventsource', 'xhr-polling']) {
  test(`Node by ${transport}`, async () => {
    const result = await use({ SockJS, url: `${server.http}/echo`, transports: [transport], texts: TEXTS });
    assert.deepEqual(result, echoed(transport));
  });

  test(`Node by ${transport}: many messages, in order`, async () => {
    const texts = Array.from({ length: 500 }, (_, n) => `message ${n}`);
    const result = await use({ SockJS, url: `${server.http}/echo`, transports: [transport], texts });
    assert.deepEqual(result.received, texts);
  });

  test(`Node by ${transport}: the server says goodbye`, async () => {
    const result = await use({ SockJS, url: `${server.http}/close`, transports: [transport], texts: [], count: -1 });
    assert.deepEqual(result, { transport, received: [], closed: [3000, 'Go away!', true] });
  });
}

test('Node by broadcast: all transports hear each other', async () => {
  const transports = ['websocket', 'xhr-streaming', 'eventsource', 'xhr-polling'];
  const sockets = transports.map((transport) => new SockJS(`${server.http}/broadcast`, null, { transports: [transport], timeout: 30_000 }));
  await within(Promise.all(sockets.map((socket) => new Promise((resolve) => { socket.onopen = resolve; }))), 'all connections');
  const heard = sockets.map((socket) => new Promise((resolve) => {
    const seen = new Set();
    socket.onmessage = ({ data }) => { if (seen.add(data).size === transports.length) resolve([...seen].sort()); };
  }));
  for (const [n, socket] of sockets.entries()) socket.send(transports[n]);
  for (const seen of await within(Promise.all(heard), 'all messages')) assert.deepEqual(seen, transports.toSorted());
  for (const socket of sockets) socket.close();
});

test('Node: without WebSocket on the server the next transport is taken', async () => {
  const result = await use({ SockJS, url: `${server.http}/disabled_websocket_echo`, texts: ['x'] });
  assert.equal(result.transport, 'xhr-streaming');
});

async function page(t, browser, address) {
  const opened = await (await shared(browser)).newPage();
  t.after(() => opened.close());
  await opened.goto(address);
  await opened.addScriptTag({ path: build });
  return opened;
}

/** A page of another origin, which also has the client library; and a server that allows it, or only itself. */
async function frames(t, browser, allowed) {
  const elsewhere = await upstream(t);
  elsewhere.documents.set('page', (_, response) => response.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>elsewhere</p>'));
  elsewhere.documents.set('sockjs.js', (_, response) => response.writeHead(200, { 'Content-Type': 'text/javascript' }).end(readFileSync(build)));
  const origins = allowed ? `[origins]\nallow = ["${elsewhere.url}"]\n` : '';
  const config = `${origins}[[sockjs]]\nprefix = "/echo"\napp = "echo"\nclient_url = "${elsewhere.url}/sockjs.js"\n`;
  const opened = await page(t, browser, `${elsewhere.url}/page`);
  return { opened, own: await serve(t, { config, args: ['--cores', '2'] }) };
}

for (const browser of browserNames) {
  for (const transport of ['websocket', 'xhr-streaming', 'eventsource', 'htmlfile', 'xhr-polling', 'jsonp-polling']) {
    // The response sets document.domain, as the protocol wants it, and the library doesn't: to Firefox these are two origins.
    const noHtmlfile = browser === 'Firefox' && transport === 'htmlfile' && "sockjs-client's htmlfile works in Firefox with no server";
    test(`${browser} by ${transport}`, { skip: missing(browser) || noHtmlfile }, async (t) => {
      const opened = await page(t, browser, `${server.http}/echo`);
      const result = await opened.evaluate(use, { url: `${server.http}/echo`, transports: [transport], texts: TEXTS });
      assert.deepEqual(result, echoed(transport));
    });
  }

  test(`${browser} from another origin, by each transport that crosses`, { skip: missing(browser) }, async (t) => {
    const elsewhere = await upstream(t);
    elsewhere.documents.set('page', (_, response) => response.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>elsewhere</p>'));
    const opened = await page(t, browser, `${elsewhere.url}/page`);
    for (const transport of ['websocket', 'xhr-streaming', 'xhr-polling', 'jsonp-polling']) {
      const result = await opened.evaluate(use, { url: `${server.http}/echo`, transports: [transport], texts: TEXTS });
      assert.deepEqual(result, echoed(transport));
    }
  });

  test(`${browser} from another origin, in frames`, { skip: missing(browser) }, async (t) => {
    const { opened, own } = await frames(t, browser, true);
    for (const transport of ['iframe-eventsource', 'iframe-htmlfile', 'iframe-xhr-polling']) {
      const result = await opened.evaluate(use, { url: `${own.http}/echo`, transports: [transport], texts: TEXTS });
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
