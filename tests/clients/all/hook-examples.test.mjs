// The backends of examples/hooks, in Node, Python, PHP and Go.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { admin } from '../admin.mjs';
import { program, root, serve, temporary } from '../harness.mjs';
import { hook, secret } from '../hook-backends.mjs';
import { find } from '../redis.mjs';
import { ask, socketIo } from '../sockets.mjs';

const packages = path.join(root, 'clients/backend');

/** A folder with an example and the package for backends, as npm, pip and composer install it. Go finds it by its go.mod, and the folder gets the program. */
function installed(t, language) {
  const example = path.join(root, 'examples/hooks', language);
  const folder = temporary(t);
  if (language === 'go') {
    const { status, stderr } = spawnSync('go', ['build', '-o', path.join(folder, 'server'), '.'], { cwd: example, encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    return folder;
  }
  cpSync(example, folder, { recursive: true });
  if (language === 'node') {
    mkdirSync(path.join(folder, 'node_modules/@stentor'), { recursive: true });
    symlinkSync(path.join(packages, 'node'), path.join(folder, 'node_modules/@stentor/backend'));
  } else if (language === 'python') {
    symlinkSync(path.join(packages, 'python/stentor_backend'), path.join(folder, 'stentor_backend'));
  } else {
    mkdirSync(path.join(folder, 'vendor'));
    writeFileSync(path.join(folder, 'vendor/autoload.php'), `<?php\nforeach (['Answer', 'Hooks'] as $name) require '${packages}/php/src/' . $name . '.php';\n`);
  }
  return folder;
}

for (const [language, command, args] of [
  ['node', 'node', ['server.mjs', '0']],
  ['python', 'python3', ['server.py', '0']],
  ['php', 'php', ['server.php', '0']],
  ['go', './server', ['0']],
]) {
  test(`the example in ${language} gives each user a room`, async (t) => {
    if (!find(language === 'go' ? 'go' : command)) return t.skip(`${command} isn't installed: scripts/setup-tests`);
    const cwd = installed(t, language);
    const { status: ended, stderr } = spawnSync(command, args, { cwd, env: { ...process.env, HOOK_SECRET: '' }, encoding: 'utf8' });
    assert.notEqual(ended, 0);
    assert.match(stderr, /^.*HOOK_SECRET is missing: it is the secret of \[\[hooks\]\] in stentor\.toml\n$/, 'one line at the start');
    const { says } = program(t, command, args, { cwd, env: { ...process.env, HOOK_SECRET: secret } });
    const [, ownPort, port = ownPort] = await says(/listening on (\d+)|127\.0\.0\.1:(\d+)\) started/);
    const { status } = await fetch(`http://127.0.0.1:${port}`, { method: 'POST', body: '{}' });
    assert.equal(status, 401, 'without a signature');
    const server = await serve(t, {
      config: hook('chat', `http://127.0.0.1:${port}/`, `on = ["connect", "event"]\nsecret = "${secret}"`),
    });
    const [ada, bob] = [await socketIo(t, server.http, { auth: { token: 'ada-token' } }), await socketIo(t, server.http, { auth: { token: 'bob-token' } })];
    const joined = once(ada, 'joined');
    assert.deepEqual(await ask(ada, 'join', 'user:42'), { joined: 'user:42' });
    assert.deepEqual(await joined, ['42']);
    assert.deepEqual(await ask(bob, 'join', 'user:42'), { ok: false, code: 'not_allowed', message: "user:42 isn't yours" });
    assert.equal((await ask(bob, 'other')).code, 'unknown_event');
    // Neither does a question that the example can't handle fail others, nor one that its parser can't.
    assert.equal((await ask(bob, 'join', { toString: 1 })).code, language === 'python' ? 'not_allowed' : 'internal');
    assert.match((await ask(bob, 'join', '\ud800')).message, /isn't yours/);
    bob.on('news', () => assert.fail('it is for user 42'));
    const news = once(ada, 'news');
    await admin(server, 'publish', { room: 'user:42', event: 'news', data: 1 });
    assert.deepEqual(await news, [1]);
    await assert.rejects(socketIo(t, server.http, { auth: { token: 'mallory' } }), ({ message }) => message === 'log in first');
  });
}
