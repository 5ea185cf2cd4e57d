// Tabs of Chromium and Firefox that share a connection (@stentor/client/shared): eight of them over `sse`, of which tabs end, freeze, and sign out.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test, { after, describe } from 'node:test';
import { issuer, metric } from '../admin.mjs';
import { user } from '../auth.mjs';
import { browserNames, missing, sharedBrowsers } from '../browsers.mjs';
import { version } from '../client.mjs';
import { feedsFrom, root, serve, until, upstream, website } from '../harness.mjs';
import { connectedPage } from '../pages.mjs';
import { randomTests } from '../tabs-random.mjs';

const shared = sharedBrowsers({ after });
const PAGE = '<script type="module">import { connectShared } from "/src/shared.js"; window.Stentor = { connect: connectShared };</script>';

/** A server whose rooms keep history, and a page of another origin, which has the client's modules. `opened(count, options)` opens it in tabs of one browser, which connect. */
async function served(t, browser, more = '[rooms]\npublish = true') {
  const origin = await website(t, ({ url }, response) => {
    const isModule = /^\/src\/[\w/]+\.js$/.test(url);
    response.writeHead(200, { 'Content-Type': isModule ? 'text/javascript' : 'text/html' });
    response.end(isModule ? readFileSync(path.join(root, 'clients/js', url)) : PAGE);
  });
  const api = await upstream(t);
  api.documents.set('a', version(1));
  const server = await serve(t, { config: `${more}\nhistory_length = 1000\n[origins]\nallow = ["${origin}"]\n${feedsFrom(api.url)}` });
  const context = await (await shared(browser)).newContext();
  t.after(() => context.close());
  const open = async (options) => {
    const page = await context.newPage();
    await page.goto(origin);
    await page.waitForFunction(() => window.Stentor);
    const tab = await connectedPage(page, server.http, { transport: 'sse', rooms: ['chat'], ...options });
    await tab.isIn();
    return tab;
  };
  const opened = async (count) => {
    const all = [await open()];
    return [...all, ...await Promise.all(Array.from({ length: count - 1 }, () => open()))];
  };
  const sessions = (count) => until(async () => `${count} sessions, not ${await metric(server, 'sessions')}`, async () => await metric(server, 'sessions') === count);
  /** Publishes as a tab, and waits until others have all from 1 to `n`, each once. Another tab may lead meanwhile: with an id, the message is sent again and published once. */
  const say = async (tab, n, all) => {
    await tab.page.evaluate(([it, n]) => it.stentor.publish('chat', n, undefined, { id: `${n}` }), [tab.it, n]);
    await heard(all, n);
  };
  const heard = (all, n) => Promise.all(all.map(async ({ until, read }) => {
    await until(([it, n]) => it.rooms.chat.messages.at(-1) === n, n);
    assert.deepEqual(await read(({ rooms }) => rooms.chat.messages), Array.from({ length: n }, (_, at) => at + 1));
  }));
  return { api, server, open, opened, sessions, say, heard };
}

const cases = {
  'eight tabs share one stream; a new leader goes on without a gap or a duplicate': async (t, browser) => {
    const { api, opened, sessions, say } = await served(t, browser);
    const tabs = await opened(8);
    for (const { has } of tabs) await has(1);
    await sessions(1);
    await say(tabs[5], 1, tabs);
    for (let n = 2; n <= 4; n++) {
      // The first one leads: its page is closed, or its connection.
      const [leader] = tabs.splice(0, 1);
      if (n === 3) await leader.read(({ stentor }) => stentor.close());
      else await leader.page.close();
      api.documents.set('a', version(n));
      await say(tabs.at(-1), n, tabs);
      for (const { has } of tabs) await has(n);
      await sessions(1);
    }
    for (const { read } of tabs) {
      assert.deepEqual(await read(({ feeds, errors }) => [feeds.a.all, errors]), [[1, 2, 3, 4], []]);
    }
  },

  'a leader that is frozen or silent is replaced, and follows when it goes on': async (t, browser) => {
    const { api, opened, sessions, say, heard } = await served(t, browser);
    const tabs = await opened(8);
    await say(tabs[3], 1, tabs);
    const [leader, ...others] = tabs;
    // Firefox's protocol for tests has no such command.
    const devtools = browser === 'Chromium' && await leader.page.context().newCDPSession(leader.page);
    const freeze = (isFrozen) => (devtools ? devtools.send('Page.setWebLifecycleState', { state: isFrozen ? 'frozen' : 'active' }) : leader.page.evaluate((isFrozen) => {
      const { prototype } = BroadcastChannel;
      prototype.post ??= prototype.postMessage;
      prototype.postMessage = isFrozen ? () => {} : prototype.post;
    }, isFrozen));
    await freeze(true);
    api.documents.set('a', version(2));
    for (const { has } of others) await has(2);
    await say(others[0], 2, others);
    await freeze(false);
    await leader.has(2);
    await heard([leader], 2);
    await say(leader, 3, tabs);
    await sessions(1);
  },

  'a tab whose user signs out leaves at once, and receives nothing of the others': async (t, browser) => {
    const auth = `[auth]\n${issuer}[[permissions]]\ntopics = ["*"]\nallow = ["subscribe", "publish", "history"]\n[rooms]`;
    const { open, sessions, say } = await served(t, browser, auth);
    const tokens = { anna: user('42'), ben: user('43') };
    const tabs = [];
    for (const name of ['anna', 'anna', 'anna']) tabs.push(await open({ tokens: [tokens[name], tokens.ben] }));
    await sessions(1);
    await say(tabs[1], 1, tabs);
    const [leader, second, third] = tabs;
    const session = ({ read }) => read(({ stentor }) => stentor.session);
    const before = await session(second);
    await leader.read(({ stentor }) => stentor.reconnect());
    await leader.until(([it, before]) => it.stentor.state === 'open' && it.stentor.session !== before, before);
    await say(second, 2, tabs);
    await sessions(2);
    const [own, one, other] = await Promise.all([leader, second, third].map(session));
    assert.ok(one === other && one !== own, `${own}, ${one}, ${other}`);
    assert.deepEqual(await leader.read(({ asked }) => asked), ['connect', 'connect']);
  },
};

for (const browser of browserNames) {
  describe(`in ${browser}`, { concurrency: 1, skip: missing(browser) }, () => {
    for (const [name, run] of Object.entries(cases)) test(name, (t) => run(t, browser));
  });
}

randomTests(500);
