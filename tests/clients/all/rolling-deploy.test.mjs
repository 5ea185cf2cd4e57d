// Deploys under load, with clients that reconnect by themselves. A new process takes over from the running one; three nodes behind HAProxy
// restart one after another. No message is lost in rooms with history, and clients return as evenly as they were ended.
//
// STENTOR_DEPLOY_CLIENTS and STENTOR_DEPLOY_WINDOW_S choose another size: 5000 and 30 are those of docs/deploys.md.
import assert from 'node:assert/strict';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { PERIOD_MS, assertNothingLost, config, scores } from '../deploys.mjs';
import { logged, serve, temporary, until, within } from '../harness.mjs';
import { KINDS, now, start } from '../members.mjs';
import { freePorts, haproxy, missing as missingProxy } from '../proxies.mjs';
import { missing as withoutRedis, redis } from '../redis.mjs';

const CLIENTS = Number(process.env.STENTOR_DEPLOY_CLIENTS ?? 300);
const WINDOW_S = Number(process.env.STENTOR_DEPLOY_WINDOW_S ?? 8);
const TIMEOUT_MS = 300_000;
/** What the server's processes may add to a time. By how much the clients' own process was late comes on top, as measured. */
const MARGIN_MS = 1000;
/** Between a takeover and the window, in which the old process serves what it had accepted. */
const TAKEOVER_DELAY_MS = 1000;
const MEMBERS_PER_ROOM = 100;

/** Starts clients of all kinds, the lean ones for the mass, and waits until they are connected. */
async function everybody(t, url, count) {
  const kinds = Object.keys(KINDS);
  const lean = kinds.filter((kind) => KINDS[kind].isLean);
  const real = kinds.filter((kind) => !KINDS[kind].isLean);
  const logs = [];
  const close = () => logs.forEach((log) => log.close());
  t.after(close);
  const rooms = Math.ceil(count / MEMBERS_PER_ROOM);
  const connected = () => Promise.all(logs.map((log) => within(log.ready, () => `${log.kind}, which failed with ${log.failures} and ${log.gaps}`)));
  for (let i = 0; i < count; i++) {
    // Three of each real one, as far as there are so many.
    const kind = i < 3 * real.length ? real[i % real.length] : lean[i % lean.length];
    logs.push(start(kind, KINDS[kind].topic === 'feed' ? 'scores' : `room-${i % rooms}`, url));
    if (i % 100 === 99) await connected();
  }
  await connected();
  return { logs, close, rooms: Array.from({ length: rooms }, (_, n) => `room-${n}`) };
}

/** Publishes to all rooms until it is told to `stop`, at an admin port that may be another process from one moment to the next. */
function publishing(admins, rooms) {
  let n = 0;
  let isOver = false;
  const publish = async (room, number) => {
    const body = JSON.stringify({ room, event: 'news', data: { n: number }, idempotency_key: `${room}-${number}` });
    let why;
    for (let tries = 0; tries < 50; tries++) {
      const admin = admins[(number + tries) % admins.length];
      // The key makes a repetition harmless. No connection is kept, since the process at its other end may be another one.
      const answer = await fetch(`${admin()}/api/v1/publish`, { method: 'POST', headers: { 'Content-Type': 'application/json', Connection: 'close' }, body }).catch(() => undefined);
      if (answer?.ok) return;
      why = await answer?.text();
      await passed(50);
    }
    throw new Error(`message ${number} to ${room} can't be published: ${why}`);
  };
  const running = (async () => {
    while (!isOver) {
      n++;
      await Promise.all([...rooms.map((room) => publish(room, n)), passed(PERIOD_MS)]);
    }
  })();
  return { stop: async () => { isOver = true; await running; return n; } };
}

/** The counts of times in each second from `begins` on. */
function perSecond(times, begins) {
  const counts = [];
  for (const time of times) counts[Math.floor((time - begins) / 1000)] = (counts[Math.floor((time - begins) / 1000)] ?? 0) + 1;
  return Array.from(counts, (count) => count ?? 0);
}

