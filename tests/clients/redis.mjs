// A Redis of its own for a test, on a free port, ended with it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as passed } from 'node:timers/promises';
import { until } from './harness.mjs';
import { freePorts } from './proxies.mjs';

/** Where a program is, if it is installed. Servers are also where only an administrator's shell looks. */
export const find = (name) => [...(process.env.PATH ?? '').split(':'), '/usr/sbin'].map((folder) => path.join(folder, name)).find(existsSync);

const program = find('redis-server');

/** Why tests with Redis can't run, or false. */
export const missing = !program && "redis-server isn't installed";

/** Starts a server on a free port: { port, stop, start }. `args` are made of the port and a folder; `ready` is what it says on `stream`. */
export async function engineServer(t, program, args, ready, stream) {
  const folder = mkdtempSync(path.join(tmpdir(), 'stentor-engine-'));
  const [port] = await freePorts(1);
  let child;
  let closed;
  const start = async () => {
    child = spawn(program, args(port, folder), { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const output of [child.stdout, child.stderr]) output.resume();
    closed = once(child, 'close');
    let said = '';
    await new Promise((resolve, reject) => {
      child[stream].on('data', (chunk) => {
        said += chunk;
        if (said.includes(ready)) resolve();
      });
      closed.then(() => reject(new Error(`${program} ended:\n${said}`)), reject);
    });
  };
  const stop = async () => {
    child.kill('SIGKILL');
    await closed;
  };
  await start();
  t.after(async () => {
    if (child.exitCode === null && child.signalCode === null) await stop();
    rmSync(folder, { recursive: true, force: true });
  });
  return { port, start, stop };
}

const options = (port, folder, keeps = false) => ['--port', port, '--bind', '127.0.0.1', '--save', '', '--appendonly', keeps ? 'yes' : 'no', '--appendfsync', 'always', '--dir', folder];

/** Starts Redis: { url, port, stop, start, command }. It keeps nothing when it is stopped, unless `keeps`. */
export async function redis(t, { keeps = false } = {}) {
  const { port, start, stop } = await engineServer(t, program, (port, folder) => options(port, folder, keeps), 'Ready to accept connections', 'stdout');
  return { url: `redis://127.0.0.1:${port}`, port, start, stop, command: (...words) => command(port, words) };
}

/** Sends one command and returns the answer's text. */
async function command(port, words) {
  const socket = net.connect(port, '127.0.0.1');
  socket.write(`*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`);
  const [answer] = await once(socket, 'data');
  socket.destroy();
  return answer.toString();
}

/**
 * Starts two servers, of which one is the replica of the other, and a Sentinel that watches them: { url, port, stop, stops, start, command }.
 * `stop` kills the primary while its replica lags; `start` starts it again, as a replica of the other one.
 */
export async function sentinel(t) {
  const servers = [await redis(t), await redis(t)];
  let [primary, replica] = servers;
  const follow = async (one, other) => {
    await one.command('REPLICAOF', '127.0.0.1', `${other.port}`);
    await until('the replica is connected', async () => (await one.command('INFO', 'replication')).includes('master_link_status:up'));
  };
  // Whoever is to be replicated doesn't wait for more replicas.
  for (const { command } of servers) await command('CONFIG', 'SET', 'repl-diskless-sync-delay', '0');
  await follow(replica, primary);
  const args = (port, folder) => {
    const file = path.join(folder, 'sentinel.conf');
    // Longer than the Sentinel needs to connect again: otherwise there are two primaries for a while.
    writeFileSync(file, `port ${port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 ${primary.port} 1\nsentinel down-after-milliseconds main 2000\nsentinel failover-timeout main 3000\n`);
    return [file, '--sentinel'];
  };
  const { port } = await engineServer(t, program, args, '+slave slave', 'stdout');
  const stop = async () => {
    const [unused] = await freePorts(1);
    await replica.command('REPLICAOF', '127.0.0.1', `${unused}`);
    // What is written now is lost.
    await passed(500);
    await primary.stop();
  };
  const start = async () => {
    await until('the replica is the primary', async () => (await command(port, ['SENTINEL', 'get-master-addr-by-name', 'main'])).includes(`${replica.port}`));
    [primary, replica] = [replica, primary];
    await replica.start();
    await replica.command('CONFIG', 'SET', 'repl-diskless-sync-delay', '0');
    await follow(replica, primary);
    await until('the Sentinel knows the replica', async () => /role-reported\r\n\$5\r\nslave/.test(await command(port, ['SENTINEL', 'replicas', 'main'])));
  };
  return { url: `redis+sentinel://127.0.0.1:${port}/main`, port, start, stop, stops: 'the replica lags, and the primary is killed', command: (...words) => primary.command(...words) };
}

const PRIMARIES = 3;
const SLOTS = 16_384;

/**
 * Starts a Redis Cluster of three primaries, each with a replica if `replicates`: { url, nodes, command, ownerOf, moveSlotOf }. `command` asks the
 * first one.
 */
export async function redisCluster(t, { replicates = false } = {}) {
  const nodes = [];
  for (let n = 0; n < (replicates ? 2 : 1) * PRIMARIES; n += 1) {
    const [bus] = await freePorts(1);
    // A server that gets no processor for this long counts as failed. Where none is to fail, that is a minute.
    const args = (port, folder) => [...options(port, folder), '--cluster-enabled', 'yes', '--cluster-port', bus, '--cluster-node-timeout', replicates ? 2_000 : 60_000, '--repl-diskless-sync-delay', 0];
    const { port, stop } = await engineServer(t, program, args, 'Ready to accept connections', 'stdout');
    nodes.push({ port, bus, stop, command: (...words) => command(port, words.map(String)) });
  }
  for (const [n, node] of nodes.entries()) {
    await node.command('CLUSTER', 'SET-CONFIG-EPOCH', n + 1);
    if (n < PRIMARIES) await node.command('CLUSTER', 'ADDSLOTSRANGE', Math.floor((n * SLOTS) / PRIMARIES), Math.floor(((n + 1) * SLOTS) / PRIMARIES) - 1);
    await nodes[0].command('CLUSTER', 'MEET', '127.0.0.1', node.port, node.bus);
  }
  for (const node of nodes) node.id = (await node.command('CLUSTER', 'MYID')).split('\r\n')[1];
  const all = async (what, of, holds) => until(what, async () => (await Promise.all(of.map(holds))).every(Boolean));
  await all('the nodes know each other', nodes, async (node) => (await node.command('CLUSTER', 'INFO')).includes(`cluster_known_nodes:${nodes.length}\r`));
  for (const [n, replica] of nodes.entries()) {
    if (n >= PRIMARIES) await until('the replica has a primary', async () => (await replica.command('CLUSTER', 'REPLICATE', nodes[n - PRIMARIES].id)).startsWith('+OK'));
  }
  await all('the replicas are connected', nodes.slice(PRIMARIES), async (node) => (await node.command('INFO', 'replication')).includes('master_link_status:up'));
  await all('the cluster is up', nodes, async (node) => (await node.command('CLUSTER', 'INFO')).includes('cluster_state:ok'));
  // A message is lost on its way to a node to which there is no link.
  await all('the nodes are linked', nodes, async (node) => !/handshake|disconnected/.test(await node.command('CLUSTER', 'NODES')));
  const slotOf = async (channel) => Number((await nodes[0].command('CLUSTER', 'KEYSLOT', channel)).slice(1));
  // As each primary says of itself.
  const ownerOf = async (channel) => {
    const slot = await slotOf(channel);
    for (const node of nodes.slice(0, PRIMARIES)) {
      const [own] = (await node.command('CLUSTER', 'NODES')).split('\n').filter((line) => line.includes('myself'));
      const ranges = own.trim().split(' ').slice(8).filter((range) => !range.startsWith('[')).map((range) => range.split('-').map(Number));
      if (ranges.some(([first, last = first]) => first <= slot && slot <= last)) return node;
    }
    throw new Error(`nobody has the slot of ${channel}`);
  };
  /** Moves the slot of a channel to another primary. */
  const moveSlotOf = async (channel) => {
    const [slot, from] = [await slotOf(channel), await ownerOf(channel)];
    const to = nodes[(nodes.indexOf(from) + 1) % PRIMARIES];
    await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', from.id);
    await from.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', to.id);
    // The one that gets it first, as the tools do.
    for (const node of [to, ...nodes.slice(0, PRIMARIES).filter((node) => node !== to)]) await node.command('CLUSTER', 'SETSLOT', slot, 'NODE', to.id);
    return to;
  };
  const url = `redis+cluster://${nodes.slice(0, PRIMARIES).map(({ port }) => `127.0.0.1:${port}`).join(',')}`;
  return { url, nodes, command: nodes[0].command, ownerOf, moveSlotOf };
}
