// One of two Socket.IO servers with the Redis adapter: `socketio-node.mjs REDIS_URL`. Clients are in the room `all`. `POST /` publishes its body.
import http from 'node:http';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../tests/clients/package.json', import.meta.url));
const { Server } = require('socket.io');
const { createAdapter } = require('@socket.io/redis-adapter');
const { createClient } = require('redis');

const publisher = createClient({ url: process.argv[2] });
const subscriber = publisher.duplicate();
await Promise.all([publisher.connect(), subscriber.connect()]);
const server = http.createServer((request, response) => {
  let body = '';
  request.on('data', (chunk) => (body += chunk)).on('end', () => {
    io.to('all').emit('news', JSON.parse(body));
    response.end('{}');
  });
});
const io = new Server(server, { adapter: createAdapter(publisher, subscriber), transports: ['websocket'], perMessageDeflate: false });
io.on('connection', (socket) => socket.join('all'));
server.listen(0, '127.0.0.1', () => console.log(`ready http://127.0.0.1:${server.address().port}`));
