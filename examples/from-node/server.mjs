// The chat as it runs today, on any number of servers: node server.mjs PORT
import { createAdapter } from '@socket.io/redis-adapter';
import { createClient } from 'redis';
import { Server } from 'socket.io';

const port = Number(process.argv[2]);
const publisher = createClient({ url: 'redis://127.0.0.1:6379' });
const subscriber = publisher.duplicate();
await Promise.all([publisher.connect(), subscriber.connect()]);

const io = new Server(port, { adapter: createAdapter(publisher, subscriber) });
io.on('connection', (socket) => {
  socket.on('join', (room, done) => {
    socket.join(room);
    done({ ok: true });
  });
  socket.on('say', (message, done) => {
    io.to(message.room).emit('say', message);
    done({ ok: true });
  });
});
console.log(`ready on port ${port}`);
