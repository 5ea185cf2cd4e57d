// docs/close-codes.md is true: a server sends its codes and reasons, in the form that each protocol has.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import test from 'node:test';
import WebSocket from 'ws';
import { admin, issuer, now, token as sign } from './admin.mjs';
import { event, feedsFrom, inbox, root, serve, upstream } from './harness.mjs';

const page = readFileSync(`${root}/docs/close-codes.md`, 'utf8');
/** The rows of a section's table, by cells. */
const table = (heading) => {
  const rows = page.split(`\n## ${heading}\n`)[1].split('\n## ')[0].split('\n').filter((line) => line.startsWith('|')).slice(2);
  return rows.map((row) => row.split('|').slice(1, -1).map((cell) => cell.trim()));
};
// Code: reason.
const stentor = new Map(table('Codes of Stentor').map(([code, , , reason]) => [Number(code), reason]));
const sockjs = new Map(table('Codes of SockJS').map(([code, reason]) => [Number(code), reason]));
const standard = new Set(table('Codes of the WebSocket protocol').map(([code]) => Number(code)));

/** A token of user 42 that expires in so many seconds. */
const token = (seconds) => sign({ sub: '42', iat: now() - 10, exp: now() + seconds });

// Codes that this test doesn't provoke, and why.
const ELSEWHERE = new Map([
  [4403, 'no application of the binary ends sessions; crates/edge/tests/edge/app.rs'],
  [4501, 'crates/edge/tests/edge/backpressure.rs fills a send buffer'],
]);

