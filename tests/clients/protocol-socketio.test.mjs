// Socket.IO 5 and 4 on the wire: behaviours 18 to 23 of the protocol list, then published attacks, each by its id.
// The fixture's profile `protocol-patient`: namespaces `/` and `/custom`, which greet with `auth`; `message` is sent back as
// `message-back`, `message-with-ack` is acknowledged with its arguments.
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { fixture, within } from './harness.mjs';
import { openWebSocket, Polling, SEPARATOR } from './wire.mjs';

const server = await fixture({ after }, 'protocol-patient');
// The same with pings every 300 ms.
const pinging = await fixture({ after }, 'protocol-pings');
const path = '/socket.io/';

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

/** Fails unless the server still takes clients and answers them. */
async function serves() {
  const peer = await connected();
  peer.send('421["message-with-ack","still here"]');
  assert.equal(await peer.next(), '431["still here"]');
  peer.socket.close();
}

const bytes = (...values) => Buffer.from(values);

test('18: a second CONNECT, or a packet for a namespace that is not connected, closes', async () => {
  for (const packet of ['40', '40{}', '42/custom,["message",1]', '41/custom,', '42/random,["message"]', '43/custom,1[]']) await closes(packet);
  // Before any CONNECT as well.
  const peer = await openWebSocket(server, { path });
  peer.send('42["message",1]');
  await peer.end();
});

test('18: over polling the next poll is answered with noop and close', async () => {
  for (const waiting of [false, true]) {
    const polling = await Polling.open(server, { path });
    await polling.post('40');
    assert.equal((await polling.packets(2)).length, 2);
    const waits = waiting && await polling.waiting();
    await polling.post('40').catch(() => {});
    const { body } = await (waits ? waits.answer : polling.get());
    // A poll that waits may get the close alone.
    assert.ok(body === `6${SEPARATOR}1` || (waiting && body === '1'), body);
    assert.equal((await polling.get()).status, 400);
  }
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
    '47["message"]', '49', '4abc', '44{"message":"no"}', '44"no"', '42abc["message"]', '43["no id"]x', '41{"a":1}x']) await closes(packet);
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

test('20: what follows the JSON closes', async () => {
  for (const packet of ['42["message",1]x', '42["message",1] 2', '42["message",1][]', '421["message-with-ack"],']) await closes(packet);
});

test('20: attachments over polling, in both versions', async () => {
  const polling = await Polling.open(server, { path });
  await polling.post('40');
  assert.equal((await polling.packets(2))[1], '42["auth",{}]');
  const packet = ['452-7["message-with-ack",{"a":{"_placeholder":true,"num":0}},{"_placeholder":true,"num":1}]', 'bAQID', 'b'];
  await polling.post(packet.join(SEPARATOR));
  assert.deepEqual(await polling.packets(3), ['462-7[{"a":{"_placeholder":true,"num":0}},{"_placeholder":true,"num":1}]', 'bAQID', 'b']);
  const three = await openWebSocket(server, { path, eio: 3 });
  assert.equal(await three.next(), '40');
  assert.equal(await three.next(), '42["auth",{}]');
  three.send('451-["message",{"_placeholder":true,"num":0}]', bytes(4, 1, 2, 3));
  assert.equal(await three.next(), '451-["message-back",{"_placeholder":true,"num":0}]');
  assert.deepEqual(await three.next(), bytes(4, 1, 2, 3));
  three.socket.close();
});

