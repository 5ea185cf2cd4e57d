// nginx and HAProxy in front of a server, with the files of docs/deploy: addresses, ports and certificates replaced.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { certificate } from './certificates.mjs';
import { root, until } from './harness.mjs';

export const deploy = path.join(root, 'docs/deploy');

// Debian puts them where only root's PATH leads.
const program = (name) => [...(process.env.PATH ?? '').split(':'), '/usr/sbin', '/usr/local/sbin'].map((folder) => path.join(folder, name)).find(existsSync);
const programs = { nginx: program('nginx'), haproxy: program('haproxy') };

/** Why a proxy's tests can't run, or false. */
export const missing = (name) => !programs[name] && `${name} isn't installed`;

/** The text with each change made; one that changes nothing is a mistake. */
function changed(text, changes) {
  for (const [from, to] of changes) {
    assert.ok(text.includes(from), `the file of docs/deploy has no longer: ${from}`);
    text = text.replaceAll(from, to);
  }
  return text;
}

// Programs of the tests run side by side, and a port is taken only later, by a server that starts: a file says whose it is meanwhile.
// crates/cluster/tests/contract/ports.rs does the same.
const [FIRST_PORT, PORTS] = [10_000, 20_000];
const claims = path.join(tmpdir(), 'stentor-test-ports');
let next = Math.floor(Math.random() * PORTS);

/** Whether a port is now this process's. One of a process that has ended is for the next that asks. */
function claim(port) {
  const file = path.join(claims, `${port}`);
  mkdirSync(claims, { recursive: true });
  try {
    writeFileSync(file, `${process.pid}`, { flag: 'wx' });
    return true;
  } catch {
    try {
      if (!existsSync(`/proc/${readFileSync(file, 'utf8')}`)) unlinkSync(file);
    } catch {
      // Somebody else has removed it.
    }
    return false;
  }
}

/** Free ports that no other test is given. The kernel gives none of them to an outgoing connection: it takes those from 32,768 on (ip(7)). */
export async function freePorts(count) {
  const ports = [];
  while (ports.length < count) {
    next = (next + 1) % PORTS;
    if (!claim(FIRST_PORT + next)) continue;
    const server = net.createServer().listen(FIRST_PORT + next, '127.0.0.1');
    if (!(await once(server, 'listening').catch(() => false))) continue;
    ports.push(server.address().port);
    server.close();
    await once(server, 'close');
  }
  return ports;
}

/** A certificate for localhost: { key, certificate, both }, names of files. */
function certificates(folder) {
  const files = certificate(folder);
  const both = path.join(folder, 'both.pem');
  writeFileSync(both, readFileSync(files.certificate, 'utf8') + readFileSync(files.key, 'utf8'));
  return { ...files, both };
}

/** Runs a proxy until the tests end, once its ports accept connections. */
async function start(t, name, args, folder, ports) {
  const child = spawn(programs[name], args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (said += chunk));
  let ended = false;
  const closed = once(child, 'close').then(() => { ended = true; });
  t.after(async () => {
    child.kill('SIGTERM');
    await closed;
    rmSync(folder, { recursive: true, force: true });
  });
  for (const port of ports) {
    // Neither says when it is ready.
    await until(() => `${name} listens:\n${said}`, async () => {
      assert.ok(!ended, `${name} doesn't start:\n${said}`);
      const socket = net.connect(port, '127.0.0.1');
      const connected = await new Promise((resolve) => { socket.once('connect', () => resolve(true)); socket.once('error', () => resolve(false)); });
      socket.destroy();
      return connected;
    });
  }
  const [plain, tls] = ports;
  return { http: `http://127.0.0.1:${plain}`, ws: `ws://127.0.0.1:${plain}`, https: `https://localhost:${tls}`, wss: `wss://localhost:${tls}`, said: () => said };
}

/** nginx in front of a server. `whole` replaces the file of docs/deploy; `changes` are made in it. */
export async function nginx(t, server, { changes = [], whole } = {}) {
  const folder = mkdtempSync(path.join(tmpdir(), 'stentor-nginx-'));
  const ports = await freePorts(whole ? 1 : 2);
  const upstream = server.http.replace('http://', '');
  const files = certificates(folder);
  const site = whole?.({ upstream, port: ports[0] }) ?? changed(readFileSync(path.join(deploy, 'nginx.conf'), 'utf8'), [
    ['127.0.0.1:8000', upstream],
    ['listen 80;', `listen 127.0.0.1:${ports[0]};`],
    ['listen 443 ssl http2;', `listen 127.0.0.1:${ports[1]} ssl http2;`],
    ['/etc/ssl/example.com.crt', files.certificate],
    ['/etc/ssl/example.com.key', files.key],
    ...changes,
  ]);
  writeFileSync(path.join(folder, 'site.conf'), site);
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((kind) => `${kind}_temp_path ${folder}/${kind};`);
  const main = `
    daemon off;
    ${process.getuid() === 0 ? 'user root;' : ''}
    worker_processes 2;
    pid ${folder}/pid;
    error_log stderr warn;
    events { worker_connections 2048; }
    http { access_log off; ${paths.join(' ')} include ${folder}/site.conf; }`;
  writeFileSync(path.join(folder, 'nginx.conf'), main);
  return { ...await start(t, 'nginx', ['-p', folder, '-e', 'stderr', '-c', path.join(folder, 'nginx.conf')], folder, ports), certificate: files.certificate };
}

/** HAProxy in front of a server. */
export async function haproxy(t, server, { changes = [] } = {}) {
  const folder = mkdtempSync(path.join(tmpdir(), 'stentor-haproxy-'));
  const ports = await freePorts(2);
  const files = certificates(folder);
  const config = changed(readFileSync(path.join(deploy, 'haproxy.cfg'), 'utf8'), [
    ['127.0.0.1:8000', server.http.replace('http://', '')],
    ['bind :80\n', `bind 127.0.0.1:${ports[0]}\n`],
    ['bind :443 ', `bind 127.0.0.1:${ports[1]} `],
    ['/etc/haproxy/example.com.pem', files.both],
    // Of the descriptors that a test has.
    ['maxconn 100000', 'maxconn 4000'],
    ...changes,
  ]);
  writeFileSync(path.join(folder, 'haproxy.cfg'), config);
  return { ...await start(t, 'haproxy', ['-db', '-f', path.join(folder, 'haproxy.cfg')], folder, ports), certificate: files.certificate };
}
