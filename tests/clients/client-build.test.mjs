// @stentor/client as it is shipped: the build for script tags, the types, the examples of its README.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { runInNewContext } from 'node:vm';
import { binary, feedsFrom, root, serve, temporary, upstream } from './harness.mjs';

const library = path.join(root, 'clients/js');
const skip = !existsSync(path.join(library, 'node_modules')) && 'run scripts/setup-tests';

const node = (cwd, ...args) => new Promise((resolve) => {
  execFile(process.execPath, args, { cwd, timeout: 250_000 }, (error, stdout, stderr) => resolve({ status: error ? error.code ?? error.signal : 0, output: stdout + stderr }));
});

/** A folder in which `@stentor/client` and what the tests use can be imported. */
function project(t) {
  const folder = mkdtempSync(path.join(root, 'tests/clients/.project-'));
  t.after(() => rmSync(folder, { recursive: true }));
  mkdirSync(path.join(folder, 'node_modules/@stentor'), { recursive: true });
  symlinkSync(library, path.join(folder, 'node_modules/@stentor/client'));
  return folder;
}

test('the build that is checked in is what its sources make, and small', { skip }, async () => {
  const { status, output } = await node(library, 'build.mjs', '--check');
  assert.equal(status, 0, output);
});

test('the server has it at /stentor.js, and at an address of its own with the hash that a page may check', async (t) => {
  const server = await serve(t);
  const text = readFileSync(path.join(library, 'dist/stentor.js'), 'utf8');
  const tag = execFileSync(binary, ['script-tag', server.http], { encoding: 'utf8' });
  // The tag is that of the README, with this build's hashes.
  const [, shown] = /^(<script .*HASH.*)$/m.exec(readFileSync(path.join(library, 'README.md'), 'utf8'));
  const pattern = shown.replace('https://live.example.com', server.http).replaceAll(/[.?/]/g, '\\$&').replaceAll('HASH', '([\\w+/=-]+)');
  const [, address, integrity] = new RegExp(`^${pattern}\n$`).exec(tag) ?? assert.fail(tag);
  assert.equal(integrity, createHash('sha384').update(text).digest('base64'));
  const files = { '/stentor.js': 'public, max-age=300', [`/stentor-${address}.js`]: 'public, max-age=31536000, immutable' };
  for (const [file, cached] of Object.entries(files)) {
    for (const [accepted, coding] of [['gzip, deflate, br', 'br'], ['gzip', 'gzip'], ['identity', null]]) {
      const headers = { 'Accept-Encoding': accepted };
      const response = await fetch(server.http + file, { headers });
      const seen = ['content-type', 'cache-control', 'content-encoding'].map((name) => response.headers.get(name));
      assert.deepEqual(seen, ['text/javascript; charset=utf-8', cached, coding], file);
      assert.equal(await response.text(), text);
      const again = await fetch(server.http + file, { headers: { ...headers, 'If-None-Match': response.headers.get('etag') } });
      assert.equal(again.status, 304);
    }
  }
  assert.equal((await fetch(`${server.http}/stentor-0123456789abcdef.js`)).status, 404);
});

test('without an address, the script connects to the prefix in its own', async () => {
  const text = readFileSync(path.join(library, 'dist/stentor.js'), 'utf8');
  for (const [src, expected] of [
    ['http://a.test/stentor.js', 'http://a.test/'],
    ['http://a.test/rt/stentor.js?v=1', 'http://a.test/rt/'],
    ['http://a.test/a/b/stentor-0123.js', 'http://a.test/a/b/'],
    // Of another server.
    ['http://b.test/rt/stentor.js', 'http://a.test/'],
    ['http://a.test.evil.test/rt/stentor.js', 'http://a.test/'],
    // A module, whose address isn't known.
    [undefined, 'http://a.test/'],
  ]) {
    let resolve;
    const asked = new Promise((done) => { resolve = done; });
    class WebSocket extends EventTarget {
      constructor(url) {
        super();
        resolve(`${url}`);
      }

      close() {}
    }
    const document = Object.assign(new EventTarget(), { currentScript: src && { src } });
    const names = ['URL', 'AbortController', 'AbortSignal', 'TextEncoder', 'setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance', 'crypto'];
    const scope = { document, location: new URL('http://a.test/page/'), WebSocket, ...Object.fromEntries(names.map((name) => [name, globalThis[name]])) };
    runInNewContext(text, scope);
    const client = scope.Stentor.connect(undefined, { transports: ['websocket'] });
    const address = await asked;
    client.close();
    assert.equal(new URL('.', address).href.replace(/^ws/, 'http'), expected, src);
  }
});

