// Root file systems that have nothing but some programs of this system, and a registry on loopback with the packages of scripts/package.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { temporary, website } from '../clients/harness.mjs';

/** Runs a program, which must succeed; its standard output. */
export function run(command, ...args) {
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 2 ** 26 });
  assert.equal(status, 0, `${command} ${args.join(' ')}: ${error ?? stdout + stderr}`);
  return stdout;
}

export const which = (program) => run('sh', '-c', `command -v ${program}`).trim();

/** Starts to measure: calls give the seconds since. */
export const stopwatch = (began = performance.now()) => () => (performance.now() - began) / 1000;

// As root, or as root of a user namespace.
export const asRoot = process.getuid() === 0 ? [] : ['unshare', '--map-root-user'];
export const noChroot = spawnSync([...asRoot, 'chroot', '/', 'true'][0], [...asRoot, 'chroot', '/', 'true'].slice(1)).status === 0 ? false : 'no chroot without root here';

/** A root file system with a shell, some programs at their paths with their libraries, and folders. `command(…args)` runs a program in it. */
export function emptyRoot(t, programs, folders = []) {
  const root = temporary(t);
  const copy = (from) => cpSync(from, path.join(root, from), { recursive: true, dereference: true, filter: (name) => !/\/(test|idlelib|__pycache__|site-packages|dist-packages)$/.test(name) });
  for (const folder of ['tmp', 'dev', 'home', 'etc']) mkdirSync(path.join(root, folder));
  const elf = programs.map((program) => realpathSync(program));
  const objects = folders.flatMap((folder) => run('find', `${realpathSync(folder)}/`, '-name', '*.so', '-not', '-path', '*/test/*').split('\n').filter(Boolean));
  for (const file of new Set([...elf, ...folders.map((folder) => realpathSync(folder)), ...[which('env'), which('sh')]])) copy(file);
  for (const file of [...elf, ...objects, which('env'), which('sh')]) {
    for (const [, library] of spawnSync('ldd', [file], { encoding: 'utf8' }).stdout.matchAll(/(?:=> |^\s+)(\/\S+)/gm)) copy(library);
  }
  // Where `npx` and scripts look for it.
  if (!readdirSync(root).includes('bin')) symlinkSync('usr/bin', path.join(root, 'bin'));
  run(...asRoot, 'mknod', '-m', '666', path.join(root, 'dev/null'), 'c', '1', '3');
  const PATH = [...new Set([...elf.map((program) => path.dirname(program)), '/usr/bin', '/bin'])].join(':');
  return {
    root,
    command: (...args) => [...asRoot, which('env'), '--ignore-environment', `PATH=${PATH}`, 'HOME=/home', which('chroot'), root, ...args],
  };
}

/** The packages below folders of npm (`node_modules`), with those that packages have for themselves: by name, their folders by version. */
function installed(folders) {
  const found = new Map();
  const read = (folder) => {
    const manifest = path.join(folder, 'package.json');
    if (existsSync(manifest)) {
      const { name, version } = JSON.parse(readFileSync(manifest, 'utf8'));
      if (name && version) found.set(name, (found.get(name) ?? new Map()).set(version, folder));
    }
    walk(path.join(folder, 'node_modules'));
  };
  const walk = (folder) => {
    if (!existsSync(folder)) return;
    for (const name of readdirSync(folder).filter((name) => !name.startsWith('.'))) {
      if (name.startsWith('@')) for (const inner of readdirSync(path.join(folder, name))) read(path.join(folder, name, inner));
      else read(path.join(folder, name));
    }
  };
  folders.forEach(walk);
  return found;
}

/**
 * A registry of npm and PyPI with the packages in a folder, and those of folders of npm: `npm` and `pypi` are the addresses, `bytes` counts what was
 * downloaded.
 */
export async function registry(t, output, version, folders = []) {
  const others = installed(folders);
  const files = readdirSync(output).filter((name) => /\.(tgz|whl)$/.test(name) && !name.startsWith('stentor-helm'));
  const read = (name) => readFileSync(path.join(output, name));
  const manifests = new Map(files.filter((name) => name.endsWith('.tgz')).map((name) => {
    const manifest = JSON.parse(run('tar', '--extract', '--to-stdout', '--file', path.join(output, name), 'package/package.json'));
    return [manifest.name, { manifest, name }];
  }));
  const counted = { bytes: 0 };
  const origin = await website(t, ({ url }, response) => {
    const answer = (type, body) => {
      counted.bytes += body.length;
      response.writeHead(200, { 'Content-Type': type });
      response.end(body);
    };
    const [, kind, name] = /^\/(npm|files|other|simple)\/([^?]*)/.exec(decodeURIComponent(url)) ?? [];
    if (kind === 'files' && files.includes(name)) return answer('application/octet-stream', read(name));
    if (kind === 'npm' && manifests.has(name)) {
      const { manifest, name: file } = manifests.get(name);
      const integrity = `sha512-${createHash('sha512').update(read(file)).digest('base64')}`;
      const dist = { tarball: `${origin}/files/${file}`, integrity };
      return answer('application/json', JSON.stringify({ name, 'dist-tags': { latest: version }, versions: { [version]: { ...manifest, dist } } }));
    }
    if (kind === 'npm' && others.has(name)) {
      const versions = Object.fromEntries([...others.get(name)].map(([version, folder]) => {
        const dist = { tarball: `${origin}/other/${name}@${version}` };
        return [version, { ...JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')), dist }];
      }));
      return answer('application/json', JSON.stringify({ name, 'dist-tags': { latest: Object.keys(versions).at(-1) }, versions }));
    }
    if (kind === 'other') {
      const [, other, version] = /^(.+)@(.+)$/.exec(name);
      const { stdout } = spawnSync('tar', ['--create', '--gzip', '--exclude=./node_modules', '--transform=s,^\\.,package,', '.'], { cwd: others.get(other).get(version), maxBuffer: 2 ** 26 });
      return answer('application/octet-stream', stdout);
    }
    if (kind === 'simple' && name === 'stentor/') {
      return answer('text/html', files.filter((file) => file.endsWith('.whl')).map((file) => `<a href="/files/${file}">${file}</a>`).join('\n'));
    }
    response.writeHead(404).end();
    return undefined;
  });
  return Object.assign(counted, { npm: `${origin}/npm/`, pypi: `${origin}/simple/` });
}
