// @stentor/socket.io: frames of the application link.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { SERVER, WORKER } from '../../clients/socketio-server/src/entries.js';
import { Incoming } from '../../clients/socketio-server/src/incoming.js';
import { inHeader, nearest } from '../../clients/socketio-server/src/number.js';
import { Outgoing } from '../../clients/socketio-server/src/outgoing.js';
import { FrameError, Reader } from '../../clients/socketio-server/src/reader.js';
import { root } from './harness.mjs';

// The Rust tests of crates/link have the same list.
const shared = JSON.parse(readFileSync(`${root}/crates/link/tests/link/entries.json`, 'utf8'));
const HEADER_BYTES = 8;

const outgoing = () => new Outgoing((message) => assert.fail(message));

/** The entries of a frame, as `[name, fields]`. */
function read(frame, entries) {
  const reader = new Reader(frame, entries);
  const found = [];
  while (reader.hasNext()) {
    const entry = reader.next();
    found.push([entry.name, reader.fields(entry)]);
  }
  return found;
}

test('entries of both directions have the bytes of the specification, and are read whole or not at all', () => {
  for (const [rows, entries] of [[shared.worker, WORKER], [shared.server, SERVER]]) {
    for (const { entry, fields, bytes } of rows) {
      const values = JSON.parse(JSON.stringify(fields), (_, value) => (typeof value?.hex === 'string' ? Buffer.from(value.hex, 'hex') : value));
      const writer = outgoing();
      writer.write(entries[entry], ...Object.values(values));
      const [frame] = writer.poll(258);
      assert.equal(frame.toString('hex'), `0100000002010000${bytes}`, entry);
      assert.deepEqual(read(frame, entries), [[entry, values]]);
      for (let length = HEADER_BYTES + 1; length < frame.length; length++) {
        assert.throws(() => read(frame.subarray(0, length), entries), FrameError, `${entry}, cut after ${length} bytes`);
      }
    }
    const tested = new Set(rows.map((row) => row.entry));
    assert.deepEqual(Object.keys(entries).filter((name) => !tested.has(name)), []);
  }
});

test('frames that break the protocol are refused with a reason', () => {
  const check = (hex, message) => assert.throws(() => read(Buffer.from(hex, 'hex'), SERVER), { name: 'FrameError', message });
  check('010000', 'the frame ends within the header');
  check('0100000000000000ff', 'the frame has an entry of the unknown type 255');
  check('010000000000000004', 'the frame has an entry of the unknown type 4');
  check('01000000000000004200', 'the frame ends within MESSAGE');
  check('010000000000000049020100ffffffff', 'the frame ends within KICK');
  check('010000000000000040010000007b', 'WELCOME is malformed: a text isn\'t JSON');
});

test('a count is found by its number in a header', () => {
  for (const [count, number] of [[0, 0], [1, 1], [2, 2], [4_294_967_295, 4_294_967_295], [4_294_967_296, 1], [2 * 4_294_967_295 + 7, 7]]) {
    assert.equal(inHeader(count), number);
    if (count > 0) for (const near of [count - 1_000, count - 1, count, count + 9]) assert.equal(nearest(number, Math.max(0, near)), count);
  }
  assert.equal(nearest(4_294_967_295, 1), 4_294_967_295);
});

test('messages of one packet are one entry, and of two packets two', () => {
  const writer = outgoing();
  const options = {};
  writer.send(WORKER.SEND, 1, 0, '51-["a"]', options);
  writer.send(WORKER.SEND, 1, 0, Buffer.from('b'), options);
  writer.send(WORKER.SEND, 1, 0, '2["c"]', {});
  writer.send(WORKER.SEND, 2, 0, '2["d"]', options);
  const [frame] = writer.poll(0);
  assert.deepEqual(read(frame, WORKER).map(([, { handle, messages }]) => [handle, ...messages.map(String)]), [[1, '51-["a"]', 'b'], [1, '2["c"]'], [2, '2["d"]']]);
});

