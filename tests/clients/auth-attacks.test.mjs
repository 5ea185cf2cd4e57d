// Attacks on tokens, against a running server: each is refused with a reason and counted. crates/control/tests/control/auth.rs has those on the
// keys of issuers.
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import test from 'node:test';
import { issuer, metric, now, push, token } from './admin.mjs';
import { serve, within } from './harness.mjs';

const config = `${issuer}audience = "stentor"
[[permissions]]
feeds = ["user/{sub}"]
allow = ["subscribe"]
[[feeds]]
name = "pushed"
push = true
`;

/** A token of user 42, unless the claims say otherwise. */
const sign = (claims, options) => token({ sub: '42', aud: 'stentor', ...claims }, options);

test('tokens that are forged, stale or meant for others are refused, each with its reason', async (t) => {
  const server = await serve(t, { config });
  await push(server, 'user/42', { n: 1 });
  const ask = async (bearer) => {
    const response = await within(fetch(`${server.http}/feed/user/42`, { headers: bearer === undefined ? {} : { Authorization: `Bearer ${bearer}` } }), 'an answer');
    return { status: response.status, challenge: response.headers.get('www-authenticate') ?? '', text: await response.text() };
  };
  const good = sign();
  assert.equal((await ask(good)).status, 200);
  const [message] = good.split(/\.[^.]*$/);
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const pem = publicKey.export({ format: 'pem', type: 'spki' });
  const attacks = [
    ['missing', undefined, 'token_missing'],
    ['malformed', 'nonsense', 'token_invalid'],
    ['malformed', `${message}.`.slice(0, 5), 'token_invalid'],
    ['signature', `${message}.`, 'token_invalid'],
    ['signature', sign({}, { secret: 'another secret of thirty-two bytes' }), 'token_invalid'],
    ['signature', sign({}, { secret: pem }), 'token_invalid'],
    ['header', `${sign({}, { header: { alg: 'none' } }).split('.').slice(0, 2).join('.')}.`, 'token_invalid'],
    ['header', sign({}, { header: { crit: ['exp'] } }), 'token_invalid'],
    ['header', sign({}, { header: { typ: 'logout+jwt' } }), 'token_invalid'],
    ['expired', sign({ exp: now() }), 'token_expired'],
    ['not_yet_valid', sign({ nbf: now() + 120 }), 'token_not_yet_valid'],
    ['audience', sign({ aud: 'other' }), 'token_invalid'],
    ['audience', sign({ aud: undefined }), 'token_invalid'],
    ['issuer', sign({ iss: 'unknown' }), 'token_invalid'],
    ['claim', sign({ sub: undefined }), 'token_invalid'],
    ['claim', sign({ stentor: { alow: [] } }), 'token_invalid'],
    ['lifetime', sign({ exp: now() + 30 * 24 * 3600 }), 'token_invalid'],
    ['too_long', sign({ x: 'x'.repeat(9000) }), 'token_invalid'],
  ];
  for (const [reason, token, code] of attacks) {
    const count = () => metric(server, 'auth_refusals_total', `reason="${reason}"`);
    const before = await count() || 0;
    const { status, challenge, text } = await ask(token);
    assert.equal(status, 401, `${reason}: ${text}`);
    assert.ok(challenge.startsWith('Bearer') && (challenge + text).includes(code) || code === 'token_missing', `${reason}: ${challenge} ${text}`);
    assert.equal(await count(), before + 1, reason);
  }
  // A claim that tries to be a pattern.
  for (const sub of ['*', '**', '42/x', '{sub}', '../42']) {
    assert.equal((await ask(sign({ sub }))).status, 403, sub);
  }
  assert.equal((await ask(good)).status, 200);
  // No line of the log has a token.
  assert.ok(!server.log.join('\n').includes('eyJ'), server.log.join('\n'));
});
