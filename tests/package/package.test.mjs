// The packages of scripts/package, as their users install them: the archive, the .deb, the npm tarballs and the container image.
// PACKAGE_OUTPUT names the folder with the packages.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { gunzipSync } from 'node:zlib';
import { fileURLToPath } from 'node:url';
import { logged, serve, temporary } from '../clients/harness.mjs';
import { asRoot, noChroot, run } from './roots.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, '../..');
const output = process.env.PACKAGE_OUTPUT;
assert.ok(output, 'PACKAGE_OUTPUT is not set: run `make test-all`');
const [, version] = /^\[workspace\.package\]\nversion = "(.+)"/m.exec(readFileSync(path.join(root, 'Cargo.toml'), 'utf8'));

/** The one package whose name begins and ends so, or undefined. */
const packaged = (ending, beginning = '') => {
  const found = readdirSync(output).filter((name) => name.startsWith(beginning) && name.endsWith(ending));
  assert.ok(found.length < 2, found.join());
  return found[0] && path.join(output, found[0]);
};
const image = packaged('.oci.tar');

async function isHealthy(server) {
  const response = await fetch(`${server.http}/healthz`);
  assert.deepEqual([response.status, await response.text()], [200, 'ok\n']);
}

/** Fails unless the program runs, with the driver that the ordinary build takes here. */
async function runs(t, command, options) {
  const server = await serve(t, { command, ...options });
  await isHealthy(server);
  const driver = async (server) => (await logged(server, (line) => line.driver, 'its driver')).driver;
  assert.equal(await driver(server), await driver(await serve(t)));
  server.child.kill('SIGTERM');
  assert.equal((await server.closed)[0], 0);
}

/** Fails if a program needs a library of the system, or names a folder of the machine that built it. */
function isSelfContained(program) {
  assert.doesNotMatch(run('readelf', '--program-headers', program), /INTERP/, `${program} is linked dynamically`);
  assert.doesNotMatch(run('readelf', '--dynamic', program), /NEEDED/, `${program} is linked dynamically`);
  const bytes = readFileSync(program);
  for (const folder of [root, process.env.HOME]) assert.ok(folder.length < 4 || !bytes.includes(`${folder}/`), `${program} names ${folder}`);
}

/** Whether a text has the licenses of what is in the binaries, and of nothing else. */
function hasLicenses(text) {
  const [list] = text.split('\n---');
  const locked = new Map([...readFileSync(path.join(root, 'Cargo.lock'), 'utf8').matchAll(/^name = "(.*)"\nversion = "(.*)"$/gm)].map(([, name, version]) => [name, version]));
  const libraries = list.split('\n').slice(3).filter(Boolean).map((line) => /^(\S+) (\S+): (.+)$/.exec(line));
  assert.ok(libraries.length > 100, `${libraries.length} libraries`);
  for (const [line, , , license] of libraries) assert.match(license, /^(see |.*(MIT|Apache-2\.0|BSD|ISC|Zlib|BSL-1\.0|Unicode|CDLA|0BSD|Unlicense))/, line);
  const versions = new Map(libraries.map(([, name, version]) => [name, version]));
  for (const name of ['tokio', 'rustls', 'ring', 'mimalloc', 'hyper', 'clap']) assert.equal(versions.get(name), locked.get(name), name);
  assert.ok(versions.has('uplot'), 'the chart library');
  for (const name of ['proptest', 'rcgen', 'stentor-wire', 'cc']) assert.ok(!versions.has(name), `${name} isn't in the binaries`);
  for (const [, name] of libraries.filter(([, name]) => ['tokio', 'ring', 'libmimalloc-sys'].includes(name))) {
    assert.match(text, new RegExp(`^---+\\n(.+\\n)*${name} \\S+, \\S*(LICENSE|COPYING)`, 'm'), `the text of ${name}`);
  }
  assert.match(text, /Permission is hereby granted, free of charge/);
}

test('the licenses of the libraries', () => hasLicenses(run(path.join(root, 'scripts/third-party-licenses'))));

