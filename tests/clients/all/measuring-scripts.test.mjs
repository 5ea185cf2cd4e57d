// The scripts that measure, and the one that takes screenshots: their arguments, and what they make of recorded reports of valgrind and strace. The part
// `counts` of `make test-all` counts an optimized server.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { missing } from '../browsers.mjs';
import { binary, root, temporary } from '../harness.mjs';

async function run(script, args, environment = {}) {
  const child = spawn(path.join(root, 'scripts', script), args, { env: { ...process.env, ...environment }, stdio: ['ignore', 'pipe', 'pipe'] });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk) => (stdout += chunk));
  child.stderr.on('data', (chunk) => (stderr += chunk));
  const [status] = await once(child, 'close');
  return { status, stdout, stderr };
}

/** Echoes in the two runs of a count: the script divides by their difference. */
const ECHOES = 12_000 - 2_000;
const original = path.join(root, 'scripts/counts.toml');
/** The counts of an echo in the table. */
const [instructions, calls, allocations] = /^\[echo\].*\ninstructions = (\d+)\nsystem_calls = ([\d.]+)\nallocations = ([\d.]+)$/m
  .exec(readFileSync(original, 'utf8'))
  .slice(1)
  .map(Number);
const MORE = Math.round(instructions * 1.024);

/** Programs in place of valgrind and strace: they run the server, and report recorded figures of a run with more echoes and one with fewer. */
function recorder(t) {
  const folder = temporary(t);
  const file = (name) => path.join(folder, name);
  const tool = (name, report) => {
    writeFileSync(file(name), `#!/bin/sh
n=$(cat ${file(name)}.runs)
echo $((n + 1)) >${file(name)}.runs
figures=$(sed -n "$((n % 2 + 1))p" ${file(name)}.figures)
for argument; do case $argument in *=*/report) report=\${argument#*=};; esac; done
while [ "\${1#-}" != "$1" ]; do shift; done
"$@"
printf '${report}' $figures >"$report"
`);
    chmodSync(file(name), 0o755);
  };
  // What the allocator calls for itself isn't counted.
  const callee = (name) => `cfn=${name}\\ncalls=%s 0\\n0 7\\n`;
  tool('valgrind', `events: Ir I1mr D1mr D1mw ILmr DLmr DLmw\\nfn=main\\n0 1\\n${callee('mi_malloc_aligned')}fn=mi_malloc_aligned\\n0 1\\n${callee('mi_theap_malloc_aligned')}fn=other\\n0 1\\n${callee('mi_realloc_aligned')}\\ntotals: %s 1 %s %s 2 %s %s\\n`);
  tool('strace', '%% time     seconds  usecs/call     calls    errors syscall\\n100.00    0.412345           1 %9s        12 total\\n');
  const figures = (name, first, more) => {
    writeFileSync(`${file(name)}.runs`, '0');
    writeFileSync(`${file(name)}.figures`, `${first.map((figure, n) => figure + more[n]).join(' ')}\n${first.join(' ')}\n`);
  };
  return {
    table: file('counts.toml'),
    counts(args, counted = {}) {
      const figure = { instructions, calls, allocations, ...counted };
      const reallocations = 1_000;
      const misses = [6, 1, 0.25, 0.5].map((figure) => figure * ECHOES);
      figures('valgrind', [50_000, 60_000, 400, 123_456_789, 7, 8, 9, 10], [Math.round(figure.allocations * ECHOES) - reallocations, 5 * ECHOES, reallocations, figure.instructions * ECHOES, ...misses]);
      figures('strace', [7_000], [Math.round(figure.calls * ECHOES)]);
      return run('count-instructions', [...args, binary], { PATH: `${folder}:${process.env.PATH}` });
    },
  };
}

