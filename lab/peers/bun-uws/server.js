// Bun's WebSocket server, which is uWebSockets, as a peer: echo and chat (each message to everybody, sender included), by the
// documented interface: what goes to everybody is published to a topic.
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
  },
});
const BYTES_MAX = 16 * 1024 * 1024;

const message = {
  echo: (client, data) => client.send(data),
  chat: (client, data) => server.publish('all', data),
}[values.mode];

const server = listen();
console.log(`ready http://127.0.0.1:${server.port}`);

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
