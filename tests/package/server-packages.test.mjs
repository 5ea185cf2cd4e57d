// The server from npm and PyPI, as users install it: from a registry on loopback, into root file systems without Rust. PACKAGE_OUTPUT names the folder with
// the packages, and OTHER_PACKAGE_OUTPUT that for aarch64.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { program, request, root as checkout, temporary } from '../clients/harness.mjs';
import { emptyRoot, noChroot, registry, run, which } from './roots.mjs';

const output = process.env.PACKAGE_OUTPUT;
assert.ok(output, 'PACKAGE_OUTPUT is not set: run `make test-all`');
const other = process.env.OTHER_PACKAGE_OUTPUT;
const [, version] = /^\[workspace\.package\]\nversion = "(.+)"/m.exec(readFileSync(path.join(checkout, 'Cargo.toml'), 'utf8'));
const venv = path.join(checkout, 'tests/package/.venv');
/** What an installation may download: 12 MB, but programs that aren't optimized are larger. */
const DOWNLOAD_BYTES_MAX = process.env.PACKAGE_PROFILE === 'demo' ? 16e6 : 12e6;
const FREE_PORTS = ['--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0'];

/** Starts the demo by a command, and waits for the address that it prints; it must answer there. */
async function showsDemo(t, [command, ...args]) {
  // `npx` passes no signal on: what it has started ends with its group, as in a terminal.
  let group;
  const end = (signal) => { try { process.kill(-group, signal); } catch {} };
  t.after(() => end('SIGKILL'));
  const { child, closed, says } = program(t, command, [...args, 'demo', ...FREE_PORTS], { detached: true });
  group = child.pid;
  const [, address] = await says(/ready (http:\/\/127\.0\.0\.1:\d+)/);
  const { status, text } = await request(address);
  assert.equal(status, 200);
  assert.match(text, /<title>/);
  return { child, closed, end };
}

test('npx from a registry, with nothing but Node: the demo', { skip: noChroot }, async (t) => {
  const served = await registry(t, output, version);
  const npm = path.dirname(path.dirname(run('readlink', '-f', which('npm')).trim()));
  const { command } = emptyRoot(t, [which('node')], [npm]);
  const { closed, end } = await showsDemo(t, command('node', `${npm}/bin/npx-cli.js`, '--yes', '--registry', served.npm, `@stentor/server@${version}`));
  assert.ok(served.bytes < DOWNLOAD_BYTES_MAX, `${served.bytes} bytes`);
  end('SIGINT');
  await closed;
});

test('the npm package of one platform alone, as a file: its program', () => {
  const file = `./stentor-server-linux-${process.arch}-${version}.tgz`;
  const { stdout, stderr } = spawnSync('npx', ['--yes', '--offline', file, '--version'], { cwd: output, encoding: 'utf8' });
  assert.equal(stdout, `stentor ${version}\n`, stderr);
});

/** Installs the npm package, with that of this platform or without. Gives the program's path. */
function installed(t, hasProgram) {
  const folder = temporary(t);
  const extract = (file, name) => {
    const at = path.join(folder, 'node_modules', name);
    mkdirSync(at, { recursive: true });
    run('tar', '--extract', '--strip-components=1', '--directory', at, '--file', path.join(output, file));
    return at;
  };
  const at = extract(`stentor-server-${version}.tgz`, '@stentor/server');
  if (hasProgram) extract(`stentor-server-linux-${process.arch}-${version}.tgz`, `@stentor/server-linux-${process.arch}`);
  return path.join(at, 'bin/stentor.js');
}

test('the npm package passes arguments, exit status and signals', async (t) => {
  const script = installed(t, true);
  const { status, stderr } = spawnSync(script, ['check', '/nowhere.toml'], { encoding: 'utf8' });
  assert.deepEqual([status, /nowhere\.toml/.test(stderr)], [spawnSync(path.join(path.dirname(script), `../../server-linux-${process.arch}/bin/stentor`), ['check', '/nowhere.toml']).status, true], stderr);
  const { child, closed } = await showsDemo(t, [script]);
  child.kill('SIGTERM');
  assert.deepEqual(await closed, [0, null]);
});

test('without a program for the platform, the npm package says what to do', (t) => {
  const script = installed(t, false);
  const { status, stderr } = spawnSync(script, ['demo'], { encoding: 'utf8' });
  assert.deepEqual([status, stderr], [1, `stentor: @stentor/server-linux-${process.arch} ${version} isn't installed. Install @stentor/server again, without --omit=optional and --no-optional.\n`]);
  const other = spawnSync(process.execPath, ['-e', `Object.defineProperty(process, 'platform', { value: 'win32' }); require(${JSON.stringify(script)})`], { encoding: 'utf8' });
  assert.equal(other.status, 1);
  assert.match(other.stderr, /no program for win32-\w+, only linux-x64 and linux-arm64\. .*WSL2/);
});

