// A Redis of its own for a test, on a free port, ended with it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
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
  /** Sends one command and returns the answer's text. */
  const command = async (...words) => {
    const socket = net.connect(port, '127.0.0.1');
    socket.write(`*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`);
    const [answer] = await once(socket, 'data');
    socket.destroy();
    return answer.toString();
  };
  return { url: `redis://127.0.0.1:${port}`, port, start, stop, command };
}

/** Waits until something is so; nothing tells when. */
export async function until(what, holds, time_ms = 30_000) {
  for (const end = Date.now() + time_ms; !(await holds()); await passed(50)) {
    if (Date.now() > end) throw new Error(`in vain: ${what}`);
  }
}
