// Feeds over Socket.IO (docs/socketio.md): the page's own `io`, of socket.io-client 2 to 4.
//
// Socket.IO would reconnect by itself, but not by our rules, and not to another transport: that is switched off. It has
// heartbeats of its own. What is said in rooms are the application's own events; for them, use a socket of your own.

import { StentorError, library } from '../error.js';

export function socketio(base, link, options) {
  const io = library(options, 'io');
  const path = new URL('socket.io/', base).pathname;
  const socket = io(base.origin, { ...options.ioOptions, path, forceNew: true, reconnection: false });
  socket.on('connect', () => link('opened', socket.id));
  socket.on('connect_error', (error) => link('lost', { reason: `${error.message ?? error}` }));
  // The server ends the transport where another attempt makes sense, and the session where it doesn't.
  socket.on('disconnect', (reason) => link('lost', { reason, again: reason !== 'io server disconnect' }));
  socket.on('feed', (message) => link('received', message));
  return {
    subscribe(key, position, terms) {
      socket.emit('subscribe', key, { delta: true, ...terms, ...position }, ({ ok, code, message, retry } = {}) => {
        if (!ok) link('refused', key, new StentorError(code, message, retry));
        else if (position) link('confirmed', key);
      });
    },
    unsubscribe: (key) => socket.emit('unsubscribe', key),
    close: () => socket.disconnect(),
  };
}
