// `make run` installs the client libraries of the demo page, and starts without them if it can't.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, utimesSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { root, temporary } from './harness.mjs';


/** Copies the script and the list of packages to an empty folder. */
function clone(t) {
  const folder = temporary(t);
  for (const file of ['scripts/install-demo-libraries', 'examples/demo-libraries/package.json', 'examples/demo-libraries/package-lock.json', 'examples/demo-libraries/.npmrc',
    'clients/socketio-server/package.json', 'clients/socketio-server/src']) {
    cpSync(path.join(root, file), path.join(folder, file), { recursive: true });
  }
  return folder;
}

function install(folder, environment) {
  const { status, stdout, stderr } = spawnSync(path.join(folder, 'scripts/install-demo-libraries'), {
    env: { ...process.env, ...environment }, encoding: 'utf8', timeout: 240_000,
  });
  assert.equal(status, 0, stderr);
  assert.equal(stdout, '');
  return stderr;
}

const modules = (folder) => path.join(folder, 'examples/demo-libraries/node_modules');

test('without npm, the demo starts without the libraries and the reason is printed', (t) => {
  const folder = clone(t);
  const programs = path.join(folder, 'bin');
  mkdirSync(programs);
  for (const name of ['sh', 'dirname', 'find']) {
    symlinkSync(spawnSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).stdout.trim(), path.join(programs, name));
  }
  assert.equal(install(folder, { PATH: programs }),
    "The demo starts without Socket.IO and SockJS: their client libraries are installed with npm, and npm isn't installed.\n");
  assert.equal(existsSync(modules(folder)), false);
});

/** Nothing listens on port 1, and npm's cache is empty. */
const offline = (folder) => ({ npm_config_registry: 'http://127.0.0.1:1/', npm_config_cache: path.join(folder, 'cache') });

test('without a network, the demo starts without the libraries and the reason is printed', (t) => {
  const folder = clone(t);
  assert.match(install(folder, offline(folder)), /The demo starts without Socket\.IO and SockJS: npm can't install their client libraries\. For the reason, run `npm ci` in .*\/examples\/demo-libraries\.\n$/);
  assert.equal(existsSync(modules(folder)), false);
});

test('installed libraries are not installed again until the versions change', (t) => {
  const folder = clone(t);
  mkdirSync(modules(folder));
  const lock = path.join(folder, 'examples/demo-libraries/package-lock.json');
  const installed = path.join(modules(folder), '.package-lock.json');
  const later = new Date('2100-01-01');
  // A changed version, or a change of the package that is this project's own.
  for (const changed of [lock, path.join(folder, 'clients/socketio-server/src/index.js')]) {
    mkdirSync(modules(folder), { recursive: true });
    cpSync(lock, installed);
    assert.equal(install(folder, offline(folder)), '');
    utimesSync(changed, later, later);
    assert.match(install(folder, offline(folder)), /^Installing /);
    utimesSync(changed, new Date(0), new Date(0));
  }
});

test('the demo and the tests use the same versions', () => {
  const read = (file) => JSON.parse(readFileSync(path.join(root, file), 'utf8'));
  const tested = read('tests/clients/package.json').devDependencies;
  const { dependencies } = read('examples/demo-libraries/package.json');
  const { '@stentor/socket.io': server, ...published } = dependencies;
  assert.equal(server, 'file:../../clients/socketio-server');
  assert.deepEqual(Object.keys(published), ['socket.io', 'socket.io-client', 'sockjs-client']);
  for (const [name, version] of Object.entries(published)) assert.equal(version, tested[name], name);
});
