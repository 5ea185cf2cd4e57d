// Stock clients in Java, Python, Rust and Go, each through the same scenarios: what they send and get by each transport, silence,
// and servers that are restarted. A client comes back by itself and goes on working.
import assert from 'node:assert/strict';
import test, { after, describe } from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { bytes, missing, startClient } from '../foreign.mjs';
import { feedsFrom, fixture, serve, until, upstream } from '../harness.mjs';

// They mostly wait.
const AT_ONCE = 12;
const TOKEN = 'geheim é€😀';
const TEXT = 'é€😀\u2028 "quoted" \\ ';
const VALUES = [TEXT, 'x'.repeat(100_000), { a: [1, null, true, -2.5, { é: [] }], b: '€' }];
const SHORT = Buffer.from([0, 1, 255]);
const LONG = Buffer.from(Array.from({ length: 100_000 }, (_, n) => (n * 7) % 256));
// Far longer than anything is waited for: what a client notices by a heartbeat only comes too late.
const NO_HEARTBEATS = '[heartbeat]\ninterval = "10min"\ntimeout = "10min"\n';

// The tokens of clients whose protocol has no auth go into the query, as their documentation says. rust_socketio can't send bytes with
// an acknowledgement, nor acknowledge anything, nor say which transport it has. It takes a byte 0x1e over WebSocket for the end of a
// packet: any server that sends one loses it.
const all = { has_auth: true, acknowledges: true, acknowledged_bytes: true, tells_transport: true, takes_separators: true };
const old = { ...all, has_auth: false };
const socketIoClients = {
  'socket.io-client for Java 1.0.2': old,
  'socket.io-client for Java 2.1.1': all,
  'python-socketio 4, threads': old,
  'python-socketio 4, asyncio': old,
  'python-socketio 5, threads': all,
  'python-socketio 5, asyncio': all,
  rust_socketio: { ...all, acknowledges: false, acknowledged_bytes: false, tells_transport: false, takes_separators: false },
};

const handlers = await fixture({ after }, 'socketio-client');
const beating = await serve({ after }, { args: ['--app', 'echo'], config: '[heartbeat]\ninterval = "2s"\ntimeout = "10s"\n' });
const usual = await serve({ after }, { args: ['--app', 'echo'] });

/**
 * A server that can be killed and started again at the same address: { http, restart }. Each has a loopback address of its own, so
 * that its port isn't taken meanwhile.
 */
let addresses = 0;
async function restartable(t, { args, config } = {}) {
  const pid = process.pid % 65_536;
  const host = `127.${64 + (++addresses % 64)}.${pid >> 8}.${pid & 255}`;
  let server = await serve(t, { args, config, listen: `${host}:0` });
  const { http } = server;
  return {
    http,
    async restart(signal) {
      server.child.kill(signal);
      await server.closed;
      server = await serve(t, { args, config, listen: http.replace('http://', '') });
    },
  };
}

/** Restarts a server by each signal, each time between `before` and `after`. */
async function survives(t, server, before, after) {
  for (const signal of ['SIGTERM', 'SIGKILL']) {
    await t.test(`restarted after ${signal}`, async () => {
      before();
      await server.restart(signal);
      await after();
    });
  }
}

let calls = 0;
async function call(client, name, args, namespace = '/') {
  const id = ++calls;
  client.send({ do: 'call', id, namespace, name, args });
  return (await client.next({ type: 'answer', id })).args;
}

/** The echo application acknowledges with the arguments, and sends the event back. */
async function echoes(client, can) {
  assert.deepEqual(await call(client, 'hello', [TEXT]), [TEXT]);
  await client.next({ type: 'event', name: 'hello' });
  for (const any of [SHORT, LONG]) {
    const buffer = can.takes_separators ? any : any.map((byte) => (byte === 0x1e ? 0 : byte));
    client.send({ do: 'emit', name: 'hello', args: [bytes(buffer)] });
    assert.deepEqual((await client.next({ type: 'event', name: 'hello' })).args, [bytes(buffer)]);
  }
}

