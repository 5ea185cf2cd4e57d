// What @stentor/client costs a page: 500 messages a second of a room, and a document of 100 kB that changes ten times a second, in Chromium.
// `node lab/pages/messages.mjs` prints a table; STENTOR_BIN is the server. MINUTES is the length of the last part, 5 by default.
//
// 1. Messages alone, then patches alone, under the profiler: the time in the client's own functions per message, and with what they call (JSON.parse).
// 2. Both together without it: long tasks (above 50 ms), and how much the heap grows between two collections.
import { readFileSync } from 'node:fs';
import { setTimeout as passed } from 'node:timers/promises';
import { publish, push } from '../../tests/clients/admin.mjs';
import { launch } from '../../tests/clients/browsers.mjs';
import { root, serve, until } from '../../tests/clients/harness.mjs';
import { stage, table } from './world.mjs';

const MESSAGES_PER_S = 500;
const VERSIONS_PER_S = 10;
const BATCHES_PER_S = 50;
const PROFILED_MS = 30_000;
const WARM_UP_MS = 20_000;
const MINUTES = Number(process.env.MINUTES ?? 5);
const SAMPLE_US = 100;
/** The name of the client's script in profiles. */
const SCRIPT = 'stentor-of-the-page.js';

/** A document of some 100 kB. Each version has another minute, another score, and one event more, in place of the oldest one. */
function version(n) {
  const event = (id) => ({ id, minute: id % 90, player: `Player ${id % 500}`, text: `what happened at ${id}`.padEnd(120, '.') });
  return { n, minute: n % 90, score: [n % 7, n % 5], events: Array.from({ length: 580 }, (_, at) => event(n + at)) };
}

/** Runs in a page. */
function listen() {
  const seen = { messages: 0, versions: 0, deltas: 0, longTasks: [] };
  new PerformanceObserver((list) => seen.longTasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: 'longtask' });
  const stentor = window.Stentor.connect();
  stentor.room('news').on('message', () => { seen.messages += 1; });
  stentor.feed('document').on('change', (_, { kind }) => {
    seen.versions += 1;
    if (kind === 'delta') seen.deltas += 1;
  });
  Object.assign(window, { seen });
}

/** Milliseconds in functions of the client's script, and in all below them that no other script of the page has called. */
function times({ nodes, samples, timeDeltas }) {
  const byId = new Map(nodes.map((node) => [node.id, { ...node, us: 0 }]));
  samples.forEach((id, at) => { byId.get(id).us += timeDeltas[at]; });
  const isOwn = ({ callFrame }) => callFrame.url.endsWith(SCRIPT);
  const sum = { own: 0, below: 0 };
  const walk = (node, isBelow) => {
    const is = isOwn(node);
    if (is) sum.own += node.us / 1_000;
    if (is || isBelow) sum.below += node.us / 1_000;
    for (const child of node.children ?? []) walk(byId.get(child), is || isBelow);
  };
  walk(byId.get(nodes[0].id), false);
  return sum;
}

const t = stage();
try {
  const server = await serve(t, { config: '[[feeds]]\nname = "pushed"\nprefix = ""\npush = true\n[rooms]\nhistory_length = 10' });
  const browser = await launch('Chromium');
  t.after(() => browser.close());
  const page = await browser.newPage();
  await page.goto(`${server.http}/healthz`);
  await page.addScriptTag({ content: `${readFileSync(`${root}/clients/js/dist/stentor.js`, 'utf8')}\n//# sourceURL=${SCRIPT}` });
  const devtools = await page.context().newCDPSession(page);
  let n = 0;
  await push(server, 'document', version(n));
  await page.evaluate(listen);
  await until('the document', () => page.evaluate(() => window.seen.versions > 0));

  /** Does something so many times a second, for a while. Answers needn't come in time. */
  async function pace(perSecond, ms, act) {
    const begun = performance.now();
    const pending = new Set();
    for (let count = 0; performance.now() - begun < ms; count += 1) {
      const one = act(count).finally(() => pending.delete(one));
      pending.add(one);
      await passed(Math.max(0, begun + (1_000 * (count + 1)) / perSecond - performance.now()));
    }
    await Promise.all(pending);
  }
  const batch = Array.from({ length: MESSAGES_PER_S / BATCHES_PER_S }, (_, at) => at);
  const messages = (ms) => pace(BATCHES_PER_S, ms, (count) => publish(server, ...batch.map((at) => ({ room: 'news', event: 'said', data: { n: count * batch.length + at, text: 'hello'.repeat(10) } }))));
  const versions = (ms) => pace(VERSIONS_PER_S, ms, () => push(server, 'document', version(n += 1)));
  const seen = () => page.evaluate(() => window.seen);
  const collected = async () => {
    for (let times = 0; times < 3; times += 1) await devtools.send('HeapProfiler.collectGarbage');
    return (await devtools.send('Runtime.getHeapUsage')).usedSize;
  };

  await devtools.send('Profiler.enable');
  await devtools.send('Profiler.setSamplingInterval', { interval: SAMPLE_US });
  const rows = [];
  const profile = async (name, count, act) => {
    await act(WARM_UP_MS);
    const before = await seen();
    await devtools.send('Profiler.start');
    await act(PROFILED_MS);
    const { profile } = await devtools.send('Profiler.stop');
    const number = (await seen())[count] - before[count];
    const { own, below } = times(profile);
    rows.push([name, number, (own / number).toFixed(4), (below / number).toFixed(4)]);
  };
  await profile(`${MESSAGES_PER_S} messages a second`, 'messages', messages);
  await profile(`a document of ${Math.round(JSON.stringify(version(0)).length / 1_000)} kB, ${VERSIONS_PER_S} patches a second`, 'deltas', versions);
  console.log(table(['load', 'received', 'own time each, ms', 'with what is called, ms'], rows));

  await Promise.all([messages(WARM_UP_MS), versions(WARM_UP_MS)]);
  const before = { bytes: await collected(), ...await seen() };
  const ms = MINUTES * 60_000;
  await Promise.all([messages(ms), versions(ms)]);
  const after = { bytes: await collected(), ...await seen() };
  const longTasks = after.longTasks.slice(before.longTasks.length);
  console.log(`\nBoth for ${MINUTES} minutes: ${after.messages - before.messages} messages, ${after.versions - before.versions} versions, ${after.deltas - before.deltas} as patches; `
    + `long tasks: ${longTasks.length ? longTasks.map(Math.round).join(', ') : 'none'}; the heap grew by ${((after.bytes - before.bytes) / 1e6).toFixed(2)} MB`);
} finally {
  await t.end();
}