test('a frame has at most 64 KiB, or one entry', () => {
  const writer = outgoing();
  const lengths = [10, 60_000, 10_000, 1_000_000, 10, 70_000, 20];
  for (const length of lengths) writer.send(WORKER.SEND, length, 0, 'é'.repeat(length / 2), {});
  const frames = writer.poll(0);
  assert.deepEqual(frames.map((frame) => read(frame, WORKER).map(([, { handle }]) => handle)), [[10, 60_000], [10_000], [1_000_000], [10], [70_000], [20]]);
  assert.deepEqual(frames.map((frame) => frame.readUInt32LE(0)), [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(frames.flatMap((frame) => read(frame, WORKER)).map(([, { messages: [text] }]) => Buffer.byteLength(text)), lengths);
});

test('an entry that no frame can have is dropped and reported, and leaves no trace', () => {
  const dropped = [];
  const writer = new Outgoing((message) => dropped.push(message));
  writer.write(WORKER.LEAVE, 1, 0, 'a');
  writer.send(WORKER.SEND, 1, 0, Buffer.alloc(16 << 20), {});
  for (const [handle, namespace] of [[1, null], [1, undefined], [null, 0], ['1', 0]]) {
    assert.throws(() => writer.write(WORKER.LEAVE, handle, namespace, 'x'), { name: 'TypeError', message: /^a number is missing: / });
  }
  writer.write(WORKER.LEAVE, 1, 0, 'b');
  assert.deepEqual(writer.poll(0).flatMap((frame) => read(frame, WORKER)).map(([, { room }]) => room), ['a', 'b']);
  assert.deepEqual(dropped, ['a message of 16777228 bytes was dropped; the maximum is 16777216']);
});

test('every value has a name, which all workers write alike', () => {
  const names = ['é'.repeat(32_767), 'é'.repeat(32_768), 1, null, { toString: 1 }, Symbol('a')];
  const written = names.map((name) => {
    const writer = outgoing();
    writer.write(WORKER.LEAVE, 1, 0, name);
    return read(writer.poll(0)[0], WORKER)[0][1].room;
  });
  const hash = createHash('sha256').update(names[1]).digest('base64url');
  assert.deepEqual(written, [names[0], `sha256:${hash}`, '1', 'null', '[object Object]', 'Symbol(a)']);
});

test('frames are kept until they are acknowledged, and sent again after a broken connection', () => {
  const writer = outgoing();
  const frame = (room) => {
    writer.write(WORKER.LEAVE, 1, 0, room);
    return writer.poll(0);
  };
  const rooms = (frames) => frames.flatMap((each) => read(each, WORKER)).map(([, fields]) => fields.room);
  ['a', 'b', 'c'].forEach(frame);
  writer.acknowledge(1);
  assert.throws(() => writer.acknowledge(4), { message: 'the frame 4 is acknowledged; the last one is 3' });
  writer.reconnect(2);
  assert.deepEqual(rooms(writer.poll(7)), ['c']);
  assert.throws(() => writer.reconnect(0), FrameError);
  assert.throws(() => writer.reconnect(4), FrameError);
  // The memory of acknowledged frames is used again.
  for (let i = 4; i < 40; i++) {
    assert.deepEqual(rooms(frame(`${i}${'x'.repeat(20_000)}`)), [`${i}${'x'.repeat(20_000)}`]);
    writer.acknowledge(i);
  }
  assert.deepEqual([writer.isAcknowledged, writer.keptBytes], [true, 0]);
});

test('frames arrive in order, and are acknowledged only below the first one that is held back', () => {
  const incoming = new Incoming();
  const [one, two] = [{}, {}];
  incoming.arrive(1, 10);
  assert.throws(() => incoming.arrive(3, 10), { message: 'the frame has the number 3; expected 2' });
  incoming.arrive(2, 10);
  incoming.hold(one);
  incoming.arrive(3, 10);
  incoming.hold(two);
  incoming.hold(one);
  assert.deepEqual([incoming.isUnacknowledged, incoming.acknowledge(), incoming.isUnacknowledged], [true, 1, false]);
  incoming.release(one);
  assert.equal(incoming.acknowledge(), 2);
  incoming.release(two);
  assert.deepEqual([incoming.acknowledge(), incoming.isUrgent], [3, false]);
  incoming.arrive(4, 40_000);
  assert.equal(incoming.isUrgent, true);
});
