// The admin port over TLS: curl, the commands of `stentor` and Prometheus' way to ask; certificates that a reload replaces; clients that
// don't speak TLS, or don't finish the handshake. `stentor reload`, which needs the port, and workers.
import assert from 'node:assert/strict';
import { execFile, fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import net from 'node:net';
import path from 'node:path';
import test, { after } from 'node:test';
import { promisify } from 'node:util';
import { io as connect } from 'socket.io-client';
import { now } from './admin.mjs';
import { certificate as makeCertificate, fingerprint, otherKey } from './certificates.mjs';
import { request, root, run, serve, temporary, until, within } from './harness.mjs';

const folder = temporary({ after });
const { key, certificate } = makeCertificate(folder);
/** Writes a new certificate to the same files. */
const rotate = () => makeCertificate(folder);

const TOKEN = '0123456789abcdef';
const config = (more = '', header_timeout = '1min') => `[server]
admin_token = "${TOKEN}"
[admin_tls]
certificate = "${certificate}"
key = "${key}"
[admin_limits]
header_timeout = "${header_timeout}"
connections_max = 8
${more}`;

/** A server whose admin port speaks TLS. */
async function start(t, ...options) {
  rotate();
  const server = await serve(t, { config: config(...options), args: ['--cores', '1'] });
  return { ...server, admin: server.admin.replace('http:', 'https:') };
}

/** What curl prints, with the status in a line of its own. */
const curl = async (...args) => (await promisify(execFile)('curl', ['-sS', '--max-time', '10', '-w', '\n%{http_code}', ...args])).stdout.split('\n');
const trusted = ['--cacert', certificate, '-H', `Authorization: Bearer ${TOKEN}`];

/** The value of a metric. */
async function metric(server, name) {
  const lines = await curl(...trusted, `${server.admin}/metrics`);
  return lines.filter((line) => line.startsWith(name)).map((line) => Number(line.split(' ').at(-1)))[0];
}

test('curl reaches the API over TLS, and only so', async (t) => {
  const server = await start(t);
  assert.deepEqual(await curl('--cacert', certificate, `${server.admin}/healthz`), ['ok', '', '200']);
  assert.equal((await curl('--cacert', certificate, `${server.admin}/metrics`)).at(-1), '401');
  assert.equal((await curl(...trusted, `${server.admin}/api/v1/status`)).at(-1), '200');
  const body = ['-H', 'Content-Type: application/json', '-d', '{"room":"a","data":1}'];
  assert.deepEqual(await curl(...trusted, ...body, `${server.admin}/api/v1/publish`), ['{"published":1}', '', '200']);
  for (const version of [['--tlsv1.2', '--tls-max', '1.2'], ['--tlsv1.3']]) {
    assert.equal((await curl('--cacert', certificate, ...version, `${server.admin}/healthz`)).at(-1), '200');
  }
  await assert.rejects(curl(`${server.admin}/healthz`), /SSL certificate/);
  const plain = await curl(...trusted, server.admin.replace('https:', 'http:'));
  assert.deepEqual([JSON.parse(plain[0]), plain.at(-1)], [{ code: 'tls', message: 'plain HTTP was sent to a port that uses TLS' }, '400']);
  const at = (await metric(server, 'stentor_tls_certificate_expiry_timestamp_seconds')) - now();
  assert.ok(at > 86_400 && at < 3 * 86_400, `expires in ${at} s`);
});

test('the commands speak https, with a certificate that they trust', async (t) => {
  const server = await start(t);
  const at = ['--admin', server.admin, '--token', TOKEN];
  const top = await run('top', '--once', ...at, '--ca-file', certificate);
  assert.equal(top.code, 0, top.stderr);
  assert.match(top.stdout, /^stentor +\S+, ready/);
  const published = await run('publish', '--room', 'a', '1', ...at, '--ca-file', certificate);
  assert.equal(published.code, 0, published.stderr);
  for (const [args, why] of [
    [[...at], /no server answers at https:.*certificate/s],
    [[...at, '--ca-file', '/nowhere.pem'], /--ca-file: \/nowhere\.pem: /],
    [['--admin', server.admin.replace('https:', 'http:'), '--token', TOKEN], /400.*plain HTTP was sent to a port that uses TLS/],
    [['--admin', server.admin, '--ca-file', certificate], /wants a token/],
  ]) {
    const failed = await run('top', '--once', ...args);
    assert.equal(failed.code, 1, failed.stdout);
    assert.match(failed.stderr, why);
  }
});

test('stentor reload prints what changed, and fails if nothing may', async (t) => {
  const server = await start(t);
  const reload = () => run('reload', '--admin', server.admin, '--token', TOKEN, '--ca-file', certificate);
  let done = await reload();
  assert.deepEqual([done.code, done.stdout, done.stderr], [0, 'No key has changed. Certificates and other files were read again.\n', '']);

  writeFileSync(server.configFile, config('[origins]\nallow = ["https://a.example.com"]\n[heartbeat]\ninterval = "20s"\n'));
  done = await reload();
  assert.deepEqual([done.code, done.stdout], [0, 'applied: origins.allow\nrestart needed: heartbeat.interval\n']);

  writeFileSync(server.configFile, config('[nonsense]\n[origins]\nallow = ["*"]\nmore = 1\n'));
  done = await reload();
  assert.deepEqual([done.code, done.stdout], [1, '']);
  assert.match(done.stderr, /refused the configuration \(422\)/);
  for (const mistake of ['nonsense', 'more']) assert.match(done.stderr, new RegExp(mistake));
  writeFileSync(server.configFile, config());
  done = await reload();
  assert.deepEqual([done.code, done.stdout], [0, 'applied: origins.allow\n'], 'the broken file changed nothing');

  const alone = await run('reload', '--admin', 'http://127.0.0.1:1');
  assert.equal(alone.code, 1);
  assert.match(alone.stderr, /no server answers at http:\/\/127\.0\.0\.1:1/);
});

test('a reload replaces the certificate, and open connections stay', async (t) => {
  const server = await start(t);
  const before = await fingerprint(server.admin);
  const agent = new https.Agent({ keepAlive: true, maxSockets: 1, rejectUnauthorized: false });
  t.after(() => agent.destroy());
  const ask = async (target, method) => {
    const options = { method, agent, headers: { Authorization: `Bearer ${TOKEN}` } };
    const { status, text } = await within(request(`${server.admin}${target}`, options), target);
    return { status, text, connections: Object.values(agent.freeSockets).flat().map(({ localPort }) => localPort) };
  };
  const reload = () => ask('/api/v1/reload', 'POST');
  const first = await ask('/healthz');
  assert.equal(first.status, 200);
  rotate();
  assert.equal((await reload()).status, 200);
  assert.notEqual(await fingerprint(server.admin), before);
  assert.deepEqual(await ask('/healthz'), first, 'the same connection');

  // A key that isn't the certificate's: nothing changes.
  const shown = await fingerprint(server.admin);
  otherKey(key);
  const refused = await reload();
  assert.equal(refused.status, 422);
  assert.match(refused.text, /localhost\.key: is not the key of the certificate/);
  assert.equal(await fingerprint(server.admin), shown);

  // Without TLS, after a restart only.
  rotate();
  writeFileSync(server.configFile, `[server]\nadmin_token = "${TOKEN}"\n`);
  const { applied, restart_needed } = JSON.parse((await reload()).text);
  assert.deepEqual(restart_needed.filter((name) => name.startsWith('admin_tls')), ['admin_tls.certificate', 'admin_tls.key']);
  assert.ok(applied.every((name) => !name.startsWith('admin_tls')));
  await fingerprint(server.admin);
});

test('garbage, and handshakes that nobody finishes, end and delay nobody', async (t) => {
  const server = await start(t, '', '2s');
  const { port } = new URL(server.admin);
  const open = (bytes) => {
    const socket = net.connect(port, '127.0.0.1');
    t.after(() => socket.destroy());
    socket.on('error', () => {}).resume();
    if (bytes) socket.write(bytes);
    return within(once(socket, 'close'), 'the end of the connection');
  };
  // Half a ClientHello, silence, garbage, and a record of another kind. Two places are left.
  const ends = [Buffer.from('160301020001000200', 'hex'), undefined, Buffer.from([0, 1, 2, 3, 4]), Buffer.from('1503010002012f', 'hex'), undefined, undefined].map(open);
  assert.equal((await curl('--cacert', certificate, `${server.admin}/healthz`)).at(-1), '200');
  await Promise.all(ends);
  await until('each is counted', async () => await metric(server, 'stentor_admin_refusals_total{reason="tls"}') === 6);
});

/** How often the threads of a process with this name have waited for something. */
function waits(pid, name) {
  const threads = readdirSync(`/proc/${pid}/task`).map((thread) => `/proc/${pid}/task/${thread}`);
  const named = threads.filter((thread) => readFileSync(`${thread}/comm`, 'utf8').trim() === name);
  const counts = named.map((thread) => Number(/^voluntary_ctxt_switches:\s*(\d+)$/m.exec(readFileSync(`${thread}/status`, 'utf8'))[1]));
  return counts.reduce((sum, count) => sum + count, 0);
}

test("a worker's events over TLS wake the thread of the links, and no thread of the control plane", async (t) => {
  const server = await start(t, '[[links]]\napp = "count"\n');
  const env = { ...process.env, STENTOR: server.admin.replace('https', 'wss'), TOKEN, RECORD: path.join(folder, 'record'), NODE_EXTRA_CA_CERTS: certificate };
  const worker = fork(path.join(root, 'tests/clients/counting-worker.mjs'), { env });
  t.after(() => worker.kill('SIGKILL'));
  await within(once(worker, 'message'), 'the worker');
  const client = connect(server.http, { transports: ['websocket'] });
  t.after(() => client.close());
  const EVENTS = 1_000;
  assert.equal(await within(client.emitWithAck('count', 'a', 0), 'the first answer'), worker.pid);
  const names = ['links', 'control'];
  const before = names.map((name) => waits(server.child.pid, name));
  for (let n = 1; n <= EVENTS; n += 1) await within(client.emitWithAck('count', 'a', n), 'an answer');
  const [links, control] = names.map((name, i) => waits(server.child.pid, name) - before[i]);
  assert.ok(links > EVENTS / 2 && control < EVENTS / 2, `${links} waits of the link's thread, ${control} of the control plane`);
});
