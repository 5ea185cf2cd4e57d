// The pages and programs that README.md and the guides show, in a browser and in Node: they do what their page says.
// The shell commands of the pages run in crates/stentor/tests/slow/commands.rs.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test, { after } from 'node:test';
import { EventSource } from 'eventsource';
import { io } from 'socket.io-client';
import SockJS from 'sockjs-client';
import { applyPatch } from '../../../clients/js/src/index.js';
import { missing, sharedBrowsers } from '../browsers.mjs';
import { PATIENCE_MS, binary, feedsFrom, program, queue, root, serve, temporary, until, upstream, website } from '../harness.mjs';
import { freePorts } from '../proxies.mjs';

const read = (name) => readFileSync(path.join(root, name), 'utf8');
const shared = sharedBrowsers({ after });

/** The here-document of a page's shell block. */
const heredoc = (page, end) => new RegExp(`<<'${end}'\\n(.*?)^${end}$`, 'ms').exec(page)[1];
const blocks = (page, language) => [...page.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'))].map(([, text]) => text);

async function open(t, address) {
  const context = await (await shared('Chromium')).newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on('pageerror', (error) => { throw error; });
  await page.goto(address);
  return page;
}

test('the chat of the README: two tabs and a backend', { skip: missing('Chromium') }, async (t) => {
  const readme = read('README.md');
  let html = '';
  const origin = await website(t, (_, response) => response.setHeader('Content-Type', 'text/html').end(html));
  const server = await serve(t, { config: heredoc(readme, 'TOML').replace('http://127.0.0.1:3001', origin) });
  html = heredoc(readme, 'HTML').replaceAll('http://127.0.0.1:8000', server.http);
  const tabs = await Promise.all([1, 2].map(() => open(t, origin)));
  const [, body] = /-d '(\{"room".*?\})'$/m.exec(readme);
  const { text } = JSON.parse(body).data;
  const publish = () => fetch(`${server.admin}/api/v1/publish`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
  const listed = (tab, what) => tab.locator('#log li', { hasText: what });
  // A tab subscribes some time after it has loaded.
  for (const tab of tabs) {
    await until('the tab lists a message', async () => {
      await publish();
      return await listed(tab, text).count() > 0;
    });
  }
  await tabs[0].fill('#say', 'hi from the first tab');
  await tabs[0].press('#say', 'Enter');
  for (const tab of tabs) await listed(tab, 'hi from the first tab').waitFor();
});

test('the page of "Live JSON in five minutes": ten tabs, one request a second', { skip: missing('Chromium') }, async (t) => {
  const folder = temporary(t);
  cpSync(path.join(root, 'examples/live'), folder, { recursive: true });
  const [port] = await freePorts(1);
  const origin = `http://127.0.0.1:${port}`;
  const api = program(t, 'python3', [path.join(folder, 'api.py'), String(port)]);
  await api.says(/./);
  const server = await serve(t, {
    config: read('examples/live/stentor.toml').replaceAll('http://127.0.0.1:3000', origin),
    command: ['env', 'MATCH_API_TOKEN=let-me-in', binary],
  });
  writeFileSync(path.join(folder, 'page.html'), read('examples/live/page.html').replaceAll('http://127.0.0.1:8000', server.http));

  const began = performance.now();
  const tabs = await Promise.all(Array.from({ length: 10 }, () => open(t, origin)));
  for (const tab of tabs) {
    await tab.locator('#score', { hasText: /^\d+ : \d+, minute \d+$/ }).waitFor();
    await tab.locator('#bytes', { hasText: /^delta: received \d+ characters/ }).waitFor();
  }
  const [, received, whole] = /received (\d+) characters; the document has (\d+)/.exec(await tabs[0].locator('#bytes').textContent());
  assert.ok(Number(received) < Number(whole), `${received} of ${whole}`);
  const metrics = await (await fetch(`${server.admin}/metrics`)).text();
  const fetches = [...metrics.matchAll(/^stentor_feed_fetches_total\{.*\} (\d+)$/gm)].reduce((sum, [, count]) => sum + Number(count), 0);
  const seconds = (performance.now() - began) / 1000;
  assert.ok(fetches > 0 && fetches <= seconds + 2, `${fetches} requests in ${seconds} s`);

  await api.end();
  await tabs[0].waitForFunction(() => document.title.startsWith('stale: '));
});

test('the programs of socketio.md and fallbacks.md print what their pages say', async (t) => {
  const key = 'scores/8/live';
  const api = await upstream(t);
  let minute = 0;
  api.documents.set(key, () => ({ minute: ++minute, text: 'long enough for a change to be shorter'.repeat(90) }));
  const server = await serve(t, { config: feedsFrom(api.url) });
  const echo = await serve(t, { args: ['--app', 'echo'] });
  const printed = queue();
  const given = {
    io, SockJS, EventSource, epoch: 1, offset: 1,
    applyPatch: (document, patch) => ({ newDocument: applyPatch(document, patch) }),
    console: { log: (...values) => printed.put(values) },
  };
  /** Runs a program; `result` names what it declares. */
  const start = (code, { http }, result, more = {}) => {
    const names = { ...given, ...more };
    const body = `${code.replace(/^import .*\n/, '').replaceAll('http://127.0.0.1:8000', http)}\nreturn ${result};`;
    return new Function(...Object.keys(names), body)(...Object.values(names));
  };
  const [hello, feed, options, presence, renewing, ...otherIo] = blocks(read('docs/socketio.md'), 'js');
  const [sockjs, stream, deltas, posting, listening, ...others] = blocks(read('docs/fallbacks.md'), 'js');
  assert.deepEqual([otherIo, others], [[], []], 'programs that this test does not run');

  const greeter = start(hello, echo, 'socket');
  t.after(() => greeter.close());
  assert.deepEqual([await printed.next(), await printed.next()], [[{ from: 'me' }], [{ from: 'me' }]]);

  const socket = io(server.http);
  t.after(() => socket.close());
  start(feed, server, 'undefined', { socket });
  assert.deepEqual(await printed.next('an acknowledgement'), [{ ok: true }]);
  const [name, document] = await printed.next('a document');
  assert.equal(name, key);
  assert.ok(document.minute > 0);
  start(options, server, 'undefined', { socket });
  while ((await printed.next('a delta, which has no data'))[1] !== undefined);
  socket.close();

  const rooms = await serve(t, { config: '[rooms]\npresence = ["chat/"]\n\n[[rules]]\nevent = "join"\njoin = ["{}"]\nack = true\n' });
  const member = io(rooms.http, { forceNew: true });
  t.after(() => member.close());
  assert.deepEqual(await member.emitWithAck('join', 'chat/7'), { ok: true });
  start(presence, rooms, 'undefined', { socket: member });
  // The client sees itself in the list, or in a notice after it.
  const seen = [];
  while (!JSON.stringify(seen).includes(member.id)) seen.push(await printed.next('the client among the members'));
  assert.equal(seen.find(([first]) => typeof first === 'boolean')?.[0], true);
  member.close();

  const renewed = start(renewing, echo, 'socket', { getToken: async () => 'a token' });
  t.after(() => renewed.close());
  if (!renewed.connected) await once(renewed, 'connect');
  renewed.close();

  const sock = start(sockjs, server, 'sock');
  t.after(() => sock.close());
  for (;;) {
    const [text] = await printed.next('a welcome');
    if (typeof text === 'string' && JSON.parse(text).type === 'welcome') break;
  }
  sock.close();

  const events = start(stream, server, 'events');
  t.after(() => events.close());
  const first = await printed.next('a snapshot');
  assert.ok(first[0].minute > 0);
  events.close();

  const follower = start(deltas, server, '{ events, kept: () => kept }');
  t.after(() => follower.events.close());
  while (!(follower.kept()?.minute > first[0].minute + 3)) await once(follower.events, 'delta');

  const aborter = new AbortController();
  const { signal } = aborter;
  const posted = start(`return (async () => { ${posting} })();`, server, 'undefined', { fetch: (url, init) => fetch(url, { ...init, signal }) });
  let text = '';
  while (!text.includes('event: snapshot')) text += (await printed.next('an event'))[0];
  aborter.abort();
  await assert.rejects(posted, { name: 'AbortError' });

  // A page's EventSource that has ended for good, or may be half-open, is replaced from the last position on.
  const sources = [];
  const page = {};
  const on = (name, handle) => { page[name] = handle; };
  const shown = { hidden: false, addEventListener: on };
  class Source extends EventSource {
    constructor(url) {
      super(url);
      sources.push({ url: new URL(url), source: this });
      t.after(() => this.close());
    }
  }
  const idOf = ({ url }) => url.searchParams.get('lastEventId');
  start(listening, server, 'undefined', { EventSource: Source, addEventListener: on, document: shown, setTimeout: (open) => open() });
  assert.ok((await printed.next('a snapshot'))[0].minute > 0);
  assert.equal(idOf(sources[0]), '');
  const replaces = (act, expect) => {
    const before = sources.length;
    act();
    assert.equal(sources.length - before, expect ? 1 : 0, `${act}`);
    assert.equal(sources[before - 1].source.readyState === EventSource.CLOSED, expect, `${act}`);
    if (expect) assert.match(idOf(sources.at(-1)), /^scores\/8\/live![0-9a-f]+![0-9a-f]+$/);
  };
  // It returns by itself.
  replaces(() => sources.at(-1).source.onerror(), false);
  replaces(() => { sources.at(-1).source.close(); sources.at(-1).source.onerror(); }, true);
  replaces(() => page.online(), true);
  replaces(() => page.visibilitychange(), true);
  shown.hidden = true;
  replaces(() => page.visibilitychange(), false);
});