test('the archive: programs that run, licenses, pages whose links work', async (t) => {
  const at = temporary(t);
  run('tar', '--extract', '--file', packaged('.tar.gz'), '--directory', at);
  const [name, ...others] = readdirSync(at);
  assert.deepEqual([name, others], [`stentor-${version}-linux-${run('uname', '-m').trim()}`, []]);
  const inside = path.join(at, name);
  assert.deepEqual(readdirSync(inside).sort(), ['CHANGELOG.md', 'LICENSE-APACHE', 'LICENSE-MIT', 'README.md', 'THIRD-PARTY-LICENSES', 'clients', 'docs', 'site', 'stentor', 'stentor-lab']);
  assert.match(readFileSync(path.join(inside, 'site/docs/feeds.html'), 'utf8'), /<h1>Feeds/);
  hasLicenses(readFileSync(path.join(inside, 'THIRD-PARTY-LICENSES'), 'utf8'));
  assert.deepEqual(readdirSync(path.join(inside, 'docs/deploy')).sort(), readdirSync(path.join(root, 'docs/deploy')).sort());
  for (const program of ['stentor', 'stentor-lab']) isSelfContained(path.join(inside, program));
  await runs(t, [path.join(inside, 'stentor')]);
  assert.match(run(path.join(inside, 'stentor'), 'lab', 'scenarios'), /echo-25k/);
});

test('the static program resolves names and trusts the certificates of its root file system', { skip: noChroot }, (t) => {
  for (const nsswitch of [[], ['hosts: mymachines resolve [!UNAVAIL=return] files myhostname dns']]) {
    const at = temporary(t);
    run('tar', '--extract', '--file', packaged('.tar.gz'), '--directory', at, '--strip-components=1', '--wildcards', '*/stentor');
    const [command, ...args] = [...(asRoot.length ? asRoot : ['unshare']), '--net', 'python3', path.join(here, 'static.py'), at, '/stentor', ...nsswitch];
    assert.equal(run(command, ...args), 'fetched by name\n');
  }
});

test('the .deb installs, upgrades without touching the configuration, and leaves nothing behind', { skip: noChroot || (spawnSync('dpkg', ['--version']).status !== 0 && 'no dpkg') }, async (t) => {
  const at = temporary(t);
  const deb = packaged('.deb');
  mkdirSync(path.join(at, 'var/lib/dpkg/updates'), { recursive: true });
  mkdirSync(path.join(at, 'var/lib/dpkg/info'));
  writeFileSync(path.join(at, 'var/lib/dpkg/status'), '');
  // Maintainer scripts run with the shell of this system, as there is none in the folder.
  const dpkg = (...args) => {
    const [command, ...all] = [...asRoot, 'dpkg', `--root=${at}`, '--force-script-chrootless', '--force-not-root', `--log=${at}/log`, ...args];
    return run(command, ...all);
  };
  const wanted = path.join(at, 'etc/systemd/system/multi-user.target.wants/stentor.service');
  const isEnabled = () => { try { return readlinkSync(wanted); } catch { return undefined; } };
  const config = path.join(at, 'etc/stentor/stentor.toml');

  dpkg('--install', deb);
  assert.match(run('dpkg-query', `--admindir=${at}/var/lib/dpkg`, '--show', '--showformat=${Status} ${Version}', 'stentor'), new RegExp(`^install ok installed ${version}$`));
  assert.equal(statSync(config).mode & 0o777, 0o640, 'it may contain secrets');
  if (existsSync('/usr/bin/deb-systemd-helper')) assert.match(isEnabled(), /\/lib\/systemd\/system\/stentor\.service$/);
  const unit = path.join(at, 'usr/lib/systemd/system/stentor.service');
  const installed = readFileSync(unit, 'utf8');
  for (const [, program] of installed.matchAll(/^Exec\w+=(\S+)/gm)) assert.ok(program === '/bin/kill' || existsSync(path.join(at, program)), program);
  const original = readFileSync(path.join(root, 'docs/deploy/stentor.service'), 'utf8');
  assert.equal(installed, original.slice(original.indexOf('[Unit]')).replaceAll('/usr/local/bin', '/usr/bin'));

  hasLicenses(gunzipSync(readFileSync(path.join(at, 'usr/share/doc/stentor/THIRD-PARTY-LICENSES.gz'))).toString());

  const program = path.join(at, 'usr/bin/stentor');
  isSelfContained(program);
  const [chroot, ...into] = [...asRoot, 'chroot', at];
  assert.match(run(chroot, ...into, '/usr/bin/stentor', 'check', '/etc/stentor/stentor.toml'), /is valid/);
  await runs(t, [chroot, ...into, '/usr/bin/stentor'], { args: ['--config', '/etc/stentor/stentor.toml'] });

  writeFileSync(config, '# mine\n');
  writeFileSync(path.join(at, 'etc/stentor/environment'), 'STENTOR_SERVER_ADMIN_TOKEN=0123456789abcdef\n');
  dpkg('--force-confold', '--install', deb);
  assert.equal(readFileSync(config, 'utf8'), '# mine\n');
  dpkg('--remove', 'stentor');
  assert.equal(existsSync(program), false);
  assert.equal(readFileSync(config, 'utf8'), '# mine\n', 'a removed package keeps its configuration');
  dpkg('--purge', 'stentor');
  assert.equal(existsSync(path.join(at, 'etc/stentor')), false);
  assert.equal(isEnabled(), undefined);
});