test('count-instructions: counts are compared with a table, and written into it', async (t) => {
  const { table, counts } = recorder(t);
  writeFileSync(table, readFileSync(original));
  const check = ['--work', 'echo', '--check', table];
  const same = await counts(check);
  assert.deepEqual([same.status, same.stderr], [0, '']);
  const shown = instructions.toLocaleString('en');
  assert.match(same.stdout, new RegExp(`^echo of 64 bytes +${shown} instructions +${calls.toFixed(2)} calls +${allocations.toFixed(2)} allocations\n$`));
  // The tolerances: 2 % of the instructions, 5 % of the calls, and 0.4 allocations, more or less.
  for (const tolerated of [{ instructions: Math.floor(instructions * 1.019) }, { instructions: Math.ceil(instructions * 0.981) }, { calls: calls * 1.045 }, { allocations: allocations + 0.3 }]) assert.equal((await counts(check, tolerated)).status, 0, JSON.stringify(tolerated));
  const more = await counts(check, { instructions: MORE, calls: calls * 0.825, allocations: allocations + 1 });
  assert.equal(more.status, 1);
  assert.match(more.stderr, new RegExp(`^echo: ${MORE.toLocaleString('en')} instructions instead of ${shown}: \\+2\\.4%, of which 2% are let pass\\necho: [\\d.]+ system calls instead of ${calls}: -17\\.\\d%, of which 5% are let pass\\necho: [\\d.]+ allocations instead of ${allocations}(?:\\.0)?: \\+1\\.00, of which 0\\.4 are let pass\\n`));

  // An update of one work leaves the others.
  assert.equal((await counts(['--work', 'echo', '--update', table], { instructions: MORE })).status, 0);
  const entries = (text) => text.replace(/^#.*\n/gm, '');
  assert.equal(entries(readFileSync(table, 'utf8')), entries(readFileSync(original, 'utf8')).replace(`instructions = ${instructions}`, `instructions = ${MORE}`));
  assert.equal((await counts(check, { instructions: MORE })).status, 0);
});

test('count-instructions: misses of simulated caches are counted', async (t) => {
  const { counts } = recorder(t);
  const { status, stdout, stderr } = await counts(['--caches', '--driver', 'epoll', '--work', 'echo']);
  assert.deepEqual([status, stderr], [0, '']);
  assert.match(stdout, /^echo of 64 bytes +epoll +[\d,]+ +[\d.]+ allocations +7\.000 misses of 32 kB +0\.750 misses of 512 kB\n$/);
});

test('count-instructions: mistakes are named before anything is counted', async (t) => {
  const { table, counts } = recorder(t);
  writeFileSync(table, '[echo]\ninstructions = 1\nsystem_calls = 1\n');
  for (const [args, status, message] of [
    [['--work', 'nothing'], 2, /invalid choice: 'nothing'/],
    [['--check', table, '--update', table], 2, /not allowed with argument/],
    [['--check', `${table}.missing`], 1, /counts\.toml\.missing doesn't exist: write it with --update/],
    [['--check', table, '--work', 'join'], 1, /^not in the table: join\n$/],
    [['--update', table, '--work', 'remote'], 1, /^not in the table: remote\n$/],
  ]) {
    const { status: ended, stdout, stderr } = await counts(args);
    assert.deepEqual([ended, stdout], [status, ''], stderr);
    assert.match(stderr, message);
  }
});

test('measure-link: one short round of each work', async () => {
  const { status, stdout, stderr } = await run('measure-link.mjs', ['--rounds', '1', '--scale', '0.01', binary]);
  assert.equal(status, 0, stderr);
  const lines = stdout.trimEnd().split('\n');
  assert.equal(lines.length, 6, stdout);
  for (const line of lines) assert.match(line, /^\S.* plain +-?\d+\.\d\d (µs|kB) {3}linked +-?\d+\.\d\d \1 \(workers -?\d+\.\d\d\) {3}ratio -?\d+\.\d\d$/);
});

test('measure-link: mistakes are named', async () => {
  for (const [args, message] of [[['--work', 'echo-3'], /no work is named echo-3, only echo-200/], [['--rounds', 'x'], /numbers above 0/], [['--scale', '0'], /numbers above 0/]]) {
    const { status, stderr } = await run('measure-link.mjs', [...args, binary]);
    assert.equal(status, 2, stderr);
    assert.match(stderr, message);
  }
});

test('status-screenshots: both pictures are taken', { skip: missing('Chromium') }, async (t) => {
  const out = temporary(t);
  const { status, stdout, stderr } = await run('status-screenshots.mjs', ['--seconds', '1', '--out', out], { STENTOR_BIN: binary });
  assert.equal(status, 0, stderr);
  assert.match(stdout, /status-desktop\.png: \d+ bytes\n.*status-phone\.png: \d+ bytes\n$/s);
  for (const name of ['status-desktop.png', 'status-phone.png']) assert.ok(statSync(path.join(out, name)).size > 10_000, name);
});
