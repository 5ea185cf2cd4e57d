// @stentor/client in Node: everything that it can do, over each of its transports.
import assert from 'node:assert/strict';
import test, { describe } from 'node:test';
import io2 from 'socket.io-client-2';
import { admin, issuer } from './admin.mjs';
import { user } from './auth.mjs';
import { client, follow, TRANSPORTS, version } from './client.mjs';
import { feedsFrom, queue, serve, until, upstream, within } from './harness.mjs';
import { backend, hook } from './hook-backends.mjs';
import { proxy } from './proxy.mjs';

const config = (api, hooks) => `${feedsFrom(api)}
[rooms]
history_length = 100
presence = ["news/"]
presence_grace = "10s"
[auth]
${issuer}[[permissions]]
topics = ["news/*", "live/*", "user:{sub}"]
allow = ["subscribe", "publish", "history", "presence"]
[[rules]]
event = "say"
broadcast = ["{room}"]
${hook('app', hooks, 'on = ["event"]')}`;

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

/** What each of them may be connected with beside its name. */
const variants = TRANSPORTS.map((transport) => [transport, { transport }]);
variants.push(
  ['socket.io by WebSocket only', { transport: 'socket.io', ioOptions: { transports: ['websocket'] } }],
  ['socket.io by polls only', { transport: 'socket.io', ioOptions: { transports: ['polling'] } }],
  ['socket.io-client 2', { transport: 'socket.io', io: io2 }],
);

describe('everything over each transport', { concurrency: true }, () => {
  for (const [name, options] of variants) {
    test(name, async (t) => {
      const { api, server, between } = await start(t);
      const reasons = queue();
      const mine = (name) => ({ getToken: ({ reason }) => { if (name === 'ann') reasons.put(reason); return user(name); } });
      const ann = client(t, between.url, { ...options, ...mine('ann') });
      const ben = client(t, server.http, { ...mine('ben') });
      const errors = [];
      ann.on('error', ({ code, message }) => errors.push(`${code}: ${message}`));

      // A feed, and a room with presence.
      const feed = follow(ann.feed('live/1'));
      const room = ann.room('news/1');
      const heard = [];
      room.on('message', (data, { event }) => heard.push(event ? [event, data] : data));
      const presence = room.presence();
      ben.room('news/1');
      await feed.has(1);
      const users = (...expected) => until(() => JSON.stringify(presence.members), () => presence.isCurrent && presence.members.map(({ user }) => user).sort().join() === expected.join());
      await users('ann', 'ben');
      api.documents.set('live/1', version(2));
      await feed.has(2);

      // Publications and events, in order: to the room, to its rule, to the backend.
      await Promise.all([ann.publish('news/1', 1), ann.publish('news/1', { text: 'two' }, 'said'), ann.emitWithAck('say', { room: 'news/1', n: 3 })]);
      const said = [1, ['said', { text: 'two' }], ['say', { room: 'news/1', n: 3 }]];
      const has = (expected) => until(() => JSON.stringify(heard), () => JSON.stringify(heard) === JSON.stringify(expected));
      await has(said);
      const many = Array.from({ length: 50 }, (_, n) => n);
      assert.deepEqual(await Promise.all(many.map((n) => ann.emitWithAck('count', n))), many.map((data) => ({ event: 'count', data })));
      await assert.rejects(ann.emitWithAck('refuse'), { code: 'not_today', retry: false, outcome: 'not_published' });
      await assert.rejects(ann.publish('secret', 1), { code: 'not_allowed' });
      const whispered = queue();
      ann.on('message', (data, { event }) => whispered.put([event, data]));
      ann.emit('whisper', 'hello');
      assert.deepEqual(await whispered.next('a message to this client alone'), ['whispered', 'hello']);
      assert.deepEqual(errors, []);

      // A cut: what was missed follows, once and in order, and what waited is sent.
      const isGone = new Promise((resolve) => { ann.on('state', resolve); });
      between.refuses = () => true;
      between.cut();
      assert.equal(await within(isGone, 'the cut'), 'waiting');
      await ben.publish('news/1', 4);
      await ben.publish('news/1', 5);
      api.documents.set('live/1', version(3));
      const waited = ann.publish('news/1', 6);
      between.refuses = () => false;
      await within(waited, 'what waited');
      await has([...said, 4, 5, 6]);
      await feed.has(3);
      await users('ann', 'ben');
      assert.equal(room.state, 'joined');

      // The server asks for a newer token. It opens nothing.
      const before = ann.session;
      await admin(server, 'revocations', { subject: 'ann', action: 'refresh' });
      let reason;
      do reason = await reasons.next('a question for a token'); while (reason !== 'expiring');
      await ann.publish('news/1', 7);
      assert.equal(ann.session, before);

      // Its session ends with it, and at once.
      ann.close();
      const members = () => admin(server, 'sessions', { rooms: ['news/1'] });
      await until('one session is left', async () => (await members()).sessions.length === 1);
    });
  }
});
