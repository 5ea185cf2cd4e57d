// The WebSocket of a link: connects, and connects again until `close`.
//
// The key that masks messages is zero: the worker is no browser, and so the bytes needn't be touched.

import WebSocket from 'ws';
import { LinkError } from './error.js';

const SUBPROTOCOL = 'stentor.link.v1';
/** Maximum length of a received frame. A session's messages may be longer than what a worker may send. */
const MESSAGE_BYTES_MAX = 256 << 20;
/** Above this many bytes that Stentor hasn't taken, the worker reads no more, until they are below the second number. */
const BUFFERED_BYTES_MAX = 8 << 20;
const BUFFERED_BYTES_MIN = 1 << 20;
/** Delay before the next attempt: at first none, since Stentor waits only 200 ms for the same process; then doubled each time. */
const RETRY_MS = 25;
const RETRY_MS_MAX = 1_000;
/** After a connection that was shorter, the first attempt has a delay, too. */
const SHORT_MS = 1_000;
const RESPONSE_CHARS_MAX = 200;

/** The address of the link for a server's address: `ws://HOST:PORT`, `http://…`, or `ws+unix:/PATH`. */
export function linkUrl(address, app) {
  const query = app === undefined ? '' : `?app=${encodeURIComponent(app)}`;
  const text = String(address);
  if (text.startsWith('ws+unix:')) return `${text}:/link/v1${query}`;
  const url = new URL(text.replace(/^http/, 'ws'));
  return `${url.origin === 'null' ? `${url.protocol}//${url.host}` : url.origin}${url.pathname.replace(/\/$/, '')}/link/v1${query}`;
}

export class Connection {
  #url;
  #token;
  #on;
  #socket = null;
  #timer = null;
  #attempts = 0;
  /** Time at which Stentor accepted the worker last. */
  #acceptedAt = -Infinity;
  #isClosed = false;

  /** `on`: { open(), message(bytes), lost(), failed(LinkError) }. */
  constructor(url, token, on) {
    this.#url = url;
    this.#token = token;
    this.#on = on;
  }

  connect() {
    if (this.#isClosed) return;
    const headers = this.#token ? { Authorization: `Bearer ${this.#token}` } : {};
    const socket = new WebSocket(this.#url, SUBPROTOCOL, {
      headers,
      perMessageDeflate: false,
      generateMask: () => {},
      skipUTF8Validation: true,
      maxPayload: MESSAGE_BYTES_MAX,
      handshakeTimeout: 10_000,
    });
    this.#socket = socket;
    const isCurrent = () => this.#socket === socket;
    socket.on('open', () => isCurrent() && this.#on.open());
    socket.on('message', (data) => isCurrent() && this.#on.message(data));
    socket.on('unexpected-response', (request, response) => this.#refused(socket, request, response));
    socket.on('error', (error) => isCurrent() && !this.#isClosed && this.#on.failed(new LinkError(error.code ?? 'connection', `can't connect to ${this.#url}: ${error.message || error.code}`)));
    socket.on('close', () => isCurrent() && this.#retry());
  }

  #refused(socket, request, response) {
    let body = '';
    response.setEncoding('utf8').on('data', (chunk) => {
      if (body.length < RESPONSE_CHARS_MAX) body += chunk.slice(0, RESPONSE_CHARS_MAX);
    });
    response.on('close', () => {
      if (this.#socket !== socket) return;
      const advice = response.statusCode === 404 ? '; is this the admin address, and does the configuration have [[links]]?' : '';
      this.#on.failed(new LinkError('http', `${this.#url} answers ${response.statusCode} ${body.replace(/\s+/g, ' ').trim()}${advice}`));
      request.destroy();
      this.#retry();
    });
  }

  #retry() {
    this.#socket = null;
    this.#on.lost();
    if (this.#isClosed) return;
    const first = performance.now() - this.#acceptedAt < SHORT_MS ? RETRY_MS : 0;
    const delay = this.#attempts === 0 ? first : Math.min(RETRY_MS_MAX, RETRY_MS * 2 ** this.#attempts) * (0.5 + Math.random() / 2);
    this.#attempts += 1;
    this.#timer = setTimeout(() => this.connect(), delay);
  }

  /** Stentor has accepted the worker: the next attempts begin anew. */
  accepted() {
    this.#attempts = 0;
    this.#acceptedAt = performance.now();
  }

  /** Delays the next attempts, because Stentor has refused the worker. */
  refused() {
    this.#attempts = Math.max(this.#attempts, 6);
  }

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  send(frame) {
    const socket = this.#socket;
    socket.send(frame, () => {
      if (socket.isPaused && socket.bufferedAmount < BUFFERED_BYTES_MIN) socket.resume();
    });
    if (socket.bufferedAmount > BUFFERED_BYTES_MAX && !socket.isPaused) socket.pause();
  }

  /** Drops the connection, and connects again. */
  drop() {
    this.#socket?.removeAllListeners('message');
    this.#socket?.terminate();
  }

  /** Ends the connection: what was sent arrives. */
  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    const socket = this.#socket;
    if (!socket) return;
    socket.close(1000);
    // `ws` itself waits 30 s for a peer that doesn't answer.
    setTimeout(() => socket.terminate(), 1_000).unref();
  }
}
