// The packages for backends (clients/backend), in Node, Python, PHP and Go: one table of cases for all, with a Stentor that runs.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import test, { describe } from 'node:test';
import { now } from '../admin.mjs';
import { program, root, serve } from '../harness.mjs';
import { hook, secret } from '../hook-backends.mjs';
import { find } from '../redis.mjs';
import { ask, socketIo } from '../sockets.mjs';

const cases = JSON.parse(readFileSync(path.join(root, 'clients/backend/cases.json'), 'utf8'));
const folder = path.join(root, 'tests/clients/backends');
const goProgram = path.join(folder, 'go/build/backend');
const TOKEN = '0123456789abcdef';

/** Each with the address of its hooks, and of those behind another interface. */
const languages = {
  node: { command: ['node', 'node.mjs'], paths: ['/hooks', '/express', '/fastify'] },
  python: { command: ['python3', 'python.py'], paths: ['/hooks', '/asgi'] },
  php: { command: ['php', '-S', '127.0.0.1:0', 'php.php'], paths: ['/hooks', '/psr'] },
  go: { command: [goProgram], paths: ['/hooks'] },
};

async function started(t, { command: [command, ...args] }, environment = {}) {
  const { says } = program(t, command, args, { cwd: folder, env: { ...process.env, HOOK_SECRET: secret, STENTOR_ADMIN: 'http://127.0.0.1:1', STENTOR_TOKEN: TOKEN, STENTOR_TIMEOUT_MS: '10000', ...environment } });
  const [, ownPort, port = ownPort] = await says(/listening on (\d+)|127\.0\.0\.1:(\d+)\) started/);
  const post = (target, body, headers = {}) => fetch(`http://127.0.0.1:${port}${target}`, { method: 'POST', headers: { 'Content-Type': 'application/json', ...headers }, body });
  return { url: `http://127.0.0.1:${port}`, post, json: async (target, value) => (await post(target, JSON.stringify(value))).json() };
}

const sign = (body, by = secret, age = 0) => {
  const time = now() - age;
  return `t=${time},v1=${createHmac('sha256', by).update(`${time}.${body}`).digest('hex')}`;
};

