// Proxies in front of a server, with the files of docs/deploy: addresses, ports and certificates replaced.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { certificate } from './certificates.mjs';
import { root, until } from './harness.mjs';

export const deploy = path.join(root, 'docs/deploy');

// Debian puts them where only root's PATH leads.
const program = (name) => [...(process.env.PATH ?? '').split(':'), '/usr/sbin', '/usr/local/sbin'].map((folder) => path.join(folder, name)).find(existsSync);
/** What scripts/setup-tests has installed or built in a folder of `tests/clients`. */
const built = (name) => [path.join(root, 'tests/clients', name)].find(existsSync);
const programs = {
  ...Object.fromEntries(['nginx', 'haproxy', 'apache2', 'caddy', 'lighttpd', 'varnishd'].map((name) => [name, program(name)])),
  envoy: built('.venv-envoy/bin/envoy'),
  fastify: built('dev-servers/node_modules'),
  nextjs: built('next/node_modules/next/dist/bin/next'),
  springGateway: program('java') && built('spring-gateway/target/lib'),
};

/** Why a proxy's tests can't run, or false. */
export const missing = (name) => name in programs && !programs[name] && `${name} isn't installed`;

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
async function start(t, name, args, folder, ports, command = programs[name]) {
  const env = { ...process.env, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder };
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], env });
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
  return { http: `http://127.0.0.1:${plain}`, ws: `ws://127.0.0.1:${plain}`, https: `https://localhost:${tls}`, wss: `wss://localhost:${tls}`, child, said: () => said };
}

