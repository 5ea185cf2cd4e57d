// A Redis of its own for a test, on a free port, ended with it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as passed } from 'node:timers/promises';
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

/** Starts Redis: { url, port, stop, start, command }. It keeps nothing when it is stopped, unless `keeps`. */
export async function redis(t, { keeps = false } = {}) {
  const args = (port, folder) => ['--port', port, '--bind', '127.0.0.1', '--save', '', '--appendonly', keeps ? 'yes' : 'no', '--appendfsync', 'always', '--dir', folder];
  const { port, start, stop } = await engineServer(t, program, args, 'Ready to accept connections', 'stdout');
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

/** Waits until something is so; nothing tells when. */
export async function until(what, holds, time_ms = 30_000) {
  for (const end = Date.now() + time_ms; !(await holds()); await passed(50)) {
    if (Date.now() > end) throw new Error(`in vain: ${what}`);
  }
}
