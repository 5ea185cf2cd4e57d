// 125 recorded versions of a real document: each client ends with the last one, however it reads.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import WebSocket from 'ws';
import { binary, inbox } from './harness.mjs';

const recorded = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../../shared/data/worldcup-2026');

test('a replayed document arrives at its last version', { skip: !existsSync(recorded) && 'the recorded documents are not here' }, async (t) => {
  const args = ['demo', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--cores', '2', '--replay', recorded, '--speed', '100'];
  const child = spawn(binary, args, { stdio: ['ignore', 'pipe', 'ignore'] });
  const closed = once(child, 'close');
  t.after(async () => { child.kill('SIGTERM'); await closed; });
  const url = await new Promise((resolve, reject) => {
    let stdout = '';
    child.stdout.on('data', (chunk) => {
      const found = /ready http:\/\/(\S+)/.exec((stdout += chunk));
      if (found) resolve(`ws://${found[1]}`);
    });
    child.once('close', (code) => reject(new Error(`the demo ended with ${code}`)));
  });
  const last = JSON.parse(readFileSync(path.join(recorded, readdirSync(recorded).filter((name) => name.endsWith('.json')).sort().at(-1))));
  const clients = Array.from({ length: 20 }, (_, n) => {
    const raw = n % 2 === 0;
    const messages = inbox(new WebSocket(`${url}${raw ? '/ws/replay' : '/ws?feed=replay'}`, { perMessageDeflate: n % 4 < 2 }));
    return { raw, messages };
  });
  await Promise.all(clients.map(async ({ raw, messages }) => {
    for (let offset = 0; ;) {
      const message = await messages.json();
      if (!raw && message.type !== 'snapshot') continue;
      if (!raw) {
        assert.ok(message.offset > offset, 'never an older version after a newer one');
        offset = message.offset;
      }
      const document = raw ? message : message.data;
      try { assert.deepEqual(document, last); return; } catch { /* an earlier version */ }
    }
  }));
});
