// SockJS on the wire: behaviours 24 to 31 of the protocol list, then published attacks, each by its id. The fixture's
// profile `sockjs`: /echo (streams end after 4,096 bytes), /close (says goodbye at once), /cookie_needed_echo and others.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import test, { after } from 'node:test';
import { fixture, until } from './harness.mjs';
import { exchange, Peer, request, stream, upgradeHead } from './wire.mjs';

const server = await fixture({ after }, 'sockjs');

const session = (prefix = 'echo') => `${server.http}/${prefix}/000/${randomUUID()}`;
const post = (url, body = '', headers = {}) => request(url, { method: 'POST', body, headers });
const FORM = { 'Content-Type': 'application/x-www-form-urlencoded' };
const NO_CACHE = 'no-store, no-cache, no-transform, must-revalidate, max-age=0';

/** A session that polls by XHR, opened: its URL. */
async function opened(prefix) {
  const url = session(prefix);
  assert.equal((await post(`${url}/xhr`)).body, 'o\n');
  return url;
}

/** A WebSocket with its open frame read. */
async function websocket(url = session()) {
  const peer = new Peer(`${url.replace('http', 'ws')}/websocket`, { pong: false });
  assert.equal(await peer.next(), 'o');
  return peer;
}

test('24: JSONP bodies begin with a comment, and callbacks are names', async () => {
  const url = session();
  const first = await request(`${url}/jsonp?c=%63all.back_1`);
  assert.equal(first.body, '/**/call.back_1("o");\r\n');
  assert.match(first.headers['content-type'], /^application\/javascript; ?charset=UTF-8$/);
  const sent = await post(`${url}/jsonp_send`, `d=${encodeURIComponent('["x\\"</script>"]')}`, FORM);
  assert.deepEqual([sent.status, sent.body], [200, 'ok']);
  const second = await request(`${url}/jsonp?c=cb`);
  assert.equal(JSON.parse(JSON.parse(/^\/\*\*\/cb\((.*)\);\r\n$/.exec(second.body)[1]).slice(1))[0], 'x"</script>');
});

test('24, CVE-2020-8823: a callback that is no name is refused, and not repeated', async () => {
  for (const transport of ['jsonp', 'htmlfile']) {
    const missing = await request(`${server.http}/echo/a/a/${transport}`);
    assert.deepEqual([missing.status, missing.body.trim()], [500, '"callback" parameter required']);
    for (const callback of ['%20', '*', 'abc(', 'abc%28', '%3Cscript%3Ealert(1)%3C/script%3E', 'a;alert(1)//', 'a%0d%0aX:%20y', '%C3%A9']) {
      const answer = await request(`${server.http}/echo/a/a/${transport}?c=${callback}`);
      assert.equal(answer.status, 500, callback);
      assert.equal(answer.body.trim(), 'invalid "callback" parameter', callback);
      assert.equal(answer.headers.x, undefined);
    }
  }
});

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

test('26: a second receiver is told so, and the first goes on', async () => {
  const url = session();
  const first = await stream(`${url}/xhr_streaming`, { method: 'POST' });
  await first.next();
  assert.equal(await first.next(), 'o\n');
  for (let n = 0; n < 2; n++) assert.equal((await post(`${url}/xhr`)).body, 'c[2010,"Another connection still open"]\n');
  await post(`${url}/xhr_send`, '["x"]');
  assert.equal(await first.next(), 'a["x"]\n');
  first.abort();
  // What the aborted receiver got is not known: the session is over, or forgotten.
  const body = await until('the end of the first receiver', async () => {
    const answer = await post(`${url}/xhr`);
    return !answer.body.startsWith('c[2010,') && answer.body;
  });
  assert.ok(['c[1002,"Connection interrupted"]\n', 'o\n'].includes(body));
});

test('26: goodbye is said to each later poll', async () => {
  const url = await opened('close');
  for (let n = 0; n < 3; n++) assert.equal((await post(`${url}/xhr`)).body, 'c[3000,"Go away!"]\n');
  const streamed = await stream(`${url}/xhr_streaming`, { method: 'POST' });
  await streamed.next();
  assert.equal(await streamed.next(), 'c[3000,"Go away!"]\n');
  assert.equal(await streamed.next(), null);
});

