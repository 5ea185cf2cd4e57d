// The backends of examples/hooks, in Node, Python and PHP.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import path from 'node:path';
import test from 'node:test';
import { admin } from '../admin.mjs';
import { program, root, serve } from '../harness.mjs';
import { hook, secret } from '../hook-backends.mjs';
import { find } from '../redis.mjs';
import { ask, socketIo } from '../sockets.mjs';

for (const [language, command, args] of [
  ['node', 'node', ['server.mjs', '0']],
  ['python', 'python3', ['server.py', '0']],
  ['php', 'php', ['-S', '127.0.0.1:0', 'server.php']],
]) {
  test(`the example in ${language} gives each user a room`, async (t) => {
    if (!find(command)) return t.skip(`${command} isn't installed: scripts/setup-tests`);
    const { says } = program(t, command, args, { cwd: path.join(root, 'examples/hooks', language), env: { ...process.env, HOOK_SECRET: secret } });
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
    assert.equal((await ask(bob, 'join', { toString: 1 })).code, language === 'python' ? 'not_allowed' : 'bad_request');
    assert.match((await ask(bob, 'join', '\ud800')).message, /isn't yours/);
    bob.on('news', () => assert.fail('it is for user 42'));
    const news = once(ada, 'news');
    await admin(server, 'publish', { room: 'user:42', event: 'news', data: 1 });
    assert.deepEqual(await news, [1]);
    await assert.rejects(socketIo(t, server.http, { auth: { token: 'mallory' } }), ({ message }) => message === 'log in first');
  });
}
