// The entry for HttpArena (lab/entries/httparena): what its validation of the profile `echo-ws` checks.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import test from 'node:test';
import { root, serve, statusOf } from '../harness.mjs';

const [TEXT, BINARY, CLOSE] = [1, 2, 8];

/** A masked frame of a client, of at most 65,535 bytes. */
function frame(opcode, payload) {
  const [body, mask] = [Buffer.from(payload), randomBytes(4)];
  const length = body.length < 126 ? [0x80 | body.length] : [0xfe, body.length >> 8, body.length & 255];
  return Buffer.concat([Buffer.from([0x80 | opcode, ...length]), mask, body.map((byte, at) => byte ^ mask[at % 4])]);
}

/** A WebSocket on a plain socket: `send(…bytes)` and `next()`, which gives a frame as [opcode, payload]. */
async function open(t, url) {
  const key = randomBytes(16).toString('base64');
  const socket = net.connect(new URL(url).port, '127.0.0.1');
  t.after(() => socket.destroy());
  let buffer = Buffer.alloc(0);
  const more = async () => { buffer = Buffer.concat([buffer, (await once(socket, 'data'))[0]]); };
  socket.write(`GET /ws HTTP/1.1\r\nHost: localhost:8080\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: ${key}\r\nSec-WebSocket-Version: 13\r\n\r\n`);
  while (buffer.indexOf('\r\n\r\n') < 0) await more();
  const head = buffer.subarray(0, buffer.indexOf('\r\n\r\n')).toString();
  buffer = buffer.subarray(head.length + 4);
  assert.match(head, /^HTTP\/1\.1 101 /);
  const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
  assert.equal(/^sec-websocket-accept: (.*)$/im.exec(head)?.[1], accept);
  const next = async () => {
    for (;;) {
      const isLong = buffer.length > 1 && buffer[1] === 126;
      const begin = isLong ? 4 : 2;
      if (buffer.length >= begin) {
        const length = isLong ? buffer.readUInt16BE(2) : buffer[1];
        if (buffer.length >= begin + length) {
          const found = [buffer[0] & 15, buffer.subarray(begin, begin + length)];
          buffer = buffer.subarray(begin + length);
          return found;
        }
      }
      await more();
    }
  };
  return { send: (...frames) => socket.write(Buffer.concat(frames)), next };
}

test('the entry for HttpArena passes what its validation checks', async (t) => {
  const config = readFileSync(path.join(root, 'lab/entries/httparena/stentor.toml'), 'utf8').replace(/^listen = .*$/m, '');
  const server = await serve(t, { config });
  const { send, next } = await open(t, server.http);
  const echoed = async (opcode, payload) => {
    const [got, echo] = await next();
    assert.deepEqual([got, echo.toString('hex')], [opcode, Buffer.from(payload).toString('hex')]);
  };
  const text = `HttpArena-validate-${randomBytes(8).toString('hex')}`;
  send(frame(TEXT, text));
  await echoed(TEXT, text);
  const bytes = randomBytes(256);
  send(frame(BINARY, bytes));
  await echoed(BINARY, bytes);
  const several = Array.from({ length: 5 }, () => randomBytes(8).toString('hex'));
  send(...several.map((one) => frame(TEXT, one)));
  for (const one of several) await echoed(TEXT, one);
  send(frame(CLOSE, Buffer.concat([Buffer.from([3, 232]), Buffer.from('validate done')])));
  const [opcode, payload] = await next();
  assert.deepEqual([opcode, payload.readUInt16BE(0)], [CLOSE, 1000]);

  const status = await statusOf(server.http, '/ws');
  assert.ok(status >= 400 && status < 500, `${status}`);

  const healthy = await open(t, server.http);
  healthy.send(frame(TEXT, 'health'));
  assert.equal((await healthy.next())[1].toString(), 'health');
});
