// Engine.IO 4 and 3 on the wire: behaviours 9 to 17 of the protocol list, then published attacks, each by its id.
// The fixture's profile `protocol-patient`: an echo, payloads up to 1,000,000 bytes. `protocol-pings` pings every 300 ms and waits long
// for an answer, `protocol` 200 ms.
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import test, { after } from 'node:test';
import { fixture, serve, until, within } from './harness.mjs';
import { exchange, openWebSocket, Peer, Polling, request, SEPARATOR, upgradeHead } from './wire.mjs';

const server = await fixture({ after }, 'protocol-patient');
const pinging = await fixture({ after }, 'protocol-pings');
const impatient = await fixture({ after }, 'protocol');
const base = `${server.http}/engine.io/`;

/** Fails unless a request was refused with this code. */
function refused(answer, code, status = 400) {
  assert.equal(answer.status, status, answer.body);
  assert.match(answer.headers['content-type'], /^application\/json/);
  const error = JSON.parse(answer.body);
  assert.equal(error.code, code, answer.body);
  assert.equal(typeof error.message, 'string');
  return error.message;
}

/** Fails unless the server still takes sessions and echoes. */
async function serves() {
  const peer = await openWebSocket(server);
  peer.send('4still here');
  assert.equal(await peer.next(), '4still here');
  peer.socket.close();
}

const gone = async (polling) => refused(await polling.get(), 1);

test('9: the handshake has five keys; over WebSocket there is nothing to upgrade to', async () => {
  const keys = ['sid', 'upgrades', 'pingInterval', 'pingTimeout', 'maxPayload'];
  const { handshake, opened } = await Polling.open(server);
  assert.deepEqual(Object.keys(handshake).sort(), keys.toSorted());
  assert.deepEqual({ ...handshake, sid: '' }, { sid: '', upgrades: ['websocket'], pingInterval: 25_000, pingTimeout: 60_000, maxPayload: 1_000_000 });
  assert.equal(opened.body[0], '0');
  const peer = await openWebSocket(server);
  assert.deepEqual(Object.keys(peer.handshake).sort(), keys.toSorted());
  assert.deepEqual(peer.handshake.upgrades, []);
  peer.socket.close();
  // Version 3: the length in characters before the packet, and four keys at least.
  const three = await Polling.open(server, { eio: 3 });
  const [, length, packet] = /^(\d+):(0.*)$/s.exec(three.opened.body);
  assert.equal(Number(length), packet.length);
  for (const key of keys.slice(0, 4)) assert.ok(key in three.handshake, key);
});

test('10: a refusal is 400 with a code and a message', async () => {
  for (const transport of ['', '&transport=abc', '&transport=constructor', '&transport=']) {
    assert.equal(refused(await request(`${base}?EIO=4${transport}`), 0), 'Transport unknown');
  }
  for (const sid of ['abc', 'x'.repeat(1_000)]) {
    assert.equal(refused(await request(`${base}?EIO=4&transport=polling&sid=${sid}`), 1), 'Session ID unknown');
  }
  for (const method of ['POST', 'PUT', 'DELETE']) {
    assert.equal(refused(await request(`${base}?EIO=4&transport=polling`, { method }), 2), 'Bad handshake method');
  }
  const peer = await openWebSocket(server);
  assert.equal(refused(await request(`${base}?EIO=4&transport=polling&sid=${peer.sid}`), 3), 'Bad request');
  peer.socket.close();
  for (const version of ['', 'EIO=abc&', 'EIO=&', 'EIO=2&', 'EIO=5&', 'EIO=44&']) refused(await request(`${base}?${version}transport=polling`), 5);
});

test('10: a refusal by the application is 403 with code 4', async (t) => {
  const denying = await fixture(t, 'engineio-client');
  refused(await request(`${denying.http}/engine.io/?EIO=4&transport=polling&deny=1`), 4, 403);
  const peer = new Peer(`${denying.ws}/engine.io/?EIO=4&transport=websocket&deny=1`);
  const { refused: status } = await peer.end('a refusal');
  assert.ok(status >= 400 && status < 500, `refused with ${status}`);
});

test('11: of two polls at once the first gets 1, the second 400, and the session is gone', async () => {
  const polling = await Polling.open(server);
  const { answer: first } = await polling.waiting();
  const second = await polling.get();
  assert.equal(second.status, 400);
  assert.equal((await first).body, '1');
  await gone(polling);
});

