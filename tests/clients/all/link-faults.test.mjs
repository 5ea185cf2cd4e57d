// Random faults of workers, by a seed: chaos/workers.mjs. STENTOR_FAULTS_SEED is another course of events, STENTOR_FAULTS_SECONDS its length for each policy.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chaos } from '../chaos/workers.mjs';

const SECONDS = Number(process.env.STENTOR_FAULTS_SECONDS ?? 20);
const SEED = Number(process.env.STENTOR_FAULTS_SEED ?? 1);

for (const policy of ['disconnect', 'redeliver', 'drop']) {
  test(`workers crash, hang, lose their connection, hand over and join: ${policy}`, async (t) => {
    const notes = [];
    const { wrong, counts } = await chaos({ policy, seed: SEED, seconds: SECONDS, note: (text) => notes.push(text) });
    const { record, log, ...rest } = counts;
    assert.deepEqual(wrong, [], `STENTOR_FAULTS_SEED=${SEED}\n${notes.join('\n')}\n${JSON.stringify(rest)}\n${log?.join('\n')}\n${record?.slice(-4_000)}`);
    assert.ok(counts.events > 200 && counts.sessions_moved > 0 && Object.keys(counts.faults).length > 3, JSON.stringify(rest));
    t.diagnostic(JSON.stringify(rest));
  });
}
