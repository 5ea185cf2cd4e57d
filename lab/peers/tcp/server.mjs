// Node's `net` as a peer: echo and chat (what anybody sends to everybody, sender included), by the documented interface and
// with no protocol at all. Messages end with a line feed; the server doesn't look.
import { createServer } from 'node:net';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
  },
});

const clients = new Set();
const ignore = () => {};

function toAll(data) {
  for (const one of clients) one.write(data);
}

const server = createServer({ noDelay: true }, (client) => {
  clients.add(client);
  client.on('close', () => clients.delete(client));
  client.on('error', ignore);
  client.on('data', values.mode === 'echo' ? (data) => client.write(data) : toAll);
});

server.on('error', (error) => {
  console.error(`tcp: ${error.message}`);
  process.exit(1);
});
server.listen({ host: '127.0.0.1', port: Number(values.port), backlog: 4096 }, () => {
  console.log(`ready http://127.0.0.1:${server.address().port}`);
});

process.on('SIGTERM', () => process.exit(0));