test('the npm tarballs: a package, its licenses, no scripts', { skip: !packaged('.tgz', 'stentor-client') && 'no npm when it was built' }, () => {
  const check = (file, name, dependencies, more) => {
    const names = run('tar', '--list', '--file', file).trim().split('\n');
    for (const wanted of ['package.json', 'index.d.ts', 'README.md', 'LICENSE-MIT', 'LICENSE-APACHE', ...more]) {
      assert.ok(names.includes(`package/${wanted}`), `${wanted} is not in ${names}`);
    }
    const manifest = JSON.parse(run('tar', '--extract', '--to-stdout', '--file', file, 'package/package.json'));
    assert.deepEqual([manifest.name, Object.keys(manifest.dependencies ?? {})], [name, dependencies]);
    for (const script of ['preinstall', 'install', 'postinstall']) assert.equal(manifest.scripts?.[script], undefined);
  };
  check(packaged('.tgz', 'stentor-client'), '@stentor/client', [], ['src/index.js', 'dist/stentor.js', 'react.d.ts', 'store.d.ts', 'shared.d.ts']);
  check(packaged('.tgz', 'stentor-socket.io'), '@stentor/socket.io', ['ws'], ['src/index.js', 'src/link.js']);
  check(packaged('.tgz', 'stentor-backend'), '@stentor/backend', [], ['index.js']);
});

/** The files of an image: { config, files }, with the layers applied to a folder. */
function unpacked(t) {
  const at = temporary(t);
  const layout = path.join(at, 'layout');
  const files = path.join(at, 'files');
  mkdirSync(layout);
  mkdirSync(files);
  run('tar', '--extract', '--file', image, '--directory', layout);
  const json = (file) => JSON.parse(readFileSync(path.join(layout, file), 'utf8'));
  /** The path of a blob, whose name is its digest. */
  const blob = ({ digest }) => {
    const file = `blobs/${digest.replace(':', '/')}`;
    assert.equal(createHash('sha256').update(readFileSync(path.join(layout, file))).digest('hex'), digest.split(':')[1]);
    return file;
  };
  assert.equal(json('oci-layout').imageLayoutVersion, '1.0.0');
  const [entry] = json('index.json').manifests;
  assert.equal(entry.annotations['org.opencontainers.image.ref.name'], version);
  const manifest = json(blob(entry));
  for (const layer of manifest.layers) run('tar', '--extract', '--file', path.join(layout, blob(layer)), '--directory', files);
  return { config: json(blob(manifest.config)), files };
}

test('the image: no root, one program, its ports; it runs on a file system of nothing else', { skip: (!image && 'no image: buildah could not run when it was built') || noChroot }, async (t) => {
  const { config: { os, config }, files } = unpacked(t);
  assert.equal(os, 'linux');
  assert.deepEqual([config.User, config.Entrypoint, config.Cmd, Object.keys(config.ExposedPorts), config.StopSignal], ['65532:65532', ['stentor'], ['serve'], ['8000/tcp'], 'SIGTERM']);
  const all = run('find', files, '-type', 'f', '-printf', '%P %m\\n').trim().split('\n').sort();
  assert.deepEqual(all, ['etc/ssl/certs/ca-certificates.crt 644', 'usr/bin/stentor 755']);
  assert.ok(config.Env.includes('STENTOR_SERVER_LISTEN=0.0.0.0:8000'), 'loopback is not reachable from outside of a container');
  const [directories] = config.Env.filter((line) => line.startsWith('PATH='));
  assert.equal(directories, 'PATH=/usr/bin');

  // As a runtime starts it: its user, its environment, its entry point. Only the ports differ.
  const user = process.getuid() === 0 ? [`--userspec=${config.User}`] : [];
  const command = [...asRoot, 'env', '--ignore-environment', ...config.Env, 'chroot', ...user, files, ...config.Entrypoint];
  // `env` finds chroot in the image's PATH, which is /usr/bin; Debian has it in /usr/sbin.
  command[command.indexOf('chroot')] = run('sh', '-c', 'command -v chroot').trim();
  await runs(t, command);
});

test('the same commit makes the same packages', (t) => {
  const again = temporary(t);
  const { status, stdout, stderr } = spawnSync(path.join(root, 'scripts/package'), { encoding: 'utf8', env: { ...process.env, PACKAGE_OUTPUT: path.join(again, 'package') } });
  assert.equal(status, 0, stdout + stderr);
  const sums = (folder) => readFileSync(path.join(folder, 'SHA256SUMS'), 'utf8');
  assert.equal(sums(path.join(again, 'package')), sums(output));
});
