#!/usr/bin/env node
// Runs public test suites against Stentor, and writes their results to docs/conformance.json and into the table of docs/conformance.md.
//
//     scripts/run-suites.mjs [NAME…]     all suites that it can run, or some of them; a suite's name is that in docs/conformance.json
//     scripts/run-suites.mjs --table     writes the table again, from the results
//
// Needs the test server and, for socket.io, stentor (cargo build --workspace --bins --example conformance), git, npm, and what `make test-all` has installed
// (scripts/setup-tests all). Autobahn and the suite of SockJS need Python 2.7 with pip; PYTHON2 names another one than python2.7. Suites are downloaded into
// target/suites. Results of suites that were run by hand stay as they are: docs/conformance.md says why.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const target = path.resolve(root, process.env.CARGO_TARGET_DIR ?? 'target');
const work = path.join(target, 'suites');
const results = path.join(root, 'docs/conformance.json');
const page = path.join(root, 'docs/conformance.md');
const [BEGIN, END] = ['<!-- suites -->\n', '<!-- /suites -->\n'];
/** Attempts after the first one that a test of a suite has. */
const RETRIES = 2;
/** A suite that takes longer hangs. */
const TIMEOUT_MS = 600_000;
const WITHOUT_BLOBS = ['--grep', '/blob/i', '--invert'];

/** The suite of a protocol, in its repository. */
const protocol = (repository, commit) => async () => {
  const folder = checkout(repository, commit);
  const suite = path.join(folder, 'test-suite');
  run('npm', ['ci', '--silent', '--no-audit', '--no-fund'], suite);
  return mocha(suite, suite, 'protocol', [['test-suite.js', 3000]], ['test-suite.js']);
};

/** The tests of a client library, as they are in its repository, with the package as it is published. `others` are the packages that the tests need. */
const client = (name, { version, repository, commit, profile, port, others, args, environment }) => async () => {
  const folder = path.join(work, `${name}-${version}`);
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'package.json'), '{ "private": true }');
  run('npm', ['install', '--silent', '--no-audit', '--no-fund', `${name}@${version}`, 'mocha@10.2.0', 'expect.js@0.3.1', ...others], folder);
  // The tests require the folder above theirs. It isn't in node_modules, where ts-node compiles nothing.
  const copy = path.join(folder, name);
  rmSync(copy, { recursive: true, force: true });
  cpSync(path.join(folder, 'node_modules', name), copy, { recursive: true });
  cpSync(path.join(checkout(repository, commit), 'test'), path.join(copy, 'test'), { recursive: true });
  const files = readdirSync(path.join(copy, 'test'), { recursive: true }).filter((file) => /\.[jt]s$/.test(file)).map((file) => path.join('test', file));
  return mocha(folder, copy, profile, files.map((file) => [file, port]), ['--exit', ...args], environment);
};

/** Runs the mocha that one folder has in another one, against the test server, whose port takes the place of that in the tests' files. */
async function mocha(home, folder, profile, files, args, environment) {
  const server = await fixture(profile);
  try {
    const { port } = new URL(server.address);
    for (const [name, known] of files) {
      const file = path.join(folder, name);
      writeFileSync(file, readFileSync(file, 'utf8').replace(new RegExp(`(localhost:|\\bport: '?)${known}\\b`, 'g'), `$1${port}`));
    }
    const { stdout, stderr } = spawnSync(path.join(home, 'node_modules/.bin/mocha'), ['--reporter', 'json', '--retries', RETRIES, ...args], { cwd: folder, encoding: 'utf8', maxBuffer: 2 ** 26, timeout: TIMEOUT_MS, env: { ...process.env, ...environment } });
    return reported(stdout, stderr);
  } finally {
    server.end();
  }
}

