// Engine.IO, Socket.IO and SockJS on the wire, by hand: what stock clients never send or don't show. The numbers are those of the
// behaviours that suites of these protocols check. crates/edge/tests/edge and crates/wire/tests have the rest, and published attacks,
// each by its id.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import test, { after, describe } from 'node:test';
import { fixture, within } from './harness.mjs';
import { exchange, openWebSocket, Peer, Polling, request, SEPARATOR, stream } from './wire.mjs';

// An echo in Engine.IO; in Socket.IO the namespaces `/` and `/custom`, which greet with `auth`, and `message` is sent back.
const server = await fixture({ after }, 'protocol-patient');
const pinging = await fixture({ after }, 'protocol-pings');
const sockjs = await fixture({ after }, 'sockjs');
const path = '/socket.io/';
const bytes = (...values) => Buffer.from(values);

/** Fails unless a request was refused with this code. */
function refused(answer, code, status = 400) {
  assert.equal(answer.status, status, answer.body);
  assert.match(answer.headers['content-type'], /^application\/json/);
  const error = JSON.parse(answer.body);
  assert.equal(error.code, code, answer.body);
  assert.equal(typeof error.message, 'string');
  return error.message;
}

describe('Engine.IO', () => {
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
      assert.equal(refused(await request(`${server.http}/engine.io/?EIO=4${transport}`), 0), 'Transport unknown');
    }
    for (const sid of ['abc', 'x'.repeat(1_000)]) {
      assert.equal(refused(await request(`${server.http}/engine.io/?EIO=4&transport=polling&sid=${sid}`), 1), 'Session ID unknown');
    }
    for (const method of ['POST', 'PUT', 'DELETE']) {
      assert.equal(refused(await request(`${server.http}/engine.io/?EIO=4&transport=polling`, { method }), 2), 'Bad handshake method');
    }
    const peer = await openWebSocket(server);
    assert.equal(refused(await request(`${server.http}/engine.io/?EIO=4&transport=polling&sid=${peer.sid}`), 3), 'Bad request');
    peer.socket.close();
    for (const version of ['', 'EIO=abc&', 'EIO=&', 'EIO=2&', 'EIO=5&', 'EIO=44&']) refused(await request(`${server.http}/engine.io/?${version}transport=polling`), 5);
  });

  test('12: an invalid body ends the session', async () => {
    const bodies = { 4: ['abc', '9', `4a${SEPARATOR}x`, `4a${SEPARATOR}`], 3: ['abc', '9:4a', '2:4', ':4a', '-1:4a', '6:4hello6:4hell'] };
    for (const [eio, all] of Object.entries(bodies)) {
      for (const body of all) {
        const polling = await Polling.open(server, { eio });
        // The answer may be lost with the connection, or tell that the body was read: what counts is that the session is gone.
        const answer = await polling.post(body).catch(() => ({ status: 400 }));
        assert.ok([200, 400].includes(answer.status), `${body}: ${answer.status}`);
        refused(await polling.get(), 1);
      }
    }
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
});

