// engine.io-client 6 and 3.5 in Node, as they come: each transport forced, and the upgrade from one to the other.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import test, { after } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { Socket as Socket6 } from 'engine.io-client';
import Socket3 from 'engine.io-client-3';
import { event, fixture, ways, within } from './harness.mjs';

// An echo that takes payloads of up to 1,000,000 bytes; and one that pings every 300 ms, and waits long for the answers.
const echo = await fixture({ after }, 'protocol-patient');
const pinging = await fixture({ after }, 'protocol-pings');

const versions = { 6: (url, options) => new Socket6(url, options), 3.5: (url, options) => new Socket3(url, options) };

/** A socket that is open, and upgraded where it was to be; ends with the test. */
async function open(t, version, way, { url = echo.http, ...options } = {}) {
  const socket = versions[version](url, { ...ways[way], ...options });
  t.after(() => socket.close());
  socket.messages = [];
  socket.on('message', (data) => socket.messages.push(data));
  socket.failed = new Promise((_, reject) => socket.once('error', reject));
  socket.failed.catch(() => {});
  const upgraded = way === 'upgrade' ? event(socket, 'upgrade', undefined, 'close') : null;
  upgraded?.catch(() => {});
  await Promise.race([event(socket, 'open'), socket.failed]);
  await upgraded;
  assert.equal(socket.transport.name, way === 'polling' ? 'polling' : 'websocket');
  return socket;
}

/** The first `count` messages. */
async function messages(socket, count) {
  while (socket.messages.length < count) await event(socket, 'message', undefined, 'close');
  return socket.messages.slice(0, count);
}

/** A message as it was sent: an empty text arrives as nothing at all. */
const plain = (data = '') => (typeof data === 'string' ? data : Buffer.from(data));

for (const version of Object.keys(versions)) {
  for (const way of Object.keys(ways)) {
    test(`${version} by ${way}: messages come back in order, small, big and many at once, and the client closes`, async (t) => {
      const socket = await open(t, version, way);
      const small = ['hello', '', 'é€😀\u2028\0', Buffer.from([0, 1, 254, 255]), 'between', Buffer.alloc(0), 'x'.repeat(1_000)];
      const many = Array.from({ length: 2_000 }, (_, n) => `message ${n}`);
      // In base64 the two big ones fit one payload, which the client may put them into.
      for (const sent of [small, [randomBytes(300_000), 'é'.repeat(200_000)], many]) {
        socket.messages.length = 0;
        for (const data of sent) socket.send(data);
        assert.ok(isDeepStrictEqual((await messages(socket, sent.length)).map(plain), sent), `${sent.length} messages`);
      }
      const closed = event(socket, 'close');
      socket.send('last words');
      socket.close();
      assert.equal((await closed)[0], 'forced close');
    });

    test(`${version} by ${way}: heartbeats keep it open`, async (t) => {
      const socket = await open(t, version, way, { url: pinging.http });
      for (let n = 0; n < 3; n++) await event(socket, 'pong', undefined, 'close');
      socket.send('still here');
      assert.deepEqual(await messages(socket, 1), ['still here']);
    });

    test(`${version} by ${way}: the server ends`, async (t) => {
      const server = await fixture(t, 'protocol-patient');
      const socket = await open(t, version, way, { url: server.http });
      const closed = event(socket, 'close');
      server.child.kill('SIGTERM');
      assert.match((await closed)[0], /^transport (close|error)$/);
    });
  }

  test(`${version}: what is sent during the upgrade arrives once, in order`, async (t) => {
    const socket = versions[version](echo.http, ways.upgrade);
    t.after(() => socket.close());
    const received = [];
    socket.on('message', (data) => received.push(data));
    await event(socket, 'open');
    let sent = 0;
    const done = { upgraded: false };
    socket.once('upgrade', () => { done.upgraded = true; });
    // As fast as messages come back, from before the upgrade until well after it.
    await within(new Promise((resolve) => {
      let after_upgrade = 0;
      const next = () => {
        if (done.upgraded && ++after_upgrade > 20) return resolve();
        // Not ever more of them, so that a slow machine gets to the end.
        if (sent - received.length < 60) for (let n = 0; n < 3; n++) socket.send(`message ${sent++}`);
      };
      socket.on('message', next);
      next();
    }), 'the upgrade');
    await within((async () => { while (received.length < sent) await event(socket, 'message'); })(), 'all messages');
    assert.deepEqual(received, Array.from({ length: sent }, (_, n) => `message ${n}`));
  });

  test(`${version}: a transport that is refused is told`, async (t) => {
    const socket = versions[version](echo.http, { ...ways.polling, query: { sid: 'nobody' } });
    t.after(() => socket.close());
    const [error] = await event(socket, 'error');
    assert.equal(error.description, 400);
  });
}

test('6: pieces fit the payload that the server takes', async (t) => {
  // This profile takes 100 bytes, greets with `hi`, and answers to orders.
  const server = await fixture(t, 'engineio-client');
  const socket = await open(t, '6', 'polling', { url: server.http });
  const sent = ['a'.repeat(99), 'b'.repeat(30), 'c'.repeat(30), 'd'.repeat(35), '€'.repeat(33), 'f'.repeat(99)];
  for (const text of sent) socket.send(text);
  assert.deepEqual(await messages(socket, 7), ['hi', ...sent]);
  socket.send('a'.repeat(101));
  const [error] = await event(socket, 'error');
  assert.equal(error.description, 413);
});

for (const [version, profile, text] of [['6', 'engineio-client', 'пойду спать всем спокойной ночи'], ['3.5', 'engineio3-client', 'пойду сать всем мпокойной ночи']]) {
  for (const way of Object.keys(ways)) {
    test(`${version} by ${way}: bytes and other alphabets from the server`, async (t) => {
      const server = await fixture(t, profile);
      const socket = await open(t, version, way, { url: server.http });
      socket.send('give utf8');
      socket.send('give binary');
      const [greeting, utf8, bytes] = await messages(socket, 3);
      assert.deepEqual([greeting, utf8, plain(bytes)], ['hi', text, Buffer.from([0, 1, 2, 3, 4])]);
    });
  }
}

test('6: a refusal by the application', async (t) => {
  const server = await fixture(t, 'engineio-client');
  for (const way of ['polling', 'websocket']) {
    const socket = versions[6](server.http, { ...ways[way], query: { deny: 1 } });
    const [error] = await event(socket, 'error');
    assert.equal(error.type, 'TransportError');
    if (way === 'polling') assert.equal(error.description, 403);
    socket.close();
  }
});
