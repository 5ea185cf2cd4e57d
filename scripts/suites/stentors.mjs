// The Stentors of a process that runs the tests of the package socket.io, and mocha's hooks. A Server takes one that runs already, because the tests
// read its port in the turn in which they create it.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { attach } from '../../clients/socketio-server/src/index.js';

/** Stentors that are ready before each test. */
const SPARE = 5;
/** Time after which the Stentor of a closed Server ends: its clients have left, or the Server has begun anew. */
const IDLE_MS = 10_000;

const ready = [];
const children = new Set();
const folder = mkdtempSync(path.join(tmpdir(), 'stentor-suite-'));
const config = path.join(folder, 'stentor.toml');
writeFileSync(config, '[[links]]\napp = "suite"\nhttp = true\n');
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

/** Starts a Stentor. Nothing of it keeps this process alive. */
async function start() {
  const child = spawn(process.env.STENTOR_BIN, ['serve', '--listen', '[::]:0', '--admin', '127.0.0.1:0', '--cores', '1', '--log', 'json', '--config', config]);
  children.add(child);
  const found = (stream, pattern) => new Promise((resolve, reject) => {
    let text = '';
    stream.on('data', (chunk) => {
      if (text === null) return;
      text += chunk;
      const match = pattern.exec(text);
      if (!match) return;
      text = null;
      resolve(Number(match[1]));
    });
    child.once('close', (code) => reject(new Error(`stentor ended with ${code}: ${text}`)));
  });
  const [port, admin] = await Promise.all([found(child.stdout, /^ready http:\S+:(\d+)$/m), found(child.stderr, /"admin":"[^"]+:(\d+)"/)]);
  for (const handle of [child, child.stdin, child.stdout, child.stderr]) handle.unref();
  const end = () => {
    children.delete(child);
    child.kill('SIGKILL');
  };
  ready.push({ port, admin: `ws://127.0.0.1:${admin}`, closed: () => setTimeout(end, IDLE_MS).unref() });
}

async function fill(count) {
  while (ready.length < count) await start();
}

await fill(1);
globalThis.stentors = { attach, take: () => ready.shift() };

export const mochaHooks = {
  beforeEach() {
    this.timeout(60_000);
    return fill(SPARE);
  },
};
