// npm `socket.io` 4 as a peer: echo (the same event and arguments to the sender) and chat (to everybody, sender
// included), by the documented interface, with what its documentation says on performance: `bufferutil`, no
// compression, no upgrade where a case has one transport, the initial requests forgotten.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { Server } from 'socket.io';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
    protocol: { type: 'string', default: '' },
  },
});
// Without `--protocol` whatever a client asks for, as the smoke test does.
const transports = { socketio: ['websocket'], 'socketio-polling': ['polling'], engineio: ['websocket'] };

const http = createServer();
const io = new Server(http, {
  transports: transports[values.protocol] ?? ['polling', 'websocket'],
  allowUpgrades: values.protocol === '',
  perMessageDeflate: false,
  httpCompression: false,
  serveClient: false,
  maxHttpBufferSize: 16 * 1024 * 1024,
});
io.engine.on('connection', (raw) => {
  raw.request = null;
});

io.on('connection', (socket) => {
  if (values.mode === 'echo') socket.onAny((...event) => socket.emit(...event));
  else if (values.mode === 'chat') socket.onAny((...event) => io.emit(...event));
});

http.on('error', (error) => {
  console.error(`socketio4: ${error.message}`);
  process.exit(1);
});
http.listen({ host: '127.0.0.1', port: Number(values.port), backlog: 4096 }, () => {
  console.log(`ready http://127.0.0.1:${http.address().port}`);
});

process.on('SIGTERM', () => process.exit(0));