test('27: what browsers mangle is escaped', async () => {
  const url = await opened();
  const escaped = [];
  for (const [from, to] of [[0x200c, 0x200f], [0x2028, 0x202f], [0x2060, 0x206f], [0xfff0, 0xffff]]) {
    for (let code = from; code <= to; code++) escaped.push(code);
  }
  await post(`${url}/xhr_send`, JSON.stringify([String.fromCharCode(...escaped)]));
  assert.equal((await post(`${url}/xhr`)).body, `a["${escaped.map((code) => `\\u${code.toString(16)}`).join('')}"]\n`);
  // And the rest is as it was.
  const text = 'é€😀\u0000\u001f"\\/ ';
  await post(`${url}/xhr_send`, JSON.stringify([text]));
  assert.deepEqual(JSON.parse((await post(`${url}/xhr`)).body.slice(1)), [text]);
});

test('28: bad bodies are told, and the session survives', async () => {
  const url = await opened();
  for (const [body, message] of [['', 'Payload expected.'], ['["x', 'Broken JSON encoding.'], ['x', 'Broken JSON encoding.']]) {
    const answer = await post(`${url}/xhr_send`, body);
    assert.deepEqual([answer.status, answer.body.trim()], [500, message]);
  }
  for (const [body, message] of [['', 'Payload expected.'], ['d=', 'Payload expected.'], ['p=p', 'Payload expected.'], ['d=%5B%22x', 'Broken JSON encoding.']]) {
    const answer = await post(`${url}/jsonp_send`, body, FORM);
    assert.deepEqual([answer.status, answer.body.trim()], [500, message]);
  }
  const types = ['text/plain', 'T', 'application/json', 'application/xml', '', 'application/json; charset=utf-8', 'text/xml'];
  for (const type of types) {
    const answer = await post(`${url}/xhr_send`, '["a"]', { 'Content-Type': type });
    assert.deepEqual([answer.status, answer.body], [204, '']);
    assert.match(answer.headers['content-type'], /^text\/plain; ?charset=UTF-8$/);
  }
  assert.equal((await post(`${url}/xhr_send`, '[]')).status, 204);
  assert.equal((await post(`${url}/xhr`)).body, `a[${types.map(() => '"a"').join()}]\n`);
  assert.equal((await post(`${session()}/xhr_send`, '["x"]')).status, 404);
});

test('28: over WebSocket bad JSON closes, and nothing is ignored', async () => {
  const peer = await websocket();
  peer.send('', '[]', '["a"]');
  assert.equal(await peer.next(), 'a["a"]');
  peer.send('["a');
  assert.deepEqual((await peer.end()).before, []);
  const closed = await websocket(session('close'));
  const { before } = await closed.end();
  assert.deepEqual(before, ['c[3000,"Go away!"]']);
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
  for (const answer of [await post(`${url}/xhr`), await post(`${url}/xhr_send`, '["x"]'), await request(`${url}/jsonp?c=x`), await request(`${server.http}/echo/info`)]) {
    assert.equal(answer.headers['cache-control'], NO_CACHE);
    assert.equal(answer.headers.expires, undefined);
    assert.equal(answer.headers['last-modified'], undefined);
  }
  const iframe = await request(`${server.http}/echo/iframe-1.6.1.html?t=1`);
  assert.match(iframe.headers['cache-control'], /public.*max-age=[1-9]\d{6}/);
  const again = await request(`${server.http}/echo/iframe.html`, { headers: { 'If-None-Match': iframe.headers.etag } });
  assert.deepEqual([again.status, again.body, again.headers['content-type']], [304, '', undefined]);
});

