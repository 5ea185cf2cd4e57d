// npm `socket.io` 4 on Bun with the engine that its makers wrote for it, as a peer: echo (the same event and arguments to
// the sender) and chat (to everybody, sender included), by the documented interface.
import { parseArgs } from 'node:util';
import { Server as Engine } from '@socket.io/bun-engine';
import { Server } from 'socket.io';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
    // It has no setting for one transport: a client has what it asks for.
    protocol: { type: 'string', default: '' },
  },
});
const BYTES_MAX = 16 * 1024 * 1024;

const io = new Server();
const engine = new Engine({ path: '/socket.io/', maxHttpBufferSize: BYTES_MAX });
io.bind(engine);
io.on('connection', (socket) => {
  if (values.mode === 'echo') socket.onAny((...event) => socket.emit(...event));
  else if (values.mode === 'chat') socket.onAny((...event) => io.emit(...event));
});

const handler = engine.handler();
try {
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: Number(values.port),
    ...handler,
    websocket: { ...handler.websocket, perMessageDeflate: false, backpressureLimit: BYTES_MAX },
  });
  console.log(`ready http://127.0.0.1:${server.port}`);
} catch (error) {
  console.error(`socketio4-bun: ${error.message}`);
  process.exit(1);
}

process.on('SIGTERM', () => process.exit(0));
