// The demo's page in Chromium. all/demo-browser.test.mjs has Firefox, and the rest of the page.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import test from 'node:test';
import { missing } from './browsers.mjs';
import { showsMatches, startDemo } from './demo.mjs';
import { binary, program } from './harness.mjs';

test('live matches, by every transport', { skip: missing('Chromium') }, (t) => showsMatches(t, 'Chromium'));

async function statusFor(url, host) {
  const [response] = await once(request(url, { headers: { host } }).end(), 'response');
  response.resume();
  return response.statusCode;
}

test('a page whose name resolves to loopback can not use the buttons of the demo', async (t) => {
  const url = await startDemo(t);
  const { port } = new URL(url);
  for (const host of ['localhost', '127.0.0.1', '[::1]']) {
    assert.equal(await statusFor(`${url}/`, `${host}:${port}`), 200, host);
    assert.equal(await statusFor(`${url}/`, `${host}:9000`), 200, `${host} behind a proxy on another port`);
  }
  assert.equal(await statusFor(`${url}/`, `rebound.example:${port}`), 421);
  assert.equal(await statusFor(`${url}/readyz`, `rebound.example:${port}`), 200);
});

test('a demo without buttons, and one with hosts of its own, answer for other names', async (t) => {
  const start = async (listen, env) => {
    const { says } = program(t, binary, ['demo', '--listen', listen, '--admin', '127.0.0.1:0'], { env: { ...process.env, ...env } });
    return `http://127.0.0.1:${(await says(/ready http:\/\/[^\s]+:(\d+)/))[1]}`;
  };
  assert.equal(await statusFor(await start('0.0.0.0:0', {}), 'demo.example'), 200);
  assert.equal(await statusFor(await start('127.0.0.1:0', { STENTOR_SERVER_HOSTS: 'demo.example' }), 'demo.example'), 200);
});
