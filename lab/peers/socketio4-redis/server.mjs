// npm `socket.io` 4 with its Redis adapter as a peer, as a service of several processes has it: whatever goes to everybody is
// published to Redis as well. Echo (the same event and arguments to the sender, which Redis has no part in) and chat (to
// everybody, sender included), by the documented interface and set up as the peer `socketio4` is.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { createAdapter } from '@socket.io/redis-adapter';
import { createClient } from 'redis';
import { Server } from 'socket.io';
import { startRedis } from '../redis.mjs';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'echo' },
    port: { type: 'string', default: '0' },
    protocol: { type: 'string', default: '' },
    redis: { type: 'string' },
  },
});
// Without `--protocol` whatever a client asks for, as the smoke test does.
const transports = { socketio: ['websocket'], 'socketio-polling': ['polling'] };

const fail = (error) => {
  console.error(`socketio4-redis: ${error.message}`);
  process.exit(1);
};
process.on('SIGTERM', () => process.exit(0));

const redisPort = values.redis ?? (await startRedis('socketio4-redis'));
const publishes = createClient({ url: `redis://127.0.0.1:${redisPort}` }).on('error', fail);
const subscribes = publishes.duplicate().on('error', fail);
await Promise.all([publishes.connect(), subscribes.connect()]);

const http = createServer();
const io = new Server(http, {
  adapter: createAdapter(publishes, subscribes),
  transports: transports[values.protocol] ?? ['polling', 'websocket'],
  allowUpgrades: values.protocol === '',
  perMessageDeflate: false,
  httpCompression: false,
  maxHttpBufferSize: 16 * 1024 * 1024,
  serveClient: false,
});
io.engine.on('connection', (raw) => {
  raw.request = null;
});
io.on('connection', (socket) => {
  if (values.mode === 'echo') socket.onAny((...event) => socket.emit(...event));
  else if (values.mode === 'chat') socket.onAny((...event) => io.emit(...event));
});

http.on('error', fail);
http.listen({ host: '127.0.0.1', port: Number(values.port), backlog: 4096 }, () => {
  console.log(`ready http://127.0.0.1:${http.address().port}`);
});
