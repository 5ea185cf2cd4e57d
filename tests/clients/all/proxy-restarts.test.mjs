// Stentor restarts behind each proxy of docs/deploy. After a takeover, no client has missed a message. While no process listens, each proxy answers with an
// error status: a browser's EventSource gives up then, and all other clients return when the next process listens.
//
// docs/deploys.md has a table of these answers ("Behind a proxy"): it is this file's.
import assert from 'node:assert/strict';
import path from 'node:path';
import test, { after } from 'node:test';
import { EventSource } from 'eventsource';
import { assertNothingLost, config, scores } from '../deploys.mjs';
import { logged, serve, statusOf, temporary, until, within } from '../harness.mjs';
import { KINDS, ofBrowser, start } from '../members.mjs';
import { apache2, caddy, envoy, fastify, freePorts, haproxy, lighttpd, missing, nextjs, nginx, springGateway, varnishd, vite, webpack } from '../proxies.mjs';
import { missing as skip, redis } from '../redis.mjs';

/** The status with which each proxy answers while no process listens. */
const DOWN = new Map([
  [apache2, 503], [caddy, 502], [envoy, 503], [fastify, 500], [haproxy, 503], [lighttpd, 503], [nextjs, 500], [nginx, 502], [springGateway, 500], [varnishd, 503], [vite, 502], [webpack, 504],
]);

const TIMEOUT_MS = 300_000;
/**
 * Within which all clients are back once the next process listens: two health checks of HAProxy (4 s), the longest backoff (7.5 s), the connection timeout of
 * Socket.IO (20 s), which its client waits for if a proxy accepts a WebSocket before it asks the server, and a margin.
 */
const BACK_MS = 45_000;

const folder = temporary({ after });
const [listen, admin] = (await freePorts(2)).map((port) => `127.0.0.1:${port}`);
const engine = skip || await redis({ after });
const api = await scores({ after });
const behind = skip ? [] : await Promise.all([...DOWN.keys()].filter(({ name }) => !missing(name)).map(async (proxy) => ({ proxy, at: await proxy({ after }, { http: `http://${listen}` }) })));

/** Starts a process at the address that the proxies know. */
async function node(t) {
  const server = await serve(t, { config: config(engine, api, `takeover_socket = "${path.join(folder, 'takeover')}"\ndrain_window = "2s"`), listen, admin, args: ['--cores', '2'], timeout_ms: TIMEOUT_MS });
  await logged(server, ({ message }) => message === 'a new process can take over', 'that it can be taken over');
  return server;
}

const named = (logs) => logs.map(({ proxy, kind, failures, gaps }) => `${kind} behind ${proxy} (${[...failures, ...gaps].slice(-3)})`).join(', ');

/** Starts a client of each kind behind each proxy, and waits until all are connected. */
async function everybody(t, kinds, room) {
  await Promise.all(behind.map(({ proxy, at }) => until(`${proxy.name} passes requests on`, async () => await statusOf(at.http, '/stentor.js') === 200)));
  const logs = behind.flatMap(({ proxy, at }) => kinds.map((kind) => Object.assign(start(kind, KINDS[kind].topic === 'feed' ? 'scores' : room, at.http), { proxy: proxy.name })));
  t.after(() => logs.forEach((log) => log.close()));
  await within(Promise.all(logs.map(({ ready }) => ready)), () => `all clients connect, but not ${named(logs.filter(({ isOpen }) => !isOpen))}`);
  return logs;
}