async function connected(client, url) {
  client.send({ do: 'connect', url, namespaces: ['/'] });
  await client.next({ type: 'connect', namespace: '/' });
}

async function usesHandlers(client, transport, can) {
  const url = can.has_auth ? handlers.http : `${handlers.http}/?token=${encodeURIComponent(TOKEN)}`;
  client.send({ do: 'connect', url, namespaces: ['/', '/foo'], auth: can.has_auth ? { token: TOKEN } : null });
  await client.next({ type: 'connect', namespace: '/' });
  await client.next({ type: 'connect', namespace: '/foo' });
  for (const value of VALUES) assert.deepEqual(await call(client, 'echo', [value]), [value]);
  if (can.acknowledged_bytes) {
    for (const buffer of [SHORT, LONG]) {
      const value = { some: { bytes: bytes(buffer), text: TEXT } };
      assert.deepEqual(await call(client, 'echo', [value]), [value]);
    }
  }
  const [{ auth, query }] = await call(client, 'getHandshake', []);
  assert.equal(can.has_auth ? auth.token : query.token, TOKEN);
  const [[main], [foo]] = [await call(client, 'getId', []), await call(client, 'getId', [], '/foo')];
  assert.match(foo, /./);
  assert.notEqual(main, foo);
  if (can.acknowledges) {
    client.send({ do: 'emit', name: 'ack', args: [] });
    await client.next({ type: 'event', name: 'ack' });
    // The handler sends it when it has been acknowledged as it should.
    await client.next({ type: 'event', name: 'got it' });
  }
  if (can.tells_transport) {
    const wanted = transport === 'polling' ? 'polling' : 'websocket';
    await until(`the transport ${wanted}`, async () => {
      client.send({ do: 'transport' });
      return (await client.next({ type: 'transport' })).name === wanted;
    });
  }
  client.send({ do: 'disconnect' });
  client.send({ do: 'connect', url: handlers.http, namespaces: ['/no'] });
  const { message } = await client.next({ type: 'refused', namespace: '/no' });
  assert.match(message, /Auth failed \(custom namespace\)/);
  client.send({ do: 'disconnect' });
}

async function isSilent(client, can, url, silence_ms) {
  await connected(client, url);
  client.forget('disconnect');
  await passed(silence_ms);
  assert.deepEqual(client.seen('disconnect'), []);
  await echoes(client, can);
}