test('21: an id of acknowledgement is a number, and a disconnect leaves the transport open', async () => {
  const peer = await connected();
  peer.send('42007["message-with-ack",1]');
  assert.equal(await peer.next(), '437[1]');
  peer.send('420["message-with-ack"]');
  assert.equal(await peer.next(), '430[]');
  peer.send('41');
  await peer.settled();
  // The namespace can be entered again.
  peer.send('40');
  assert.match(await peer.next(), /^40\{"sid":"/);
  peer.socket.close();
});

test('21: JSON is passed on as it means, whatever is in it', async () => {
  const peer = await connected();
  for (const value of ['"\\u2028\\"é😀"', '{"__proto__":1,"constructor":{}}', '-0.5', '1e+30', '[[],[{}]]', 'null', '""', '{"_placeholder":false,"num":0}']) {
    peer.send(`421["message-with-ack",${value}]`);
    const answer = await peer.next(value);
    assert.deepEqual(JSON.parse(answer.slice(3)), JSON.parse(`[${value}]`));
  }
  peer.socket.close();
});

test("22: the socket's id is not the transport's; in version 3 it is, and CONNECT comes unasked", async (t) => {
  const peer = await connected();
  assert.notEqual(peer.id, peer.sid);
  peer.send('40/custom,');
  const custom = await peer.next();
  assert.match(custom, /^40\/custom,\{"sid":"/);
  assert.ok(!custom.includes(peer.id) && !custom.includes(peer.sid));
  peer.socket.close();

  const clients = await fixture(t, 'socketio-client');
  const three = await openWebSocket(clients, { path, eio: 3 });
  assert.equal(await three.next(), '40');
  three.send('420["getId"]');
  assert.equal(await three.next(), `430["${three.sid}"]`);
  three.send('40/foo,');
  assert.equal(await three.next(), '40/foo,');
  three.send('42/foo,1["getId"]');
  assert.equal(await three.next(), `43/foo,1["/foo#${three.sid}"]`);
  three.send('40/no,');
  assert.equal(await three.next(), '44/no,"Auth failed (custom namespace)"');
  three.socket.close();
});

test('23: missed events come before the answer to CONNECT, with the place of each', async (t) => {
  const clients = await fixture(t, 'socketio-client');
  const first = await connected({ on: clients, greeted: false });
  const { sid, pid } = JSON.parse(first.answer.slice(2));
  assert.equal(typeof pid, 'string');
  first.send('42["getUtf8"]');
  const events = [];
  for (let n = 0; n < 5; n++) events.push(await first.next());
  const offsets = events.map((event) => JSON.parse(event.slice(2)).at(-1));
  assert.equal(new Set(offsets).size, 5);
  for (const offset of offsets) assert.equal(typeof offset, 'string');

  // Twice in a row: what is recovered can be recovered again.
  for (let again = 0, before = first; again < 2; again++) {
    before.socket.terminate();
    await before.end();
    const back = await openWebSocket(clients, { path });
    back.send(`40${JSON.stringify({ pid, offset: offsets[1] })}`);
    for (const event of events.slice(2)) assert.equal(await back.next(), event);
    assert.deepEqual(JSON.parse((await back.next()).slice(2)), { sid, pid });
    back.send('421["getId"]');
    assert.equal(await back.next(), `431["${sid}"]`);
    before = back;
    if (again === 1) back.socket.close();
  }
});

test('23: over polling as well', async (t) => {
  const clients = await fixture(t, 'socketio-client');
  const polling = await Polling.open(clients, { path });
  await polling.post('40');
  const [answer] = await polling.packets(1);
  const { sid, pid } = JSON.parse(answer.slice(2));
  await polling.post('42["getUtf8"]');
  const events = await polling.packets(5);
  const abort = new AbortController();
  const { answer: poll } = await polling.waiting({ signal: abort.signal });
  abort.abort();
  await assert.rejects(poll, { name: 'AbortError' });
  await polling.settled();
  const back = await Polling.open(clients, { path });
  await back.post(`40${JSON.stringify({ pid, offset: JSON.parse(events[3].slice(2)).at(-1) })}`);
  assert.deepEqual(await back.packets(2), [events[4], `40${JSON.stringify({ sid, pid })}`]);
  await back.post('1');
});

test('23: a client that has had no event yet is recovered', async (t) => {
  const clients = await fixture(t, 'socketio-client');
  const first = await connected({ on: clients, greeted: false });
  const { sid, pid } = JSON.parse(first.answer.slice(2));
  first.socket.terminate();
  await first.end();
  // As socket.io-client sends it: the offset is undefined, so it isn't there.
  const back = await connected({ on: clients, connect: `40${JSON.stringify({ pid })}`, greeted: false });
  assert.deepEqual(JSON.parse(back.answer.slice(2)), { sid, pid });
  back.socket.close();
});

test('23: what cannot be recovered begins anew', async (t) => {
  const clients = await fixture(t, 'socketio-client');
  /** A session that has had one event, ended in some way: { sid, pid, offset }. */
  const ended = async (end) => {
    const first = await connected({ on: clients, greeted: false });
    first.send('42["hi"]');
    const offset = JSON.parse((await first.next()).slice(2)).at(-1);
    await end(first);
    return { ...JSON.parse(first.answer.slice(2)), offset };
  };
  const cut = async (peer) => { peer.socket.terminate(); await peer.end(); };
  const left = async (peer) => {
    peer.send('41');
    await peer.settled();
    peer.send('40');
    assert.match(await peer.next(), /^40\{/);
    await cut(peer);
  };
  const cases = {
    'a namespace that was left': (await ended(left)),
    'an unknown place': { ...(await ended(cut)), offset: 'nowhere' },
    'an unknown session': { ...(await ended(cut)), pid: 'nobody' },
    'names of an object': { ...(await ended(cut)), pid: '__proto__' },
  };
  for (const [what, { sid, pid, offset }] of Object.entries(cases)) {
    const back = await connected({ on: clients, connect: `40${JSON.stringify({ pid, offset })}`, greeted: false });
    assert.notEqual(back.id, sid, what);
    back.send('421["getId"]');
    assert.equal(await back.next(), `431["${back.id}"]`, what);
    back.socket.close();
  }
  // Of another type they are no offer of recovery, and nothing breaks.
  for (const auth of [{ pid: 1, offset: 2 }, { pid: {}, offset: [] }, { pid: null, offset: null }]) {
    const back = await connected({ on: clients, connect: `40${JSON.stringify(auth)}`, greeted: false });
    back.socket.close();
  }
});

test('CVE-2026-69185: a packet with no attachments announced as binary is refused', async () => {
  await closes('450-["message","x"]');
  await closes('460-1["x"]');
  await serves();
});

test('CVE-2026-33151: attachments that never come cannot be announced in great number', async () => {
  for (const count of ['11', '1000', '1000000', '4294967297', '9'.repeat(400)]) await closes(`45${count}-["message",{"_placeholder":true,"num":0}]`);
  await serves();
});

test('CVE-2024-38355: an event named error breaks nothing', async () => {
  const peer = await connected();
  peer.send('42["error"]', '42["error",{"a":1}]', '42["message","after"]');
  const item = await peer.event();
  // Delivered or ignored, or the connection ended; the server goes on.
  if (item.data !== undefined) assert.equal(item.data, '42["message-back","after"]');
  peer.socket.close();
  await serves();
});

test('CVE-2023-32695: a name of an event that is no name is refused', async () => {
  for (const packet of ['42[{"toString":"foo"}]', '42[true]', '42[null]', '42[{"toString":null}]']) await closes(packet);
  await serves();
});

test('CVE-2022-2421: a placeholder that names no attachment is refused', async () => {
  for (const num of ['"splice"', '"length"', '-1', '1', 'null', '1e9', '"0"']) {
    await closes(`451-["message",{"_placeholder":true,"num":${num}}]`, bytes(1));
  }
  await serves();
});

test('CVE-2020-36049: a very long packet takes time in proportion', async () => {
  const long = 900_000;
  for (const packet of [`42${'1'.repeat(long)}["message"]`, `40/${'a'.repeat(long)},`, `45${'1'.repeat(long)}-["message"]`, `42["message","${'\\u0000'.repeat(long / 6)}`]) {
    const peer = await connected();
    peer.send(packet);
    // Closed, or refused as an unknown namespace, or answered. (In quadratic time, 4 × 10¹¹ bytes would be copied: longer than is waited.)
    await within(Promise.resolve(peer.event()), `an answer to ${packet.slice(0, 20)}…`);
    peer.socket.terminate();
  }
  const peer = await connected();
  const text = 'x'.repeat(long);
  peer.send(`42["message","${text}"]`);
  assert.equal(await peer.next(), `42["message-back","${text}"]`);
  peer.socket.close();
});

test('(no id) names of an object are no namespaces and no events', async () => {
  const peer = await connected();
  for (const name of ['/__proto__', '/constructor', '/toString']) {
    peer.send(`40${name},`);
    assert.equal(await peer.next(), `44${name},{"message":"Invalid namespace"}`);
  }
  peer.send('42["__proto__",1]', '42["constructor"]', '42["toString"]', '42["message","after"]');
  assert.equal(await peer.next(), '42["message-back","after"]');
  peer.socket.close();
});
