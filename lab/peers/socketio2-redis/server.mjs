// npm `socket.io` 2 with its Redis adapter as a peer, as a service of several processes had it in 2017: whatever goes to
// everybody is published to Redis as well. Echo (the same event and argument to the sender, which Redis has no part in) and chat
// (to everybody, sender included), by the documented interface and set up as the peer `socketio2` is.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import socketIo from 'socket.io';
import redisAdapter from 'socket.io-redis';
import { startRedis } from '../redis.mjs';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
    protocol: { type: 'string', default: '' },
  },
});
// Without `--protocol` whatever a client asks for, as the smoke test does.
const transports = { socketio2: ['websocket'], 'socketio2-polling': ['polling'] };

const fail = (error) => {
  console.error(`socketio2-redis: ${error.message}`);
  process.exit(1);
};
process.on('SIGTERM', () => process.exit(0));

const redisPort = await startRedis('socketio2-redis');

const http = createServer();
const io = socketIo(http, {
  transports: transports[values.protocol] ?? ['polling', 'websocket'],
  allowUpgrades: values.protocol === '',
  perMessageDeflate: false,
  httpCompression: false,
  maxHttpBufferSize: 16 * 1024 * 1024,
  serveClient: false,
});
io.adapter(redisAdapter({ host: '127.0.0.1', port: redisPort }));
// It connects by itself, and says of its clients' errors.
const { adapter } = io.of('/');
adapter.on('error', fail);
await Promise.all([once(adapter.pubClient, 'ready'), once(adapter.subClient, 'ready')]);

io.on('connection', (socket) => {
  if (values.mode === 'echo') socket.on('message', (text) => socket.emit('message', text));
  else if (values.mode === 'chat') socket.on('message', (text) => io.emit('message', text));
});

http.on('error', fail);
http.listen({ host: '127.0.0.1', port: Number(values.port), backlog: 4096 }, () => {
  console.log(`ready http://127.0.0.1:${http.address().port}`);
});