test('a server closes with the codes and reasons of the page', async (t) => {
  const api = await upstream(t);
  api.documents.set('k', { n: 1 });
  for (const slow of ['slow/a', 'slow/b']) api.documents.set(slow, () => {});
  const limits = 'message_bytes_max = 1000\nmessage_timeout = "300ms"\ncold_keys_max = 1\n';
  const server = await serve(t, { args: ['--cores', '1'], config: `${feedsFrom(api.url)}[limits]\n${limits}` });
  const impatient = await serve(t, { config: '[heartbeat]\ninterval = "200ms"\ntimeout = "200ms"\n' });
  const limited = await serve(t, { config: '[session_limits]\nmessages_per_second = 1\npolicy = "close"\n[socketio]\nconnect_timeout = "300ms"\n' });
  const seen = new Set();

  /** Opens a WebSocket, does something, and expects the end. */
  const closes = async (code, target, act = () => {}, { at = server, reason = stentor.get(code), ...options } = {}) => {
    const socket = new WebSocket(at.ws + target, options);
    t.after(() => socket.terminate());
    const end = event(socket, 'close');
    // Of the client library, about what the server sent.
    socket.on('error', () => {});
    await event(socket, 'open');
    await act(socket);
    const [found, words] = await end;
    assert.equal(found, code, target);
    // Where the code says it all, the words are free.
    if (reason !== undefined) assert.equal(words.toString(), reason, target);
    seen.add(code);
  };
  const raw = (...bytes) => (socket) => socket._socket.write(Buffer.from(bytes));

  // Pages can't read the status of a refused handshake, so theirs are accepted.
  const guarded = await serve(t, { config: issuer });
  const page = { at: guarded, origin: guarded.http };
  await closes(4408, '/ws', undefined, page);
  await closes(4505, `/ws?token=${token(-1)}`, undefined, page);
  await closes(4406, `/ws/k?token=${token(600)}`, undefined, page);
  await closes(4407, `/ws?token=${token(600)}`, () => admin(guarded, 'revocations', { subject: '42' }), page);
  await closes(4400, '/ws/k', (socket) => socket.send('hello'));
  await closes(4401, '/ws?feed=k&format=raw', (socket) => socket.send('{'));
  await closes(4402, '/socket.io/?EIO=4&transport=websocket', undefined, { at: limited });
  await closes(4404, '/ws/nothing');
  await closes(4405, '/socket.io/?EIO=4&transport=websocket', (socket) => { socket.send('40'); socket.send('42[]'); });
  await closes(4502, '/ws?feed=slow/a&feed=slow/b&format=raw');
  await closes(4506, '/ws', (socket) => { for (let n = 0; n < 2; n++) socket.send('{"type":"ping"}'); }, { at: limited });
  // A text frame of 256 bytes, of which one arrives.
  await closes(4504, '/ws', raw(0x81, 0xfe, 1, 0, 0, 0, 0, 0, 0x61), { autoPong: false });

  await closes(1000, '/ws', (socket) => socket.close(1000, 'bye'), { reason: 'bye' });
  await closes(1001, '/ws', (socket) => socket.close(1001), { reason: '' });
  await closes(1002, '/ws', raw(0x81, 0));
  await closes(1007, '/ws', raw(0x81, 0x81, 0, 0, 0, 0, 0xff));
  await closes(1009, '/ws', (socket) => socket.send('x'.repeat(1001)));
  // Without an answer to pings.
  await closes(4503, '/ws', undefined, { at: impatient, autoPong: false });

  // SockJS.
  const poll = async (session, at = server) => (await fetch(`${at.http}/sockjs/000/${session}/xhr`, { method: 'POST' })).text();
  const closed = (text) => {
    const [code, reason] = JSON.parse(/^c(\[.*\])\n$/.exec(text)[1]);
    return `${code} ${reason}`;
  };
  const isSockJs = (code, text) => {
    assert.equal(closed(text), `${code} ${sockjs.get(code)}`);
    seen.add(`sockjs ${code}`);
  };
  assert.equal(await poll('busy'), 'o\n');
  const first = http.request(`${server.http}/sockjs/000/busy/xhr_streaming`, { method: 'POST' }).end();
  const [stream] = await event(first, 'response', undefined, 'error');
  await event(stream, 'data');
  isSockJs(2010, await poll('busy'));
  // The streaming connection is cut off.
  first.destroy();
  let again;
  do again = await poll('busy'); while (again.startsWith('c[2010'));
  isSockJs(1002, again);
  await closes(3000, '/sockjs/000/x/websocket', (socket) => socket.send('{'), { reason: sockjs.get(3000) });
  seen.add('sockjs 3000');

  // A shutdown, by protocol.
  const open = async (target) => {
    const socket = new WebSocket(server.ws + target);
    t.after(() => socket.terminate());
    const messages = inbox(socket);
    await messages.next();
    return { end: event(socket, 'close'), messages };
  };
  const ends = await Promise.all(['/ws', '/primus/', '/sockjs/000/y/websocket', '/engine.io/?EIO=4&transport=websocket'].map(open));
  const [handshake] = (await (await fetch(`${server.http}/engine.io/?EIO=4&transport=polling`)).text()).split('\x1e');
  const { sid } = JSON.parse(handshake.slice(1));
  assert.equal(await poll('waiting'), 'o\n');
  await poll('waiting');
  const polling = http.get(`${server.http}/engine.io/?EIO=4&transport=polling&sid=${sid}`);
  const polled = event(polling, 'response', undefined, 'error');
  await event(polling, 'finish');
  const sockjsPolled = poll('waiting');
  const events = http.get(`${server.http}/sse/k`);
  const [body] = await event(events, 'response', undefined, 'error');
  await event(body, 'data');
  // Both polls have arrived once a later request is answered, because the server has one core.
  while (!(await poll('waiting')).startsWith('c[2010'));
  server.child.kill('SIGTERM');
  const words = stentor.get(4500);
  const [plain, primus, sock, engine] = await Promise.all(ends.map(async ({ end }) => (await end).join(' ')));
  assert.deepEqual([plain, primus, sock, engine], [`4500 ${words}`, `4500 ${words}`, `4500 ${words}`, '1006 ']);
  seen.add(4500);
  const [{ statusCode, headers }] = await polled;
  assert.deepEqual([statusCode, 'retry-after' in headers], [503, true]);
  assert.equal(closed(await sockjsPolled), `4500 ${words}`);
  await assert.rejects(async () => { for await (const _ of body); }, { code: 'ECONNRESET' });

  const missing = [...stentor.keys(), ...standard].filter((code) => !seen.has(code) && !ELSEWHERE.has(code));
  assert.deepEqual(missing, [], 'codes that were not provoked');
  assert.deepEqual([...sockjs.keys()].filter((code) => !seen.has(`sockjs ${code}`)), [1000]);
});