/** A session in the namespace `/`, greeted: the Peer, with the `id` of the socket. */
async function connected({ on = server, connect = '40', greeted = true, ...options } = {}) {
  const peer = await openWebSocket(on, { path, ...options });
  peer.send(connect);
  const answer = await peer.next('the answer to CONNECT');
  assert.match(answer, /^40\{/);
  Object.assign(peer, { id: JSON.parse(answer.slice(2)).sid, answer });
  if (greeted) assert.match(await peer.next(), /^42\["auth",/);
  return peer;
}

/** Fails unless these packets, sent in a connected session, close the connection and nothing else. */
async function closes(...packets) {
  const peer = await connected();
  peer.send(...packets);
  const { before } = await peer.end(`the end after ${JSON.stringify(packets)}`);
  assert.deepEqual(before, [], `an answer to ${JSON.stringify(packets)}`);
}

describe('Socket.IO', () => {
  test('18: a second CONNECT, or a packet for a namespace that is not connected, closes', async () => {
    for (const packet of ['40', '40{}', '42/custom,["message",1]', '41/custom,', '42/random,["message"]', '43/custom,1[]']) await closes(packet);
    // Before any CONNECT as well.
    const peer = await openWebSocket(server, { path });
    peer.send('42["message",1]');
    await peer.end();
  });

  test('18: an unknown namespace is refused, and the connection stays', async () => {
    const peer = await connected();
    peer.send('40/random,');
    assert.equal(await peer.next(), '44/random,{"message":"Invalid namespace"}');
    peer.send('40/random,{"token":"x"}');
    assert.equal(await peer.next(), '44/random,{"message":"Invalid namespace"}');
    peer.send('42["message","still here"]');
    assert.equal(await peer.next(), '42["message-back","still here"]');
    peer.socket.close();
    const three = await openWebSocket(server, { path, eio: 3 });
    assert.equal(await three.next(), '40');
    assert.equal(await three.next(), '42["auth",{}]');
    three.send('40/random,');
    assert.equal(await three.next(), '44/random,"Invalid namespace"');
    three.socket.close();
  });

  test('19: malformed events and payloads close', async () => {
    for (const packet of ['42[]', '42[null]', '42[{}]', '42[["a"]]', '42{}', '42"message"', '42null', '42["message"', '42["message"]]',
      '42["connect"]', '42["connect_error"]', '42["disconnect"]', '42["disconnecting"]', '42["newListener"]', '42["removeListener"]',
      '47["message"]', '49', '4abc', '44{"message":"no"}', '44"no"', '42abc["message"]', '43["no id"]x', '41{"a":1}x',
      '42["message",1]x', '42["message",1] 2', '42["message",1][]', '421["message-with-ack"],']) await closes(packet);
    for (const payload of ['["a"]', '"a"', 'true', '{', '{}x']) {
      const peer = await openWebSocket(server, { path });
      peer.send(`40${payload}`);
      const { before } = await peer.end(`the end after CONNECT with ${payload}`);
      assert.deepEqual(before, [], payload);
    }
  });

  test('20: attachments beyond ten, missing, misnumbered or interrupted close', async () => {
    const slots = (count) => Array.from({ length: count }, (_, num) => `{"_placeholder":true,"num":${num}}`).join();
    await closes(`4511-["message",${slots(11)}]`);
    await closes(`4599999999999999999999-["message",${slots(1)}]`);
    for (const head of ['450-["message"]', '45-["message"]', '451["message"]', '45a-["message"]']) await closes(head);
    await closes('451-["message",{"_placeholder":true,"num":1}]', bytes(1));
    await closes('451-["message",{"_placeholder":true,"num":"0"}]', bytes(1));
    await closes('451-["message",{"_placeholder":true}]', bytes(1));
    await closes('452-["message",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]', bytes(1), '42["message","between"]');
    // Bytes that nobody announced.
    await closes(bytes(1, 2, 3));
  });

  test('20: up to ten attachments are taken, empty ones too, and pings may stand between them', async () => {
    const peer = await connected({ on: pinging });
    const slots = Array.from({ length: 10 }, (_, num) => `{"_placeholder":true,"num":${num}}`).join();
    peer.send(`4510-["message",${slots}]`);
    for (let n = 0; n < 9; n++) peer.send(Buffer.alloc(n, n));
    // The server's ping arrives, and is answered, before the last attachment.
    await peer.pinged();
    peer.send(bytes(9));
    assert.equal(await peer.next(), `4510-["message-back",${slots}]`);
    for (let n = 0; n < 9; n++) assert.deepEqual(await peer.next(), Buffer.alloc(n, n));
    assert.deepEqual(await peer.next(), bytes(9));
    peer.socket.close();
  });
});

const session = (prefix = 'echo') => `${sockjs.http}/${prefix}/000/${randomUUID()}`;
const post = (url, body = '', headers = {}) => request(url, { method: 'POST', body, headers });
const NO_CACHE = 'no-store, no-cache, no-transform, must-revalidate, max-age=0';

describe('SockJS', () => {
  test('25: each stream begins with its prelude, and frames are pieces of their own', async () => {
    const cases = {
      xhr_streaming: ['POST', `${'h'.repeat(2_048)}\n`, (frame) => `${frame}\n`],
      eventsource: ['GET', '\r\n', (frame) => `data: ${frame}\r\n\r\n`],
      'htmlfile?c=cb': ['GET', null, (frame) => `<script>\np(${JSON.stringify(frame)});\n</script>\r\n`],
    };
    for (const [transport, [method, prelude, framed]] of Object.entries(cases)) {
      const url = session();
      const streamed = await stream(`${url}/${transport}`, { method });
      assert.equal(streamed.status, 200);
      const first = await streamed.next();
      if (prelude) assert.equal(first, prelude);
      else assert.ok(first.length > 1_024 && first.includes('var c = parent.cb;'), first);
      assert.equal(await streamed.next(), framed('o'));
      assert.equal((await post(`${url}/xhr_send`, '["x"]')).status, 204);
      assert.equal(await streamed.next(), framed('a["x"]'));
      // Over the limit of the response the stream ends; the session goes on in the next one.
      const long = 'y'.repeat(4_096);
      assert.equal((await post(`${url}/xhr_send`, JSON.stringify([long]))).status, 204);
      let rest = '';
      for (let piece; (piece = await streamed.next()) !== null;) rest += piece;
      assert.equal(rest, framed(`a["${long}"]`));
      assert.equal((await post(`${url}/xhr_send`, '["z"]')).status, 204);
      assert.equal((await post(`${url}/xhr`)).body, 'a["z"]\n');
    }
  });

  test('29: origins are answered, with credentials', async () => {
    for (const Origin of ['http://test', 'null', 'https://a.example:8443']) {
      const answer = await post(`${session()}/xhr`, '', { Origin });
      assert.equal(answer.headers['access-control-allow-origin'], Origin);
      assert.equal(answer.headers['access-control-allow-credentials'], 'true');
      for (const asked of ['a, b, c', undefined]) {
        const headers = { Origin, 'Access-Control-Request-Method': 'POST', ...(asked && { 'Access-Control-Request-Headers': asked }) };
        const preflight = await request(`${session()}/xhr`, { method: 'OPTIONS', headers });
        assert.ok([200, 204].includes(preflight.status));
        assert.equal(preflight.body, '');
        assert.equal(preflight.headers['access-control-allow-headers'], asked);
        assert.match(preflight.headers['access-control-allow-methods'], /POST/);
        assert.ok(Number(preflight.headers['access-control-max-age']) > 1_000_000);
        assert.match(preflight.headers['cache-control'], /public/);
        assert.ok(preflight.headers.expires);
      }
    }
    const plain = await post(`${session()}/xhr`);
    assert.equal(plain.headers['access-control-allow-origin'], '*');
    assert.equal(plain.headers['access-control-allow-credentials'], undefined);
  });

  test('30: what must not be kept says so; the iframe may be kept', async () => {
    const url = session();
    for (const answer of [await post(`${url}/xhr`), await post(`${url}/xhr_send`, '["x"]'), await request(`${url}/jsonp?c=x`), await request(`${sockjs.http}/echo/info`)]) {
      assert.equal(answer.headers['cache-control'], NO_CACHE);
      assert.equal(answer.headers.expires, undefined);
      assert.equal(answer.headers['last-modified'], undefined);
    }
    const iframe = await request(`${sockjs.http}/echo/iframe-1.6.1.html?t=1`);
    assert.match(iframe.headers['cache-control'], /public.*max-age=[1-9]\d{6}/);
    const again = await request(`${sockjs.http}/echo/iframe.html`, { headers: { 'If-None-Match': iframe.headers.etag } });
    assert.deepEqual([again.status, again.body, again.headers['content-type']], [304, '', undefined]);
  });

  test('30: HTTP/1.0 is streamed without chunks, until the connection ends', async () => {
    const target = new URL(session('close')).pathname;
    const answer = (await exchange(sockjs.http, `POST ${target}/xhr_streaming HTTP/1.0\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n`)).toString();
    const [head, body] = answer.split('\r\n\r\n');
    assert.doesNotMatch(head, /transfer-encoding|content-length/i);
    assert.equal(body, `${'h'.repeat(2_048)}\no\nc[3000,"Go away!"]\n`);
  });

  test('31: paths with dots, or of fewer parts, are not found', async () => {
    for (const suffix of ['//xhr', '/a./a/xhr', '/a/a./xhr', '/././/xhr', '//xhr', '////xhr', '/a/xhr', '/a', '/a/a', '/iframe.htm', '/IFRAME.HTML', '/iframe-/.html']) {
      for (const method of ['GET', 'POST']) {
        const { hostname, port } = new URL(sockjs.http);
        const answer = (await exchange(sockjs.http, `${method} /echo${suffix} HTTP/1.1\r\nHost: ${hostname}:${port}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`)).toString();
        assert.match(answer, /^HTTP\/1\.1 404 /, `${method} ${suffix}`);
      }
    }
  });
});