/** The result of a suite in mocha's report. */
function reported(stdout, stderr) {
  const report = stdout.slice(stdout.search(/^\{$/m));
  if (!report.startsWith('{')) throw new Error(`mocha has failed: ${stdout}${stderr}`);
  const { stats, tests, failures } = JSON.parse(report);
  return { total: stats.passes + stats.failures, failed: failures.map(({ fullTitle }) => fullTitle), skipped: stats.pending, retries: tests.filter(({ currentRetry, err }) => currentRetry > 0 && !err.message).length };
}

/** The tests of the package socket.io without those of uWebSockets.js: each of its servers is a worker (suites/socketio-server.cjs). */
async function socketio() {
  const { version, repository, commit, others } = suites['socket.io'];
  const folder = path.join(work, `socket.io-${version}`);
  mkdirSync(folder, { recursive: true });
  // The tests compare this version with the one that is served.
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ private: true, version, main: 'index.cjs' }));
  run('npm', ['install', '--silent', '--no-audit', '--no-fund', `socket.io@${version}`, ...others], folder);
  const own = path.join(root, 'scripts/suites');
  cpSync(path.join(own, 'socketio-server.cjs'), path.join(folder, 'index.cjs'));
  cpSync(path.join(checkout(repository, commit), 'packages/socket.io/test'), path.join(folder, 'test'), { recursive: true });
  const index = path.join(folder, 'test/index.ts');
  writeFileSync(index, readFileSync(index, 'utf8').replace('require("./uws");', ''));
  const stentors = path.join(own, 'stentors.mjs');
  const env = { ...process.env, STENTOR_BIN: path.join(target, 'debug/stentor'), NODE_OPTIONS: `--import=tsx --import=${stentors}` };
  const args = ['node_modules/mocha/bin/mocha.js', '--require', stentors, '--reporter', 'json', '--retries', RETRIES, '--timeout', 10_000, '--exit', 'test/index.ts'];
  const { stdout, stderr } = spawnSync('node', args, { cwd: folder, encoding: 'utf8', maxBuffer: 2 ** 26, timeout: TIMEOUT_MS, env });
  return reported(stdout, stderr);
}

/** Test files of this project that have what suites check. */
const files = (...names) => async () => {
  const { stdout } = spawnSync('node', ['--test', '--test-reporter=tap', '--test-force-exit', ...names], { cwd: path.join(root, 'tests/clients/all'), encoding: 'utf8', maxBuffer: 2 ** 26 });
  const count = (name) => Number(new RegExp(`^# ${name} (\\d+)$`, 'm').exec(stdout)[1]);
  const failed = [...stdout.matchAll(/^ *not ok \d+ - (.*)$/gm)].map(([, name]) => name);
  return { total: count('tests') - count('skipped'), failed, skipped: count('skipped') };
};

/** The fuzzing client of Autobahn. */
async function autobahn() {
  const folder = path.join(work, 'autobahn');
  const python = python2(folder, [`autobahntestsuite==${suites.autobahn.version}`]);
  const server = await fixture('websocket');
  try {
    const reports = path.join(folder, 'reports');
    rmSync(reports, { recursive: true, force: true });
    const specification = { outdir: reports, servers: [{ agent: 'stentor', url: server.address.replace('http', 'ws') }], cases: ['*'], 'exclude-cases': [], 'exclude-agent-cases': {} };
    writeFileSync(path.join(folder, 'fuzzingclient.json'), JSON.stringify(specification));
    const { stderr } = python(['packages/bin/wstest', '--mode', 'fuzzingclient', '--spec', 'fuzzingclient.json']);
    if (!existsSync(path.join(reports, 'index.json'))) throw new Error(`wstest has failed: ${stderr}`);
    const cases = Object.entries(JSON.parse(readFileSync(path.join(reports, 'index.json'), 'utf8')).stentor);
    const has = (...results) => ([, { behavior, behaviorClose }]) => [behavior, behaviorClose].every((result) => results.includes(result));
    const failed = cases.filter((each) => !has('OK', 'INFORMATIONAL')(each)).map(([name]) => name);
    const informational = cases.filter((each) => !has('OK')(each)).length - failed.length;
    return { total: cases.length, failed, note: informational ? `${informational} of them informational` : '' };
  } finally {
    server.end();
  }
}

/** The runnable specification of SockJS. */
async function sockjs() {
  const { repository, version } = suites['sockjs-protocol'];
  const folder = checkout(repository, version);
  const python = python2(folder, readFileSync(path.join(folder, 'requirements.txt'), 'utf8').split('\n').filter(Boolean));
  const server = await fixture('sockjs');
  try {
    const { stderr } = python(['sockjs-protocol.py', '--verbose'], { SOCKJS_URL: server.address });
    const total = Number(/^Ran (\d+) tests/m.exec(stderr)?.[1]);
    const failed = [...stderr.matchAll(/^(?:FAIL|ERROR): (\w+) \(__main__\.(\w+)\)$/gm)].map(([, test, group]) => `${group}.${test}`);
    return { total, failed };
  } finally {
    server.end();
  }
}

