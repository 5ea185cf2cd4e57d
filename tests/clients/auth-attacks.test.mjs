// Attacks on tokens and on the keys of issuers, against a running server: each is refused with a reason and counted, and clients of
// other issuers aren't affected.
import assert from 'node:assert/strict';
import { createHmac, generateKeyPairSync, sign } from 'node:crypto';
import http from 'node:http';
import { once } from 'node:events';
import test from 'node:test';
import { now as seconds, SECRET } from './admin.mjs';
import { serve, within } from './harness.mjs';

const encode = (value) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
const claims = (more) => ({ iss: 'sound', sub: '42', aud: 'stentor', iat: seconds(), exp: seconds() + 600, ...more });
const hmac = (header, payload, secret = SECRET) => {
  const message = `${encode({ alg: 'HS256', ...header })}.${encode(payload)}`;
  return `${message}.${createHmac('sha256', secret).update(message).digest('base64url')}`;
};
const es256 = (kid, payload, key) => {
  const message = `${encode({ alg: 'ES256', kid })}.${encode(payload)}`;
  return `${message}.${sign('sha256', Buffer.from(message), { key, dsaEncoding: 'ieee-p1363' }).toString('base64url')}`;
};

/** An issuer whose keys are what `answer` says; counts the requests. */
async function issuer(t, answer) {
  const seen = { requests: 0 };
  const server = http.createServer((request, response) => {
    seen.requests += 1;
    answer(response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return Object.assign(seen, { url: `http://127.0.0.1:${server.address().port}/keys` });
}

const remote = (name, url) => `
[[auth.issuers]]
issuer = "${name}"
audience = "stentor"
algorithms = ["ES256"]
jwks_url = "${url}"
`;

const SOUND = `
[[auth.issuers]]
issuer = "sound"
audience = "stentor"
algorithms = ["HS256"]
keys = [{ secret = "${SECRET}" }]
[[permissions]]
feeds = ["user/{sub}"]
allow = ["subscribe"]
[[feeds]]
name = "pushed"
push = true
`;

async function start(t, config = '') {
  const server = await serve(t, { config: `${config}${SOUND}` });
  await fetch(`${server.admin}/api/v1/feeds/user/42`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: '{"n":1}' });
  const ask = async (token, key = 'user/42') => {
    const headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
    const response = await within(fetch(`${server.http}/feed/${key}`, { headers }), 'an answer');
    return { status: response.status, challenge: response.headers.get('www-authenticate') ?? '', text: await response.text() };
  };
  const metric = async (line) => {
    const text = await (await fetch(`${server.admin}/metrics`)).text();
    return Number(text.split('\n').find((found) => found.startsWith(`${line} `))?.split(' ')[1] ?? 0);
  };
  return { ...server, ask, metric };
}

test('tokens that are forged, stale or meant for others are refused, each with its reason', async (t) => {
  const { ask, metric, log } = await start(t);
  const good = hmac({}, claims());
  assert.equal((await ask(good)).status, 200);
  const [message] = good.split(/\.[^.]*$/);
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const pem = publicKey.export({ format: 'pem', type: 'spki' });
  const attacks = [
    ['missing', undefined, 'token_missing'],
    ['malformed', 'nonsense', 'token_invalid'],
    ['malformed', `${message}.`.slice(0, 5), 'token_invalid'],
    ['signature', `${message}.`, 'token_invalid'],
    ['signature', hmac({}, claims(), 'another secret of thirty-two bytes'), 'token_invalid'],
    ['signature', hmac({}, claims(), pem), 'token_invalid'],
    ['header', `${encode({ alg: 'none' })}.${encode(claims())}.`, 'token_invalid'],
    ['header', hmac({ crit: ['exp'] }, claims()), 'token_invalid'],
    ['header', hmac({ typ: 'logout+jwt' }, claims()), 'token_invalid'],
    ['expired', hmac({}, claims({ exp: seconds() })), 'token_expired'],
    ['not_yet_valid', hmac({}, claims({ nbf: seconds() + 120 })), 'token_not_yet_valid'],
    ['audience', hmac({}, claims({ aud: 'other' })), 'token_invalid'],
    ['audience', hmac({}, claims({ aud: undefined })), 'token_invalid'],
    ['issuer', hmac({}, claims({ iss: 'unknown' })), 'token_invalid'],
    ['claim', hmac({}, claims({ sub: undefined })), 'token_invalid'],
    ['claim', hmac({}, claims({ stentor: { alow: [] } })), 'token_invalid'],
    ['lifetime', hmac({}, claims({ exp: seconds() + 30 * 24 * 3600 })), 'token_invalid'],
    ['too_long', hmac({}, claims({ x: 'x'.repeat(9000) })), 'token_invalid'],
  ];
  for (const [reason, token, code] of attacks) {
    const line = `stentor_auth_refusals_total{reason="${reason}"}`;
    const before = await metric(line);
    const { status, challenge, text } = await ask(token);
    assert.equal(status, 401, `${reason}: ${text}`);
    assert.ok(challenge.startsWith('Bearer') && (challenge + text).includes(code) || code === 'token_missing', `${reason}: ${challenge} ${text}`);
    assert.equal(await metric(line), before + 1, reason);
  }
  // A claim that tries to be a pattern.
  for (const sub of ['*', '**', '42/x', '{sub}', '../42']) {
    assert.equal((await ask(hmac({}, claims({ sub })))).status, 403, sub);
  }
  assert.equal((await ask(good)).status, 200);
  // No line of the log has a token.
  assert.ok(!log.join('\n').includes('eyJ'), log.join('\n'));
});

test('issuers that fail or lie concern their own clients only', async (t) => {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const other = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const set = (key) => JSON.stringify({ keys: [{ ...key.export({ format: 'jwk' }), kid: 'same', use: 'sig' }] });
  const json = (body) => (response) => response.writeHead(200, { 'Content-Type': 'application/json' }).end(body);
  const all = {
    honest: await issuer(t, json(set(publicKey))),
    twin: await issuer(t, json(set(other.publicKey))),
    hanging: await issuer(t, () => {}),
    endless: await issuer(t, (response) => {
      response.writeHead(200, { 'Content-Length': 1_000_000_000 });
      const more = () => { while (!response.destroyed && response.write(' '.repeat(65536)));};
      response.on('drain', more);
      more();
    }),
    page: await issuer(t, (response) => response.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html>')),
    elsewhere: await issuer(t, (response) => response.writeHead(302, { Location: all.honest.url }).end()),
    failing: await issuer(t, (response) => response.writeHead(500).end()),
  };
  const { ask, metric } = await start(t, Object.entries(all).map(([name, { url }]) => remote(name, url)).join(''));
  const of = (iss, kid = 'same', key = privateKey) => ask(es256(kid, claims({ iss }), key));
  assert.equal((await of('honest')).status, 200);
  // CVE-2026-49998: the same key id belongs to another issuer.
  assert.equal((await of('twin')).status, 401);
  assert.equal((await of('honest', 'same', other.privateKey)).status, 401);
  assert.equal((await of('twin', 'same', other.privateKey)).status, 200);
  const broken = ['hanging', 'endless', 'page', 'elsewhere', 'failing'];
  const answers = await Promise.all(broken.map((name) => of(name)));
  assert.deepEqual(answers.map(({ status }) => status), broken.map(() => 503));
  for (const [name, outcome] of [['hanging', 'timeout'], ['endless', 'too_large'], ['page', 'invalid'], ['elsewhere', 'status'], ['failing', 'status']]) {
    assert.ok(await metric(`stentor_auth_key_fetches_total{issuer="${name}",outcome="${outcome}"}`) >= 1, name);
  }
  // Thousands of key ids that nobody has cause no fetch, and are refused at once.
  const before = all.honest.requests;
  for (let round = 0; round < 20; round += 1) {
    const answers = await Promise.all(Array.from({ length: 100 }, (_, n) => of('honest', `${round}-${n}`)));
    assert.ok(answers.every(({ status }) => status === 503));
  }
  assert.ok(all.honest.requests <= before + 1, `${all.honest.requests}`);
  assert.equal((await of('honest')).status, 200);
  assert.equal((await ask(hmac({}, claims()))).status, 200);
  assert.equal(await metric('stentor_auth_waiting_tokens'), 0);
});
