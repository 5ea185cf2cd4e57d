// What docs/deploy says of systemd and of containers, as far as it can be shown without either: the unit's score, Stentor
// under the unit's filter of system calls, and where io_uring is forbidden.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import WebSocket from 'ws';
import { binary, event, feedsFrom, inbox, logged, root, run, serve, statusOf, temporary, upstream } from '../harness.mjs';
import { deploy } from '../proxies.mjs';

const unit = path.join(deploy, 'stentor.service');
const seccomp = path.join(root, 'tests/clients/seccomp.py');

const systemd = (...args) => spawnSync('systemd-analyze', args, { encoding: 'utf8' });
const noSystemd = (systemd('security', '--help').stdout ?? '').includes('--offline') ? false : 'no systemd-analyze that reads files';
const noSeccomp = existsSync('/usr/include/x86_64-linux-gnu/asm/unistd_64.h') && spawnSync('python3', ['-c', '']).status === 0
  ? false : 'no Python, no headers of the kernel, or no x86-64';

/** A server under a filter of system calls. */
const under = (t, [mode, error, names], options = {}) => serve(t, { ...options, command: ['python3', seccomp, mode, error, names.join(), binary] });

/** What a server said about its driver when it started: { driver, reason }. */
async function driver(server, asked = 'auto') {
  const { driver: taken } = await logged(server, (line) => line.driver, 'its driver');
  if (asked !== 'auto' || taken !== 'epoll') return { driver: taken, reason: undefined };
  // Said after the driver.
  const { reason } = await logged(server, (line) => line.message === "io_uring is not available, using epoll", 'why');
  return { driver: taken, reason };
}

/** Fails unless it serves: small and large messages, compressed and not, and a feed whose API is called by its name. */
async function serves(t, server, api) {
  for (const perMessageDeflate of [true, false]) {
    const socket = new WebSocket(`${server.ws}/ws?feed=large`, { perMessageDeflate });
    t.after(() => socket.terminate());
    const messages = inbox(socket);
    await event(socket, 'open', undefined, 'error');
    const { data } = await messages.until((message) => message.type === 'snapshot');
    assert.deepEqual(data, api.documents.get('large'));
    socket.send('{"id":1,"type":"ping"}');
    await messages.until((message) => message.type === 'ok');
  }
}

async function largeFeed(t) {
  const api = await upstream(t);
  // Large frames take a way of their own to the kernel.
  api.documents.set('large', { text: Array.from({ length: 20_000 }, (_, n) => n) });
  return { api, config: feedsFrom(api.url.replace('127.0.0.1', 'localhost')) };
}