test('nothing is needed at run time', () => {
  assert.equal(JSON.parse(readFileSync(path.join(library, 'package.json'))).dependencies, undefined);
});

test('the package installs into an empty project, and its types fit what people write', { skip }, async (t) => {
  const folder = temporary(t);
  const npm = (cwd, ...args) => execFileSync('npm', [...args, '--offline', '--no-audit', '--no-fund', '--loglevel=error'], { cwd, encoding: 'utf8' });
  const [{ filename, files }] = JSON.parse(npm(library, 'pack', '--json', '--pack-destination', folder));
  assert.deepEqual(files.map((file) => file.path.split('/')[0]).filter((name, at, all) => all.indexOf(name) === at).sort(), ['README.md', 'dist', 'index.d.ts', 'package.json', 'react.d.ts', 'shared.d.ts', 'src', 'store.d.ts']);
  writeFileSync(path.join(folder, 'package.json'), '{ "private": true, "type": "module" }');
  npm(folder, 'install', path.join(folder, filename));
  assert.deepEqual(readdirSync(path.join(folder, 'node_modules')).filter((name) => !name.startsWith('.')), ['@stentor']);

  const check = async (source, expect, options = ['--module', 'nodenext']) => {
    writeFileSync(path.join(folder, 'use.ts'), source);
    const all = ['--noEmit', '--strict', '--target', 'es2022', ...options, 'use.ts'];
    const { status, output } = await node(folder, path.join(library, 'node_modules/typescript/bin/tsc'), ...all);
    assert.equal(status === 0, output === '', `${status}: ${output}`);
    assert.match(output, expect, source);
  };
  const everything = `
    import { connect, applyPatch, Connection, StentorError, UTF8_KEYS } from '@stentor/client';
    import { connectShared } from '@stentor/client/shared';
    import type {
      Change, ConnectOptions, ConnectionDetails, ConnectionState, Feed, FeedState, Json, Member, Operation, Presence, Room, RoomMessage,
      SubscribeOptions, Transport, Unsubscribe, RoomState, TokenReason, Client, Untyped,
    } from '@stentor/client';
    interface Score { home: number; away: number }
    const transport: Transport[] = ['websocket', 'sse', 'polling', 'socket.io', 'sockjs'];
    const options: ConnectOptions = {
      transport, io: {}, ioOptions: { transports: [] }, SockJS: class {}, WebSocket: class {}, fetch, connectTimeoutMs: 1, preferredRetryMs: 1,
      getToken: async ({ reason }: { reason: TokenReason }) => (reason === 'refused' ? undefined : 'token'),
      heartbeatTimeoutMs: 1, backoff: { initialMs: 100, maxMs: 200 }, queueMax: 1, queueCharsMax: 1, keys: UTF8_KEYS,
      autoConnect: false, publishTimeoutMs: 1_000, withCredentials: true,
    };
    const stentor: Connection = connect('https://live.example.com', options);
    connect(); connect(null); connect(new URL('https://live.example.com'), { transport: 'sse' });
    const subscribeOptions: SubscribeOptions = { rate: 2, delta: true, policy: 'latest' };
    const feed: Feed<Score> = stentor.feed<Score>('scores/8', subscribeOptions);
    const known: [string, Score | undefined, FeedState, string, number | undefined, number | undefined] =
      [feed.key, feed.document, feed.state, feed.reason, feed.epoch, feed.offset];
    const off: Unsubscribe = feed.on('change', (score, change: Change) => {
      const goals: number = score.home + score.away + change.epoch + change.offset + (change.chars ?? 0);
      if (change.kind === 'delta') for (const { op, path } of change.patch) console.log(op, path, goals, change.base);
    });
    feed.on('state', (state, reason) => { if (state === 'not_found') console.log(reason.length); });
    stentor.on('state', (state: ConnectionState, { transport, session, reason, code, retryMs }: ConnectionDetails) => {
      if (state === 'waiting') console.log(transport, session, reason, code, retryMs);
    });
    stentor.on('error', ({ code, message, retry, room, feed }: StentorError) => console.log(code.length, message, retry, room?.length, feed?.length));
    stentor.publish('lobby', { text: 'hello' }, 'said').catch((error: StentorError) => console.log(error.code, error.outcome === 'unknown'));
    const accepted: Promise<void> = stentor.publish('lobby', null, undefined, { timeoutMs: 1_000 });
    stentor.emit('join'); stentor.emit('join', { room: 'lobby' });
    const answer: Promise<{ sum: number }> = stentor.emitWithAck<{ sum: number }>('add', [1, 2], { timeoutMs: 1_000 });
    stentor.on('message', (data: Json, { event, encoding }) => console.log(answer, data, event?.length, encoding?.length));
    const room: Room<{ text: string }> = stentor.room<{ text: string }>('lobby');
    room.on('message', ({ text }, { event, epoch, offset, encoding }: RoomMessage) => console.log(room.name, text, event, epoch, offset, encoding));
    const membership: RoomState = room.state;
    room.on('state', (state: RoomState, reason) => console.log(membership, state, reason.length));
    const presence: Presence<{ name: string }> = room.presence<{ name: string }>();
    presence.on('join', ({ session, user, info, since }: Member<{ name: string }>) => console.log(session.length, user, info?.name, since + 1));
    presence.on('change', () => console.log(presence.room, presence.isCurrent, presence.count, presence.members.map(({ user }) => user)));
    presence.on('error', ({ code }) => console.log(code));
    presence.close();
    console.log(stentor.state === 'open', stentor.transport, stentor.session, known, accepted);
    stentor.use('socket.io'); stentor.use(transport); stentor.use('auto'); stentor.reconnect(); stentor.pause(); stentor.resume();
    off(); feed.close(); room.close(); stentor.close();
    const patch: Operation[] = [{ op: 'remove', path: '/a' }, { op: 'move', from: '/b', path: '/c' }, { op: 'add', path: '/d', value: 1 }];
    const document: Json = applyPatch({ a: 1, b: 2 }, patch);
    console.log(document);
    const tabs: Client<{ said: { text: string } }> = connectShared<{ said: { text: string } }>('https://live.example.com', options);
    tabs.publish('lobby', { text: 'hello' }, 'said');
    const untyped: Client<Untyped> = connect();
    console.log(untyped.feed('x').document, stentor.room('y').name);
  `;
  const typed = `
    import { connect, Client } from '@stentor/client';
    import { useConnection, useFeed, useRoom } from '@stentor/client/react';
    import { connectionStore, feedStore, roomStore, Store, FeedValue } from '@stentor/client/store';
    interface Score { home: number }
    interface Documents { [key: \`scores/\${string}\`]: Score; news: string[] }
    interface Events { said: { text: string }; left: number }
    const stentor: Client<Events, Documents> = connect<Events, Documents>('https://live.example.com');
    const goals: number | undefined = stentor.feed('scores/8').document?.home;
    stentor.publish('lobby', { text: 'hello' }, 'said');
    stentor.room('lobby').on('message', (data, { event }) => console.log(typeof data === 'number' ? data + 1 : data.text, event === 'left'));
    const { document, state } = useFeed(stentor, 'news', { initial: [], suspense: true, rate: 2 });
    const { messages, publish } = useRoom(stentor, 'lobby', { messagesMax: 10 });
    for (const message of messages) console.log(message.id, message.event === 'said' ? message.data.text.length : message.data + 1);
    publish(1, 'left', { timeoutMs: 1 });
    const store: Store<FeedValue<Score>> = feedStore(stentor, 'scores/9');
    const off = store.subscribe(({ document, reason }) => console.log(document?.home, reason));
    roomStore(stentor, 'lobby').subscribe(({ messages: [message] }) => console.log(message.event));
    connectionStore(stentor).subscribe(({ state, transport }) => console.log(state === 'open', transport));
    console.log(goals, document?.[0].length, state, useConnection(stentor).reason, off);
    const plain = connect();
    console.log(useFeed(plain, 'x').document, plain.feed<Score>('x').document?.home);
    useRoom(plain, 'lobby').publish({ any: 'json' }, 'said');
  `;
  await check(typed, /^$/);
  await check(`${typed} stentor.feed('other'); stentor.publish('lobby', 'text', 'said'); useFeed(stentor, 'other');`, /TS2769[^]*TS2769[^]*TS2345/);
  await check(everything, /^$/);
  await check(everything, /^$/, ['--module', 'esnext', '--moduleResolution', 'bundler']);
  await check(`import { connect } from '@stentor/client'; connect('x', { transport: 'pigeon' });`, /TS2322/);
  await check(`import { connect } from '@stentor/client'; connect().feed('x').document = 1;`, /TS2540/);
  // Each type and value that index.d.ts exports is used above.
  const exported = [...readFileSync(path.join(library, 'index.d.ts'), 'utf8').matchAll(/^export (?:declare )?\w+ (\w+)/gm)].map(([, name]) => name);
  assert.ok(exported.length > 15 && exported.every((name) => new RegExp(`\\b${name}\\b`).test(everything)), exported.join());
  // What the types promise is there.
  const values = `import * as all from '@stentor/client'; console.log(Object.keys(all).sort().join());`;
  writeFileSync(path.join(folder, 'values.js'), values);
  assert.equal((await node(folder, 'values.js')).output, 'Connection,Feed,Presence,Room,StentorError,UTF8_KEYS,applyPatch,connect\n');
});

