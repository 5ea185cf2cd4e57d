// Clients of Socket.IO and of `stentor.v1`, connected.
import { io } from 'socket.io-client';
import { event, PATIENCE_MS, queue, within } from './harness.mjs';

/** Emits an event; gives the acknowledgement. */
export const ask = (socket, ...event) => socket.timeout(PATIENCE_MS).emitWithAck(...event);

/** A client of Socket.IO that is a member of rooms and doesn't reconnect by itself. `seen` has the events that it has received. */
export async function socketIo(t, url, { namespace = '', rooms = [], ...options } = {}) {
  const socket = io(url + namespace, { forceNew: true, reconnection: false, ...options });
  t.after(() => socket.disconnect());
  socket.seen = [];
  socket.onAny((...args) => socket.seen.push(args));
  await event(socket, 'connect', undefined, 'connect_error');
  for (const room of rooms) await ask(socket, 'join', room);
  return socket;
}

/** Ends a client's connection as when a network goes away. */
export async function cut(socket) {
  const { engine } = socket.io;
  const gone = event(socket, 'disconnect');
  if (engine.transport.ws) engine.transport.ws.terminate();
  else {
    engine.transport._pollXhr?.abort?.();
    engine._onClose('transport error');
  }
  await gone;
}

/** Connects a client to a server, which may be another one. Returns whether it was recovered. */
export async function reconnect(socket, server) {
  socket.io.uri = server.http;
  const connected = event(socket, 'connect');
  socket.connect();
  await within(connected, 'the connection');
  return socket.recovered;
}

/**
 * A client of `stentor.v1`, over anything that looks like a WebSocket and that was created just now. `next` gives the next message, and `ask` sends
 * one and gives its answer; `others` gets the messages before it.
 */
export async function plain(t, socket, others = () => {}) {
  const received = queue();
  socket.onmessage = ({ data }) => received.put(JSON.parse(data));
  // `onclose` follows.
  socket.onerror = () => {};
  socket.onclose = ({ code, reason }) => received.put(new Error(`closed with ${code} ${reason}`));
  t.after(() => socket.close());
  const next = async () => {
    const message = await received.next('a message');
    if (message instanceof Error) throw message;
    return message;
  };
  const send = (message) => socket.send(JSON.stringify(message));
  let id = 0;
  const ask = async (message) => {
    send({ id: ++id, ...message });
    for (;;) {
      const answer = await next();
      if (answer.id === id) return answer;
      others(answer);
    }
  };
  const { session } = await next();
  return { socket, session, next, send, ask };
}
