// A reverse proxy between pages and a server, which a test scripts request by request. proxy.mjs knows bytes only.
import http from 'node:http';
import net from 'node:net';
import { listening, until } from './harness.mjs';

/**
 * Passes requests to `target`, `http://host:port`, which may be changed. `decide(request)` says what happens to a request, WebSockets included:
 *
 *   undefined                   the server answers
 *   'refuse'                    its connection is cut
 *   'swallow'                   it has no answer
 *   { cutAfter: text }          a WebSocket, whose connection ends without a close frame after the server has sent this text
 *   { status, headers, body }   this is the answer
 *
 * `requests` has all requests: { method, url, headers, isWebSocket }, and those that the server answered without WebSocket, { status, answer } with the headers of the answer.
 */
export async function gateway(t, target) {
  const it = { target, decide: () => undefined, requests: [] };
  const open = new Set();
  const begin = (request, socket) => {
    const { method, url, headers } = request;
    const noted = { method, url, headers, isWebSocket: headers.upgrade !== undefined };
    it.requests.push(noted);
    const fate = it.decide(noted);
    if (fate === 'refuse') socket.destroy();
    return { noted, fate };
  };
  /** Passes what comes from the server on until the connection is forgotten. */
  const pass = (from, to, end, took = () => false) => {
    const connection = { end, isForgotten: false };
    open.add(connection);
    from.on('data', (bytes) => {
      if (connection.isForgotten) return;
      to.write(bytes);
      if (!took(bytes)) return;
      connection.isForgotten = true;
      to.end();
    });
    from.on('error', end).on('end', () => connection.isForgotten || to.end()).on('close', () => connection.isForgotten || end());
    to.on('error', end).on('close', () => {
      open.delete(connection);
      end();
    });
  };

  const server = http.createServer((request, response) => {
    const { noted, fate } = begin(request, request.socket);
    if (typeof fate === 'string') return undefined;
    if (fate?.status) return response.writeHead(fate.status, fate.headers).end(fate.body);
    const { method, url, headers } = request;
    const outgoing = http.request(`${it.target}${url}`, { method, headers, agent: false }, (answer) => {
      Object.assign(noted, { status: answer.statusCode, answer: answer.headers });
      response.writeHead(answer.statusCode, answer.headers).flushHeaders();
      pass(answer, response, () => request.socket.destroy());
    });
    // A client that goes away aborts its request.
    response.on('close', () => outgoing.destroy());
    outgoing.on('error', () => request.socket.destroy());
    return request.pipe(outgoing);
  });
  server.on('upgrade', (request, socket) => {
    socket.on('error', () => {});
    const { fate } = begin(request, socket);
    if (fate === 'refuse' || fate === 'swallow') return undefined;
    if (fate?.status) {
      const lines = Object.entries({ 'Content-Length': Buffer.byteLength(fate.body ?? ''), ...fate.headers }).map(([name, value]) => `${name}: ${value}\r\n`);
      return socket.end(`HTTP/1.1 ${fate.status} Scripted\r\n${lines.join('')}\r\n${fate.body ?? ''}`);
    }
    const { hostname, port } = new URL(it.target);
    const upstream = net.connect(port, hostname);
    const { method, url, headers } = request;
    // Messages are readable.
    delete headers['sec-websocket-extensions'];
    upstream.write(`${method} ${url} HTTP/1.1\r\n${Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`);
    pass(upstream, socket, () => {
      socket.destroy();
      upstream.destroy();
    }, (bytes) => fate?.cutAfter && bytes.includes(fate.cutAfter));
    return socket.pipe(upstream);
  });

  it.url = `http://127.0.0.1:${await listening(t, server)}`;
  /** Cuts all connections. */
  it.cut = () => open.forEach(({ end }) => end());
  /** From now on, nothing comes on the connections that are open. */
  it.forget = () => open.forEach((connection) => { connection.isForgotten = true; });
  /** Waits until there are `count` requests for which `wanted` holds; gives them. */
  it.met = (what, wanted, count = 1) => until(() => `${count} requests: ${what}, not ${it.requests.map(({ method, url }) => `${method} ${url}`).join(', ')}`, () => {
    const found = it.requests.filter(wanted);
    return found.length >= count && found;
  });
  return it;
}
