// npm `sockjs` (sockjs-node) as a peer: echo and chat (each message to everybody, sender included), by the
// documented interface, its log silenced.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import sockjs from 'sockjs';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
    protocol: { type: 'string', default: 'sockjs' },
  },
});

const http = createServer();
const websocket = values.protocol === 'sockjs';
const service = sockjs.createServer({ prefix: '/sockjs', log: () => {}, websocket });
const clients = new Set();

service.on('connection', (client) => {
  if (!client) return;
  clients.add(client);
  client.on('close', () => clients.delete(client));
  if (values.mode === 'echo') client.on('data', (text) => client.write(text));
  else if (values.mode === 'chat') {
    client.on('data', (text) => {
      for (const one of clients) one.write(text);
    });
  }
});
service.installHandlers(http);

http.on('error', (error) => {
  console.error(`sockjs-node: ${error.message}`);
  process.exit(1);
});
http.listen({ host: '127.0.0.1', port: Number(values.port), backlog: 4096 }, () => {
  console.log(`ready http://127.0.0.1:${http.address().port}`);
});

process.on('SIGTERM', () => process.exit(0));
