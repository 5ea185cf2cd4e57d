// Requests and WebSockets from any address of this machine.
import http from 'node:http';
import WebSocket from 'ws';
import { within } from './harness.mjs';

/** A request from an address of this machine: { status, retryAfter, body }. */
export const request = (url, { from, headers, method = 'GET' } = {}) => new Promise((resolve, reject) => {
  const call = http.request(url, { localAddress: from, headers, method, agent: false }, (response) => {
    let body = '';
    response.on('data', (chunk) => (body += chunk));
    response.on('end', () => resolve({ status: response.statusCode, retryAfter: response.headers['retry-after'], body }));
  });
  call.on('error', reject).end();
});

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