/** The suites that this script runs. `version` is that of the suite: of a package, or a commit. `known` has the tests that fail, each with the reason. */
const suites = {
  autobahn: { version: '25.10.1', run: autobahn },
  'engine.io-protocol-4': { version: 'f21de7b00ed09b3bbad2807db718ea5d6bc36aba', repository: 'socketio/engine.io-protocol' },
  'engine.io-protocol-3': { version: '05468d149d1006b3a0e7a66a7681be4356ba2350', repository: 'socketio/engine.io-protocol' },
  'socket.io-protocol-5': { version: '4f633dd6a4445492d57af3b27ddd2d336014f1f1', repository: 'socketio/socket.io-protocol' },
  'engine.io-client-6': clientSuite('engine.io-client', {
    version: '6.6.0', repository: 'socketio/engine.io-client', commit: 'a17cbc5418d3c2d6043b38e8b5d5d19fbefb0c3e', profile: 'engineio-client', port: 3000,
    others: ['blob@0.0.5', '@sinonjs/fake-timers@7.1.2'], args: ['test/index.js'],
  }),
  // Tests of blobs are for browsers. Node has blobs, too, since these versions.
  'engine.io-client-3': clientSuite('engine.io-client', {
    version: '3.5.4', repository: 'socketio/engine.io-client', commit: '50ed08ab32c5aa5c1101b636245a4855709fd000', profile: 'engineio3-client', port: 3000,
    others: ['blob@0.0.4'], args: [...WITHOUT_BLOBS, 'test/index.js'],
  }),
  // The tests of reconnect timeouts replace the timers of the whole process, and leave them replaced if they fail.
  'socket.io-client-4': clientSuite('socket.io-client', {
    version: '4.7.5', repository: 'socketio/socket.io-client', commit: '4f6030f2c4394bc51d63fe27ed3310d95b9e0a74', profile: 'socketio-client', port: 3210,
    others: ['ts-node@10.9.2', 'typescript@4.9.5', 'has-cors@1.1.0', '@sinonjs/fake-timers@7.1.2', 'text-blob-builder@0.0.1', 'base64-arraybuffer@0.1.5'],
    args: ['--grep', '/blob|reconnect timeout/i', '--invert', '--require', 'ts-node/register', '--timeout', '5000', 'test/index.ts'],
    environment: { TS_NODE_TRANSPILE_ONLY: '1', TS_NODE_COMPILER_OPTIONS: '{"module":"commonjs","esModuleInterop":true,"target":"es2019"}' },
  }),
  'socket.io-client-2': clientSuite('socket.io-client', {
    version: '2.5.0', repository: 'socketio/socket.io-client', commit: '2b8e3188b65f9a825da9a9cedb65a9c13acdb299', profile: 'socketio-client', port: 3210,
    others: ['has-cors@1.1.0', 'text-blob-builder@0.0.1', 'base64-arraybuffer@0.1.5'], args: [...WITHOUT_BLOBS, 'test/index.js'],
  }),
  'sockjs-protocol': {
    version: 'fdf5b7d719de6bd74ea4aedd264f01814b4f226d', repository: 'sockjs/sockjs-protocol', run: sockjs,
    known: { 'Websocket.test_haproxy': 'hixie-76, a WebSocket draft that no browser speaks any more' },
  },
  'socket.io': {
    version: '4.8.3', repository: 'socketio/socket.io', commit: '9978574e4f1d4e21593497f94c40053cd0fff359', run: socketio,
    others: ['socket.io-client@4.8.3', 'socket.io-client-v2@npm:socket.io-client@2.5.0', 'mocha@10.8.2', 'tsx@4.20.6', 'superagent@9.0.2', 'supertest@7.3.2', 'expect.js@0.3.1'],
    known: { 'socket.io close should be able to close sio sending a srv': 'the port is that of Stentor, and remains in use' },
  },
  'socket.io-adapters': { version: installed('@socket.io/redis-adapter'), run: files('bridge-suites.test.mjs') },
  'python-socketio-managers': { version: '5', run: files('bridge-python.test.mjs') },
  'python-socketio-servers': { version: '5.12.0, 5.18.1', run: files('link-python.test.mjs') },
};

function clientSuite(name, options) {
  return { version: options.version, run: client(name, options) };
}

function installed(name) {
  return JSON.parse(readFileSync(path.join(root, 'tests/clients/package.json'), 'utf8')).devDependencies[name];
}

