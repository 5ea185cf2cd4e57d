// Nodes that die and stop, links that hang, an engine that forgets, under clients of all protocols: chaos/world.mjs. With CHAOS_SEED, another
// course of events; `node chaos/world.mjs` runs for as long as is wanted.
import assert from 'node:assert/strict';
import test from 'node:test';
import { continuous, followed, Order, ordered, timesForgotten } from '../chaos/check.mjs';
import { chaos } from '../chaos/world.mjs';
import { PATIENCE_MS } from '../harness.mjs';
import { missing as withoutNats } from '../nats.mjs';
import { missing as withoutRedis } from '../redis.mjs';

const SECONDS = 15;
const seed = Number(process.env.CHAOS_SEED ?? 1);

const courses = [
  ['rooms without history', { engine: 'redis', room_members: 50 }],
  ['rooms with history', { engine: 'redis', history: true, room_members: 50 }],
  ['an engine that forgets', { engine: 'redis', history: true, loses: true }],
  ['a failover to a replica that lags', { engine: 'sentinel', history: true }],
  ['rooms with history on NATS', { engine: 'nats', history: true }],
];
for (const [n, [what, how]] of courses.entries()) {
  test(`no fault is silent: ${what}`, { skip: how.engine === 'nats' ? withoutNats : withoutRedis }, async () => {
    const { wrong, notes, counts } = await chaos({ ...how, seed: seed + n, seconds: SECONDS, settle_ms: PATIENCE_MS });
    assert.deepEqual(wrong, [], `CHAOS_SEED=${seed}\n${notes.join('\n')}\n${JSON.stringify(counts)}`);
    assert.ok(counts.messages > 100 && counts.versions.every((count) => count > 5), JSON.stringify(counts));
  });
}

// ---- The checker finds what it is for ----

const at = (epoch, offset) => ({ epoch, offset, id: `p:${epoch * 100 + offset}` });

test('the checker finds gaps, repetitions and epochs that nobody announced', () => {
  const check = (log, expected) => assert.equal(continuous(log, 'm').length, expected, JSON.stringify(log));
  check([{ open: null }, at(7, 4), at(7, 5), { open: { epoch: 7, offset: 5 } }, at(7, 6)], 0);
  check([{ open: null }, at(7, 4), at(7, 6)], 1);
  check([{ open: null }, at(7, 4), { gap: true }, at(7, 6)], 0);
  check([{ open: null }, at(7, 4), { gap: true }, at(7, 4)], 1);
  check([{ open: { epoch: 7, offset: 5 } }, at(7, 5)], 1);
  check([{ open: { epoch: 7, offset: 5 } }, at(8, 1)], 1);
  check([{ open: { epoch: 7, offset: 5 } }, { gap: true }, at(8, 1), at(8, 2)], 0);
  check([{ open: null }, at(7, 4), { gap: true }, at(8, 1), { gap: true }, at(7, 5)], 1);
});

test('the checker finds what is out of order, and what clients disagree about', () => {
  assert.deepEqual(ordered(['p:1', 'q:1', 'p:2'], 'm'), []);
  assert.equal(ordered(['p:2', 'p:1'], 'm').length, 1);
  assert.equal(ordered(['p:1', 'p:1'], 'm').length, 1);
  assert.equal(ordered(['p:2', 'p:1', 'p:3'], 'm', new Set(['p:1'])).length, 0);
  assert.equal(ordered(['p:1', 'p:1'], 'm', new Set(['p:1'])).length, 1);
  const order = new Order();
  order.saw(at(7, 1), 'm');
  order.saw(at(7, 1), 'n');
  assert.deepEqual([order.wrong, order.publishers(new Set())], [[], []]);
  order.saw({ ...at(7, 1), id: 'p:9' }, 'n');
  order.saw({ ...at(7, 2), id: 'p:9' }, 'm');
  order.saw({ ...at(7, 3), id: 'p:8' }, 'm');
  assert.deepEqual([order.wrong.length, order.publishers(new Set()).length], [2, 2]);
});

test('a message is in two epochs only if the engine forgot while it was published', () => {
  const forgotten = (publication, deaths) => timesForgotten({ from: 100, to: 200, outcome: 'ok', ...publication }, deaths, 50);
  assert.deepEqual([[99], [100], [200], [201], [120, 150]].map((deaths) => forgotten({}, deaths)), [0, 1, 1, 0, 2]);
  assert.deepEqual([forgotten({ outcome: '503 unavailable' }, [201]), forgotten({ outcome: 'unknown: TimeoutError' }, [201]), forgotten({ outcome: 'unknown: TimeoutError' }, [251])], [0, 1, 0]);
  const once = (id) => (id === 'p:1' ? 1 : 0);
  const repeated = (...seen) => {
    const order = new Order();
    for (const [epoch, offset, id = 'p:1'] of seen) order.saw({ epoch, offset, id }, 'm');
    return order.repeated(once).length + order.wrong.length;
  };
  assert.deepEqual([repeated([7, 47], [8, 4]), repeated([7, 47, 'p:2'], [8, 4, 'p:2']), repeated([7, 47], [8, 4], [9, 1]), repeated([7, 47], [7, 48])], [0, 1, 1, 1]);
  const received = (ids, unsure = []) => ordered(ids, 'm', new Set(unsure), once).length;
  assert.deepEqual([received(['p:1', 'p:1', 'p:2']), received(['p:1', 'p:2', 'p:1']), received(['p:1', 'p:1', 'p:1']), received(['p:2', 'p:2'])], [0, 1, 1, 1]);
  assert.deepEqual([received(['p:1', 'p:2', 'p:1'], ['p:1']), received(['p:1', 'p:1', 'p:1'], ['p:1'])], [0, 1]);
});

test('the checker finds feeds that go back or are broken', () => {
  const log = (...versions) => [{ open: null }, ...versions.map((version) => ({ version, isExact: version !== 13 }))];
  assert.deepEqual(followed(log(1, 2, 2, 5), 'f'), []);
  assert.equal(followed(log(1, 2, 1), 'f').length, 1);
  assert.equal(followed(log(12, 13), 'f').length, 1);
});
