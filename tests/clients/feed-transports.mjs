// Clients that subscribe to many feeds over one connection, or over one stream, for each transport that tells of states.
import { EventSource } from 'eventsource';
import { io } from 'socket.io-client';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { event, within } from './harness.mjs';

/** What a subscription is told: the document, or the state without one. */
const told = ({ type, data, state, reason }) => (type === 'state' ? `${state}: ${reason}` : JSON.stringify(data));

/** Hands over a message of `stentor.v1` about a feed, and errors. */
const hand = (take, message) => {
  if (message.type === 'error') take(message.feed, JSON.stringify(message));
  else if (message.feed) take(message.feed, told(message));
};

const subscriptions = (keys) => keys.map((feed) => JSON.stringify({ id: feed, type: 'subscribe', feed, delta: false }));

/**
 * Each subscribes to all keys: `subscribe(t, server, keys, take)`, and hands over what comes: `take(key, text)`. The server has the default path of
 * Socket.IO, and `/sockjs`.
 */
export const transports = {
  async websocket(t, server, keys, take) {
    const socket = new WebSocket(`${server.ws}/ws`);
    t.after(() => socket.terminate());
    socket.on('message', (text) => hand(take, JSON.parse(text)));
    socket.on('close', (code) => take(undefined, `closed with ${code}`));
    await event(socket, 'open', undefined, 'error');
    for (const message of subscriptions(keys)) socket.send(message);
  },

  // One stream for each, because its documents don't name their keys.
  async sse(t, server, keys, take) {
    for (const key of keys) {
      const source = new EventSource(`${server.http}/sse/${key}`);
      t.after(() => source.close());
      source.addEventListener('snapshot', ({ data }) => take(key, data));
      source.addEventListener('state', ({ data }) => take(key, told({ type: 'state', ...JSON.parse(data) })));
      source.addEventListener('error', ({ message }) => take(key, `the stream ends: ${message}`));
    }
  },

  async 'socket.io'(t, server, keys, take) {
    const socket = io(server.http, { forceNew: true, reconnection: false, transports: ['websocket'] });
    t.after(() => socket.close());
    socket.on('feed', (message) => hand(take, message));
    socket.on('disconnect', (reason) => take(undefined, reason));
    await event(socket, 'connect', undefined, 'connect_error');
    for (const key of keys) socket.emit('subscribe', key);
  },

  async sockjs(t, server, keys, take) {
    const socket = new SockJS(`${server.http}/sockjs`, null, { transports: ['xhr-streaming'] });
    t.after(() => socket.close());
    socket.onmessage = ({ data }) => hand(take, JSON.parse(data));
    await within(new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onclose = ({ code, reason }) => reject(new Error(`${code} ${reason}`));
    }), 'a connection of SockJS');
    socket.onclose = ({ code }) => take(undefined, `closed with ${code}`);
    for (const message of subscriptions(keys)) socket.send(message);
  },
};