test(`a process takes over from another one with ${CLIENTS} clients`, { skip: withoutRedis, timeout: TIMEOUT_MS }, async (t) => {
  const engine = await redis(t);
  const api = await scores(t);
  const folder = temporary(t);
  const [listen, admin] = (await freePorts(2)).map((port) => `127.0.0.1:${port}`);
  const process = () => serve(t, {
    config: config(engine, api, `takeover_socket = "${folder}/takeover"\ndrain_window = "${WINDOW_S}s"`), listen, admin, args: ['--cores', '2'], timeout_ms: TIMEOUT_MS,
  });
  const old = await process();
  await logged(old, ({ message }) => message === 'a new process can take over', 'that it can be taken over');
  const delays = monitorEventLoopDelay();
  const begun = now();
  const { logs, rooms, close } = await everybody(t, old.http, CLIENTS);
  delays.enable();
  t.diagnostic(`connected after ${Math.round(now() - begun)} ms`);
  const publisher = publishing([() => old.admin], rooms);
  await passed(1000);

  const next = await process();
  await logged(old, ({ signal }) => signal === 'takeover', 'that another process has taken over');
  const begins = now() + TAKEOVER_DELAY_MS;
  // Scripts do so: it drains already.
  old.child.kill('SIGTERM');
  assert.equal((await within(old.closed, 'the end of the old process', (WINDOW_S + 30) * 1000))[0], 0);
  const drained_ms = now() - begins;
  await until('everybody is back', () => logs.every(({ opens }) => opens.length > 1));
  delays.disable();
  await passed(2 * PERIOD_MS);
  await assertNothingLost(logs, await publisher.stop(), api);
  close();
  // It would drain.
  next.child.kill('SIGKILL');

  const average = CLIENTS / WINDOW_S;
  const ends = perSecond(logs.flatMap((log) => log.ends), begins);
  const returns = perSecond(logs.flatMap(({ opens }) => opens.slice(1)), begins);
  t.diagnostic(`the old process ended ${(drained_ms / 1000).toFixed(1)} s after the window began`);
  t.diagnostic(`on average ${average.toFixed(1)} a second; ended: ${ends.join(' ')}; returned: ${returns.join(' ')}`);
  const waits = logs.map(({ ends, opens }) => opens[1] - ends[0]);
  t.diagnostic(`the longest wait for one's return: ${Math.round(Math.max(...waits))} ms`);
  const margin_ms = MARGIN_MS + delays.max / 1e6;
  t.diagnostic(`this process was late by ${Math.round(delays.max / 1e6)} ms at most`);
  // Nobody was ended twice or refused.
  assert.deepEqual(logs.filter(({ opens, ends, failures }) => opens.length !== 2 || ends.length !== 1 || failures.length > 0), []);
  for (const { kind, opens, ends } of logs) {
    const { retryMax_ms } = KINDS[kind];
    assert.ok(opens[1] - ends[0] <= retryMax_ms + margin_ms, `${kind} has waited for ${opens[1] - ends[0]} ms`);
    assert.ok(opens[1] <= begins + WINDOW_S * 1000 + retryMax_ms + margin_ms, `${kind} is back ${opens[1] - begins} ms after the window began`);
  }
  // The delays of clients are random: for few clients, this alone makes a difference.
  const most = 1.3 * average + (average < 100 ? 3 * Math.sqrt(average) : 0);
  assert.ok(Math.max(...returns) <= most, `at most ${most} clients should return in a second: ${returns.join(' ')}`);
});

test('three nodes behind HAProxy restart one after another', { skip: withoutRedis || missingProxy('haproxy'), timeout: TIMEOUT_MS }, async (t) => {
  const engine = await redis(t);
  const api = await scores(t);
  const addresses = await freePorts(6);
  const at = (n) => `127.0.0.1:${addresses[n]}`;
  const node = (n) => serve(t, {
    config: config(engine, api, 'drain_delay = "1s"\ndrain_window = "2s"'), listen: at(n), admin: at(n + 3), args: ['--cores', '2'], timeout_ms: TIMEOUT_MS,
  });
  const servers = await Promise.all([0, 1, 2].map(node));
  const proxy = await haproxy(t, servers[0], { changes: [
    [`    server stentor1 ${at(0)} check`, ['balance roundrobin', ...[0, 1, 2].map((n) => `server stentor${n} ${at(n)} check inter 200ms`)].map((line) => `    ${line}`).join('\n')],
  ] });
  const { logs, rooms, close } = await everybody(t, proxy.http, 60);
  const publisher = publishing(servers.map((_, n) => () => servers[n].admin), rooms);
  for (let n = 0; n < 3; n++) {
    servers[n].child.kill('SIGTERM');
    assert.equal((await within(servers[n].closed, 'the end of a node'))[0], 0);
    servers[n] = await node(n);
    await until('everybody is back', () => logs.every(({ isOpen }) => isOpen));
    await until('HAProxy uses the node', async () => (await fetch(`${servers[n].http}/readyz`)).ok);
    await passed(500);
  }
  await passed(2 * PERIOD_MS);
  await assertNothingLost(logs, await publisher.stop(), api);
  close();
  servers.forEach(({ child }) => child.kill('SIGKILL'));
  const failures = logs.flatMap(({ kind, failures }) => failures.map((failure) => `${kind}: ${failure}`));
  t.diagnostic(`attempts to connect that failed: ${failures.length} ${failures.slice(0, 5).join('; ')}`);
  // Each client was ended once or more.
  assert.ok(logs.every(({ opens, ends }) => ends.length >= 1 && opens.length === ends.length + 1));
});
