// Node's `net` as a peer: echo, chat (what anybody sends to everybody, sender included) and fanout (one document of B bytes,
// H times a second, to everybody), by the documented interface and with no protocol at all. Messages end with a line feed;
// the server doesn't look.
import { createServer } from 'node:net';
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

const clients = new Set();
const ignore = () => {};

function toAll(data) {
  for (const one of clients) one.write(data);
}

const server = createServer({ noDelay: true }, (client) => {
  clients.add(client);
  client.on('close', () => clients.delete(client));
  client.on('error', ignore);
  if (values.mode === 'echo') client.on('data', (data) => client.write(data));
  else if (values.mode === 'chat') client.on('data', toAll);
  else client.resume();
});

server.on('error', (error) => {
  console.error(`tcp: ${error.message}`);
  process.exit(1);
});
server.listen({ host: '127.0.0.1', port: Number(values.port), backlog: 4096 }, () => {
  console.log(`ready http://127.0.0.1:${server.address().port}`);
  if (values.mode === 'fanout') fanout();
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
      const head = String(sent).padStart(16, '0') + String(due).padStart(20, '0');
      toAll(`${head}${'x'.repeat(bytes - head.length)}\n`);
      sent++;
    }
  };
  tick();
}
