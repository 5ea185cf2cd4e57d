// Root file systems that have nothing but some programs of this system, and a registry on loopback with the packages of scripts/package.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readdirSync, readFileSync, realpathSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { temporary, website } from '../clients/harness.mjs';

/** Runs a program, which must succeed; its standard output. */
export function run(command, ...args) {
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 2 ** 26 });
  assert.equal(status, 0, `${command} ${args.join(' ')}: ${error ?? stdout + stderr}`);
  return stdout;
}

export const which = (program) => run('sh', '-c', `command -v ${program}`).trim();

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

/** A registry of npm and PyPI with the packages in a folder: `npm` and `pypi` are the addresses, `bytes` counts what was downloaded. */
export async function registry(t, output, version) {
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
    const [, kind, name] = /^\/(npm|files|simple)\/([^?]*)/.exec(decodeURIComponent(url)) ?? [];
    if (kind === 'files' && files.includes(name)) return answer('application/octet-stream', read(name));
    if (kind === 'npm' && manifests.has(name)) {
      const { manifest, name: file } = manifests.get(name);
      const integrity = `sha512-${createHash('sha512').update(read(file)).digest('base64')}`;
      const dist = { tarball: `${origin}/files/${file}`, integrity };
      return answer('application/json', JSON.stringify({ name, 'dist-tags': { latest: version }, versions: { [version]: { ...manifest, dist } } }));
    }
    if (kind === 'simple' && name === 'stentor/') {
      return answer('text/html', files.filter((file) => file.endsWith('.whl')).map((file) => `<a href="/files/${file}">${file}</a>`).join('\n'));
    }
    response.writeHead(404).end();
    return undefined;
  });
  return Object.assign(counted, { npm: `${origin}/npm/`, pypi: `${origin}/simple/` });
}
