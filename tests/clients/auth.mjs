// Who may connect: a server with tokens, and what clients see of it.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { admin, issuer, now, SECRET, token } from './admin.mjs';
import { feedsFrom, serve, upstream } from './harness.mjs';

/** A token of user `sub`. */
export const user = (sub, claims, options) => token({ sub, jti: randomUUID(), ...claims }, options);
const tokens = {
  none: () => undefined,
  good: () => user('42'),
  expired: () => user('42', { iat: now() - 600, exp: now() - 1 }),
  wrong: () => user('42', {}, { secret: `${SECRET.slice(1)}!` }),
};

/** How long a token lives that is renewed: clients on a busy machine connect, and renew it, within half of this. */
export const LIFE_S = 20;

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
[[rules]]
event = "join"
join = ["{}"]
ack = true
`;

/** A server whose users may read their own feed. */
export async function start(t) {
  const api = await upstream(t);
  for (const user of ['42', '43']) api.documents.set(`user/${user}`, { user });
  const server = await serve(t, { args: ['--cores', '1'], config: config(api.url) });
  const revoke = (body) => admin(server, 'revocations', body);
  return { ...server, revoke };
}

// What each client sees. `revoked`: how it ends then; those that reconnect by themselves are refused after that.
export const expected = {
  'WebSocket of a page': { none: 'closed 4408', expired: 'closed 4505', wrong: 'closed 4408', revoked: 'closed 4407' },
  'WebSocket of a program': { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'closed 4407' },
  SockJS: { none: 'closed 4408', expired: 'closed 4505', wrong: 'closed 4408', revoked: 'closed 4407' },
  // Without an Origin, as in Node, its WebSocket is refused with a status.
  'SockJS over WebSocket': { none: 'closed 2000', expired: 'closed 2000', wrong: 'closed 2000', revoked: 'closed 4407' },
  Primus: { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'closed' },
  'Engine.IO, polling': { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'closed transport close' },
  'Engine.IO, WebSocket': { none: 'refused', expired: 'refused', wrong: 'refused', revoked: 'closed transport close' },
  'Socket.IO 4': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed io server disconnect' },
  'Socket.IO 4, polling': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed io server disconnect' },
  'Socket.IO 3': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed io server disconnect' },
  'Socket.IO 2': { none: 'refused', expired: 'refused', wrong: 'refused', revoked: 'closed io server disconnect' },
  EventSource: { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'refused 401' },
  // It sends an Origin, as a page does.
  'websocket-client for Python': { none: 'closed 4408', expired: 'closed 4505', wrong: 'closed 4408', revoked: 'closed 4407' },
  'python-socketio 5, threads': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed server disconnect' },
  'python-socketio 5, asyncio': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed server disconnect' },
  'python-socketio 4, threads': { none: 'refused', expired: 'refused', wrong: 'refused', revoked: 'closed' },
  'httpx-sse': { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'closed' },
  'Chromium, WebSocket': { none: 'closed 4408', expired: 'closed 4505', wrong: 'closed 4408', revoked: 'closed 4407' },
  'Chromium, SockJS': { none: 'closed 4408', expired: 'closed 4505', wrong: 'closed 4408', revoked: 'closed 4407' },
  'Chromium, Engine.IO': { none: 'refused 401', expired: 'refused 401', wrong: 'refused 401', revoked: 'closed transport close' },
  'Chromium, Socket.IO 4': { none: 'refused token_missing', expired: 'refused token_expired', wrong: 'refused token_invalid', revoked: 'closed io server disconnect' },
  'Chromium, Socket.IO 2': { none: 'refused', expired: 'refused', wrong: 'refused', revoked: 'closed io server disconnect' },
  // Its `error` event has no status.
  'Chromium, EventSource': { none: 'refused', expired: 'refused', wrong: 'refused', revoked: 'refused' },
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
    // Renewed, for the same user only, when half of its life has passed: `auth.renewal_lead` is longer.
    const brief = open(server, user('42', { exp: now() + LIFE_S }), t);
    assert.equal(await brief.seen.next('the connection'), 'open');
    await brief.expiring();
    assert.equal(await brief.renew(user('43')), 'not_allowed');
    assert.equal(await brief.renew(user('42')), 'ok');
    assert.equal(await brief.ask('user:42'), 'ok');
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
