#!/usr/bin/env node
// CPU and memory of Socket.IO server code on Stentor, Stentor and its workers together, beside the same code on plain socket.io.
//
//     scripts/measure-link.mjs [--rounds 5] [--work echo-200,echo-10,broadcast,connect,idle] [--workers 4] [--scale 0.1] [BINARY]
//
// --scale multiplies the numbers of messages, connections and clients: with less than 1, a run shows only that the script works.
// With several workers, plain socket.io has as many processes with its Redis adapter, behind nginx; Redis and nginx count as well.
//
// The binary is target/release/stentor by default. Both servers run beside each other; rounds alternate between them, so that other
// programs of the machine slow both. CPU is user and system time of all threads, without the clients'. Printed are the medians of the
// rounds, and the median of each round's ratio. Needs the packages of tests/clients (npm ci --prefix tests/clients).
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const script = fileURLToPath(import.meta.url);
const root = path.resolve(path.dirname(script), '..');

// The measurements: messages or connections per round, and the clients. `idle` is memory, not CPU.
const WORKS = {
  'echo-200': { title: 'echo of 60 bytes, 200 in flight', clients: 200, active: 200, messages: 20_000 },
  'echo-10': { title: 'echo of 60 bytes, 10 in flight', clients: 10, active: 10, messages: 10_000 },
  'echo-1': { title: 'echo of 60 bytes, 1 in flight', clients: 1, active: 1, messages: 3_000 },
  broadcast: { title: 'broadcast of 1 kB to 1,000, a delivery', clients: 1_000, broadcasts: 50 },
  connect: { title: 'connection: open, join a room, close', connections: 1_000 },
  idle: { title: 'memory of an idle client', connections: 2_000 },
};
const AT_ONCE = 50;
// Programs that end with this one.
const started = [];

async function main() {
  const { values, positionals } = parseArgs({
    options: {
      rounds: { type: 'string', default: '5' },
      work: { type: 'string', default: Object.keys(WORKS).join(',') },
      workers: { type: 'string', default: '1' },
      scale: { type: 'string', default: '1' },
    },
    allowPositionals: true,
  });
  const names = values.work.split(',');
  const unknown = names.filter((name) => !Object.hasOwn(WORKS, name));
  const isPositive = (text) => Number(text) > 0;
  if (unknown.length || ![values.rounds, values.workers, values.scale].every(isPositive)) {
    console.error(`measure-link: ${unknown.length ? `no work is named ${unknown}, only ${Object.keys(WORKS)}` : 'rounds, workers and scale are numbers above 0'}`);
    process.exitCode = 2;
    return;
  }
  const scaled = ({ title, ...counts }) => ({ title, ...Object.fromEntries(Object.entries(counts).map(([name, count]) => [name, Math.ceil(count * Number(values.scale))])) });
  const folder = mkdtempSync(path.join(tmpdir(), 'measure-link-'));
  try {
    const count = Number(values.workers);
    const servers = { plain: await plain(folder, count), linked: await linked(folder, count, positionals[0] ?? path.join(root, 'target/release/stentor')) };
    for (const name of names) {
      const work = scaled(WORKS[name]);
      const measure = name === 'idle' ? memory : cpu;
      const clients = {};
      for (const [server, { port }] of Object.entries(servers)) clients[server] = child('clients', { port });
      for (const one of Object.values(clients)) if (work.clients) await ask(one, { open: work.clients });
      const rounds = [];
      // The first round warms both up.
      for (let round = 0; round <= Number(values.rounds); round++) {
        const figures = {};
        for (const server of round % 2 ? ['plain', 'linked'] : ['linked', 'plain']) {
          figures[server] = await measure(servers[server], clients[server], work);
        }
        if (round) rounds.push(figures);
      }
      for (const one of Object.values(clients)) await end(one);
      const of = (figure) => median(rounds.map(figure));
      const unit = measure === memory ? 'kB' : 'µs';
      console.log(
        `${work.title.padEnd(42)} plain ${of((r) => r.plain.total).toFixed(2).padStart(8)} ${unit}   linked ` +
          `${of((r) => r.linked.total).toFixed(2).padStart(8)} ${unit} (workers ${of((r) => r.linked.nodes).toFixed(2)})   ratio ` +
          of((r) => r.linked.total / r.plain.total).toFixed(2),
      );
    }
  } finally {
    for (const process of started.reverse()) await end(process);
    rmSync(folder, { recursive: true });
  }
}

async function end(process) {
  process.removeAllListeners('exit');
  if (process.exitCode !== null || process.signalCode !== null) return;
  process.kill('SIGKILL');
  await once(process, 'exit');
}

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];

