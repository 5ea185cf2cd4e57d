// 125 recorded versions of a real document, to 1,000 clients of all protocols: some are cut off 20 times on the way and come
// back with what they have, some read slowly. Each ends with the last version; 40 check at each step that what they have is
// a version that there was, and never an older one after a newer one. What is sent is measured.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import test from 'node:test';
import { Worker } from 'node:worker_threads';
import { binary, root } from '../harness.mjs';
import { MASS, REAL } from '../followers.mjs';

const recorded = path.join(root, '../shared/data/worldcup-2026');
const CLIENTS = 1_000;
/** Those that are libraries which others wrote. */
const OF_LIBRARIES = 198;
const VERIFYING = 40;
const CUTS = 20;
/** The last client begins so long after the first. */
const BEGIN_MS = 2_000;
/** Versions a second. */
const SPEED = 8;

/** The nth client: all protocols, and each in three manners. */
function client(n) {
  const isReal = n < OF_LIBRARIES;
  const protocols = Object.keys(isReal ? REAL : MASS);
  const nth = isReal ? n : n - OF_LIBRARIES;
  const manners = [{}, { cuts: CUTS }, { slow: true }];
  return { protocol: protocols[nth % protocols.length], ...manners[Math.floor(nth / protocols.length) % manners.length], verifies: n < VERIFYING };
}

/** What the followers of a thread came to. */
async function followed(workerData) {
  const worker = new Worker(new URL('../followers-thread.mjs', import.meta.url), { workerData });
  // Fails with what the thread fails with.
  const [told] = await once(worker, 'message');
  await worker.terminate();
  return told;
}

test('a replayed document arrives at its last version', { skip: !existsSync(recorded) && 'the recorded documents are not here' }, async (t) => {
  const args = ['demo', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--cores', '2', '--replay', recorded, '--speed', String(SPEED)];
  const child = spawn(binary, args, { stdio: ['ignore', 'pipe', 'ignore'] });
  const closed = once(child, 'close');
  t.after(async () => { child.kill('SIGTERM'); await closed; });
  const url = await new Promise((resolve, reject) => {
    let stdout = '';
    child.stdout.on('data', (chunk) => {
      const found = /ready (http:\/\/\S+)/.exec((stdout += chunk));
      if (found) resolve(found[1]);
    });
    child.once('close', (code) => reject(new Error(`the demo ended with ${code}`)));
  });
  const names = readdirSync(recorded).filter((name) => name.endsWith('.json')).sort();
  const versions = names.map((name) => readFileSync(path.join(recorded, name), 'utf8'));
  assert.equal(versions.length, 125);
  const clients = Array.from({ length: CLIENTS }, (_, n) => client(n));
  const threads = Math.min(availableParallelism(), 4);
  const told = await Promise.all(Array.from({ length: threads }, (_, thread) => followed({
    url,
    clients: clients.filter((_, n) => n % threads === thread),
    versions,
    begin_ms: BEGIN_MS,
  })));
  const failures = told.flatMap(({ failures }) => failures);
  assert.equal(failures.length, 0, `${failures.length} failed: ${failures[0]}`);
  const ends = told.flatMap(({ ends }) => ends);
  assert.equal(ends.length, CLIENTS);
  for (const { protocol, hasLast, cutsLeft } of ends) {
    assert.ok(hasLast, `${protocol}: not the last version`);
    assert.equal(cutsLeft, 0, `${protocol}: not cut off as often as it should be`);
  }
  const sum = (counts) => counts.reduce((all, count) => all + count, 0);
  const snapshots = sum(told.map(({ sent }) => sent.snapshots));
  const deltas = sum(told.map(({ sent }) => sent.deltas));
  const resumed = sum(ends.map((end) => end.resumed));
  // How many is a matter of how fast this machine is now: who is far behind gets the document.
  assert.ok(deltas > 0, `${deltas} deltas, ${snapshots} snapshots`);
  assert.ok(resumed > 0, 'nobody came back to a delta');
  t.diagnostic(`${CLIENTS} clients: ${snapshots} snapshots, ${deltas} deltas; ${resumed} times a client that came back got a delta`);
});
