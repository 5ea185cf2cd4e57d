// npm `ws` 8 with bufferutil as a peer: echo, chat (each message to everybody, sender included) and
// fanout (one document of B bytes, H times a second, to everybody), by the documented interface.
import { parseArgs } from 'node:util';
import { WebSocketServer } from 'ws';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
    bytes: { type: 'string', default: '1000' },
    hz: { type: 'string', default: '20' },
    deflate: { type: 'string', default: 'off' },
  },
});
const bytes = Math.max(36, Number(values.bytes));
const hz = Math.max(1, Number(values.hz));

const server = new WebSocketServer({
  host: '127.0.0.1',
  port: Number(values.port),
  perMessageDeflate: values.deflate === 'on' && { threshold: 0 },
  skipUTF8Validation: true,
  maxPayload: 16 * 1024 * 1024,
  backlog: 4096,
});
const ignore = () => {};

function toAll(data, binary) {
  for (const client of server.clients) client.send(data, { binary });
}

server.on('connection', (client) => {
  client.on('error', ignore);
  if (values.mode === 'echo') client.on('message', (data, binary) => client.send(data, { binary }));
  else if (values.mode === 'chat') client.on('message', toAll);
});

server.on('listening', () => {
  console.log(`ready http://127.0.0.1:${server.address().port}`);
  if (values.mode === 'fanout') fanout();
});

server.on('error', (error) => {
  console.error(`ws8: ${error.message}`);
  process.exit(1);
});

process.on('SIGTERM', () => process.exit(0));

function fanout() {
  const started = process.hrtime.bigint();
  let sent = 0n;
  const tick = () => {
    const now = process.hrtime.bigint();
    for (;;) {
      const due = started + (sent * 1000000000n) / BigInt(hz);
      if (due > now) {
        setTimeout(tick, Number((due - now) / 1000000n));
        return;
      }
      const document = Buffer.alloc(bytes, 'x');
      document.write(String(sent).padStart(16, '0') + String(due).padStart(20, '0'), 'latin1');
      toAll(document, false);
      sent++;
    }
  };
  tick();
}