/** Plain socket.io. Several processes share a Redis, and nginx gives each connection to one of them. */
async function plain(folder, count) {
  const redis = count > 1 ? await unused() : undefined;
  const others = redis ? [program('redis-server', ['--port', String(redis), '--bind', '127.0.0.1', '--save', '', '--dir', folder])] : [];
  const nodes = await Promise.all(Array.from({ length: count }, () => child('worker', { redis })));
  const ports = await Promise.all(nodes.map(ready));
  if (!redis) return { port: ports[0], nodes, processes: nodes.map(({ pid }) => pid) };
  const port = await unused();
  writeFileSync(path.join(folder, 'nginx.conf'), nginx(folder, port, ports));
  others.push(program('nginx', ['-c', path.join(folder, 'nginx.conf')]));
  await listens(port);
  return { port, nodes, processes: [...nodes, ...others].map(({ pid }) => pid) };
}

/** One process of nginx, so that its CPU time is one clock. A WebSocket is one request, so any spread of connections is sticky. */
const nginx = (folder, port, ports) => `
daemon off; master_process off; pid ${folder}/nginx.pid; error_log stderr warn;
events { worker_connections 10000; }
http {
  access_log off;
  upstream servers { hash $remote_port; ${ports.map((one) => `server 127.0.0.1:${one};`).join(' ')} }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://servers; proxy_http_version 1.1; proxy_buffering off; proxy_read_timeout 1h;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_set_header Host $host;
    }
  }
}
`;

/** Stentor, and the same code in workers. */
async function linked(folder, count, binary) {
  const config = path.join(folder, 'stentor.toml');
  const [port, admin] = [await unused(), await unused()];
  writeFileSync(config, `[server]\nlisten = "127.0.0.1:${port}"\nadmin = "127.0.0.1:${admin}"\nlog_level = "error"\n[[links]]\napp = "measured"\n`);
  const stentor = program(binary, ['serve', '--config', config, '--cores', '1']);
  await listens(admin);
  const nodes = await Promise.all(Array.from({ length: count }, () => child('worker', { link: `ws://127.0.0.1:${admin}` })));
  await Promise.all(nodes.map(ready));
  return { port, nodes, processes: [...nodes, stentor].map(({ pid }) => pid) };
}

function program(command, args) {
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  started.push(child);
  child.on('exit', (code) => {
    if (code) throw new Error(`${command} ended with ${code}`);
  });
  return child;
}

/** Waits until somebody listens on a port. */
async function listens(port) {
  for (;;) {
    const socket = net.connect(port, '127.0.0.1');
    const isThere = await Promise.race([once(socket, 'connect').then(() => true), once(socket, 'close').then(() => false)]).catch(() => false);
    socket.destroy();
    if (isThere) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function unused() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

function child(role, options) {
  const child = fork(script, [JSON.stringify(options)], { env: { ...process.env, MEASURE_LINK_ROLE: role }, execArgv: ['--expose-gc'] });
  started.push(child);
  return child;
}

const ready = async (node) => (await once(node, 'message'))[0].port;

/** Sends a command to a child. Returns its answer. */
async function ask(to, command) {
  to.send(command);
  return (await once(to, 'message'))[0];
}

/** CPU time per message or connection, in µs. */
async function cpu(server, clients, work) {
  const before = server.processes.map(cpuTime);
  let count = work.messages ?? work.connections;
  if (work.messages) await ask(clients, { echo: work.messages, active: work.active });
  else if (work.connections) await connections(server, clients, count);
  else {
    count = work.broadcasts * work.clients;
    await ask(clients, { expect: count });
    const all = once(clients, 'message');
    await ask(server.nodes[0], { broadcast: work.broadcasts });
    await all;
  }
  const spent = server.processes.map((pid, index) => (cpuTime(pid) - before[index]) / count / 1e3);
  return { nodes: sum(spent.slice(0, server.nodes.length)), total: sum(spent) };
}

const sum = (values) => values.reduce((a, b) => a + b, 0);

/** Waits until the servers' processes have so many clients together. */
async function until({ nodes }, count) {
  while (sum(await Promise.all(nodes.map(async (node) => (await ask(node, {})).clients))) !== count) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Opens and closes connections, until the server has forgotten them. */
async function connections(server, clients, count) {
  await ask(clients, { open: count });
  await until(server, count);
  await ask(clients, { close: true });
  await until(server, 0);
}

/** Resident memory per client that says nothing, in kB. */
async function memory(server, clients, { connections: count }) {
  const resident = async () => {
    await Promise.all(server.nodes.map((node) => ask(node, { collect: true })));
    return server.processes.map((pid) => Number(/^Pss_Anon:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))[1]));
  };
  const before = await resident();
  await ask(clients, { open: count });
  await until(server, count);
  const after = await resident();
  await ask(clients, { close: true });
  await until(server, 0);
  const taken = after.map((bytes, index) => (bytes - before[index]) / count);
  return { nodes: sum(taken.slice(0, server.nodes.length)), total: sum(taken) };
}

/** CPU time of all threads of a process, in ns, by the kernel's scheduler. */
function cpuTime(pid) {
  const tasks = readdirSync(`/proc/${pid}/task`);
  return tasks.reduce((sum, task) => sum + Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]), 0);
}

