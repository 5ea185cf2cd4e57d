// Who may connect: a server with tokens, and what clients see of it.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { admin, issuer, now, SECRET, token } from './admin.mjs';
import { feedsFrom, JOIN, serve, upstream } from './harness.mjs';

/** A token of user `sub`. */
export const user = (sub, claims, options) => token({ sub, jti: randomUUID(), ...claims }, options);
const tokens = {
  none: () => undefined,
  good: () => user('42'),
  expired: () => user('42', { iat: now() - 600, exp: now() - 1 }),
  wrong: () => user('42', {}, { secret: `${SECRET.slice(1)}!` }),
};

/** The origin of pages that may connect. */
export const PAGE = 'https://app.example.com';

const config = (url) => `${feedsFrom(url)}
[origins]
allow = ["${PAGE}"]
[auth]
cookie = "session"
renewal_lead = "60s"
${issuer}[[permissions]]
topics = ["user/{sub}", "user:{sub}"]
allow = ["subscribe", "publish", "history"]
${JOIN}`;

/** A server whose users may read their own feed. */
export async function start(t) {
  const api = await upstream(t);
  for (const user of ['42', '43']) api.documents.set(`user/${user}`, { user });
  const server = await serve(t, { args: ['--cores', '1'], config: config(api.url) });
  const revoke = (body) => admin(server, 'revocations', body);
  return { ...server, revoke };
}

const outcomes = (none, expired, wrong, revoked) => ({ none, expired, wrong, revoked });
const closes = outcomes('closed 4408', 'closed 4505', 'closed 4408', 'closed 4407');
const refused = (how, revoked) => outcomes(how, how, how, revoked);
const namesErrors = (revoked) => outcomes('refused token_missing', 'refused token_expired', 'refused token_invalid', revoked);

// What each client sees. `revoked`: how it ends then; those that reconnect by themselves are refused after that.
export const expected = {
  'WebSocket of a page': closes,
  'WebSocket of a program': refused('refused 401', 'closed 4407'),
  SockJS: closes,
  // Without an Origin, as in Node, its WebSocket is refused with a status.
  'SockJS over WebSocket': refused('closed 2000', 'closed 4407'),
  Primus: refused('refused 401', 'closed'),
  'Engine.IO, polling': refused('refused 401', 'closed transport close'),
  'Engine.IO, WebSocket': refused('refused', 'closed transport close'),
  'Socket.IO 4': namesErrors('closed io server disconnect'),
  'Socket.IO 4, polling': namesErrors('closed io server disconnect'),
  'Socket.IO 3': namesErrors('closed io server disconnect'),
  'Socket.IO 2': refused('refused', 'closed io server disconnect'),
  EventSource: refused('refused 401', 'refused 401'),
  // It sends an Origin, as a page does.
  'websocket-client for Python': closes,
  'python-socketio 5, threads': namesErrors('closed server disconnect'),
  'python-socketio 5, asyncio': namesErrors('closed server disconnect'),
  'python-socketio 4, threads': refused('refused', 'closed'),
  'httpx-sse': refused('refused 401', 'closed'),
  'Chromium, WebSocket': closes,
  'Chromium, SockJS': closes,
  'Chromium, Engine.IO': refused('refused 401', 'closed transport close'),
  'Chromium, Socket.IO 4': namesErrors('closed io server disconnect'),
  'Chromium, Socket.IO 2': refused('refused', 'closed io server disconnect'),
  // Its `error` event has no status.
  'Chromium, EventSource': refused('refused', 'refused'),
};

export const query = (with_) => (with_ ? `?token=${with_}` : '');

/** What the functions of a client of stentor.v1 are. */
export function v1(seen, received, send) {
  const answer = async () => {
    const { type, code } = await received.next('an answer');
    return type === 'ok' ? 'ok' : code;
  };
  return {
    seen,
    expiring: async () => assert.equal((await received.next('token_expiring')).type, 'token_expiring'),
    ask: (room) => { send({ type: 'subscribe', room }); return answer(); },
    renew: (newer) => { send({ type: 'auth', token: newer }); return answer(); },
  };
}

/** The same of a client of Socket.IO. `ask` emits an event and gives `ok`, or the code of the error. */
export const overSocketIo = (seen, notice, ask) => ({
  seen,
  expiring: async () => assert.ok((await notice()).expires_in_ms > 0),
  ask: (room) => ask('join', room),
  renew: (newer) => ask('stentor:auth', { token: newer }),
});

/** A client that connects with each kind of token, renews its token, and whose user is revoked. */
export async function checkClient(t, name, open) {
  const server = await start(t);
  for (const kind of ['none', 'expired', 'wrong']) {
    const client = open(server, tokens[kind](), t);
    assert.equal(await client.seen.next(`the refusal (${kind})`), expected[name][kind], kind);
  }
  const client = open(server, tokens.good(), t);
  assert.equal(await client.seen.next('the connection'), 'open');
  if (client.ask) {
    assert.equal(await client.ask('user:42'), 'ok');
    assert.equal(await client.ask('user:43'), 'not_allowed');
    // Renewed when the server asks for it, for the same user only.
    await server.revoke({ subject: '42', action: 'refresh' });
    await client.expiring();
    assert.equal(await client.renew(user('43')), 'not_allowed');
    assert.equal(await client.renew(user('42')), 'ok');
    assert.equal(await client.ask('user:42'), 'ok');
  }
  const old = user('42', { iat: now() - 10 });
  await server.revoke({ subject: '42' });
  assert.equal(await client.seen.next('the end'), expected[name].revoked);
  const late = open(server, old, t);
  assert.match(await late.seen.next('the refusal of a revoked token'), /^(refused|closed)/);
  const other = open(server, user('43'), t);
  if (other.ask) assert.equal(await other.seen.next('the connection'), 'open', 'nobody else is concerned');
  assert.ok(!server.log.some((line) => line.includes('eyJ')), 'a token is in the log');
  assert.ok(!(await (await fetch(`${server.admin}/metrics`)).text()).includes('eyJ'), 'a token is in the metrics');
}