/** nginx in front of a server. `whole` replaces the file of docs/deploy; `changes` are made in it. `more`: lines of nginx's main configuration. */
export async function nginx(t, server, { changes = [], whole, more = '' } = {}) {
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
    ${more}
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

/** Starts a proxy with a file of docs/deploy, without TLS. `changes` gives the changes for the test, and `args` the proxy's arguments for the changed file. */
async function plain(t, name, file, { changes, args, command }) {
  const folder = mkdtempSync(path.join(tmpdir(), `stentor-${name}-`));
  const [port] = await freePorts(1);
  const own = path.join(folder, file);
  writeFileSync(own, changed(readFileSync(path.join(deploy, file), 'utf8'), changes({ port })));
  return start(t, name, args({ port, folder, own }), folder, [port], command);
}

/** Apache in front of a server. */
export function apache2(t, server, { changes = [] } = {}) {
  const modules = ['mpm_event', 'authz_core', 'proxy', 'proxy_http', 'headers', 'env', 'setenvif'];
  return plain(t, 'apache2', 'apache.conf', {
    changes: ({ port }) => [['*:80', `127.0.0.1:${port}`], ['127.0.0.1:8000', server.http.replace('http://', '')], ...changes],
    args: ({ port, folder, own }) => {
      const main = path.join(folder, 'apache2.conf');
      writeFileSync(main, `
        ServerName localhost
        ServerRoot ${folder}
        DefaultRuntimeDir ${folder}
        PidFile ${folder}/pid
        ErrorLog ${folder}/error.log
        Listen 127.0.0.1:${port}
        ${process.getuid() === 0 ? 'User nobody\nGroup nogroup' : ''}
        ${modules.map((module) => `LoadModule ${module}_module /usr/lib/apache2/modules/mod_${module}.so`).join('\n')}
        Include ${own}`);
      return ['-DFOREGROUND', '-f', main];
    },
  });
}

/** Caddy in front of a server. */
export function caddy(t, server, { changes = [] } = {}) {
  return plain(t, 'caddy', 'Caddyfile', {
    changes: ({ port }) => [['example.com {', `{\n\tadmin off\n\tgrace_period 100ms\n}\nhttp://127.0.0.1:${port} {`], ['127.0.0.1:8000', server.http.replace('http://', '')], ...changes],
    args: ({ own }) => ['run', '--adapter', 'caddyfile', '--config', own],
  });
}

/** lighttpd in front of a server. */
export function lighttpd(t, server, { changes = [] } = {}) {
  return plain(t, 'lighttpd', 'lighttpd.conf', {
    changes: ({ port }) => [
      ['server.modules += (', `server.bind = "127.0.0.1"\nserver.port = ${port}\nserver.document-root = "/"\nserver.modules += (`],
      ['"port" => 8000', `"port" => ${new URL(server.http).port}`],
      ...changes,
    ],
    args: ({ own }) => ['-D', '-f', own],
  });
}

/** Varnish in front of a server. */
export function varnishd(t, server, { changes = [] } = {}) {
  return plain(t, 'varnishd', 'varnish.vcl', {
    changes: () => [['"8000"', `"${new URL(server.http).port}"`], ...changes],
    args: ({ port, folder, own }) => ['-F', '-j', 'none', '-n', path.join(folder, 'varnish'), '-s', 'malloc,10m', '-p', 'pipe_timeout=75', '-a', `127.0.0.1:${port}`, '-f', own],
  });
}

/** Envoy in front of a server. */
export function envoy(t, server, { changes = [] } = {}) {
  return plain(t, 'envoy', 'envoy.yaml', {
    changes: ({ port }) => [['address: 0.0.0.0, port_value: 80 ', `address: 127.0.0.1, port_value: ${port} `], ['port_value: 8000', `port_value: ${new URL(server.http).port}`], ...changes],
    args: ({ own }) => ['--config-path', own, '--concurrency', '2', '--disable-hot-restart', '--log-level', 'warn'],
  });
}

/** Spring Cloud Gateway in front of a server. */
export function springGateway(t, server, { changes = [] } = {}) {
  return plain(t, 'springGateway', 'spring-cloud-gateway.yml', {
    changes: () => [['http://127.0.0.1:8000', server.http], ...changes],
    command: program('java'),
    args: ({ port, own }) => [
      '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-cp', `${programs.springGateway}/*:${path.join(programs.springGateway, '../classes')}`, 'Gateway',
      `--spring.config.location=${own}`, '--server.address=127.0.0.1', '--server.shutdown=immediate', `--server.port=${port}`, '--logging.level.root=warn',
    ],
  });
}

/** Next.js in front of a server. */
export function nextjs(t, server, { changes = [] } = {}) {
  const app = path.join(root, 'tests/clients/next');
  return plain(t, 'nextjs', 'next.config.js', {
    changes: () => [['http://127.0.0.1:8000', server.http], ...changes],
    command: process.execPath,
    args: ({ folder, port }) => {
      cpSync(path.join(app, 'pages'), path.join(folder, 'pages'), { recursive: true });
      symlinkSync(path.join(app, 'node_modules'), path.join(folder, 'node_modules'));
      return [programs.nextjs, 'dev', folder, '--hostname', '127.0.0.1', '--port', `${port}`];
    },
  });
}

/** A changed file of docs/deploy in a folder of its own, for a server of this process: { folder, own, port }. */
async function copied(t, server, file, changes) {
  const folder = mkdtempSync(path.join(tmpdir(), 'stentor-dev-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const [port] = await freePorts(1);
  const own = path.join(folder, file);
  writeFileSync(own, changed(readFileSync(path.join(deploy, file), 'utf8'), [['127.0.0.1:8000', server.http.replace('http://', '')], ...changes]));
  return { folder, own, port };
}

const addresses = (port) => ({ http: `http://127.0.0.1:${port}`, ws: `ws://127.0.0.1:${port}` });

/** @fastify/http-proxy in front of a server, in a process of its own. */
export function fastify(t, server, { changes = [] } = {}) {
  return plain(t, 'fastify', 'fastify.mjs', {
    changes: ({ port }) => [['http://127.0.0.1:8000', server.http], ["host: '0.0.0.0', port: 80", `host: '127.0.0.1', port: ${port}`], ...changes],
    command: process.execPath,
    args: ({ folder, own }) => {
      symlinkSync(programs.fastify, path.join(folder, 'node_modules'));
      return [own];
    },
  });
}

/** Vite in front of a server. */
export async function vite(t, server, { changes = [] } = {}) {
  const { folder, own, port } = await copied(t, server, 'vite.config.js', changes);
  const { createServer } = await import('./dev-servers/index.mjs');
  const running = await createServer({ configFile: own, root: folder, cacheDir: folder, logLevel: 'silent', server: { host: '127.0.0.1', port, strictPort: true } });
  await running.listen();
  t.after(() => running.close());
  return addresses(port);
}

/** webpack-dev-server in front of a server. */
export async function webpack(t, server, { changes = [] } = {}) {
  const { folder, own, port } = await copied(t, server, 'webpack.config.cjs', changes);
  const [{ webpack: compiler, WebpackDevServer }, { default: { devServer } }] = await Promise.all([import('./dev-servers/index.mjs'), import(own)]);
  writeFileSync(path.join(folder, 'index.js'), '');
  const compiled = compiler({ mode: 'development', context: folder, entry: './index.js', output: { path: folder }, infrastructureLogging: { level: 'none' }, stats: 'none' });
  // The clients of the tests are no pages.
  const running = new WebpackDevServer({ ...devServer, allowedHosts: 'all', host: '127.0.0.1', port, open: false }, compiled);
  await running.start();
  t.after(() => running.stop());
  return addresses(port);
}
