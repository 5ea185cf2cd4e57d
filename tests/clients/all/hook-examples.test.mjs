// The backends of examples/hooks, in Node, Python and PHP.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import test from 'node:test';
import { admin } from '../admin.mjs';
import { root, serve, within } from '../harness.mjs';
import { ask, connected, hook, secret } from '../hook-backends.mjs';

for (const [language, command, args] of [
  ['node', process.execPath, ['server.mjs', '0']],
  ['python', 'python3', ['server.py', '0']],
  ['php', 'php', ['-S', '127.0.0.1:0', 'server.php']],
]) {
  test(`the example in ${language} gives each user a room`, async (t) => {
    const example = spawn(command, args, { cwd: path.join(root, 'examples/hooks', language), env: { ...process.env, HOOK_SECRET: secret } });
    t.after(() => example.kill());
    let output = '';
    const port = await within(new Promise((resolve, reject) => {
      for (const stream of [example.stdout, example.stderr]) {
        stream.on('data', (text) => {
          const found = /listening on (\d+)|127\.0\.0\.1:(\d+)\) started/.exec(output += text);
          if (found) resolve(found[1] ?? found[2]);
        });
      }
      example.on('error', ({ code }) => (code === 'ENOENT' ? resolve() : reject(new Error(code))));
      example.on('close', (code) => reject(new Error(`${command} ended with ${code}: ${output}`)));
    }), 'the port of the example');
    if (!port) return t.skip(`${command} isn't installed: scripts/setup-tests`);
    const { status } = await fetch(`http://127.0.0.1:${port}`, { method: 'POST', body: '{}' });
    assert.equal(status, 401, 'without a signature');
    const server = await serve(t, {
      config: hook('chat', `http://127.0.0.1:${port}/`, `on = ["connect", "event"]\nsecret = "${secret}"`),
    });
    const [ada, bob] = [await connected(t, server, { auth: { token: 'ada-token' } }), await connected(t, server, { auth: { token: 'bob-token' } })];
    const joined = once(ada, 'joined');
    assert.deepEqual(await ask(ada, 'join', 'user:42'), { joined: 'user:42' });
    assert.deepEqual(await joined, ['42']);
    assert.deepEqual(await ask(bob, 'join', 'user:42'), { ok: false, code: 'not_allowed', message: "user:42 isn't yours" });
    assert.equal((await ask(bob, 'other')).code, 'unknown_event');
    // Neither does a question that the example can't handle fail others, nor one that its parser can't.
    assert.equal((await ask(bob, 'join', { toString: 1 })).code, language === 'python' ? 'not_allowed' : 'bad_request');
    assert.match((await ask(bob, 'join', '\ud800')).message, /isn't yours/);
    bob.on('news', () => assert.fail('it is for user 42'));
    const news = once(ada, 'news');
    await admin(server, 'publish', { room: 'user:42', event: 'news', data: 1 });
    assert.deepEqual(await news, [1]);
    await assert.rejects(connected(t, server, { auth: { token: 'mallory' } }), ({ message }) => message === 'log in first');
  });
}