/** Publishes messages to a room, each when those clients that are connected and miss nothing have the one before. `stop` returns the number of the last one. */
function publishing(t, logs, room) {
  const readers = logs.filter(({ kind }) => kind === 'lean WebSocket');
  let n = 0;
  let isOver = false;
  t.after(() => { isOver = true; });
  const publish = async () => {
    if (!readers.every(({ isOpen, numbers }) => !isOpen || (numbers.at(-1) ?? 0) >= n)) return;
    const body = JSON.stringify({ room, event: 'news', data: { n: n + 1 }, idempotency_key: `${room}-${n + 1}` });
    // No connection is kept, since the process at its other end changes. The key makes a repetition harmless.
    const answer = await fetch(`http://${admin}/api/v1/publish`, { method: 'POST', headers: { 'Content-Type': 'application/json', Connection: 'close' }, body }).catch(() => undefined);
    if (answer?.ok) n += 1;
  };
  const running = until('the last message is published', async () => {
    if (!isOver) await publish();
    return isOver;
  });
  return { count: () => n, stop: async () => { isOver = true; await running; return n; } };
}

/** Waits until at least `count` more messages have been published. */
async function more(publisher, count) {
  const least = publisher.count() + count;
  await until(`${least} messages are published`, () => publisher.count() >= least);
}

/** Waits until all clients have returned. */
function back(logs, time_ms) {
  const away = () => logs.filter(({ opens, isOpen }) => !isOpen || opens.length < 2);
  return until(() => `all clients are back, but not ${named(away())}`, () => away().length === 0, time_ms);
}

test('a process takes over: all clients return, also those that connect meanwhile, and have missed nothing', { skip, timeout: TIMEOUT_MS }, async (t) => {
  const old = await node(t);
  const logs = await everybody(t, Object.keys(KINDS), 'takeover');
  const publisher = publishing(t, logs, 'takeover');
  await more(publisher, 5);
  await node(t);
  const kinds = ['socket.io-client by polling', '@stentor/client', 'EventSource'];
  // Proxies have idle connections to the old process, until its window opens: then it disconnects the first client.
  const late = await everybody(t, kinds, 'late');
  await until('a client has been disconnected', () => logs.some(({ isOpen, opens }) => !isOpen || opens.length > 1));
  const later = await everybody(t, kinds, 'later');
  assert.equal(named(later.filter(({ failures }) => failures.length > 0)), '', 'no request of theirs reaches the old process');
  assert.equal((await within(old.closed, 'the end of the old process'))[0], 0);
  await back(logs);
  await until(() => `the late clients stay connected: ${named(late.filter(({ isOpen }) => !isOpen))}`, () => late.every(({ isOpen }) => isOpen));
  await more(publisher, 5);
  await assertNothingLost(logs, await publisher.stop(), api);
  const failures = [...logs, ...late].filter(({ failures }) => failures.length > 0);
  t.diagnostic(`attempts to connect that failed: ${named(failures)}`);
});

test('no process listens for a while: an EventSource gives up, and all other clients return', { skip, timeout: TIMEOUT_MS }, async (t) => {
  const old = await node(t);
  const logs = await everybody(t, Object.keys(KINDS).filter((kind) => kind !== 'EventSource'), 'down');
  const sources = behind.map(({ at }) => new EventSource(`${at.http}/sse/scores`, { fetch: ofBrowser }));
  t.after(() => sources.forEach((source) => source.close()));
  const publisher = publishing(t, logs, 'down');
  await more(publisher, 5);
  old.child.kill('SIGTERM');
  await within(old.closed, 'the end of the old process');
  const statuses = await Promise.all(behind.map(async ({ proxy, at }) => [proxy.name, await statusOf(at.http, '/stentor.js')]));
  assert.deepEqual(statuses, behind.map(({ proxy }) => [proxy.name, DOWN.get(proxy)]));
  await until(() => `each EventSource gives up: ${sources.map(({ readyState }, n) => `${behind[n].proxy.name} ${readyState}`)}`, () => sources.every(({ readyState }) => readyState === EventSource.CLOSED));
  await node(t);
  await back(logs, BACK_MS);
  await more(publisher, 5);
  // Sockets of Socket.IO ended with the process that had them. Rooms are in the engine.
  const resuming = logs.filter(({ kind }) => !kind.startsWith('socket.io'));
  await assertNothingLost(resuming, await publisher.stop(), api);
});
