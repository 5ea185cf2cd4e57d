// A soak: clients of every kind come, talk and go, in equal cycles, until all is quiet. Then a node, or each of three with an engine, holds what it held
// after the first cycles: descriptors, gauges and memory; and Redis has no key of a room.
//
// STENTOR_SOAK_S is how long the cycles take together, at least: 600 for ten minutes.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import test from 'node:test';
import { admin, publish } from '../admin.mjs';
import { feedsFrom, JOIN, serve, statusOf, until, upstream } from '../harness.mjs';
import { KINDS, lost, now, start } from '../members.mjs';
import { known, node, onEachEngine } from '../nodes.mjs';

const SOAK_S = Number(process.env.STENTOR_SOAK_S ?? 5);
const TIMEOUT_MS = (SOAK_S + 280) * 1000;
const WARM_UP_CYCLES = 3;
const MESSAGES = 20;
/** Tables of connections and sessions keep some of the room that they grew to, each. */
const TABLE_BYTES_MAX = 16 << 10;
/** An ended session whose timeline can still be read, at most: 40 bytes in a list that doubles. A core keeps the last 4,096. */
const ENDED_BYTES_MAX = 80;
/** What an allocator may keep of pages that are nearly empty. */
const KEPT_BYTES_MAX = 16 << 20;

const settings = (url) => `${feedsFrom(url)}
[rooms]
history_length = 50
history_ttl = "1s"
presence = ["soak-"]
[socketio]
recovery_ttl = "1s"
`;

/** Clients of each kind on each node meet in a room that nobody was in before, follow a feed, and go. */
async function cycle(servers, number) {
  const room = `soak-${number}`;
  const logs = servers.flatMap(({ http }) => Object.entries(KINDS).map(([kind, { topic }]) => start(kind, topic === 'room' ? room : 'soak/feed', http)));
  try {
    await Promise.all(logs.map(({ ready }) => ready));
    const members = logs.filter(({ topic }) => topic === room);
    // A client that is open has asked to join, and is a member a moment later.
    for (const server of servers) {
      let count;
      await until(() => `${count} of ${members.length} are members`, async () => ({ count } = await admin(server, `rooms/members?room=${room}`)).count === members.length);
    }
    // Those of other nodes have heard of the members a moment later; a history makes up for it.
    for (let n = 1; n <= MESSAGES; n += 1) await publish(servers[n % servers.length], { room, event: 'news', data: { n } });
    await until(() => members.flatMap((log) => lost(log, MESSAGES)).join('\n'), () => members.every(({ numbers }) => numbers.at(-1) >= MESSAGES));
    assert.deepEqual(members.flatMap((log) => lost(log, MESSAGES)), []);
    for (const server of servers) await statusOf(server.http, `/feed/soak/none-${number}`);
  } finally {
    for (const log of logs) log.close();
  }
}

/** The gauges of a node as a map, without those of this test's own requests, of time and of the kernel. */
async function gauges(server) {
  const text = await (await fetch(`${server.admin}/metrics`)).text();
  const names = new Set([...text.matchAll(/^# TYPE (\S+) gauge$/gm)].map(([, name]) => name));
  const samples = [...text.matchAll(/^(\S+?)(\{.*\})? (\S+)$/gm)].filter(([, name]) => names.has(name) && !/^process_|_seconds|admin_connections/.test(name));
  return new Map(samples.map(([, name, labels = '', value]) => [`${name}${labels}`, Number(value)]));
}

const descriptors = ({ child }) => readdirSync(`/proc/${child.pid}/fd`).length;
const resident_bytes = ({ child }) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))[1]) * 1024;

async function soak(t, servers) {
  for (let number = 0; number < WARM_UP_CYCLES; number += 1) await cycle(servers, number);
  const quiet = async () => {
    let open;
    await until(() => `no client is left: ${open}`, async () => {
      open = (await Promise.all(servers.map(gauges))).flatMap((all) => [...all]).filter(([name, value]) => /^stentor_(connections|sessions)\b/.test(name) && value > 0);
      return open.length === 0;
    });
  };
  await quiet();
  const before = await Promise.all(servers.map(async (server) => ({ gauges: await gauges(server), descriptors: descriptors(server), resident_bytes: resident_bytes(server) })));
  const begun = now();
  let number = WARM_UP_CYCLES;
  for (; now() < begun + SOAK_S * 1000; number += 1) await cycle(servers, number);
  await quiet();
  for (const [n, server] of servers.entries()) {
    let differences;
    await until(() => `node ${n} is as before: ${differences}`, async () => {
      const after = [...await gauges(server)];
      const isEnded = ([name]) => name.startsWith('stentor_timeline_ended_sessions{');
      const ended = after.filter(isEnded).reduce((sum, [, count]) => sum + count, 0);
      const kept = (name) => (name.startsWith('stentor_memory_bytes{') ? TABLE_BYTES_MAX : 0) + (name.includes('class="sessions"') ? ended * ENDED_BYTES_MAX : 0);
      differences = after.filter((sample) => !isEnded(sample)).filter(([name, value]) => value > (before[n].gauges.get(name) ?? 0) + kept(name));
      return differences.length === 0;
    });
    await until('the descriptors are closed', () => descriptors(server) <= before[n].descriptors);
    const grown_bytes = resident_bytes(server) - before[n].resident_bytes;
    t.diagnostic(`node ${n}: ${number} cycles, memory grew by ${grown_bytes} bytes`);
    assert.ok(grown_bytes < KEPT_BYTES_MAX, `${grown_bytes} bytes after ${number} cycles`);
  }
}

test('a node is as before when its clients have left', { timeout: TIMEOUT_MS }, async (t) => {
  const api = await upstream(t);
  let version = 0;
  api.documents.set('soak/feed', () => ({ n: ++version }));
  const server = await serve(t, { config: `${settings(api.url)}${JOIN}`, timeout_ms: TIMEOUT_MS });
  await soak(t, [server]);
});

onEachEngine('three nodes are as before when their clients have left', async (t, startEngine) => {
  const [engine, api] = [await startEngine(t), await upstream(t)];
  let version = 0;
  api.documents.set('soak/feed', () => ({ n: ++version }));
  const servers = await Promise.all(['a', 'b', 'c'].map((name) => node(t, engine, name, settings(api.url))));
  await known(servers);
  await soak(t, servers);
  if (!engine.command) return;
  // Positions are kept for a minute, and the keys of appends, which expire by themselves, for five.
  let keys;
  await until(() => `no room is left in Redis: ${keys}`, async () => {
    keys = (await engine.command('KEYS', '*room*')).split('\r\n').filter((line) => line.includes('room') && !line.includes(':key:'));
    return keys.length === 0;
  });
});
