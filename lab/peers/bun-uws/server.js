// Bun's WebSocket server, which is uWebSockets, as a peer: echo, chat (each message to everybody, sender included) and
// fanout (one document of B bytes, H times a second, to everybody), by the documented interface: what goes to everybody is
// published to a topic.
import { dlopen, FFIType, ptr } from 'bun:ffi';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
    bytes: { type: 'string', default: '1000' },
    hz: { type: 'string', default: '20' },
  },
});
const bytes = Math.max(36, Number(values.bytes));
const hz = Math.max(1, Number(values.hz));
const BYTES_MAX = 16 * 1024 * 1024;

const message = {
  echo: (client, data) => client.send(data),
  chat: (client, data) => server.publish('all', data),
  fanout: () => {},
}[values.mode];

const server = listen();
console.log(`ready http://127.0.0.1:${server.port}`);
if (values.mode === 'fanout') fanout();

process.on('SIGTERM', () => process.exit(0));

function listen() {
  try {
    return Bun.serve({
      hostname: '127.0.0.1',
      port: Number(values.port),
      fetch: (request, at) => (at.upgrade(request) ? undefined : new Response('for WebSocket', { status: 426 })),
      websocket: {
        open: (client) => values.mode !== 'echo' && client.subscribe('all'),
        message,
        perMessageDeflate: false,
        maxPayloadLength: BYTES_MAX,
        backpressureLimit: BYTES_MAX,
        idleTimeout: 0,
        sendPings: false,
      },
    });
  } catch (error) {
    console.error(`bun-uws: ${error.message}`);
    process.exit(1);
  }
}

function fanout() {
  const monotonicNs = clock();
  const started = monotonicNs();
  let sent = 0n;
  const tick = () => {
    const now = monotonicNs();
    for (;;) {
      const due = started + (sent * 1000000000n) / BigInt(hz);
      if (due > now) {
        setTimeout(tick, Number((due - now) / 1000000n));
        return;
      }
      const head = String(sent).padStart(16, '0') + String(due).padStart(20, '0');
      server.publish('all', head.padEnd(bytes, 'x'));
      sent++;
    }
  };
  tick();
}

// CLOCK_MONOTONIC: what Bun calls so counts from its own start.
function clock() {
  const c = dlopen('libc.so.6', { clock_gettime: { args: [FFIType.i32, FFIType.ptr], returns: FFIType.i32 } });
  const time = new BigInt64Array(2);
  return () => {
    c.symbols.clock_gettime(1, ptr(time));
    return time[0] * 1000000000n + time[1];
  };
}
