// A deploy of workers under load: PM2 reloads them ten times. No client is disconnected, and every event is handled once, in order.
//
// STENTOR_RELOAD_CLIENTS chooses another number of clients: half of them in JavaScript, the others in Python and Java.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { io } from 'socket.io-client';
import { missing as isMissing, startClient } from '../foreign.mjs';
import { root, serve, temporary, until, ways, within } from '../harness.mjs';
import { missing, pm2 } from '../pm2.mjs';

const CLIENTS = Number(process.env.STENTOR_RELOAD_CLIENTS ?? 200);
/** Clients in other languages, with their share. */
const OTHERS = Object.entries({ 'many clients of python-socketio 5': 0.3, 'many clients of socket.io-client for Java 2.1.1': 0.2 });
/** Numbers of the clients that connect during reloads. */
const FIRST_ARRIVAL = 1_000_000;
const RELOADS = 10;
/** Clients that connect at the same time before the first reload. */
const CONNECTING = 20;
/** Clients that connect during each reload. */
const ARRIVALS = 3;
/** Clients with events in flight at the same time, and events of each. */
const SENDERS = 8;
const BURST = 3;
const TIMEOUT_MS = 600_000;

/** A stock client that counts: it numbers its events, and notes what it is told. */
function client(t, url, number) {
  const kinds = Object.values(ways);
  const socket = io(url, { forceNew: true, ...kinds[number % kinds.length] });
  t.after(() => socket.close());
  const self = { socket, number, sent: 0, counted: [], failures: [], pids: new Set() };
  socket.on('counted', (n) => self.counted.push(n));
  for (const event of ['disconnect', 'connect_error']) socket.on(event, (reason) => self.failures.push(`${event}: ${reason}`));
  self.connected = within(once(socket, 'connect'), `client ${number}`);
  self.burst = async () => {
    const answers = Array.from({ length: BURST }, () => socket.emitWithAck('count', number, self.sent++));
    for (const pid of await within(Promise.all(answers), `the answers for client ${number}`)) self.pids.add(pid);
  };
  return self;
}

/** Lets clients send in turn, so many at a time, until it is told to `stop`. */
function load(clients) {
  let next = 0;
  let isOver = false;
  const send = async () => {
    while (!isOver) await clients[next++ % clients.length].burst();
  };
  const running = Promise.all(Array.from({ length: SENDERS }, send));
  running.catch(() => {});
  return () => {
    isOver = true;
    return running;
  };
}

/** Clients in another language, which send from when they are connected until they are asked for their `results`. */
async function others(t, name, url, first, count) {
  const program = startClient(t, name);
  program.send({ do: 'connect', url, first, count });
  await program.next({ type: 'connected' });
  return async () => {
    program.send({ do: 'stop' });
    return (await program.next({ type: 'result' })).clients;
  };
}

const skip = missing || OTHERS.map(([name]) => isMissing(name)).find(Boolean) || false;

for (const [mode, workers] of [['cluster', 2], ['fork', 1]]) {
  test(`PM2 reloads workers in ${mode} mode, and ${CLIENTS} clients notice nothing`, { skip, timeout: TIMEOUT_MS }, async (t) => {
    const folder = temporary(t);
    const record = path.join(folder, 'record');
    writeFileSync(record, '');
    const stentor = await serve(t, { config: '[[links]]\napp = "count"\n', args: ['--cores', '2'], timeout_ms: TIMEOUT_MS });
    const shell = pm2(t, { cwd: path.join(root, 'tests/clients'), env: { STENTOR: stentor.admin.replace('http', 'ws'), RECORD: record } });
    const ecosystem = path.join(folder, 'ecosystem.config.cjs');
    const app = { name: 'count', script: path.join(root, 'tests/clients/counting-worker.mjs'), exec_mode: mode, instances: workers, wait_ready: true, listen_timeout: 60_000, kill_timeout: 60_000 };
    writeFileSync(ecosystem, `module.exports = ${JSON.stringify({ apps: [app] })}`);
    await shell(`pm2 start ${ecosystem}`);

    const started = [];
    let first = CLIENTS;
    for (const [name, share] of OTHERS) {
      first -= Math.round(CLIENTS * share);
      started.push(others(t, name, stentor.http, first, Math.round(CLIENTS * share)));
    }
    const clients = [];
    while (clients.length < first) {
      const next = Array.from({ length: Math.min(CONNECTING, first - clients.length) }, (_, n) => client(t, stentor.http, clients.length + n));
      await Promise.all(next.map(({ connected }) => connected));
      clients.push(...next);
    }
    const results = await Promise.all(started);
    const stop = load(clients);
    for (let n = 0; n < RELOADS; n++) {
      const reloaded = shell('pm2 reload count');
      const arrivals = Array.from({ length: ARRIVALS }, (_, i) => client(t, stentor.http, FIRST_ARRIVAL + n * ARRIVALS + i));
      await Promise.all(arrivals.map(({ connected }) => connected));
      clients.push(...arrivals);
      await reloaded;
    }
    await stop();
    // Those that came last have sent something, too.
    await Promise.all(clients.map(({ burst }) => burst()));
    await until('each client has all that it is told', () => clients.every(({ counted, sent }) => counted.length >= sent));

    const all = [...clients, ...(await Promise.all(results.map((result) => result()))).flat()];
    assert.deepEqual(all.flatMap(({ number, failures }) => failures.map((failure) => `client ${number}: ${failure}`)), []);
    const handled = new Map(all.map(({ number }) => [number, []]));
    for (const line of readFileSync(record, 'utf8').trim().split('\n')) {
      const [number, n] = line.split(' ').map(Number);
      handled.get(number).push(n);
    }
    for (const { number, sent, counted } of all) {
      const events = Array.from({ length: sent }, (_, n) => n);
      assert.deepEqual(handled.get(number), events, `the events of client ${number}`);
      assert.deepEqual(counted, events, `the messages to client ${number}`);
    }
    const processes = new Set(clients.flatMap(({ pids }) => [...pids]));
    t.diagnostic(`${all.reduce((sum, { sent }) => sum + sent, 0)} events, handled by ${processes.size} processes`);
    assert.ok(processes.size > RELOADS, `${processes.size} processes have handled events`);
  });
}