test('the README has the code of examples/frameworks', () => {
  const readme = readFileSync(path.join(library, 'README.md'), 'utf8');
  for (const file of ['react/main.jsx', 'server-rendering/page.jsx', 'server-rendering/browser.jsx', 'vue/main.js']) {
    assert.ok(readme.includes(readFileSync(path.join(root, 'examples/frameworks', file), 'utf8')), file);
  }
});

test('the examples of the README run', async (t) => {
  const examples = [...readFileSync(path.join(library, 'README.md'), 'utf8').matchAll(/^```js\n(.*?)^```/gms)].map(([, text]) => text);
  assert.ok(examples.length >= 3, `${examples.length} examples`);
  const api = await upstream(t);
  let minute = 0;
  api.documents.set('scores/8/live', () => ({ score: [1, 0], minute: ++minute, text: 'long enough for a change to be shorter'.repeat(9) }));
  const server = await serve(t, { config: `${feedsFrom(api.url)}\n[rooms]\npublish = true\n` });
  const folder = project(t);
  for (const example of examples) {
    const file = path.join(folder, 'example.mjs');
    writeFileSync(file, example.replaceAll('http://127.0.0.1:8000', server.http));
    const { status, output } = await node(folder, file);
    assert.equal(status, 0, `${example}\n${output}`);
    // What an example says that it prints, in comments.
    for (const [, printed] of example.matchAll(/\/\/ → (.*)/g)) assert.ok(output.includes(printed), `${example}\n${output}`);
  }
});