// Of a release, it names packages of registries instead.
test('the files that README.md installs exist', { skip: process.arch !== 'x64' && 'it names those for x86_64' }, () => {
  const [made, page] = [readdirSync(output), readFileSync(path.join(checkout, 'README.md'), 'utf8')];
  for (const [, name] of page.matchAll(/\.\/target\/package\/([^\s`)]+)/g)) {
    const [begin, end = ''] = name.split('*');
    assert.ok(made.some((file) => file.startsWith(begin) && file.endsWith(end)), name);
  }
});

test('pip from a registry, with nothing but Python: the demo', { skip: noChroot || (!existsSync(venv) && 'run scripts/setup-tests') }, async (t) => {
  const served = await registry(t, output, version);
  const [executable, stdlib, site] = run(`${venv}/bin/python`, '-c', 'import os, pip, sys, sysconfig; print(os.path.realpath(sys.executable), sysconfig.get_paths()["stdlib"], os.path.dirname(os.path.dirname(pip.__file__)))').trim().split(' ');
  const { root, command } = emptyRoot(t, [executable], [stdlib]);
  cpSync(path.join(site, 'pip'), path.join(root, 'home/pip'), { recursive: true });
  const [pip, ...args] = command('env', 'PYTHONPATH=/home', executable, '-m', 'pip', 'install', '--quiet', '--no-cache-dir', '--target', '/home/installed', '--index-url', served.pypi, `stentor==${version}`);
  // Not in step: this process is the registry.
  const { closed, text } = program(t, pip, args);
  assert.deepEqual(await closed, [0, null], text());
  assert.ok(served.bytes < DOWNLOAD_BYTES_MAX, `${served.bytes} bytes`);
  await showsDemo(t, command('/home/installed/bin/stentor'));
});

test('the programs for the other architecture run, emulated', { skip: !other && 'OTHER_PACKAGE_OUTPUT is not set' }, async (t) => {
  const folder = temporary(t);
  const names = ['stentor', 'stentor-lab'];
  const name = `stentor-${version}-linux-aarch64`;
  run('tar', '--extract', '--directory', folder, '--file', path.join(other, `${name}.tar.gz`), ...names.map((file) => `${name}/${file}`));
  const emulator = which('qemu-aarch64-static');
  assert.match(run(emulator, path.join(folder, name, 'stentor-lab'), 'scenarios'), /echo-25k/);
  await showsDemo(t, [emulator, path.join(folder, name, 'stentor')]);
  for (const file of [`stentor_${version}_arm64.deb`, `stentor-${version}-arm64.oci.tar`, `stentor-server-linux-arm64-${version}.tgz`]) assert.ok(existsSync(path.join(other, file)), file);
  assert.match(run('dpkg-deb', '--field', path.join(other, `stentor_${version}_arm64.deb`), 'Architecture'), /^arm64$/m);
});

test('a bill of materials for each program: CycloneDX, with the libraries of the lock file', { skip: !existsSync(venv) && 'run scripts/setup-tests' }, () => {
  const bills = readdirSync(output).filter((name) => name.endsWith('.cdx.json'));
  assert.deepEqual(bills.map((name) => name.split(`-${version}`)[0]), ['stentor', 'stentor-lab']);
  const code = 'import sys; from cyclonedx.schema import SchemaVersion; from cyclonedx.validation.json import JsonStrictValidator; v = JsonStrictValidator(SchemaVersion.V1_6)\nfor f in sys.argv[1:]:\n  e = v.validate_str(open(f).read()); assert not e, (f, e)';
  run(`${venv}/bin/python`, '-c', code, ...bills.map((name) => path.join(output, name)));
  for (const name of bills) {
    const { components } = JSON.parse(readFileSync(path.join(output, name), 'utf8'));
    for (const wanted of ['rustls', 'serde_json', 'libc']) assert.ok(components.some(({ name, hashes }) => name === wanted && hashes[0].content.length === 64), wanted);
  }
});

test('the wheel for servers of python-socketio: a package, its licenses, its dependencies', () => {
  const code = 'import sys, zipfile; wheel = zipfile.ZipFile(sys.argv[1]); print(*wheel.namelist()); print(wheel.read(next(n for n in wheel.namelist() if n.endswith("/METADATA"))).decode())';
  const [names, ...metadata] = run('python3', '-c', code, path.join(output, `stentor_socketio-${version}-py3-none-any.whl`)).split('\n');
  for (const wanted of ['stentor_socketio/__init__.py', 'stentor_socketio/link.py', 'stentor_socketio/py.typed', 'licenses/LICENSE-MIT', 'licenses/LICENSE-APACHE']) assert.ok(names.includes(wanted), `${wanted} is not in ${names}`);
  assert.deepEqual(metadata.filter((line) => line.startsWith('Requires-Dist')), ['Requires-Dist: python-socketio>=5.12,<6', 'Requires-Dist: websockets>=15']);
});

/** A checkout in which `scripts/release` finds what it needs, but whose packages exist already. */
function release(t) {
  const folder = temporary(t);
  const copied = ['Cargo.toml', 'CHANGELOG.md', 'README.md', 'SECURITY.md', 'scripts/release', 'scripts/packaging', 'docs/deploy/helm'];
  for (const name of copied) cpSync(path.join(checkout, name), path.join(folder, name), { recursive: true });
  for (const name of [...readdirSync(path.join(checkout, 'clients')), 'backend/node']) {
    const manifest = path.join('clients', name, 'package.json');
    if (existsSync(path.join(checkout, manifest))) cpSync(path.join(checkout, manifest), path.join(folder, manifest));
  }
  const file = (name) => path.join(folder, name);
  const change = (name, from, to) => writeFileSync(file(name), readFileSync(file(name), 'utf8').replace(from, to));
  writeFileSync(file('scripts/package'), `#!/bin/sh\nmkdir -p "$PACKAGE_OUTPUT"\ncp ${output}/*.tgz ${output}/*.whl "$PACKAGE_OUTPUT"\ncd "$PACKAGE_OUTPUT" && sha256sum -- *.* >SHA256SUMS\n`, { mode: 0o755 });
  const git = (...args) => run('git', '-C', folder, '-c', 'user.name=t', '-c', 'user.email=t@localhost', ...args);
  git('init', '--quiet');
  const commit = () => { git('add', '--all'); git('commit', '--quiet', '--message', 'Commit'); };
  commit();
  run('ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', 'releases', '-f', path.join(folder, '.git/key'));
  const script = (...args) => {
    const { status, stdout, stderr } = spawnSync(file('scripts/release'), args, { encoding: 'utf8' });
    return { status, stdout, stderr };
  };
  return { file, change, commit, script, key: path.join(folder, '.git/key') };
}

test('a release: refused until its version, changelog and README fit; then signed, and verified as users do', async (t) => {
  const { file, change, commit, script, key } = release(t);
  assert.match(script('9.9.9', key).stderr, /Cargo\.toml has version .*set it to 9\.9\.9/);
  assert.match(script(version, key).stderr, /CHANGELOG\.md has no section/);
  change('CHANGELOG.md', '## [Unreleased]', `## ${version}`);
  assert.match(script(version, '/nowhere').stderr, /\/nowhere can't be read/);
  const [, line] = /lacks the public key of .*: write one line, "(releases ssh-ed25519 \S+)"/.exec(script(version, key).stderr);
  writeFileSync(file('release-key.pub'), `${line}\n`);
  assert.match(script(version, key).stderr, /changes that aren't committed/);
  const readme = readFileSync(file('README.md'), 'utf8');
  assert.match(readme, /^npx @stentor\/server demo/m);
  assert.doesNotMatch(readme, /target\/package/);
  commit();
  const { status, stdout, stderr } = script(version, key);
  assert.equal(status, 0, stderr);
  assert.match(stdout, new RegExp(`git tag --sign v${version.replaceAll('.', '\\.')}`));

  // The commands of SECURITY.md, with the key of this test.
  const made = file(`target/release-${version}`);
  cpSync(file('release-key.pub'), path.join(made, 'release-key.pub'));
  const [, commands] = /```sh\n(ssh-keygen -Y verify[\s\S]*?)```/.exec(readFileSync(path.join(checkout, 'SECURITY.md'), 'utf8'));
  const verify = () => spawnSync('sh', ['-e', '-c', commands], { cwd: made, encoding: 'utf8' });
  assert.equal(verify().status, 0, verify().stderr);
  const [some] = readdirSync(made).filter((name) => name.endsWith('.tgz'));
  writeFileSync(path.join(made, some), 'changed');
  assert.notEqual(verify().status, 0, 'a changed file');
});
