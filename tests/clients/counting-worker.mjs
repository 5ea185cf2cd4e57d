// A worker that records each event that it handles, before it answers: a line with the client and the event's number.
import { appendFileSync } from 'node:fs';
import { Server } from 'socket.io';
import { attach } from '../../clients/socketio-server/src/index.js';

const { STENTOR, TOKEN, RECORD, OPTIONS = '{}' } = process.env;
const io = new Server(JSON.parse(OPTIONS));
const link = attach(io, STENTOR, { token: TOKEN });
io.on('connection', (socket) => {
  socket.on('count', (client, n, answer) => {
    appendFileSync(RECORD, `${client} ${n}\n`);
    socket.emit('counted', n);
    answer(process.pid);
  });
});
await link.listen();
// PM2 waits for this.
process.send?.('ready');
