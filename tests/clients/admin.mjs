// A server's admin API and metrics, and tokens of its clients.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';

/** What the admin API answers: to a POST request if there is a body, otherwise to GET. The request has to succeed. */
export async function admin(server, path, body) {
  const request = body && { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
  const response = await fetch(`${server.admin}/api/v1/${path}`, request);
  const answer = await response.json();
  assert.equal(response.status, 200, `${path}: ${JSON.stringify(answer)}`);
  return answer;
}

/** Publishes messages with one request, in order. */
export async function publish(server, ...messages) {
  const body = messages.map((message) => JSON.stringify(message)).join('\n');
  const response = await fetch(`${server.admin}/api/v1/publish`, { method: 'POST', headers: { 'Content-Type': 'application/x-ndjson' }, body });
  assert.deepEqual(await response.json(), { published: messages.length });
}

/** Writes another configuration and has the server read it: the answer, with its `status`. */
export async function reload(server, config) {
  writeFileSync(server.configFile, config);
  const response = await fetch(`${server.admin}/api/v1/reload`, { method: 'POST' });
  return { status: response.status, ...await response.json() };
}

/** Pushes a document. */
export async function push(server, key, document) {
  const request = { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(document) };
  assert.equal((await fetch(`${server.admin}/api/v1/feeds/${key}`, request)).status, 200);
}

/** The samples of a metric by their labels, without the braces. */
export async function samples(server, name) {
  const text = await (await fetch(`${server.admin}/metrics`)).text();
  const found = text.matchAll(new RegExp(`^stentor_${name}(?:\\{(.*)\\})? (\\S+)$`, 'gm'));
  return Object.fromEntries([...found].map(([, labels = '', value]) => [labels, Number(value)]));
}

/** The sum of a metric's samples whose labels have all this text; NaN if there is none. */
export async function metric(server, name, text = '') {
  const values = Object.entries(await samples(server, name)).filter(([labels]) => labels.includes(text)).map(([, value]) => value);
  return values.length === 0 ? NaN : values.reduce((sum, value) => sum + value);
}

/** The key with which `token` signs. */
export const SECRET = '0123456789abcdef0123456789abcdef';
export const ISSUER = 'https://id.example.com/';

/** The time as tokens have it. */
export const now = () => Math.floor(Date.now() / 1000);

const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** A token of `ISSUER` with HS256 that is valid for ten minutes, unless the claims say otherwise. */
export function token(claims, { secret = SECRET, header = {} } = {}) {
  const text = `${part({ alg: 'HS256', ...header })}.${part({ iss: ISSUER, iat: now(), exp: now() + 600, ...claims })}`;
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
}

/** The configuration of the issuer of these tokens. */
export const issuer = `
[[auth.issuers]]
issuer = "${ISSUER}"
algorithms = ["HS256"]
keys = [{ secret = "${SECRET}" }]
`;
