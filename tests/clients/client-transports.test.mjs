// @stentor/client in Node against the real server, by each transport: the server is killed and another one started, networks refuse a
// transport. What an application has is always a version that there was, never older than before, and in the end the newest.
// all/client-browser.test.mjs has servers that are paused, and connections that are cut at random.
import assert from 'node:assert/strict';
import http from 'node:http';
import net from 'node:net';
import test, { describe } from 'node:test';
import { UTF8_KEYS } from '../../clients/js/src/index.js';
import { admin } from './admin.mjs';
import { client, follow, TRANSPORTS, version } from './client.mjs';
import { gateway } from './gateway.mjs';
import { feedsFrom, listening, serve, until, upstream, within } from './harness.mjs';
import { freePorts } from './proxies.mjs';
import { proxy } from './proxy.mjs';

// What takes time is waiting.
describe('transports', { concurrency: true }, () => { for (const transport of TRANSPORTS) {
  describe(`by ${transport}`, { concurrency: true }, () => {
    test('documents, their changes, and what does not exist', async (t) => {
      const api = await upstream(t);
      const server = await serve(t, { config: feedsFrom(api.url) });
      const connection = client(t, server.http, { transport });
      api.documents.set('live/1', version(1));
      api.documents.set('live/2', version(2));
      const [one, two, none] = ['live/1', 'live/2', 'live/none'].map((key) => connection.feed(key));
      const bad = ['', 'a//b', '/a', 'a/', '../admin', 'a/./b', 'a b', 'a/..', 'é', 'a'.repeat(257)].map((key) => connection.feed(key));
      assert.deepEqual(bad.map(({ state }) => state), bad.map(() => 'not_found'));
      const [first, second] = [one, two].map(follow);
      await Promise.all([first.has(1), second.has(2)]);
      assert.equal(connection.transport, transport);
      assert.equal(connection.state, 'open');
      for (let n = 3; n < 8; n++) {
        api.documents.set('live/1', version(n));
        await first.has(n);
      }
      const kinds = first.changes.map(({ kind }) => kind);
      assert.deepEqual(kinds, ['snapshot', ...Array(5).fill('delta')]);
      await until(() => `there is none: ${none.state}`, () => none.state === 'not_found');
      assert.ok(none.reason);
      // Asking again is the application's decision.
      const again = connection.feed('live/none');
      assert.equal(none.state, 'loading');
      await until(() => `there is still none: ${again.state}`, () => again.state === 'not_found');
      two.close();
      one.close();
    });

    test('keys with any characters', async (t) => {
      const api = await upstream(t);
      const server = await serve(t, { config: `${feedsFrom(api.url)}keys = "utf8"\n` });
      const connection = client(t, server.http, { transport, keys: UTF8_KEYS });
      const escaped = (c) => [...Buffer.from(c)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
      const keys = ['São Paulo', "o'brien@example.com", '50%/a b', 'a?b#c&d', 'x;y!1!2', '"<b>"/*'];
      const publish = (n) => {
        for (const key of keys) api.documents.set(key.replace(/[^\w.~@:=+,/-]/gu, escaped), version(n));
      };
      publish(1);
      const feeds = keys.map((key) => follow(connection.feed(key)));
      await Promise.all(feeds.map((feed) => feed.has(1)));
      const bad = ['', 'a//b', 'a/../b', ' ..;x/a', 'a/.?b', '%41', 'a\\b', 'a\u202eb', 'a\nb'].map((key) => connection.feed(key));
      assert.deepEqual(bad.map(({ state }) => state), bad.map(() => 'not_found'));
      // A new carrier names the positions.
      connection.reconnect();
      publish(2);
      await Promise.all(feeds.map((feed) => feed.has(2)));
      for (const { changes } of feeds) assert.equal(changes.at(-1).kind, 'delta');
    });

    test('documents that are no JSON: text, and bytes that are no text', async (t) => {
      const api = await upstream(t);
      const server = await serve(t, { config: `${feedsFrom(api.url)}content = "any"\n` });
      const connection = client(t, server.http, { transport });
      for (const [key, body] of [['text', Buffer.from('Müller')], ['bytes', Buffer.from('Müller', 'latin1')]]) {
        api.documents.set(key, (_, response) => response.writeHead(200, { 'Content-Type': 'application/octet-stream' }).end(body));
      }
      const [text, bytes] = ['text', 'bytes'].map((key) => connection.feed(key));
      await until(() => `both are live: ${text.state}, ${bytes.state}`, () => text.state === 'live' && bytes.state === 'live');
      assert.equal(text.document, 'Müller');
      assert.deepEqual(bytes.document, Uint8Array.from(Buffer.from('Müller', 'latin1')));
    });

    test('the server is killed, and another one started', async (t) => {
      const api = await upstream(t);
      let server = await serve(t, { config: feedsFrom(api.url) });
      const between = await proxy(t, server.http);
      const connection = client(t, between.url, { transport });
      api.documents.set('a', version(1));
      const feed = connection.feed('a');
      const seen = follow(feed);
      await seen.has(1);
      const { epoch } = feed;
      server.child.kill('SIGKILL');
      await seen.wasStale();
      assert.equal(seen.newest, 1, 'what was there stays');
      api.documents.set('a', version(2));
      server = await serve(t, { config: feedsFrom(api.url) });
      between.target = server.http;
      await seen.has(2);
      assert.notEqual(feed.epoch, epoch, 'another life of the feed');
      assert.deepEqual(seen.states, ['live', 'stale', 'live']);
      // And back within the same server: only what is missed, and nothing twice.
      const before = seen.changes.length;
      // Between two polls it isn't noticed, and Engine.IO begins with polls.
      const cut = () => {
        between.cut();
        return ['polling', 'socket.io'].includes(transport) || seen.wasStale();
      };
      await cut();
      await seen.has(2);
      assert.equal(seen.changes.length, before);
      await cut();
      api.documents.set('a', version(3));
      await seen.has(3);
      assert.equal(seen.changes.at(-1).kind, 'delta');
    });
  });
} });

test('500 feeds over HTTP, and one more', async (t) => {
  const api = await upstream(t);
  const keys = Array.from({ length: 500 }, (_, n) => `scores/of/match/${n}`);
  for (const key of [...keys, 'one-more']) api.documents.set(key, { key });
  const server = await serve(t, { config: feedsFrom(api.url, '60s') });
  const between = await proxy(t, server.http);
  const connection = client(t, between.url, { transport: 'sse' });
  const feeds = keys.map((key) => connection.feed(key));
  const versions = feeds.map(() => 0);
  feeds.forEach((feed, n) => feed.on('change', () => { versions[n] += 1; }));
  const areLive = () => until(() => `${feeds.filter(({ state }) => state === 'live').length} live feeds`, () => feeds.every(({ state }) => state === 'live'));
  await areLive();
  feeds.push(connection.feed('one-more'));
  await areLive();
  assert.deepEqual(feeds.map(({ document }) => document.key), [...keys, 'one-more']);
  assert.deepEqual(versions, keys.map(() => 1));
});

// A server that is silent is found out soon.
const BRIEF = { heartbeatTimeoutMs: 1_000, connectTimeoutMs: 1_000 };

describe('the state is `open` only while the server answers', { concurrency: true }, () => {
  /** Everything that a connection reports as its state. */
  const states = (connection) => {
    const all = [];
    connection.on('state', (state) => all.push(state));
    return all;
  };
  const isTriedTwice = (all) => until(() => all.join(), () => all.filter((state) => state === 'waiting').length > 1 || all.includes('refused') || all.includes('open'));

  for (const transport of TRANSPORTS) {
    test(`${transport}: no server, a server that refuses, one that closes, one that is silent`, async (t) => {
      const web = (answer, upgrade) => http.createServer(answer).on('upgrade', (_, socket) => upgrade(socket.on('error', () => {})));
      const servers = {
        refusing: web((_, response) => response.writeHead(403).end('no\n'), (socket) => socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n')),
        failing: web((_, response) => response.writeHead(502).end(), (socket) => socket.destroy()),
        closing: net.createServer((socket) => socket.destroy()),
        silent: net.createServer((socket) => socket.resume().on('error', () => {})),
      };
      // The last port is nobody's while this runs.
      const ports = [...await Promise.all(Object.values(servers).map((server) => listening(t, server))), ...await freePorts(1)];
      await Promise.all(ports.map(async (port, n) => {
        for (const subscribes of [false, true]) {
          const connection = client(t, `http://127.0.0.1:${port}`, { transport, ...BRIEF });
          if (subscribes) connection.feed('a');
          const all = states(connection);
          await isTriedTwice(all);
          assert.ok(!all.includes('open'), `${Object.keys(servers)[n] ?? 'absent'}: ${all}`);
          connection.close();
        }
      }));
    });

    test(`${transport}: a server that stops while nothing is subscribed`, async (t) => {
      const server = await serve(t);
      const connection = client(t, server.http, { transport, ...BRIEF });
      const all = states(connection);
      await until(() => all.join(), () => connection.state === 'open');
      server.child.kill('SIGKILL');
      await server.closed;
      await until(() => all.join(), () => connection.state !== 'open');
      const { length } = all;
      await until(() => all.join(), () => all.length > length + 2);
      assert.ok(!all.includes('open', length), all.join());
    });
  }

  for (const transport of ['sse', 'polling']) {
    test(`${transport}: the end of a lost session is repeated until the server knows it`, async (t) => {
      const server = await serve(t, { config: '[rooms]\npublish = true' });
      const between = await gateway(t, server.http);
      const connection = client(t, between.url, { transport });
      const room = connection.room('chat');
      await until('joined', () => room.state === 'joined');
      const isEnd = ({ url }) => url.includes('end=1');
      let refused = 0;
      between.decide = (request) => (refused < 2 && (refused += isEnd(request), 'refuse'));
      between.cut();
      await between.met('ends', isEnd, 3);
      const alone = async () => (await admin(server, 'sessions', { rooms: ['chat'] })).count === 1 && room.state === 'joined';
      await until('the new session is the only one', alone);
    });
  }

  test('all feeds are closed, or exist no more: `sse` and `polling` still find out that the server stops', async (t) => {
    const api = await upstream(t);
    api.documents.set('a', version(1));
    await Promise.all(['sse', 'polling'].map(async (transport) => {
      const server = await serve(t, { config: feedsFrom(api.url) });
      const connection = client(t, server.http, { transport, ...BRIEF });
      const [feed, none] = ['a', 'none'].map((key) => connection.feed(key));
      await until(() => `${feed.state} ${none.state}`, () => feed.state === 'live' && none.state === 'not_found');
      feed.close();
      assert.equal(connection.state, 'open');
      server.child.kill('SIGKILL');
      await until(() => `${transport}: ${connection.state}`, () => connection.state === 'waiting');
    }));
  });
});

describe('lists of transports', { concurrency: true }, () => {
  const blocks = (...what) => (head) => what.some((pattern) => pattern.test(head));
  const webSocket = /upgrade: websocket/i;
  // Without a bound, the response doesn't end.
  const events = /^POST \/ndjson\?received=0 /;

  const check = async (t, { transport, refuses, options, expect }) => {
    const api = await upstream(t);
    const server = await serve(t, { config: feedsFrom(api.url) });
    const between = await proxy(t, server.http, { refuses });
    const connection = client(t, between.url, { transport, ...options });
    api.documents.set('a', version(1));
    const seen = follow(connection.feed('a'));
    await seen.has(1);
    assert.equal(connection.transport, expect);
    api.documents.set('a', version(2));
    await seen.has(2);
    return { api, server, between, connection, seen };
  };

  test('the first one that works is taken', async (t) => {
    const all = ['websocket', 'sse', 'polling'];
    for (const row of [
      { transport: all, expect: 'websocket' },
      { transport: all, refuses: blocks(webSocket), expect: 'sse' },
      { transport: all, refuses: blocks(webSocket, events), expect: 'polling' },
      { transport: ['sockjs', 'socket.io', 'polling'], options: { SockJS: undefined, io: undefined }, expect: 'polling' },
      { transport: ['websocket', 'socket.io'], refuses: blocks(webSocket), expect: 'socket.io' },
      { transport: ['websocket', 'sockjs'], refuses: blocks(webSocket), expect: 'sockjs' },
    ]) await check(t, row);
  });

  test('a restart is no reason to take less; a network that has changed is', async (t) => {
    const { api, server, between, connection, seen } = await check(t, { transport: ['websocket', 'polling'], expect: 'websocket' });
    // The other one is there at once: a transport that has worked is tried a few times only.
    const another = await serve(t, { config: feedsFrom(api.url) });
    between.target = another.http;
    server.child.kill('SIGKILL');
    await seen.wasStale();
    api.documents.set('a', version(3));
    await seen.has(3);
    assert.equal(connection.transport, 'websocket');
    between.refuses = blocks(webSocket);
    between.cut();
    api.documents.set('a', version(4));
    await seen.has(4);
    assert.equal(connection.transport, 'polling');
  });

  test('the first one is taken again when it works again', async (t) => {
    const transport = ['websocket', 'polling'];
    const { api, between, connection, seen } = await check(t, { transport, refuses: blocks(webSocket), options: { preferredRetryMs: 50 }, expect: 'polling' });
    // It was tried in vain meanwhile, which disturbs nobody.
    const { connections } = between;
    await until(() => `${between.connections} connections`, () => between.connections > connections + 3);
    assert.equal(connection.transport, 'polling');
    assert.ok(!seen.states.includes('stale'), seen.states.join());
    between.refuses = () => false;
    await until(() => `${connection.transport} ${connection.state}`, () => connection.transport === 'websocket' && connection.state === 'open');
    api.documents.set('a', version(3));
    await seen.has(3);
    // There it stays.
    assert.equal(connection.transport, 'websocket');
    assert.equal(new Set(seen.changes.map(({ epoch }) => epoch)).size, 1);
  });

  test('where none can ever work, that is said', async (t) => {
    const connection = client(t, 'http://127.0.0.1:9', { transport: ['sockjs', 'socket.io'], SockJS: undefined, io: undefined });
    const feed = connection.feed('a');
    await until(() => connection.state, () => connection.state === 'refused');
    assert.deepEqual([feed.state, feed.reason], ['not_found', 'io is missing: pass { io }']);
  });

  test('the transport is changed while a document is followed', async (t) => {
    const { api, connection, seen } = await check(t, { transport: 'websocket', expect: 'websocket' });
    let n = 2;
    for (const transport of [...TRANSPORTS.slice(1), ...TRANSPORTS]) {
      connection.use(transport);
      api.documents.set('a', version(++n));
      await seen.has(n);
      assert.equal(connection.transport, transport);
      assert.equal(connection.state, 'open');
    }
    assert.equal(new Set(seen.changes.map(({ epoch }) => epoch)).size, 1);
    assert.equal(seen.changes.length, n, 'each version once, whichever way it came');
  });
});

describe('rooms', { concurrency: true }, () => {
  for (const transport of TRANSPORTS) {
    test(`by ${transport}, with what was said meanwhile`, async (t) => {
      const api = await upstream(t);
      const server = await serve(t, { config: `${feedsFrom(api.url)}\n[rooms]\npublish = true\nhistory_length = 100\n` });
      const between = await proxy(t, server.http);
      const [ann, ben] = [between.url, server.http].map((url) => client(t, url, { transport }));
      const heard = [];
      ann.room('news').on('message', (data) => heard.push(data));
      await ben.publish('news', 0);
      await ann.publish('news', 1);
      await until(() => JSON.stringify(heard), () => heard.includes(1));
      let gone;
      ann.on('state', (state) => { gone ??= state; });
      // Between two polls, a cut is none.
      await until('the cut', () => {
        if (!gone) between.cut();
        return gone;
      });
      assert.equal(gone, 'waiting');
      await ben.publish('news', 2);
      const queued = ann.publish('news', { three: 3 }, 'event');
      await within(queued, 'what was said offline');
      // Ann may have come after ben's 0; and of two publishers on two cores either may be the first.
      const said = () => heard.filter((data) => data !== 0);
      await until(() => JSON.stringify(heard), () => said().length >= 3);
      assert.equal(said().length, 3);
      assert.deepEqual(new Set(said()), new Set([1, 2, { three: 3 }]));
    });
  }

  test('a server that does not take publications says so', async (t) => {
    const server = await serve(t);
    await assert.rejects(client(t, server.http).publish('news', 1), { code: 'not_allowed', message: /rooms\.publish/, retry: false });
  });
});