test('11: a client that aborts its poll ends the session', async () => {
  for (const eio of [4, 3]) {
    const polling = await Polling.open(server, { eio });
    const abort = new AbortController();
    const { answer } = await polling.waiting({ signal: abort.signal });
    abort.abort();
    await assert.rejects(answer, { name: 'AbortError' });
    await polling.settled();
    await gone(polling);
  }
});

test('12: POST 1 releases the poll with 6, and ends the session', async () => {
  for (const [eio, close, noop] of [[4, '1', '6'], [3, '1:1', '1:6']]) {
    const polling = await Polling.open(server, { eio });
    const { answer: poll } = await polling.waiting();
    assert.equal((await polling.post(close)).body, 'ok');
    assert.equal((await poll).body, noop);
    await gone(polling);
  }
});

test('12: an invalid body ends the session', async () => {
  const bodies = { 4: ['abc', '9', `4a${SEPARATOR}x`, `4a${SEPARATOR}`], 3: ['abc', '9:4a', '2:4', ':4a', '-1:4a', '6:4hello6:4hell'] };
  for (const [eio, all] of Object.entries(bodies)) {
    for (const body of all) {
      const polling = await Polling.open(server, { eio });
      // The answer may be lost with the connection, or tell that the body was read: what counts is that the session is gone.
      const answer = await polling.post(body).catch(() => ({ status: 400 }));
      assert.ok([200, 400].includes(answer.status), `${body}: ${answer.status}`);
      await gone(polling);
    }
  }
});

test('13: over maxPayload is 413 with an empty body, over WebSocket 1009 without a reason', async () => {
  for (const chunked of [false, true]) {
    const polling = await Polling.open(server);
    const body = `4${'x'.repeat(1_000_000)}`;
    const headers = chunked ? { 'Transfer-Encoding': 'chunked' } : { 'Content-Length': body.length };
    const answer = await polling.post(body, headers);
    assert.equal(answer.status, 413);
    assert.equal(answer.body, '');
  }
  // At the limit it is taken.
  const polling = await Polling.open(server);
  const body = `4${'x'.repeat(999_999)}`;
  assert.equal((await polling.post(body)).body, 'ok');
  assert.deepEqual(await polling.packets(1), [body]);
  const peer = await openWebSocket(server);
  peer.send(body);
  assert.equal(await peer.next(), body);
  peer.send(`${body}x`);
  const { closed, reason } = await peer.end();
  assert.deepEqual([closed, reason], [1009, '']);
});

test('14: a probe is answered, a waiting poll released, and the session goes on over WebSocket', async () => {
  for (const [eio, noop] of [[4, '6'], [3, '1:6']]) {
    const polling = await Polling.open(server, { eio });
    const poll = polling.get();
    const peer = new Peer(polling.ws);
    await within(new Promise((resolve) => peer.socket.once('open', resolve)), 'the WebSocket');
    peer.send('2probe');
    assert.equal(await peer.next(), '3probe');
    const release = async (waiting) => {
      const { body } = await waiting;
      if (body !== '2') return assert.equal(body, noop);
      // A ping came first.
      await polling.post('3');
      return release(polling.get());
    };
    await release(poll);
    // The next poll is released as well, until the upgrade is done.
    await release(polling.get());
    peer.send('5', '4hello');
    assert.equal(await peer.next(), '4hello');
    assert.equal((await polling.get()).status, 400);
    const another = new Peer(polling.ws);
    await another.end();
    peer.send('4again');
    assert.equal(await peer.next(), '4again');
    peer.socket.close();
  }
});

test('14: what waits for a poll is not lost in the upgrade', async () => {
  const polling = await Polling.open(server);
  const peer = new Peer(polling.ws);
  await within(new Promise((resolve) => peer.socket.once('open', resolve)), 'the WebSocket');
  peer.send('2probe');
  assert.equal(await peer.next(), '3probe');
  assert.equal((await polling.post('4early')).status, 200);
  // As a client does: the poll in flight ends, then the upgrade is announced.
  const seen = (await polling.get()).body.split(SEPARATOR).filter((packet) => packet !== '6');
  peer.send('5', '4late');
  while (seen.length < 2) seen.push(await peer.next());
  assert.deepEqual(seen, ['4early', '4late']);
  peer.socket.close();
});

