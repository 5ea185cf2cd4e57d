// Everything that @stentor/client can do, as a table that runs over each transport, in Node and in pages.
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import { admin, issuer } from './admin.mjs';
import { user } from './auth.mjs';
import { client, version } from './client.mjs';
import { feedsFrom, PATIENCE_MS, serve, until, upstream, within } from './harness.mjs';
import { backend, hook } from './hook-backends.mjs';
import { proxy } from './proxy.mjs';

const config = (api, hooks) => `${feedsFrom(api)}
[rooms]
history_length = 100
presence = ["news/"]
presence_grace = "1s"
[auth]
${issuer}[[permissions]]
topics = ["news/*", "live/*", "user:{sub}"]
allow = ["subscribe", "publish", "history", "presence"]
[[rules]]
event = "say"
broadcast = ["{room}"]
${hook('app', hooks, 'on = ["event"]')}`;

/** Tokens of the user `ann`: more than a test asks for. */
const TOKENS = 100;

/**
 * Connects and notes what happens. It runs in Node or in a page, so it names nothing outside of itself. `tokens` are those that `getToken` returns, one
 * after the other.
 */
export function open(connect, { url, options, tokens }) {
  const it = { asked: [], states: [], errors: [], versions: [], kinds: [], heard: [], whispered: [] };
  const getToken = ({ reason }) => tokens[it.asked.push(reason) - 1];
  if (options.transport === 'socket.io') {
    const { Manager } = options.io ?? globalThis.io;
    const Watched = class extends Manager {
      constructor(...args) {
        super(...args);
        it.engine = this.engine;
      }
    };
    options = { ...options, io: { Manager: Watched } };
  }
  it.stentor = connect(url, { ...options, getToken });
  it.stentor.on('state', (state) => it.states.push(state));
  it.stentor.on('error', ({ code, message }) => it.errors.push(`${code}: ${message}`));
  it.stentor.on('message', (data, { event }) => it.whispered.push([event, data]));
  it.feed = it.stentor.feed('live/1');
  it.feed.on('change', (document, { kind }) => {
    it.versions.push(document.n);
    it.kinds.push(kind);
  });
  it.room = it.stentor.room('news/1');
  it.room.on('message', (data, { event }) => it.heard.push(event ? [event, data] : data));
  it.presence = it.room.presence();
  // Of an error, only its message passes from a page to the test.
  it.failure = (promise) => promise.then(() => undefined, ({ code, retry, outcome }) => ({ code, retry, outcome }));
  return it;
}

const NUMBERS = Array.from({ length: 50 }, (_, n) => n);

/**
 * What each transport has to do, in this order. `act(run, value)` gives what `run(it, value)` gives beside the client, where `it` is that of `open`; so
 * `run` names nothing outside of itself.
 */