test('systemd accepts the unit', { skip: noSystemd }, (t) => {
  const folder = temporary(t);
  const page = readFileSync(path.join(deploy, '../deploys.md'), 'utf8');
  const units = [...page.matchAll(/\/etc\/systemd\/system\/(\S+)`:\n\n```ini\n(.*?)^```$/gms)].map(([, name, more]) => [name.replace('@', '@blue'), more]);
  assert.equal(units.length, 3);
  const check = (content, name = 'stentor.service') => {
    const file = path.join(folder, name);
    // It looks for the programs.
    writeFileSync(file, content.replaceAll('/usr/local/bin/stentor', binary).replaceAll('/usr/bin/node', process.execPath));
    const { status, stdout, stderr } = systemd('verify', '--man=no', '--generators=no', file);
    return { status, said: stdout + stderr };
  };
  const text = readFileSync(unit, 'utf8');
  assert.deepEqual(check(text), { status: 0, said: '' });
  for (const [name, more] of units) assert.deepEqual(check(more, name), { status: 0, said: '' }, name);
  const wrong = check(text.replace(/^Restart=.*$/m, 'Restart=sometimes'));
  assert.match(wrong.said, /sometimes/);
});

test('the unit for systemd is of little exposure', { skip: noSystemd }, () => {
  const { status, stdout, stderr } = systemd('security', '--offline=yes', '--threshold=20', '--no-pager', unit);
  assert.equal(status, 0, stdout + stderr);
});

test("the unit's program is started as the command line has it", () => {
  const text = readFileSync(unit, 'utf8');
  for (const line of text.match(/^Exec\w+=.*$/gm)) {
    // Not a command of Stentor: the signal that reloads.
    if (line === 'ExecReload=/bin/kill -HUP $MAINPID') continue;
    const [, command] = /^Exec\w+=\/usr\/local\/bin\/stentor (\w+)/.exec(line);
    assert.equal(spawnSync(binary, [command, '--help']).status, 0, line);
  }
});

test("Stentor runs under the unit's filter of system calls, by either driver", { skip: noSystemd || noSeccomp }, async (t) => {
  /** The calls of a set, and of the sets in it. */
  const expand = (name) => {
    if (!name.startsWith('@')) return [name];
    const { stdout } = systemd('syscall-filter', '--no-pager', name);
    return stdout.split('\n').slice(1).map((line) => line.trim()).filter((line) => line && !line.startsWith('#')).flatMap(expand);
  };
  const allowed = new Set(expand('@default'));
  for (const [, no, sets] of readFileSync(unit, 'utf8').matchAll(/^SystemCallFilter=(~?)(.*)$/gm)) {
    for (const call of sets.split(' ').flatMap(expand)) {
      if (no) allowed.delete(call);
      else allowed.add(call);
    }
  }
  assert.ok(allowed.has('io_uring_setup') && !allowed.has('chroot'));
  const { api, config } = await largeFeed(t);
  for (const asked of ['auto', 'epoll']) {
    const server = await under(t, ['allow', 'EPERM', [...allowed]], { config, args: ['--driver', asked, '--cores', '2'] });
    const unfiltered = await serve(t, { args: ['--driver', asked] });
    assert.deepEqual(await driver(server, asked), await driver(unfiltered, asked));
    await serves(t, server, api);
    server.child.kill('SIGTERM');
    assert.equal((await server.closed)[0], 0);
    assert.deepEqual(server.log.map((line) => JSON.parse(line)).filter(({ level }) => level !== 'INFO'), []);
  }
});

// What each refuses with: docs/deploy/README.md, "Containers".
for (const [who, error, reason] of [
  ["Docker's and containerd's default profile", 'EPERM', /^io_uring_setup: Operation not permitted .*seccomp or kernel\.io_uring_disabled/],
  ["Podman's default profile, and gVisor", 'ENOSYS', /^io_uring_setup: Function not implemented .*no io_uring, or hides it/],
]) {
  test(`where io_uring is forbidden as by ${who}, Stentor takes epoll and says so`, { skip: noSeccomp }, async (t) => {
    const filter = ['deny', error, ['io_uring_setup', 'io_uring_enter', 'io_uring_register']];
    const { api, config } = await largeFeed(t);
    const server = await under(t, filter, { config, args: ['--cores', '2'] });
    const said = await driver(server);
    assert.equal(said.driver, 'epoll');
    assert.match(said.reason, reason);
    await serves(t, server, api);
    // Who asked for io_uring is told instead.
    await assert.rejects(under(t, filter, { args: ['--driver', 'io_uring'] }), /io_uring doesn't work here: io_uring_setup/);
  });
}

test('the admin port of a container is scraped with the two documented lines', async (t) => {
  const page = readFileSync(path.join(deploy, 'README.md'), 'utf8');
  const [, section] = /^\*\*The admin port\*\*(.*?)^\*\*io_uring/ms.exec(page);
  // `-e NAME=VALUE`, or `-e NAME` for a variable of the shell.
  const [line] = /^docker run .*-e STENTOR_SERVER_ADMIN=.*$/m.exec(section);
  const variables = [...line.matchAll(/ -e (\w+)(?:=(\S+))?/g)].map(([, name, value]) => [name, value]);
  const [hosts, name] = /STENTOR_SERVER_ADMIN_HOSTS=(\w+)/.exec(section);
  assert.deepEqual(variables, [['STENTOR_SERVER_ADMIN', '0.0.0.0:8001'], ['STENTOR_SERVER_ADMIN_TOKEN', undefined]]);
  const token = '0123456789abcdef';
  const settings = [...variables.map(([name, value]) => `${name}=${value ?? token}`), hosts];
  const server = await serve(t, { command: ['env', ...settings, binary], listen: '0.0.0.0:0', admin: '0.0.0.0:0' });
  // Prometheus sends `credentials` as a bearer token, unless `type` says otherwise.
  const [, credentials] = /^ +authorization: \{ credentials: (\w+) \}$/m.exec(section);
  assert.equal(credentials, 'TOKEN');
  const [, target] = /targets: \["(.+)"\]/.exec(section);
  for (const [host, sent, expect] of [
    [target, token, 200], [`${name}:8001`, token, 200], ['elsewhere:8001', token, 421], [target, undefined, 401], [target, `${token}x`, 401],
  ]) {
    const headers = { Host: host, ...(sent && { Authorization: `Bearer ${sent}` }) };
    assert.equal(await statusOf(server.admin, '/metrics', headers), expect, JSON.stringify(headers));
  }
});

test('a health check tells a server that answers from one that drains, or is gone', async (t) => {
  const server = await serve(t, { config: '[server]\nshutdown_timeout = "5s"\n' });
  const health = () => run('health', '--listen', server.http.replace('http://', ''));
  assert.deepEqual(await health(), { code: 0, signal: null, stdout: 'ok\n', stderr: '' });
  server.child.kill('SIGTERM');
  await server.closed;
  const { code, stderr } = await health();
  assert.equal(code, 1);
  assert.match(stderr, /^error: no server answers at 127\.0\.0\.1:\d+: /);
});