test('14: a message before the probe closes the WebSocket only', async () => {
  const polling = await Polling.open(server);
  const peer = new Peer(polling.ws);
  await within(new Promise((resolve) => peer.socket.once('open', resolve)), 'the WebSocket');
  peer.send('4too early');
  await peer.end();
  await polling.post('4hello');
  assert.deepEqual(await polling.packets(1), ['4hello']);
});

test('15: in version 4 the server pings; a client that pings, or does not answer, is closed', async () => {
  const answering = await openWebSocket(pinging, { pong: false });
  for (let n = 0; n < 3; n++) {
    assert.equal(await answering.next(), '2');
    answering.send('3');
  }
  answering.socket.close();
  const peer = await openWebSocket(server, { pong: false });
  peer.send('2');
  assert.equal((await peer.end()).closed, 1002);
  const polling = await Polling.open(server);
  await polling.post('2').catch(() => {});
  await gone(polling);
  const silent = await openWebSocket(impatient, { pong: false });
  const { before } = await silent.end();
  assert.deepEqual(before, ['2']);
});

test('15: in version 3 the client pings, and the server never does', async () => {
  const peer = await openWebSocket(pinging, { eio: 3, pong: false });
  const later = await openWebSocket(pinging);
  for (let n = 0; n < 3; n++) {
    // The server pings a session of version 4 that is younger.
    await later.pinged();
    peer.send('2');
    assert.equal(await peer.next(), '3');
  }
  for (const { socket } of [peer, later]) socket.close();
  // Without pings the session ends.
  const silent = await openWebSocket(impatient, { eio: 3, pong: false });
  assert.deepEqual((await silent.end()).before, []);
  const polling = await Polling.open(server, { eio: 3 });
  assert.equal((await polling.post('1:2')).body, 'ok');
  assert.equal((await polling.get()).body, '1:3');
});

test('16: bytes over polling are base64 in version 4, and an octet-stream is refused', async () => {
  const polling = await Polling.open(server);
  await polling.post(`4hello${SEPARATOR}bAQIDBA==${SEPARATOR}b`);
  assert.deepEqual(await polling.packets(3), ['4hello', 'bAQIDBA==', 'b']);
  const answer = await polling.post(Buffer.from([4, 1, 2, 3]), { 'Content-Type': 'application/octet-stream' });
  assert.equal(answer.status, 400);
  const peer = await openWebSocket(server);
  peer.send(Buffer.from([1, 2, 3, 4]), Buffer.alloc(0));
  assert.deepEqual(await peer.next(), Buffer.from([1, 2, 3, 4]));
  assert.deepEqual(await peer.next(), Buffer.alloc(0));
  peer.socket.close();
});

test('16: bytes in version 3 are base64 with b64, framed bytes without, and carry a type over WebSocket', async () => {
  const text = await Polling.open(server, { eio: 3, query: '&b64=1' });
  await text.post('6:4hello10:b4AQIDBA==');
  assert.equal((await text.get()).body, '6:4hello10:b4AQIDBA==');
  const bytes = await Polling.open(server, { eio: 3 });
  await bytes.post('6:4hello10:b4AQIDBA==');
  const answer = await bytes.get();
  const framed = Buffer.from([0, 6, 255, 0x34, 104, 101, 108, 108, 111, 1, 5, 255, 4, 1, 2, 3, 4]);
  assert.deepEqual(answer.bytes, framed);
  assert.equal(answer.headers['content-type'], 'application/octet-stream');
  // The same framing in a client's body; ten bytes and more have a length of two digits.
  assert.equal((await bytes.post(framed, { 'Content-Type': 'application/octet-stream' })).body, 'ok');
  assert.deepEqual((await bytes.get()).bytes, framed);
  const long = Buffer.concat([Buffer.from([1, 1, 1, 255, 4]), Buffer.alloc(10, 7)]);
  await bytes.post(long, { 'Content-Type': 'application/octet-stream' });
  assert.deepEqual((await bytes.get()).bytes, long);
  // Without bytes among the packets the body is text.
  await bytes.post('6:4hello');
  assert.equal((await bytes.get()).body, '6:4hello');
  const peer = await openWebSocket(server, { eio: 3 });
  peer.send(Buffer.from([4, 1, 2, 3]));
  assert.deepEqual(await peer.next(), Buffer.from([4, 1, 2, 3]));
  peer.socket.close();
});