for (const [language, kind] of Object.entries(languages)) {
  const skip = !find(kind.command[0]) && !existsSync(kind.command[0]) && `${kind.command[0]} isn't there: run scripts/setup-tests all`;
  describe(language, { skip }, () => {
    test('signatures', async (t) => {
      const { json } = await started(t, kind);
      for (const { name, secret, signer = secret, body, signed = body, age, header = sign(signed, signer, age), suffix = '', expect } of cases.verify) {
        assert.deepEqual(await json('/verify', { header: header === null ? header : header + suffix, body, secret }), { result: expect }, name);
      }
    });

    test('answers', async (t) => {
      const { post } = await started(t, kind);
      for (const target of kind.paths) {
        // All in one request: a question that fails doesn't fail the others.
        const questions = cases.answers.map(({ question }, id) => ({ id, ...question }));
        const body = JSON.stringify({ version: 1, node: '5c1f0a7e9b3d2468', questions });
        const response = await post(target, body, { 'Stentor-Signature': sign(body) });
        assert.equal(response.status, 200);
        const { answers } = await response.json();
        for (const [id, { name, question, expect }] of cases.answers.entries()) {
          assert.deepEqual(answers.find((answer) => answer.id === id), { id, ...expect }, name ?? JSON.stringify(question));
        }
        assert.equal((await post(target, body)).status, 401, 'without a signature');
        assert.equal((await post(target, body, { 'Stentor-Signature': sign(body, 'another') })).status, 401);
        assert.equal((await post(target, '{', { 'Stentor-Signature': sign('{') })).status, 400, 'no JSON');
      }
    });

    test('notices', async (t) => {
      const { post } = await started(t, kind);
      for (const target of kind.paths) {
        const notified = async (...notices) => {
          const body = JSON.stringify({ version: 1, node: '5c1f0a7e9b3d2468', notices: notices.map((notice, at) => ({ sequence: at + 1, notice, at_ms: 1 })) });
          return (await post(target, body, { 'Stentor-Signature': sign(body) })).status;
        };
        assert.equal(await notified('connected', 'disconnected'), 200, target);
        assert.equal(await notified('connected', 'resync'), 500, `the handler fails, so that they are sent again: ${target}`);
        assert.equal(await notified('connected'), 200, target);
      }
    });

    test('a request that breaks off concerns no other', async (t) => {
      const { url, post } = await started(t, kind);
      for (const target of kind.paths) {
        const socket = net.connect(new URL(url).port, '127.0.0.1');
        socket.write(`POST ${target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`, () => socket.destroy());
        await once(socket, 'close');
        for (const time of ['first', 'second']) assert.equal((await post(target, '{}')).status, 401, `${target}, ${time}`);
      }
    });

    test('calls', async (t) => {
      const server = await serve(t, { config: `[server]\nadmin_token = "${TOKEN}"\n[[rules]]\nevent = "join"\njoin = ["{}"]\nack = true\n` });
      const { json } = await started(t, kind, { STENTOR_ADMIN: server.admin });
      const client = await socketIo(t, server.http);
      await ask(client, 'join', 'lobby');
      const news = once(client, 'news');
      for (const { call, expect, error } of cases.calls) {
        const answer = await json('/call', call);
        if (expect) assert.deepEqual(answer, { result: expect }, JSON.stringify(call));
        else assert.ok(answer.error, `${JSON.stringify(call)}: ${JSON.stringify(answer)}`);
        for (const [name, value] of Object.entries(error ?? {})) assert.equal(answer.error[name], value, `${name} of ${JSON.stringify(call)}: ${JSON.stringify(answer)}`);
      }
      assert.deepEqual(await news, [null]);
      const wrong = await started(t, kind, { STENTOR_ADMIN: server.admin, STENTOR_TOKEN: 'wrong' });
      assert.equal((await wrong.json('/call', ['publish', 'lobby', 1])).error.status, 401);
      const nobody = await started(t, kind, { STENTOR_ADMIN: 'http://127.0.0.1:1' });
      const { error } = await nobody.json('/call', ['publish', 'lobby', 1]);
      assert.deepEqual([error.status, error.code, error.retry], [0, 'unreachable', true]);
      // The token must not reach a proxy. Go uses none for loopback addresses.
      const proxied = [];
      const proxy = http.createServer((request, response) => response.end(`${proxied.push(request.url)}`)).listen(0, '127.0.0.1');
      t.after(() => proxy.close());
      await once(proxy, 'listening');
      const proxyUrl = `http://127.0.0.1:${proxy.address().port}`;
      const direct = await started(t, kind, { STENTOR_ADMIN: 'http://0.0.0.0:1', HTTP_PROXY: proxyUrl, http_proxy: proxyUrl });
      assert.equal((await direct.json('/call', ['publish', 'lobby', 1])).error.code, 'unreachable');
      assert.deepEqual(proxied, []);
      const breaking = http.createServer((_, response) => {
        response.writeHead(200, { 'Content-Length': 100 }).write('{');
        setImmediate(() => response.destroy());
      }).listen(0, '127.0.0.1');
      t.after(() => breaking.close());
      await once(breaking, 'listening');
      const half = await started(t, kind, { STENTOR_ADMIN: `http://127.0.0.1:${breaking.address().port}` });
      const { error: cut } = await half.json('/call', ['publish', 'lobby', 1]);
      assert.deepEqual([cut.status, cut.code, cut.retry], [0, 'unreachable', true], 'an answer that breaks off');
    });

    test('a call that waits for acknowledgements has their timeout in addition to its own', async (t) => {
      const admin = http.createServer().listen(0, '127.0.0.1');
      t.after(() => admin.close());
      await once(admin, 'listening');
      const environment = { STENTOR_ADMIN: `http://127.0.0.1:${admin.address().port}`, STENTOR_TIMEOUT_MS: '300' };
      const [waiting, other] = await Promise.all([started(t, kind, environment), started(t, kind, environment)]);
      const answer = waiting.json('/call', ['emit', { rooms: ['lobby'], ack: { timeout: '20 s' } }, 'question']);
      const [, response] = await once(admin, 'request');
      // The other call is younger, so its end says that the time without acknowledgements has passed.
      const { error } = await other.json('/call', ['emit', { rooms: ['lobby'], ack: { timeout: 20 } }, 'question']);
      assert.deepEqual([error.status, error.code], [0, 'unreachable']);
      response.end('{"sessions":1}');
      assert.deepEqual(await answer, { result: { sessions: 1 } });
    });

    test('hooks of a Stentor', async (t) => {
      const { url } = await started(t, kind);
      const server = await serve(t, { config: hook('chat', `${url}/hooks`, `on = ["connect", "event"]\nsecret = "${secret}"`) });
      const ada = await socketIo(t, server.http, { auth: { token: 'ada-token' } });
      const welcome = once(ada, 'welcome');
      assert.deepEqual(await ask(ada, 'join', 'user:42'), { joined: 'user:42' });
      await welcome;
      assert.equal((await ask(ada, 'other')).code, 'unknown_event');
      await assert.rejects(socketIo(t, server.http, { auth: { token: 'mallory' } }), ({ message }) => message === 'log in first');
    });
  });
}

test('the listener of Node answers a body that is too long', async (t) => {
  const { post, url } = await started(t, languages.node);
  for (const target of ['/hooks', '/express']) {
    const request = http.request(url + target, { method: 'POST' });
    const answered = once(request, 'response');
    request.end(Buffer.alloc(40 * 1024 * 1024));
    const [response] = await answered;
    assert.equal(response.statusCode, 413, target);
    response.resume();
    assert.equal((await post(target, '{}')).status, 401, target);
  }
});

test('without a secret, a backend says so at its start', () => {
  for (const { command: [command, ...args] } of [languages.node, languages.python]) {
    const { status, stderr } = spawnSync(command, args, { cwd: folder, env: { ...process.env, HOOK_SECRET: '', STENTOR_ADMIN: 'http://127.0.0.1:1' }, encoding: 'utf8' });
    assert.notEqual(status, 0);
    assert.match(stderr, /the secret|`secret` is missing/);
  }
});