/** The measured application. */
async function worker({ link, redis }) {
  const require = createRequire(path.join(root, 'tests/clients/package.json'));
  const { Server } = require('socket.io');
  const options = { perMessageDeflate: false, serveClient: false, transports: ['websocket'] };
  const http = createServer();
  const io = link ? new Server(options) : new Server(http, options);
  const attached = link && (await import(path.join(root, 'clients/socketio-server/src/index.js'))).attach(io, link, { app: 'measured' });
  io.on('connection', (socket) => {
    socket.join('room');
    socket.on('ev', (value) => socket.emit('ev', value));
  });
  if (redis) {
    const { createAdapter } = require('@socket.io/redis-adapter');
    const clients = [0, 1].map(() => require('redis').createClient({ url: `redis://127.0.0.1:${redis}` }));
    await Promise.all(clients.map((client) => client.connect()));
    io.adapter(createAdapter(...clients));
  }
  const text = 'x'.repeat(1_000);
  process.on('message', ({ broadcast, collect }) => {
    if (broadcast) for (let i = 0; i < broadcast; i++) io.to('room').emit('ev', text);
    if (collect) for (let i = 0; i < 3; i++) globalThis.gc();
    process.send({ clients: io.of('/').sockets.size });
  });
  if (attached) await attached.listen();
  else await once(http.listen(0, '127.0.0.1'), 'listening');
  process.send({ port: http.address()?.port });
}

/** Socket.IO clients that need little CPU of their own: bytes on sockets. */
async function clients({ port }) {
  const frame = (text) => {
    const payload = Buffer.from(text);
    return Buffer.concat([Buffer.from([0x81, 0x80 | payload.length, 0, 0, 0, 0]), payload]);
  };
  const [CONNECT, PONG, EVENT] = [frame('40'), frame('3'), frame(`42${JSON.stringify(['ev', 'x'.repeat(50)])}`)];
  const REQUEST =
    'GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
    'User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\nAccept-Language: en-US,en;q=0.9\r\n' +
    'Cookie: session=abcdefghijklmnopqrstuvwxyz0123456789\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n';
  const open = [];
  let onEvent = () => {};

  const connect = () => new Promise((resolve, reject) => {
    const socket = net.connect(port, '127.0.0.1').setNoDelay(true);
    let rest = Buffer.alloc(0);
    let upgraded = false;
    socket.on('error', reject);
    socket.on('data', (data) => {
      rest = rest.length ? Buffer.concat([rest, data]) : data;
      if (!upgraded) {
        const end = rest.indexOf('\r\n\r\n');
        if (end < 0) return;
        if (!rest.subarray(0, end).includes('101')) return void reject(new Error(rest.toString()));
        [upgraded, rest] = [true, rest.subarray(end + 4)];
        socket.write(CONNECT);
      }
      let from = 0;
      while (from + 4 <= rest.length) {
        const short = rest[from + 1] < 126;
        const [head, length] = short ? [2, rest[from + 1]] : [4, rest.readUInt16BE(from + 2)];
        if (from + head + length > rest.length) break;
        const kind = rest.toString('latin1', from + head, from + head + Math.min(2, length));
        if (kind === '2') socket.write(PONG);
        else if (kind === '40') resolve(socket);
        else if (kind === '42') onEvent(socket);
        from += head + length;
      }
      rest = Buffer.from(rest.subarray(from));
    });
    socket.write(REQUEST);
  });

  process.on('message', async (command) => {
    let received = 0;
    if (command.open) {
      for (let left = command.open; left > 0; left -= AT_ONCE) {
        open.push(...(await Promise.all(Array.from({ length: Math.min(AT_ONCE, left) }, connect))));
      }
    }
    if (command.close) while (open.length) open.pop().destroy();
    if (command.echo) {
      let sent = 0;
      await new Promise((done) => {
        onEvent = (socket) => {
          received++;
          if (sent < command.echo) (sent++, socket.write(EVENT));
          else if (received === sent) done();
        };
        for (const socket of open.slice(0, command.active)) (sent++, socket.write(EVENT));
      });
    }
    if (command.expect) onEvent = () => ++received === command.expect && process.send({ done: true });
    process.send({ done: true });
  });
}

const roles = { worker, clients };
const role = roles[process.env.MEASURE_LINK_ROLE];
if (role) {
  process.on('disconnect', () => process.exit());
  await role(JSON.parse(process.argv[2]));
} else await main();