describe('stock clients', { concurrency: true }, () => {
  describe('Socket.IO', { concurrency: AT_ONCE }, () => {
    // First, for it takes longest.
    for (const name of ['socket.io-client for Java 2.1.1', 'python-socketio 4, threads', 'python-socketio 5, asyncio', 'rust_socketio']) {
      test(`${name}: nothing to say for a minute, with the usual heartbeats`, { skip: missing(name) }, async (t) => {
        await isSilent(startClient(t, name, 'upgrade'), socketIoClients[name], usual.http, 60_000);
      });
    }

    for (const [name, can] of Object.entries(socketIoClients)) {
      for (const transport of ['polling', 'websocket', 'upgrade']) {
        test(`${name} by ${transport}: text, JSON, bytes, acknowledgements, namespaces, auth`, { skip: missing(name) }, async (t) => {
          await usesHandlers(startClient(t, name, transport), transport, can);
        });

        test(`${name} by ${transport}: silence, SIGTERM and SIGKILL`, { skip: missing(name) }, async (t) => {
          const client = startClient(t, name, transport);
          await t.test('nothing to say, for several heartbeats', () => isSilent(client, can, beating.http, 14_000));
          client.send({ do: 'disconnect' });
          const server = await restartable(t, { args: ['--app', 'echo'], config: NO_HEARTBEATS });
          await connected(client, server.http);
          await echoes(client, can);
          await survives(t, server, () => client.forget('connect'), async () => {
            await client.next({ type: 'connect', namespace: '/' });
            await echoes(client, can);
          });
        });
      }
    }
  });

  describe('SockJS', { concurrency: true }, () => {
    const name = 'SockJsClient of Spring';
    for (const transport of ['websocket', 'xhr-streaming', 'xhr-polling']) {
      test(`${name} by ${transport}: text, silence, SIGTERM and SIGKILL`, { skip: missing(name) }, async (t) => {
        const client = startClient(t, name, transport);
        const server = await restartable(t, { config: '[[sockjs]]\nprefix = "/echo"\napp = "echo"\nheartbeat = "1s"\n' });
        const echoes = async () => {
          for (const text of [TEXT, 'x'.repeat(20_000)]) {
            client.send({ do: 'send', text });
            assert.equal((await client.next({ type: 'message' })).data, text);
          }
        };
        client.send({ do: 'connect', url: `${server.http}/echo` });
        await client.next({ type: 'open' });
        await echoes();
        await passed(3_500);
        assert.deepEqual(client.seen('closed'), [], 'nothing to say, for several heartbeats');
        await echoes();
        await survives(t, server, () => client.forget('open'), async () => {
          await client.next({ type: 'closed' });
          await client.next({ type: 'open' });
          await echoes();
          client.forget('closed');
        });
      });
    }
  });

  // Netty's clients, and so those of Spring WebFlux, Vert.x and async-http-client, refuse client_no_context_takeover, which they
  // haven't offered. Tyrus accepts it and keeps its context.
  describe('WebSocket with compression', { concurrency: true }, () => {
    for (const name of ['Netty, compressing', 'Tyrus, compressing']) {
      test(`${name}: messages that refer to earlier ones`, { skip: missing(name) }, async (t) => {
        const client = startClient(t, name);
        client.send({ do: 'connect', url: `${usual.http.replace('http', 'ws')}/ws` });
        await client.next({ type: 'open', compresses: true });
        for (const text of [TEXT, TEXT, ...VALUES.map((value) => JSON.stringify(value)), TEXT.repeat(5_000), TEXT, 'x'.repeat(20_000)]) {
          client.send({ do: 'send', text });
          assert.equal((await client.next({ type: 'message' })).data, text);
        }
        assert.deepEqual(client.seen('closed'), []);
      });
    }
  });

  describe('Server-Sent Events', { concurrency: true }, () => {
    const clients = {
      'okhttp-sse': { drops_partial_events: true },
      'httpx-sse': { drops_partial_events: true },
      // It takes the comment line that a stream was cut after for an event.
      'r3labs/sse for Go': { drops_partial_events: false },
    };
    for (const [name, can] of Object.entries(clients)) {
      test(`${name}: documents, silence, SIGTERM and SIGKILL`, { skip: missing(name) }, async (t) => {
        const client = startClient(t, name);
        const api = await upstream(t);
        const version = (n) => ({ n, text: 'é€😀', fill: 'x'.repeat(100_000) });
        api.documents.set('a', version(1));
        const server = await restartable(t, { config: `[heartbeat]\ninterval = "1s"\n${feedsFrom(api.url)}` });
        let cut = false;
        const has = async (n) => {
          for (;;) {
            const { name, data } = await client.next({ type: 'message' });
            if (data === '' && cut && !can.drops_partial_events) continue;
            // Neither a heartbeat nor the time to reconnect is an event.
            assert.notEqual(data, '', `an event ${name} without data`);
            if (name !== 'snapshot') continue;
            const document = JSON.parse(data);
            if (document.n < n) continue;
            assert.deepEqual(document, version(n));
            return;
          }
        };
        client.send({ do: 'connect', url: `${server.http}/sse/a` });
        await has(1);
        await passed(3_500);
        assert.deepEqual([...client.seen('closed'), ...client.seen('message')], [], 'nothing to say, for several heartbeats');
        api.documents.set('a', version(2));
        await has(2);
        cut = true;
        let n = 2;
        await survives(t, server, () => client.forget('open'), async () => {
          api.documents.set('a', version(++n));
          await client.next({ type: 'open' });
          await has(n);
        });
      });
    }
  });
});
