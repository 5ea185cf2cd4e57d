// The results of public suites: docs/conformance.md has the table of docs/conformance.json, both as scripts/run-suites.mjs writes them.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { rendered } from '../../scripts/run-suites.mjs';
import { root } from './harness.mjs';

const read = (name) => readFileSync(path.join(root, name), 'utf8');

test('the table of the page is that of the results', () => {
  const page = read('docs/conformance.md');
  assert.equal(page, rendered(page, JSON.parse(read('docs/conformance.json'))), 'run scripts/run-suites.mjs --table');
});

test('each result has what the table needs, and its profile exists', () => {
  const profiles = read('crates/edge/examples/conformance/main.rs');
  const names = new Set();
  for (const { name, suite, version, profile, passed, total, skipped, retries, by, date, note, ...others } of JSON.parse(read('docs/conformance.json'))) {
    assert.deepEqual(others, {}, name);
    assert.ok(!names.has(name) && names.add(name), `${name} is there twice`);
    for (const text of [suite, version, note]) assert.ok(typeof text === 'string' && !/[|\n]/.test(text), `${name}: ${text}`);
    assert.ok(passed > 0 && passed <= total, `${name}: ${passed} of ${total}`);
    for (const count of [passed, total, skipped, retries ?? 0]) assert.ok(Number.isInteger(count) && count >= 0, `${name}: ${count}`);
    assert.match(by, /^(hand|script)$/, name);
    assert.match(date, /^20\d\d-\d\d-\d\d$/, name);
    const [, example] = /^`(.+)`$/.exec(profile) ?? [];
    assert.ok(example ? profiles.includes(`"${example}"`) : /^\[.+\]\(.+\)$/.test(profile), `${name}: ${profile}`);
  }
});