test('16: lengths in version 3 count characters as UTF-16 does', async () => {
  const polling = await Polling.open(server, { eio: 3, query: '&b64=1' });
  for (const body of ['2:4€', '3:4😀', '5:4é€😀2:4ß']) {
    assert.equal((await polling.post(body)).body, 'ok', body);
    assert.equal((await polling.get()).body, body);
  }
});

test('JSONP in version 3: scripts go out, forms come in', async () => {
  const url = `${base}?EIO=3&transport=polling&b64=1&j=0`;
  const opened = await request(url);
  assert.equal(opened.status, 200);
  const call = /^(?:\/\*\*\/)?___eio\[0\]\((".*")\);$/s;
  const sid = /"sid":"([^"]+)"/.exec(JSON.parse(call.exec(opened.body)[1]))[1];
  const body = `d=${encodeURIComponent('13:4line\\\\nend é\u2028')}`;
  const posted = await request(`${url}&sid=${sid}`, { method: 'POST', headers: { 'Content-Type': 'application/x-www-form-urlencoded' }, body });
  assert.equal(posted.body, 'ok');
  const got = await request(`${url}&sid=${sid}`);
  // U+2028 ends a line in a script, so it must not stand there as it is.
  assert.ok(!got.body.includes('\u2028'), got.body);
  assert.match(JSON.parse(call.exec(got.body)[1]), /^\d+:4line.*end é\u2028$/s);
  for (const j of ['alert(1)', '0];alert(1', '']) {
    const answer = await request(`${base}?EIO=3&transport=polling&j=${encodeURIComponent(j)}`);
    assert.ok(!answer.body.includes('alert'), answer.body);
  }
});

test('17: a bad version over WebSocket is refused before the upgrade, and a close packet closes', async () => {
  for (const query of ['transport=websocket', 'EIO=abc&transport=websocket', 'EIO=2&transport=websocket', 'EIO=4', 'EIO=4&transport=abc']) {
    assert.equal((await new Peer(`${server.ws}/engine.io/?${query}`).end()).refused, 400, query);
  }
  for (const eio of [4, 3]) {
    const peer = await openWebSocket(server, { eio });
    peer.send('1');
    // Not because a ping stays without an answer.
    assert.equal((await peer.end()).closed, 1000);
  }
});

test('a body is answered in pieces of any size', async () => {
  const polling = await Polling.open(server);
  const { hostname, port, pathname, search } = new URL(polling.url);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const posted = await within(new Promise((resolve, reject) => {
    const outgoing = http.request({ hostname, port, path: pathname + search, method: 'POST', agent, headers: { 'Content-Type': 'text/plain' } }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode));
    });
    outgoing.on('error', reject);
    outgoing.setNoDelay(true);
    for (const byte of Buffer.from('4é€😀')) outgoing.write(Buffer.from([byte]));
    outgoing.end();
  }), 'the answer');
  assert.equal(posted, 200);
  assert.equal((await request(polling.url, { agent })).body, '4é€😀');
  agent.destroy();
});

test('CVE-2026-102599: an upgrade of another protocol version leaves the session alone', async () => {
  const polling = await Polling.open(server);
  for (const version of ['EIO=3&', '', 'EIO=abc&']) {
    const peer = new Peer(polling.ws.replace('EIO=4&', version));
    assert.equal((await peer.end()).refused, 400, version);
  }
  await polling.post('4hello');
  assert.deepEqual(await polling.packets(1), ['4hello']);
});

test('CVE-2026-102600, CVE-2026-59724: names of an object are no session ids', async () => {
  for (const sid of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
    refused(await request(`${base}?EIO=4&transport=polling&sid=${sid}`), 1);
    assert.equal((await new Peer(`${server.ws}/engine.io/?EIO=4&transport=websocket&sid=${sid}`).end()).refused, 400);
  }
  await serves();
});

test('CVE-2026-59725: refused octet-streams hold no sockets', async () => {
  const descriptors = () => readdirSync(`/proc/${server.child.pid}/fd`).length;
  const before = descriptors();
  for (let n = 0; n < 100; n++) {
    const polling = await Polling.open(server);
    const answer = await polling.post(Buffer.from([4, 1, 2, 3]), { 'Content-Type': 'application/octet-stream' });
    assert.equal(answer.status, 400);
  }
  await until('freed sockets', () => descriptors() <= before + 5);
});

