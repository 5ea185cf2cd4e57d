// Feeds over Socket.IO (docs/socketio.md): the page's own `io`, of socket.io-client 2 to 4.
//
// Socket.IO's own reconnection is off: it knows neither our backoff nor other transports. It has its own heartbeat. It carries no
// rooms: their messages are events of the application, for which it has its own socket.

import { StentorError, library } from '../error.js';

export function socketio(base, link, options) {
  const io = library(options, 'io');
  const path = new URL('socket.io/', base).pathname;
  const { token } = options;
  const ioOptions = { ...options.ioOptions, path, forceNew: true, reconnection: false };
  // Clients of version 2 have no `auth`.
  const place = io.protocol < 5 ? 'query' : 'auth';
  if (token) ioOptions[place] = { ...ioOptions[place], token };
  const socket = io(base.origin, ioOptions);
  socket.on('connect', () => link('opened', socket.id));
  socket.on('connect_error', (error) => {
    const { code, retry = true } = error.data ?? {};
    const isExpired = code === 'token_expired';
    link('lost', { reason: `${error.message ?? error}`, retry: retry || isExpired, token: isExpired ? 'expired' : code === 'token_refused' ? 'refused' : undefined });
  });
  socket.on('stentor:token_expiring', () => link('expiring', (token) => {
    socket.emit('stentor:auth', { token }, ({ ok, code, message, retry } = {}) => {
      if (!ok) link('failed', new StentorError(code, message, retry));
    });
  }));
  // To make clients reconnect, the server ends the transport; otherwise the session.
  socket.on('disconnect', (reason) => link('lost', { reason, retry: reason !== 'io server disconnect' }));
  socket.on('feed', (message) => link('received', message));
  return {
    subscribe(key, position, subscribeOptions) {
      socket.emit('subscribe', key, { delta: true, ...subscribeOptions, ...position }, ({ ok, code, message, retry } = {}) => {
        if (!ok) link('refused', key, new StentorError(code, message, retry));
        else if (position) link('confirmed', key);
      });
    },
    unsubscribe: (key) => socket.emit('unsubscribe', key),
    close: () => socket.disconnect(),
  };
}
