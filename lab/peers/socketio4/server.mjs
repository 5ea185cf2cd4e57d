// npm `socket.io` 4 as a peer: echo (the same event and arguments to the sender) and chat (to everybody, sender
// included), by the documented interface, with what its documentation says on performance: `bufferutil`, no
// compression, no upgrade where a case has one transport, the initial requests forgotten. With `--protocol engineio` npm
// `engine.io` alone, which is what carries it.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { Server as Engine } from 'engine.io';
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

const options = {
  transports: transports[values.protocol] ?? ['polling', 'websocket'],
  allowUpgrades: values.protocol === '',
  perMessageDeflate: false,
  httpCompression: false,
  maxHttpBufferSize: 16 * 1024 * 1024,
};
const http = createServer();
if (values.protocol === 'engineio') serveEngine();
else serveSocketIo();

function serveSocketIo() {
  const io = new Server(http, { ...options, serveClient: false });
  io.engine.on('connection', (raw) => {
    raw.request = null;
  });
  io.on('connection', (socket) => {
    if (values.mode === 'echo') socket.onAny((...event) => socket.emit(...event));
    else if (values.mode === 'chat') socket.onAny((...event) => io.emit(...event));
  });
}

function serveEngine() {
  const engine = new Engine(options);
  engine.attach(http, { path: '/engine.io/' });
  engine.on('connection', (socket) => {
    socket.request = null;
    if (values.mode === 'echo') socket.on('message', (data) => socket.send(data));
    else if (values.mode === 'chat') {
      socket.on('message', (data) => {
        for (const one of Object.values(engine.clients)) one.send(data);
      });
    }
  });
}

http.on('error', (error) => {
  console.error(`socketio4: ${error.message}`);
  process.exit(1);
});
http.listen({ host: '127.0.0.1', port: Number(values.port), backlog: 4096 }, () => {
  console.log(`ready http://127.0.0.1:${http.address().port}`);
});

process.on('SIGTERM', () => process.exit(0));
