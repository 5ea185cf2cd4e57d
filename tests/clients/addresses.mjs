// WebSockets from any address of this machine.
import WebSocket from 'ws';
import { within } from './harness.mjs';

/** A WebSocket: the open socket with its welcome, or { refused: status, retryAfter }. */
export function websocket(t, url, options) {
  const socket = new WebSocket(`${url}/ws`, options);
  t.after(() => socket.terminate());
  return within(new Promise((resolve, reject) => {
    socket.once('message', () => resolve(socket));
    socket.once('unexpected-response', (_, response) => resolve({ refused: response.statusCode, retryAfter: response.headers['retry-after'] }));
    socket.once('error', reject);
  }), 'a WebSocket');
}
