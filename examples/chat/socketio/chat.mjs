// The handlers of the chat. Nothing here knows of Stentor.

const LOBBY = 'lobby';
const NICKNAME = /^[\p{L}\p{N}_-]{1,20}$/u;

export function chat(io) {
  // Middleware: each user has a nickname, from the login or from the session of an earlier visit.
  io.use((socket, next) => {
    const { session } = socket.request;
    const nickname = String(socket.handshake.auth.nickname ?? session?.nickname ?? '').trim();
    if (!NICKNAME.test(nickname)) return next(new Error('choose a nickname of 1 to 20 letters'));
    if (session) {
      session.nickname = nickname;
      session.save();
    }
    socket.data.nickname = nickname;
    socket.data.room ??= LOBBY;
    next();
  });

  io.on('connection', (socket) => {
    const { nickname } = socket.data;
    const others = () => socket.to(socket.data.room);

    // A recovered socket continues: its user has neither left nor joined.
    if (!socket.recovered) {
      socket.join([LOBBY, `user:${nickname}`]);
      others().emit('joined', nickname);
    }

    socket.on('users', async (answer) => {
      const sockets = await io.in(socket.data.room).fetchSockets();
      answer([...new Set(sockets.map(({ data }) => data.nickname))].sort());
    });

    socket.on('room', (room, answer) => {
      others().emit('left', nickname);
      socket.leave(socket.data.room);
      socket.data.room = String(room);
      socket.join(socket.data.room);
      others().emit('joined', nickname);
      answer();
    });

    socket.on('message', (text, answer) => {
      io.to(socket.data.room).emit('message', { from: nickname, text: String(text) });
      answer();
    });

    // Nobody needs to know that a user was typing some seconds ago.
    socket.on('typing', () => others().volatile.emit('typing', nickname));

    socket.on('private', (to, text, answer) => {
      io.to(`user:${to}`).emit('private', { from: nickname, text: String(text) });
      answer();
    });

    socket.on('disconnect', (reason) => {
      if (reason !== 'server shutting down') io.to(socket.data.room).emit('left', nickname);
    });
  });
}