function run(command, args, cwd) {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd, encoding: 'utf8', maxBuffer: 2 ** 28 });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} has failed: ${error ?? `${stdout}${stderr}`}`);
}

/** Python 2.7 in a folder, with packages: a function that runs it with arguments and more of the environment. */
function python2(folder, packages) {
  const program = process.env.PYTHON2 ?? 'python2.7';
  mkdirSync(folder, { recursive: true });
  // The folder that `pip install --user` installs into.
  const own = { ...process.env, PYTHONUSERBASE: path.join(folder, 'packages') };
  const python = (args, environment) => spawnSync(program, args, { cwd: folder, encoding: 'utf8', maxBuffer: 2 ** 28, env: { ...own, ...environment } });
  if (!existsSync(own.PYTHONUSERBASE)) {
    const { status, stderr, error } = python(['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--user', ...packages]);
    if (status !== 0) {
      rmSync(own.PYTHONUSERBASE, { recursive: true, force: true });
      throw new Error(`${program} can't install ${packages.join(' ')}: ${error ?? stderr}`);
    }
  }
  return python;
}

/** A repository of GitHub at a commit. */
function checkout(repository, commit) {
  const folder = path.join(work, `${path.basename(repository)}-${commit.slice(0, 8)}`);
  mkdirSync(folder, { recursive: true });
  run('git', ['init', '--quiet'], folder);
  if (spawnSync('git', ['cat-file', '-e', `${commit}^{commit}`], { cwd: folder }).status !== 0) {
    run('git', ['fetch', '--quiet', '--depth', '1', `https://github.com/${repository}`, commit], folder);
  }
  run('git', ['checkout', '--quiet', '--force', '--detach', commit], folder);
  return folder;
}

/** The test server with a profile, on a free port. */
async function fixture(profile) {
  const program = path.join(target, 'debug/examples/conformance');
  if (!existsSync(program)) throw new Error('the test server is missing: cargo build --package stentor-edge --example conformance');
  const child = spawn(program, ['--profile', profile, '--listen', '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(child.stdout, 'data');
  return { address: /^ready (\S+)/.exec(line)[1], end: () => child.kill() };
}

/** The rows of docs/conformance.md. */
export function table(records) {
  const row = (cells) => `| ${cells.join(' | ')} |\n`;
  const result = ({ passed, total, skipped, note }) => [`${passed} of ${total}`, skipped ? `${skipped} skipped by the suite` : '', note].filter(Boolean).join('; ');
  return row(['suite', 'version', 'profile', 'passed', 'retries', 'run']) + `|${'---|'.repeat(6)}\n` + records.map((record) => row([
    record.suite, record.version, record.profile, result(record), record.retries ?? '–', `${record.date}${record.by === 'hand' ? ', by hand' : ''}`,
  ])).join('');
}

/** The page with the table of these results. */
export function rendered(text, records) {
  const [before, rest] = text.split(BEGIN);
  return `${before}${BEGIN}${table(records)}${END}${rest.split(END)[1]}`;
}

async function main(names) {
  /** Writes a suite's record and the table. Reads the others again, because a suite takes minutes. */
  const write = (name, record) => {
    const records = JSON.parse(readFileSync(results, 'utf8'));
    Object.assign(records.find((each) => each.name === name) ?? {}, record);
    writeFileSync(results, `${JSON.stringify(records, null, 2)}\n`);
    writeFileSync(page, rendered(readFileSync(page, 'utf8'), records));
  };
  if (names[0] === '--table') return write();
  const unknown = names.filter((name) => !Object.hasOwn(suites, name));
  if (unknown.length) {
    console.error(`run-suites: no suite is named ${unknown.join(', ')}, only ${Object.keys(suites).join(', ')}`);
    process.exitCode = 2;
    return undefined;
  }
  for (const name of names.length ? names : Object.keys(suites)) {
    const { version, repository, known = {}, run = protocol(repository, version) } = suites[name];
    const { total, failed, skipped = 0, retries = 0, note: remark } = await run();
    if (!total) throw new Error(`${name} has run no test`);
    const failures = [...new Set(failed)].map((test) => (known[test] ? `${test} (${known[test]})` : test)).join(', ');
    const note = [remark, failures && `failed: ${failures}`].filter(Boolean).join('; ');
    const passed = total - failed.length;
    const date = new Date().toISOString().slice(0, 10);
    const record = { version: version.replace(/^([0-9a-f]{8})[0-9a-f]{32}$/, '$1'), passed, total, skipped, retries, by: 'script', date, note };
    write(name, record);
    console.log(`${name}: ${passed} of ${total}, ${skipped} skipped, ${retries} repeated${note && `; ${note}`}`);
    if (failed.some((test) => !known[test])) process.exitCode = 1;
  }
  return undefined;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(process.argv.slice(2));
