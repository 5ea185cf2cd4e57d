// npm `ws` 8 with bufferutil as a peer: echo and chat (each message to everybody, sender included), by the documented
// interface.
import { parseArgs } from 'node:util';
import { WebSocketServer } from 'ws';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
    deflate: { type: 'string', default: 'off' },
  },
});

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
});

server.on('error', (error) => {
  console.error(`ws8: ${error.message}`);
  process.exit(1);
});

process.on('SIGTERM', () => process.exit(0));
