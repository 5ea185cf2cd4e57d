// What several nodes cost: fan-out of 1 kB to clients of one node, published at another one, beside a single node and two Socket.IO
// servers with the Redis adapter, alternating, in one run. Prints the CPU time of each process per delivery and per publication, and how long a
// message takes. Needs redis-server and `scripts/setup-tests clients`.
//
//   node lab/cluster/bench.mjs [--stentor FILE] [--clients N] [--publications N] [--pairs N]
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as passed } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const here = path.dirname(fileURLToPath(import.meta.url));
const require = createRequire(new URL('../../tests/clients/package.json', import.meta.url));
const WebSocket = require('ws');

const { values } = parseArgs({ options: {
  stentor: { type: 'string', default: path.join(here, '../../target/release/stentor') },
  clients: { type: 'string', default: '2000' },
  publications: { type: 'string', default: '200' },
  pairs: { type: 'string', default: '3' },
} });
const [CLIENTS, PUBLICATIONS, PAIRS] = [values.clients, values.publications, values.pairs].map(Number);
const TICK_MS = 10;
const TEXT = 'x'.repeat(1000);
const folder = mkdtempSync(path.join(tmpdir(), 'stentor-cluster-bench-'));

const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
const share = (numbers, part) => [...numbers].sort((a, b) => a - b)[Math.min(numbers.length - 1, Math.floor(numbers.length * part))];

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** Starts a program and waits for what `ready` matches on its standard output. */
async function start(command, args, ready) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'ignore'], cwd: folder });
  const ended = once(child, 'close');
  let said = '';
  const found = await new Promise((resolve, reject) => {
    child.stdout.on('data', (chunk) => {
      said += chunk;
      const match = ready.exec(said);
      if (match) resolve(match);
    });
    child.once('close', () => reject(new Error(`${command} ended:\n${said}`)));
    child.once('error', reject);
  });
  const cpu_ms = () => {
    const fields = readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ')[1].split(' ');
    return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
  };
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
  };
  return { found, cpu_ms, stop };
}

async function redis() {
  const port = await freePort();
  const it = await start('redis-server', ['--bind', '127.0.0.1', '--port', `${port}`, '--save', '', '--appendonly', 'no'], /Ready to accept/);
  return { ...it, url: `redis://127.0.0.1:${port}` };
}

async function stentor(engine) {
  const [listen, admin] = [await freePort(), await freePort()];
  const file = path.join(folder, `${listen}.toml`);
  const cluster = engine ? `[cluster]\nengine = "${engine}"\nnode = "${listen}"\nsecret = "only-for-this-measurement"\n` : '';
  writeFileSync(file, `${cluster}[[rules]]\nevent = "join"\njoin = ["all"]\nack = true\n`);
  const it = await start(values.stentor, ['serve', '--config', file, '--cores', '1', '--log', 'json', '--listen', `127.0.0.1:${listen}`, '--admin', `127.0.0.1:${admin}`], /ready (\S+)/);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const publish = (data) => post(`http://127.0.0.1:${admin}/api/v1/publish`, JSON.stringify({ room: 'all', event: 'news', data }), agent);
  return { ...it, url: it.found[1], publish, joins: true };
}

async function socketIo(engine) {
  const it = await start(process.execPath, [path.join(here, 'socketio-node.mjs'), engine], /ready (\S+)/);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  return { ...it, url: it.found[1], publish: (data) => post(it.found[1], JSON.stringify(data), agent), joins: false };
}

async function post(url, body, agent) {
  const request = http.request(url, { method: 'POST', agent, headers: { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) } });
  request.end(body);
  const [response] = await once(request, 'response');
  response.resume();
  await once(response, 'end');
  if (response.statusCode !== 200) throw new Error(`${url}: ${response.statusCode}`);
}

