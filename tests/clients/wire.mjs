// Engine.IO by hand, over plain HTTP and WebSocket, for tests of what is on the wire. Only what a well-behaved client
// always does is done here (answering pings); everything else is the test's.
import http from 'node:http';
import net from 'node:net';
import WebSocket from 'ws';
import { within } from './harness.mjs';

/** What separates packets in a polling body of Engine.IO 4. */
export const SEPARATOR = '\x1e';

/** One HTTP request on a connection of its own: { status, headers, bytes, body }; `body` is `bytes` as text. */
export function request(url, { method = 'GET', headers = {}, body } = {}) {
  const sent = new Promise((resolve, reject) => {
    const outgoing = http.request(url, { method, headers, agent: false }, (response) => {
      const chunks = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const bytes = Buffer.concat(chunks);
        resolve({ status: response.statusCode, headers: response.headers, bytes, body: bytes.toString() });
      });
    });
    outgoing.on('upgrade', () => reject(new Error('the request was upgraded')));
    outgoing.on('error', reject);
    outgoing.end(body);
  });
  // A test that doesn't look at this answer any more mustn't end the process by its failure.
  sent.catch(() => {});
  return within(sent, `${method} ${url}`);
}

/** What a server sends in answer to raw bytes until it closes the connection. */
export function exchange(url, bytes) {
  const { hostname, port } = new URL(url);
  const socket = net.connect(port, hostname);
  socket.write(bytes);
  return within(new Promise((resolve, reject) => {
    const chunks = [];
    socket.on('data', (chunk) => chunks.push(chunk));
    socket.on('close', () => resolve(Buffer.concat(chunks)));
    socket.on('error', reject);
  }), 'the end of the connection').finally(() => socket.destroy());
}

/** The head of a WebSocket handshake. */
export const upgradeHead = (url, extra = '') => {
  const { host, pathname, search } = new URL(url);
  return `GET ${pathname}${search} HTTP/1.1\r\nHost: ${host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n`
    + `Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n${extra}\r\n`;
};

/** A session that polls: `await Polling.open(server, { path, eio })`. */
export class Polling {
  static async open(server, { path = '/engine.io/', eio = 4, query = '' } = {}) {
    const polling = new Polling();
    polling.eio = eio;
    polling.url = `${server.http}${path}?EIO=${eio}&transport=polling${query}`;
    polling.opened = await request(polling.url);
    if (polling.opened.status !== 200) throw new Error(`the handshake was answered with ${polling.opened.status} ${polling.opened.body}`);
    const json = /\{.*\}/s.exec(polling.opened.body)[0];
    polling.handshake = JSON.parse(json);
    polling.sid = polling.handshake.sid;
    polling.url += `&sid=${polling.sid}`;
    polling.ws = polling.url.replace('http', 'ws').replace('transport=polling', 'transport=websocket');
    return polling;
  }

  get() { return request(this.url); }

  post(body, headers = { 'Content-Type': 'text/plain;charset=UTF-8' }) { return request(this.url, { method: 'POST', headers, body }); }

  /** The packets that arrive, polling as often as needed, until there are `count`; pings are answered, and left out. */
  async packets(count) {
    const all = [];
    while (all.length < count) {
      const { status, body } = await this.get();
      if (status !== 200) throw new Error(`a poll was answered with ${status} ${body}`);
      for (const packet of body.split(SEPARATOR)) {
        if (packet === '2') await this.post('3');
        else all.push(packet);
      }
    }
    return all;
  }
}

/** A WebSocket whose messages and end are awaited in order; answers Engine.IO 4's pings unless told not to. */
export class Peer {
  constructor(url, { pong = true, ...options } = {}) {
    this.waiting = [];
    this.received = [];
    this.socket = new WebSocket(url, options);
    const put = (item) => (this.waiting.length ? this.waiting.shift()(item) : this.received.push(item));
    this.socket.on('message', (data, binary) => {
      if (pong && !binary && data.toString() === '2') {
        this.socket.send('3');
        this.socket.emit('pinged');
      }
      else put({ data: binary ? data : data.toString() });
    });
    this.socket.on('close', (code, reason) => put({ closed: code, reason: reason.toString() }));
    this.socket.on('unexpected-response', (_, response) => {
      let body = '';
      response.on('data', (chunk) => (body += chunk));
      response.on('end', () => put({ refused: response.statusCode, body }));
    });
    // What follows, `close` or `unexpected-response`, is looked at.
    this.socket.on('error', () => {});
  }

  send(...messages) { for (const message of messages) this.socket.send(message); }

  /** Resolves once the next ping of Engine.IO has been answered. */
  pinged() { return within(new Promise((resolve) => this.socket.once('pinged', resolve)), 'a ping'); }

  /** The next event: { data }, { closed, reason } or { refused, body }. */
  event(what = 'a message') {
    return this.received.length ? this.received.shift() : within(new Promise((resolve) => this.waiting.push(resolve)), what);
  }

  /** The next message's data; anything else fails. */
  async next(what) {
    const item = await this.event(what);
    if (item.data === undefined) throw new Error(`${what ?? 'a message'} was awaited, and came ${JSON.stringify(item)}`);
    return item.data;
  }

  /** The end of the connection; messages before it are returned with it. */
  async end(what = 'the end of the connection') {
    const before = [];
    for (;;) {
      const item = await this.event(what);
      if (item.data === undefined) return { ...item, before };
      before.push(item.data);
    }
  }
}

/** A WebSocket transport with its handshake done: the Peer, with `handshake` and `sid`. */
export async function openWebSocket(server, { path = '/engine.io/', eio = 4, query = '', ...options } = {}) {
  const peer = new Peer(`${server.ws}${path}?EIO=${eio}&transport=websocket${query}`, options);
  const open = await peer.next('the handshake');
  if (open[0] !== '0') throw new Error(`the first packet was ${open}`);
  peer.handshake = JSON.parse(open.slice(1));
  peer.sid = peer.handshake.sid;
  return peer;
}

/** A streamed answer: { status, headers, next, abort }; `next` gives one piece after the other as it came, null at the end. */
export function stream(url, { method = 'GET', headers = {}, body } = {}) {
  return within(new Promise((resolve, reject) => {
    const outgoing = http.request(url, { method, headers, agent: false }, (response) => {
      const pieces = [];
      const waiting = [];
      const put = (piece) => (waiting.length ? waiting.shift()(piece) : pieces.push(piece));
      response.on('data', (chunk) => put(chunk.toString()));
      response.on('end', () => put(null));
      response.on('error', () => put(null));
      resolve({
        status: response.statusCode,
        headers: response.headers,
        next: () => (pieces.length ? Promise.resolve(pieces.shift()) : within(new Promise((done) => waiting.push(done)), `more of ${url}`)),
        abort: () => outgoing.destroy(),
      });
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  }), `${method} ${url}`);
}
