// Writes vectors.json: a token per algorithm, signed by Node's OpenSSL, and the public keys.
//
//     node crates/auth/tests/vectors.mjs > crates/auth/tests/vectors.json

import { createHmac, constants, generateKeyPairSync, sign } from 'node:crypto';

const encode = (value) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
const claims = { iss: 'https://id.test/', sub: '42', aud: 'stentor', iat: 1700000000, exp: 1700003600 };
const secret = 'a secret that is long enough for every hash: 64 bytes and beyond.';
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
const pairs = {
  RS: rsa, PS: rsa,
  ES256: generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  ES384: generateKeyPairSync('ec', { namedCurve: 'P-384' }),
  EdDSA: generateKeyPairSync('ed25519'),
};

function signature(alg, message) {
  const hash = `sha${alg.slice(2)}`;
  switch (alg.slice(0, 2)) {
    case 'HS': return createHmac(hash, secret).update(message).digest('base64url');
    case 'Ed': return sign(null, message, pairs.EdDSA.privateKey).toString('base64url');
    case 'ES': return sign(hash, message, { key: pairs[alg].privateKey, dsaEncoding: 'ieee-p1363' }).toString('base64url');
    case 'RS': return sign(hash, message, rsa.privateKey).toString('base64url');
    default: {
      const key = { key: rsa.privateKey, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: constants.RSA_PSS_SALTLEN_DIGEST };
      return sign(hash, message, key).toString('base64url');
    }
  }
}

const tokens = {};
for (const alg of ['HS256', 'HS384', 'HS512', 'RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'EdDSA']) {
  const message = `${encode({ alg, typ: 'JWT', kid: alg.slice(0, 2) === 'PS' ? 'RS' : pairs[alg] ? alg : alg.slice(0, 2) })}.${encode(claims)}`;
  tokens[alg] = `${message}.${signature(alg, Buffer.from(message))}`;
}
const named = { RS: rsa, ES256: pairs.ES256, ES384: pairs.ES384, EdDSA: pairs.EdDSA };
const jwks = { keys: Object.entries(named).map(([kid, pair]) => ({ ...pair.publicKey.export({ format: 'jwk' }), kid, use: 'sig' })) };
const pem = Object.fromEntries(Object.entries(named).map(([kid, pair]) => [kid, pair.publicKey.export({ format: 'pem', type: 'spki' })]));
console.log(JSON.stringify({ secret, tokens, jwks, pem }, null, 1));
