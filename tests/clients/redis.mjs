// A Redis of its own for a test, on a free port, ended with it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as passed } from 'node:timers/promises';
import { freePorts } from './proxies.mjs';

const program = (process.env.PATH ?? '').split(':').map((folder) => path.join(folder, 'redis-server')).find(existsSync);

/** Why tests with Redis can't run, or false. */
export const missing = !program && "redis-server isn't installed";

/** Starts Redis: { url, stop, start, command }. It keeps nothing when it ends. */
export async function redis(t) {
  const folder = mkdtempSync(path.join(tmpdir(), 'stentor-redis-'));
  const [port] = await freePorts(1);
  let child;
  let closed;
  const start = async () => {
    child = spawn(program, ['--port', port, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder], { stdio: ['ignore', 'pipe', 'inherit'] });
    closed = once(child, 'close');
    let said = '';
    await new Promise((resolve, reject) => {
      child.stdout.on('data', (chunk) => {
        said += chunk;
        if (said.includes('Ready to accept connections')) resolve();
      });
      closed.then(() => reject(new Error(`redis-server ended:\n${said}`)), reject);
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