/** Socket.IO clients over WebSocket, the same for all servers. `received(message)` hears of each message. */
async function clients(server, count, received) {
  const url = `${server.url.replace('http', 'ws')}/socket.io/?EIO=4&transport=websocket`;
  const sockets = [];
  while (sockets.length < count) {
    // In groups, so that no backlog overflows.
    const group = Array.from({ length: Math.min(100, count - sockets.length) }, () => new Promise((resolve, reject) => {
      const socket = new WebSocket(url, { perMessageDeflate: false });
      socket.on('error', reject);
      socket.on('message', (bytes) => {
        const text = bytes.toString();
        if (text.startsWith('42')) received(text);
        else if (text.startsWith('0')) socket.send('40');
        else if (text.startsWith('40')) {
          if (!server.joins) return resolve(socket);
          socket.send('420["join"]');
        } else if (text.startsWith('430')) resolve(socket);
        else if (text === '2') socket.send('3');
      });
    }));
    sockets.push(...await Promise.all(group));
  }
  return { end: () => { for (const socket of sockets) socket.terminate(); } };
}

/** Publishes at `entry` to clients of `server`, one after the other. */
async function fanOut(server, entry) {
  let left = 0;
  let all = () => {};
  const crowd = await clients(server, CLIENTS, () => { if (--left === 0) all(); });
  const round = async () => {
    left = CLIENTS;
    const done = new Promise((resolve) => { all = resolve; });
    await entry.publish({ text: TEXT });
    // Before interest has spread, nothing arrives.
    return Promise.race([done.then(() => true), passed(1000, false)]);
  };
  while (!await round());
  for (let n = 0; n < 20; n++) await round();
  const before = [server.cpu_ms(), entry.cpu_ms()];
  for (let n = 0; n < PUBLICATIONS; n++) await round();
  const [delivery, publication] = [server.cpu_ms() - before[0], entry.cpu_ms() - before[1]];
  crowd.end();
  return { delivery_us: (delivery * 1000) / (CLIENTS * PUBLICATIONS), publication_us: (publication * 1000) / PUBLICATIONS };
}

/** Time from a publication at `entry` to a client of `server`, in ms. */
async function latency(server, entry) {
  const times = [];
  let arrived = () => {};
  const crowd = await clients(server, 1, () => arrived());
  for (let n = 0; n < 1100; n++) {
    const arrives = new Promise((resolve) => { arrived = () => resolve(performance.now()); });
    const begun = performance.now();
    entry.publish({ n });
    const at = await Promise.race([arrives, passed(1000)]);
    if (n >= 100 && at) times.push(at - begun);
    await passed(3);
  }
  crowd.end();
  return { p50: share(times, 0.5), p99: share(times, 0.99) };
}

async function main() {
  const engine = await redis();
  const single = await stentor();
  const [a, b] = [await stentor(engine.url), await stentor(engine.url)];
  const [x, y] = [await socketIo(engine.url), await socketIo(engine.url)];
  const cases = { 'one node of Stentor': [single, single], 'two nodes of Stentor': [a, b], 'two nodes of Socket.IO': [x, y] };
  const results = Object.fromEntries(Object.keys(cases).map((name) => [name, []]));
  for (let pair = 0; pair < PAIRS; pair++) {
    for (const [name, [server, entry]] of Object.entries(cases)) results[name].push(await fanOut(server, entry));
  }
  console.log(`1 kB to ${CLIENTS} Socket.IO clients, ${PUBLICATIONS} publications, ${PAIRS} runs each, medians`);
  const cost = (name, what) => median(results[name].map((result) => result[what]));
  for (const name of Object.keys(cases)) {
    const publication = cases[name][0] === cases[name][1] ? '' : `, ${cost(name, 'publication_us').toFixed(0)} us of CPU per publication where it enters`;
    console.log(`${name.padEnd(24)} ${cost(name, 'delivery_us').toFixed(2)} us of CPU per delivery${publication}`);
  }
  const ratio = (one, other) => (cost(one, 'delivery_us') / cost(other, 'delivery_us')).toFixed(2);
  console.log(`two nodes / one node: ${ratio('two nodes of Stentor', 'one node of Stentor')} (at most 1.05)`);
  console.log(`Stentor / Socket.IO:  ${ratio('two nodes of Stentor', 'two nodes of Socket.IO')} (at most 0.45)`);
  for (const [name, [server, entry]] of Object.entries(cases)) {
    const { p50, p99 } = await latency(server, entry);
    console.log(`${name.padEnd(24)} publication to client p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms`);
  }
  for (const it of [single, a, b, x, y, engine]) await it.stop();
}

try {
  await main();
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit(0);
