// `stentor demo` runs this program, and starts it again whenever it ends.
import { Server } from 'socket.io';
import { attach } from '@stentor/socket.io';

const { STENTOR, STENTOR_TOKEN, CAN_RESTART } = process.env;
const io = new Server();
const link = attach(io, STENTOR, { token: STENTOR_TOKEN });

io.on('connection', (socket) => {
  socket.data.handled ??= 0;

  socket.on('count', (answer) => {
    socket.data.handled += 1;
    if (typeof answer === 'function') answer(socket.data.handled, process.pid);
  });

  socket.on('chat', (from, text) => io.emit('chat', from, text, process.pid));

  // As a supervisor would: the sessions are handed over, then the process exits.
  socket.on('restart', () => CAN_RESTART && process.kill(process.pid, 'SIGTERM'));
});

// The demo holds the other end of the standard input: no worker outlives it.
process.stdin.on('end', () => process.exit()).resume();
await link.listen();
