// @stentor/client as it is shipped: the build for script tags, the types, the examples of its README.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { feedsFrom, serve, upstream } from './harness.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const library = path.resolve(here, '../../clients/js');
const skip = !existsSync(path.join(library, 'node_modules')) && 'run scripts/setup-tests';

const node = (cwd, ...args) => new Promise((resolve) => {
  execFile(process.execPath, args, { cwd, timeout: 250_000 }, (error, stdout, stderr) => resolve({ status: error ? error.code ?? error.signal : 0, output: stdout + stderr }));
});

/** A folder in which `@stentor/client` and what the tests use can be imported. */
function project(t) {
  const folder = mkdtempSync(path.join(here, '.project-'));
  t.after(() => rmSync(folder, { recursive: true }));
  mkdirSync(path.join(folder, 'node_modules/@stentor'), { recursive: true });
  symlinkSync(library, path.join(folder, 'node_modules/@stentor/client'));
  return folder;
}

test('the build that is checked in is what its sources make, and small', { skip }, async () => {
  const { status, output } = await node(library, 'build.mjs', '--check');
  assert.equal(status, 0, output);
});

test('the server has it at /stentor.js', async (t) => {
  const server = await serve(t);
  const response = await fetch(`${server.http}/stentor.js`);
  assert.equal(response.headers.get('content-type'), 'text/javascript; charset=utf-8');
  assert.equal(await response.text(), readFileSync(path.join(library, 'dist/stentor.js'), 'utf8'));
});

test('nothing is needed at run time', () => {
  assert.equal(JSON.parse(readFileSync(path.join(library, 'package.json'))).dependencies, undefined);
});

test('the types fit what people write, and refuse what they should not', { skip }, async (t) => {
  const folder = project(t);
  const check = async (source, expect) => {
    writeFileSync(path.join(folder, 'use.ts'), source);
    const options = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'nodenext', '--lib', 'es2022,dom', 'use.ts'];
    const { status, output } = await node(folder, path.join(library, 'node_modules/typescript/bin/tsc'), ...options);
    assert.equal(status === 0, output === '', `${status}: ${output}`);
    assert.match(output, expect, source);
  };
  await check(`
    import { connect, applyPatch, StentorError, type Change, type Transport } from '@stentor/client';
    interface Score { home: number; away: number }
    const transport: Transport[] = ['websocket', 'sse', 'polling'];
    const stentor = connect('https://live.example.com', { transport, backoff: { initialMs: 100 } });
    const feed = stentor.feed<Score>('scores/8', { rate: 2 });
    const off = feed.on('change', (score, change: Change) => {
      const goals: number = score.home + score.away;
      if (change.kind === 'delta') for (const { op, path } of change.patch) console.log(op, path, goals);
    });
    feed.on('state', (state, reason) => { if (state === 'not_found') console.log(reason.length); });
    stentor.on('state', (state, { retryMs }) => { if (state === 'waiting') console.log(retryMs); });
    stentor.publish('lobby', { text: 'hello' }, 'said').catch((error: StentorError) => console.log(error.code));
    stentor.room<{ text: string }>('lobby').on('message', ({ text }, { event }) => console.log(text, event));
    stentor.use('socket.io');
    off();
    feed.close();
    console.log(applyPatch({ a: 1 }, [{ op: 'remove', path: '/a' }]));
  `, /^$/);
  await check(`import { connect } from '@stentor/client'; connect('x', { transport: 'pigeon' });`, /TS2322/);
  await check(`import { connect } from '@stentor/client'; connect().feed('x').document = 1;`, /TS2540/);
});

test('the examples of the README run', async (t) => {
  const examples = [...readFileSync(path.join(library, 'README.md'), 'utf8').matchAll(/^```js\n(.*?)^```/gms)].map(([, text]) => text);
  assert.ok(examples.length >= 3, `${examples.length} examples`);
  const api = await upstream(t);
  let minute = 0;
  api.documents.set('scores/8/live', (_, response) => {
    response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify({ score: [1, 0], minute: ++minute, text: 'long enough for a change to be shorter'.repeat(9) }));
  });
  const server = await serve(t, { config: `${feedsFrom(api.url)}\n[rooms]\npublish = true\n` });
  const folder = project(t);
  for (const example of examples) {
    const file = path.join(folder, 'example.mjs');
    writeFileSync(file, example.replaceAll('http://127.0.0.1:8000', server.http));
    const { status, output } = await node(folder, file);
    assert.equal(status, 0, `${example}\n${output}`);
    // What an example says that it prints, in comments.
    for (const [, printed] of example.matchAll(/\/\/ → (.*)/g)) assert.ok(output.includes(printed), `${example}\n${output}`);
  }
});
