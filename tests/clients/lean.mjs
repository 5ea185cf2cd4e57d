// Clients that cost next to nothing, for the mass in tests of many: a TCP connection, the least of WebSocket's client side
// that a server accepts (RFC 6455; masks of zero, no extensions), and on it the few packets of each protocol that a client needs
// to subscribe to a feed and to stay. Whether the protocols are spoken as others speak them, real clients test.
import net from 'node:net';
import { upgradeHead } from './wire.mjs';

const TEXT = 1;
const CLOSE = 8;
const PING = 9;
const PONG = 10;

/** A masked frame; the payload is shorter than 64 KiB. */
function frame(opcode, payload) {
  const length = payload.length < 126 ? [0x80 | payload.length] : [0x80 | 126, payload.length >> 8, payload.length & 0xff];
  return Buffer.concat([Buffer.from([0x80 | opcode, ...length, 0, 0, 0, 0]), payload]);
}

/** The frame at the start of the bytes, { opcode, payload, size }; null while it isn't whole. */
function framed(bytes) {
  if (bytes.length < 2) return null;
  let length = bytes[1] & 0x7f;
  let at = 2;
  if (length === 126) {
    at = 4;
    if (bytes.length < at) return null;
    length = bytes.readUInt16BE(2);
  } else if (length === 127) {
    at = 10;
    if (bytes.length < at) return null;
    length = Number(bytes.readBigUInt64BE(2));
  }
  const size = at + length;
  return bytes.length < size ? null : { opcode: bytes[0], payload: bytes.subarray(at, size), size };
}

/** Opens a WebSocket to `path`; calls `open()`, `message(text)` in order, and `gone()` once. `send` takes text. */
export function leanWebSocket(url, path, { open = () => {}, message, gone }) {
  const { hostname, port } = new URL(url);
  const socket = net.connect({ port, host: hostname, noDelay: true });
  let isUpgraded = false;
  // What has come of a frame, or of the head of the answer.
  let rest = Buffer.alloc(0);
  const send = (text) => socket.write(frame(TEXT, Buffer.from(text)));
  socket.write(upgradeHead(`${url}${path}`));
  socket.on('data', (piece) => {
    let bytes = rest.length ? Buffer.concat([rest, piece]) : piece;
    if (!isUpgraded) {
      const end = bytes.indexOf('\r\n\r\n');
      if (end >= 0) {
        if (!bytes.subarray(0, 12).equals(Buffer.from('HTTP/1.1 101'))) return socket.destroy();
        isUpgraded = true;
        bytes = bytes.subarray(end + 4);
        open(send);
      }
    }
    for (let found; isUpgraded && (found = framed(bytes)); bytes = bytes.subarray(found.size)) {
      const { opcode, payload } = found;
      if (opcode === (0x80 | TEXT)) message(payload.toString(), send);
      else if (opcode === (0x80 | PING)) socket.write(frame(PONG, payload));
      // Also what a client that offers no extension never gets: compressed, or in fragments.
      else if (opcode !== (0x80 | PONG)) return socket.destroy(opcode === (0x80 | CLOSE) ? undefined : new Error(`a frame that begins with ${opcode}`));
      if (socket.destroyed) return undefined;
    }
    rest = bytes;
    return undefined;
  });
  socket.on('error', () => {});
  socket.on('close', gone);
  return { cut: () => socket.destroy(), stream: () => socket };
}

let sessions = 0;

/**
 * What subscribes, by protocol: `(url, subscribe, hear, gone)`, where `subscribe` is the message of stentor.v1 and `hear` takes
 * what comes, in the same form. Gives what cuts the connection off, and the stream that can be paused.
 */
export const LEAN = {
  'lean websocket': (url, subscribe, hear, gone) => leanWebSocket(url, '/ws', {
    open: (send) => send(JSON.stringify(subscribe)),
    message: (text) => hear(JSON.parse(text)),
    gone,
  }),
  'lean bodies': (url, { feed }, hear, gone) => leanWebSocket(url, `/ws/${feed}`, {
    message: (text) => hear({ type: 'snapshot', data: JSON.parse(text) }),
    gone,
  }),
  'lean engineio': (url, subscribe, hear, gone) => leanWebSocket(url, '/engine.io/?EIO=4&transport=websocket', {
    message(text, send) {
      if (text[0] === '0') send(`4${JSON.stringify(subscribe)}`);
      else if (text[0] === '2') send('3');
      else if (text[0] === '4') hear(JSON.parse(text.slice(1)));
    },
    gone,
  }),
  'lean socketio': (url, { feed, epoch, offset }, hear, gone) => leanWebSocket(url, '/socket.io/?EIO=4&transport=websocket', {
    message(text, send) {
      if (text[0] === '0') send('40');
      else if (text[0] === '2') send('3');
      else if (text.startsWith('40')) send(`42${JSON.stringify(['subscribe', feed, { delta: true, epoch, offset }])}`);
      else if (text.startsWith('42["feed"')) hear(JSON.parse(text.slice(2))[1]);
    },
    gone,
  }),
  'lean sockjs': (url, subscribe, hear, gone) => leanWebSocket(url, `/sockjs/000/lean${process.pid}x${sessions++}x${Math.random().toString(36).slice(2)}/websocket`, {
    message(text, send) {
      if (text === 'o') send(JSON.stringify([JSON.stringify(subscribe)]));
      else if (text[0] === 'a') for (const message of JSON.parse(text.slice(1))) hear(JSON.parse(message));
    },
    gone,
  }),
};
