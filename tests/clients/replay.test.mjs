// 125 recorded versions of a real document: each client ends with the last one, however it reads, and has at each step a
// version that there was, never an older one after a newer one. What is sent is measured.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import WebSocket from 'ws';
import { applied, binary, inbox } from './harness.mjs';

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
  const names = readdirSync(recorded).filter((name) => name.endsWith('.json')).sort();
  const versions = names.map((name) => JSON.parse(readFileSync(path.join(recorded, name))));
  const last = versions.at(-1);
  const clients = Array.from({ length: 20 }, (_, n) => {
    const raw = n % 2 === 0;
    const messages = inbox(new WebSocket(`${url}${raw ? '/ws/replay' : '/ws?feed=replay'}`, { perMessageDeflate: n % 4 < 2 }));
    return { raw, messages };
  });
  const sent = { snapshots: 0, snapshotBytes: 0, deltas: 0, deltaBytes: 0 };
  await Promise.all(clients.map(async ({ raw, messages }) => {
    let kept = { offset: 0 };
    for (let at = 0; ;) {
      const { data: text } = await messages.next();
      const message = JSON.parse(text);
      if (raw) {
        kept = { data: message };
      } else if (message.type === 'snapshot') {
        assert.ok(message.offset > kept.offset, 'never an older version after a newer one');
        kept = message;
        sent.snapshots += 1;
        sent.snapshotBytes += text.length;
      } else if (message.type === 'delta') {
        assert.deepEqual([message.epoch, message.base], [kept.epoch, kept.offset], 'for the version that it has');
        assert.ok(message.offset > message.base);
        kept = { ...kept, offset: message.offset, data: message.patch.reduce(applied, kept.data) };
        sent.deltas += 1;
        sent.deltaBytes += text.length;
      } else {
        continue;
      }
      const found = versions.findIndex((version, n) => n >= at && isDeepStrictEqual(kept.data, version));
      assert.notEqual(found, -1, 'a version that there was, and no older one');
      at = found;
      if (isDeepStrictEqual(kept.data, last)) return;
    }
  }));
  assert.ok(sent.deltas > sent.snapshots, JSON.stringify(sent));
  t.diagnostic(`${sent.snapshots} snapshots of ${Math.round(sent.snapshotBytes / sent.snapshots)} bytes, ` +
    `${sent.deltas} deltas of ${Math.round(sent.deltaBytes / sent.deltas)} bytes on average`);
});
