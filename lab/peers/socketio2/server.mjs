// npm `socket.io` 2 as a peer: echo (the same event and argument to the sender) and chat (to everybody, sender
// included), by the documented interface, with `bufferutil` and without compression, which is on by default. With
// `--protocol engineio3` its `engine.io` alone.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';
import socketIo from 'socket.io';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
    protocol: { type: 'string', default: '' },
  },
});
// Without `--protocol` whatever a client asks for, as the smoke test does.
const transports = { socketio2: ['websocket'], 'socketio2-polling': ['polling'], engineio3: ['websocket'] };

const options = {
  transports: transports[values.protocol] ?? ['polling', 'websocket'],
  allowUpgrades: values.protocol === '',
  perMessageDeflate: false,
  httpCompression: false,
  maxHttpBufferSize: 16 * 1024 * 1024,
};
const http = createServer();
if (values.protocol === 'engineio3') serveEngine();
else serveSocketIo();

function serveSocketIo() {
  const io = socketIo(http, { ...options, serveClient: false });
  io.on('connection', (socket) => {
    if (values.mode === 'echo') socket.on('message', (text) => socket.emit('message', text));
    else if (values.mode === 'chat') socket.on('message', (text) => io.emit('message', text));
  });
}

function serveEngine() {
  const engine = createRequire(import.meta.url)('engine.io').attach(http, options);
  engine.on('connection', (socket) => {
    if (values.mode === 'echo') socket.on('message', (data) => socket.send(data));
    else if (values.mode === 'chat') {
      socket.on('message', (data) => {
        for (const one of Object.values(engine.clients)) one.send(data);
      });
    }
  });
}

http.on('error', (error) => {
  console.error(`socketio2: ${error.message}`);
  process.exit(1);
});
http.listen({ host: '127.0.0.1', port: Number(values.port), backlog: 4096 }, () => {
  console.log(`ready http://127.0.0.1:${http.address().port}`);
});

process.on('SIGTERM', () => process.exit(0));