export const cells = {
  feed: async ({ act, api, has, transport }) => {
    await has(1);
    api.documents.set('live/1', version(2));
    await has(2);
    const kinds = await act(({ kinds }) => kinds);
    // Polls bring what has changed since the last one.
    if (transport !== 'polling') assert.deepEqual(kinds, ['snapshot', 'delta']);
  },

  room: async ({ act, ben, hears }) => {
    await until('joined', () => act(({ room }) => room.state === 'joined'));
    await ben.publish('news/1', { text: 'hello' }, 'said');
    await hears(['said', { text: 'hello' }]);
  },

  presence: async ({ ben, users }) => {
    await users('ann');
    const room = ben.room('news/1');
    await users('ann', 'ben');
    room.close();
    await users('ann');
    ben.room('news/1');
    await users('ann', 'ben');
  },

  publish: async ({ act, hears }) => {
    await act(({ stentor }) => Promise.all([stentor.publish('news/1', 1), stentor.publish('news/1', { text: 'two' }, 'said')]).then(() => {}));
    await hears(1, ['said', { text: 'two' }]);
    const refused = await act(({ stentor, failure }) => failure(stentor.publish('secret', 1)));
    assert.deepEqual(refused, { code: 'not_allowed', retry: false, outcome: 'not_published' });
  },

  emitWithAck: async ({ act, hears, reads }) => {
    await act(({ stentor }) => stentor.emitWithAck('say', { room: 'news/1', n: 3 }));
    await hears(['say', { room: 'news/1', n: 3 }]);
    const answers = await act(({ stentor }, numbers) => Promise.all(numbers.map((n) => stentor.emitWithAck('count', n))), NUMBERS);
    assert.deepEqual(answers, NUMBERS.map((data) => ({ event: 'count', data })));
    const refused = await act(({ stentor, failure }) => failure(stentor.emitWithAck('refuse')));
    assert.deepEqual(refused, { code: 'not_today', retry: false, outcome: 'not_published' });
    await act(({ stentor }) => stentor.emit('whisper', 'hello'));
    await reads(({ whispered }) => whispered, [['whispered', 'hello']]);
    assert.deepEqual(await act(({ errors }) => errors), []);
  },

  // What was missed follows, once and in order, and what waited is sent.
  resume: async ({ act, api, ben, between, has, hears, users }) => {
    await act((it) => { it.states.length = 0; });
    between.refuses = () => true;
    between.cut();
    await until('the cut', () => act(({ states }) => states.includes('waiting')));
    await ben.publish('news/1', 4);
    await ben.publish('news/1', 5);
    api.documents.set('live/1', version(3));
    await act((it) => { it.waited = it.stentor.publish('news/1', 6); });
    between.refuses = () => false;
    await within(act(({ waited }) => waited), 'what waited');
    await hears(4, 5, 6);
    await has(3);
    await users('ann', 'ben');
    assert.equal(await act(({ room }) => room.state), 'joined');
  },

  // The server has it, its answer is lost with the connection, and the client sends it again.
  'publish with an id': async ({ act, ben, between, hears }) => {
    const heard = new Promise((resolve) => { ben.room('news/1').on('message', resolve); });
    // While Socket.IO's client changes to a WebSocket, it sends nothing until its poll has been answered.
    await until('the upgrade', () => act(({ engine }) => !engine || engine.transport.name === 'websocket' || engine.transports.length === 1));
    between.stall();
    await act((it) => { it.repeated = it.stentor.publish('news/1', 'once', 'said', { id: 'one' }); });
    assert.equal(await within(heard, 'the message'), 'once');
    between.cut();
    between.flow();
    await within(act(({ repeated }) => repeated), 'the second answer');
    await hears(['said', 'once']);
  },

  // The server asks for a newer token, which opens nothing.
  'token renewal': async ({ act, server }) => {
    const before = await act(({ stentor, asked }) => ({ session: stentor.session, asked: asked.length }));
    await admin(server, 'revocations', { subject: 'ann', action: 'refresh' });
    await until('a question for a token', () => act(({ asked }, count) => asked.slice(count).includes('expiring'), before.asked));
    // The answer to the token comes before that to the publication.
    await act(({ stentor }) => stentor.publish('news/1', 7));
    const after = await act(({ stentor, errors }) => ({ session: stentor.session, errors }));
    assert.deepEqual(after, { session: before.session, errors: [] });
  },

  // The session ends with its client, and at once.
  close: async ({ act, server }) => {
    await act(({ stentor }) => stentor.close());
    await until('one session is left', async () => (await admin(server, 'sessions', { rooms: ['news/1'] })).sessions.length === 1);
  },
};

/** A server with an API, a backend for events, and a proxy that can cut connections. */
async function start(t) {
  const api = await upstream(t);
  api.documents.set('live/1', version(1));
  const answer = ({ event, arguments: [data] }) => {
    if (event === 'refuse') return { allow: false, code: 'not_today', message: 'come back tomorrow' };
    return event === 'whisper' ? { emit: [{ event: 'whispered', data }] } : { ack: [{ event, data }] };
  };
  const hooks = await backend(t, { answer });
  const server = await serve(t, { config: config(api.url, hooks.url) });
  return { api, server, between: await proxy(t, server.http) };
}

/**
 * Runs the table over a transport, each cell as a test of its own. `connected({ url, options, tokens })` connects the client, and gives its `act`; the
 * others connect in Node. After a cell that has failed, the rest is skipped.
 */
export async function everything(t, transport, connected) {
  const { api, server, between } = await start(t);
  const ben = client(t, server.http, { getToken: () => user('ben') });
  const options = { backoff: { initialMs: 20, maxMs: 200 }, heartbeatTimeoutMs: PATIENCE_MS, connectTimeoutMs: PATIENCE_MS };
  const act = await connected({ url: between.url, options, tokens: Array.from({ length: TOKENS }, () => user('ann')) });
  const reads = async (read, expected) => {
    let found;
    await until(() => `${JSON.stringify(expected)}, not ${JSON.stringify(found)}`, async () => isDeepStrictEqual(found = await act(read), expected));
  };
  const heard = [];
  const world = {
    act, api, ben, between, reads, server, transport,
    /** Waits until the feed has version `n`, never having gone back. */
    async has(n) {
      await reads(({ feed: { document, state } }) => [state, document], ['live', version(n)]);
      const versions = await act(({ versions }) => versions);
      assert.deepEqual(versions, [...versions].sort((a, b) => a - b));
    },
    /** Waits until the room has had these messages after the earlier ones, and no other. */
    hears: (...messages) => reads(({ heard }) => heard, (heard.push(...messages), heard)),
    users: (...names) => reads(({ presence }) => presence.isCurrent && presence.members.map(({ user }) => user).sort(), names),
  };
  let hasFailed = false;
  for (const [name, check] of Object.entries(cells)) {
    await t.test(name, { skip: hasFailed }, async () => {
      hasFailed = true;
      await check(world);
      hasFailed = false;
    });
  }
}