test('CVE-2023-31125: names of an object are no transports', async () => {
  for (const transport of ['__proto__', 'constructor', 'toString']) {
    refused(await request(`${base}?EIO=4&transport=${transport}`), 0);
    assert.equal((await new Peer(`${server.ws}/engine.io/?EIO=4&transport=${transport}`).end()).refused, 400);
  }
  await serves();
});

test('CVE-2022-41940: an upgrade to something else, then a reset, is survived', async () => {
  const { hostname, port, host } = new URL(base);
  for (let n = 0; n < 20; n++) {
    const socket = net.connect(port, hostname);
    socket.on('error', () => {});
    await within(new Promise((resolve) => socket.once('connect', resolve)), 'the connection');
    socket.write(`GET /engine.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n`);
    socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
    socket.resetAndDestroy();
  }
  await serves();
});

test('CVE-2022-21676: reserved bits in a frame glued to the handshake are answered with 1002', async () => {
  const url = `${base}?EIO=4&transport=websocket`;
  for (const bits of [0x20, 0x10, 0x30]) {
    const answer = await exchange(url, Buffer.concat([Buffer.from(upgradeHead(url)), Buffer.from([0x81 | bits, 0x81, 0, 0, 0, 0, 0x34])]));
    assert.match(answer.toString('latin1'), /^HTTP\/1\.1 101 /);
    const close = answer.lastIndexOf(Buffer.from([0x88]));
    assert.equal(answer.readUInt16BE(close + 2), 1002);
  }
  await serves();
});

test('(no id) transport=websocket without an upgrade is 400', async () => {
  refused(await request(`${base}?EIO=4&transport=websocket`), 3);
  await serves();
});

test('CVE-2020-36048: a huge body is refused before it is read', async () => {
  const polling = await Polling.open(server);
  const { hostname, port, pathname, search, host } = new URL(polling.url);
  const socket = net.connect(port, hostname);
  socket.write(`POST ${pathname}${search} HTTP/1.1\r\nHost: ${host}\r\nContent-Type: text/plain\r\nContent-Length: 1000000000\r\n\r\n4x`);
  const answer = await within(new Promise((resolve) => socket.once('data', resolve)), 'an answer');
  assert.match(answer.toString(), /^HTTP\/1\.1 413 /);
  socket.destroy();
  await serves();
});

test('CVE-2020-28481, WS-2020-0443, CVE-2019-13611, CVE-2022-42975: other origins are refused by default', async (t) => {
  // Not the fixture, which allows every origin: the binary, with and without a list.
  const strict = await serve(t, { args: ['--app', 'echo'] });
  const listed = await serve(t, { args: ['--app', 'echo'], config: '[origins]\nallow = ["https://*.example.com"]\n' });
  const evil = ['https://evil.test', 'null', 'https://evilexample.com', 'https://example.com`.evil.test', 'https://a.example.com$evil.test', 'https://a.example.com.evil.test'];
  for (const { http: address, ws } of [strict, listed]) {
    for (const Origin of evil) {
      const answer = await request(`${address}/engine.io/?EIO=4&transport=polling`, { headers: { Origin } });
      assert.equal(answer.headers['access-control-allow-origin'], undefined, Origin);
      assert.equal(answer.status, 403, Origin);
      assert.equal((await new Peer(`${ws}/engine.io/?EIO=4&transport=websocket`, { headers: { Origin } }).end()).refused, 403, Origin);
    }
  }
  const Origin = 'https://a.example.com';
  const answer = await request(`${listed.http}/engine.io/?EIO=4&transport=polling`, { headers: { Origin } });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers['access-control-allow-origin'], Origin);
  const peer = await openWebSocket(listed, { headers: { Origin } });
  peer.socket.close();
});

test('CVE-2017-16031: session ids look random', async () => {
  const sids = await Promise.all(Array.from({ length: 300 }, async () => (await Polling.open(server)).sid));
  assert.equal(new Set(sids).size, sids.length);
  // 120 bits or more, if each character that varies freely is worth six: at least 20 places take on many values.
  const places = Array.from({ length: Math.min(...sids.map((sid) => sid.length)) }, (_, at) => new Set(sids.map((sid) => sid[at])).size);
  assert.ok(places.filter((values) => values > 12).length >= 16, `values at each place: ${places}`);
});