test('30: methods that are not served', async () => {
  assert.equal((await request(`${server.http}/echo/0/0/websocket`)).status, 400);
  for (const headers of [{}, { Upgrade: 'WebSocket', Connection: 'Upgrade' }]) {
    const { hostname, port } = new URL(server.http);
    const lines = Object.entries({ Host: `${hostname}:${port}`, 'Content-Length': '0', Connection: 'close', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
    const answer = (await exchange(server.http, `POST /echo/0/0/websocket HTTP/1.1\r\n${lines.join('')}\r\n`)).toString();
    assert.match(answer, /^HTTP\/1\.1 405 /);
    assert.match(answer, /\r\nAllow: *GET\r\n/i);
    assert.doesNotMatch(answer, /content-type/i);
  }
});

test('30: HTTP/1.0 is streamed without chunks, until the connection ends', async () => {
  const path = new URL(session('close')).pathname;
  const answer = (await exchange(server.http, `POST ${path}/xhr_streaming HTTP/1.0\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n`)).toString();
  const [head, body] = answer.split('\r\n\r\n');
  assert.doesNotMatch(head, /transfer-encoding|content-length/i);
  assert.equal(body, `${'h'.repeat(2_048)}\no\nc[3000,"Go away!"]\n`);
});

test('31: a session id names one polling session, and as many WebSockets as there are', async () => {
  const url = session();
  const [one, two] = [await websocket(url), await websocket(url)];
  one.send('["a"]');
  two.send('["b"]');
  assert.deepEqual([await one.next(), await two.next()], ['a["a"]', 'a["b"]']);
  one.socket.close();
  two.socket.close();
  const id = randomUUID();
  assert.equal((await post(`${server.http}/echo/000/${id}/xhr`)).body, 'o\n');
  await post(`${server.http}/echo/111/${id}/xhr_send`, '["a"]');
  assert.equal((await post(`${server.http}/echo/999/${id}/xhr`)).body, 'a["a"]\n');
});

test('31: paths with dots, or of fewer parts, are not found', async () => {
  for (const suffix of ['//xhr', '/a./a/xhr', '/a/a./xhr', '/././/xhr', '//xhr', '////xhr', '/a/xhr', '/a', '/a/a', '/iframe.htm', '/IFRAME.HTML', '/iframe-/.html']) {
    for (const method of ['GET', 'POST']) {
      const { hostname, port } = new URL(server.http);
      const answer = (await exchange(server.http, `${method} /echo${suffix} HTTP/1.1\r\nHost: ${hostname}:${port}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`)).toString();
      assert.match(answer, /^HTTP\/1\.1 404 /, `${method} ${suffix}`);
    }
  }
});

test('the raw WebSocket has no frames of SockJS', async () => {
  const peer = new Peer(`${server.ws}/echo/websocket`, { pong: false });
  await new Promise((resolve) => peer.socket.once('open', resolve));
  peer.send('Hello world!\uffff');
  assert.equal(await peer.next(), 'Hello world!\uffff');
  peer.socket.close();
  const { closed, reason } = await new Peer(`${server.ws}/close/websocket`).end();
  assert.deepEqual([closed, reason], [3000, 'Go away!']);
});

test('a cookie for balancers, where it is asked for', async () => {
  for (const [sent, value] of [[{}, 'dummy'], [{ Cookie: 'JSESSIONID=abcdef' }, 'abcdef']]) {
    const answer = await post(`${session('cookie_needed_echo')}/xhr`, '', sent);
    assert.deepEqual(answer.headers['set-cookie'][0].split(';').slice(0, 2).map((part) => part.trim().toLowerCase()), [`jsessionid=${value}`, 'path=/']);
  }
  assert.equal((await post(`${session()}/xhr`)).headers['set-cookie'], undefined);
  // What comes back is what was sent, never a header of its own.
  const answer = await post(`${session('cookie_needed_echo')}/xhr`, '', { Cookie: 'JSESSIONID=a%0d%0aX: y' });
  assert.equal(answer.headers.x, undefined);
});

test('CVE-2020-7693: an upgrade on another path is refused, and the server goes on', async () => {
  for (const path of ['/echo', '/echo/info', '/echo/0/0/xhr', '/echo/0/0/xhr_streaming', '/nowhere']) {
    const answer = (await exchange(server.http, upgradeHead(`${server.http}${path}`))).toString();
    assert.match(answer, /^HTTP\/1\.1 4\d\d /, path);
  }
  await opened();
});
