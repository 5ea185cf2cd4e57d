// The request of a client, and the response to it, as engine middlewares and `allowRequest` expect them.
//
// Stentor has the connection to the client. The objects have the prototypes of Node's classes, because middlewares call their methods. What a
// middleware writes to the response is captured, for ACCEPT and REFUSE.

import { IncomingMessage, ServerResponse } from 'node:http';

/** The client's socket, as far as it is known. Calls have no effect. */
class ClientSocket {
  constructor(handshake) {
    this.remoteAddress = handshake.address;
    this.remotePort = handshake.port;
    this.localAddress = handshake.localAddress;
    this.localPort = handshake.localPort;
    this.encrypted = handshake.encrypted;
  }
}

const nothing = () => {};
const inert = { readable: false, writable: false, destroyed: false };
for (const method of ['setTimeout', 'setKeepAlive', 'setNoDelay', 'destroy', 'on', 'once', 'off', 'removeListener']) inert[method] = nothing;
Object.setPrototypeOf(ClientSocket.prototype, inert);

/** The request with which a client opened its session. It isn't a stream, which would cost a session 2 kB. */
export class ClientRequest {
  constructor(handshake) {
    this.method = handshake.method;
    this.url = handshake.url;
    this.httpVersion = handshake.httpVersion;
    this.complete = true;
    this._query = handshake.query;
    // `IncomingMessage` has accessors of this name.
    Object.defineProperty(this, 'headers', { value: handshake.headers, writable: true, enumerable: true, configurable: true });
    this.socket = new ClientSocket(handshake);
  }

  get connection() {
    return this.socket;
  }

  get client() {
    return this.socket;
  }

  get httpVersionMajor() {
    return Number(this.httpVersion.split('.')[0]);
  }

  get httpVersionMinor() {
    return Number(this.httpVersion.split('.')[1]);
  }

  get rawHeaders() {
    return Object.entries(this.headers).flat();
  }
}

Object.setPrototypeOf(ClientRequest.prototype, IncomingMessage.prototype);

/** The response to a request. `onEnd()` is called when a middleware ends it. */
export class CapturedResponse extends ServerResponse {
  #chunks = [];
  #isWritten = false;
  #isEnded = false;

  constructor(request, onEnd) {
    super(request);
    this.onEnd = onEnd;
  }

  writeHead(status, ...rest) {
    if (this.#isWritten) return this;
    this.#isWritten = true;
    this.statusCode = status ?? this.statusCode;
    const headers = rest.find((argument) => argument !== null && typeof argument === 'object');
    for (const [name, value] of pairs(headers)) this.setHeader(name, value);
    return this;
  }

  _implicitHeader() {
    this.writeHead(this.statusCode);
  }

  write(chunk, encoding) {
    this.writeHead(this.statusCode);
    this.#chunks.push(typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : Buffer.from(chunk));
    return true;
  }

  end(chunk, encoding) {
    if (this.#isEnded) return this;
    if (chunk && typeof chunk !== 'function') this.write(chunk, encoding);
    this.writeHead(this.statusCode);
    this.#isEnded = true;
    this.emit('finish');
    this.onEnd();
    return this;
  }

  /** The headers: texts, and lists of texts. */
  get captured() {
    return texts(this.getHeaders());
  }

  /** The body. `undefined` if there is none. */
  get body() {
    return this.#chunks.length > 0 ? Buffer.concat(this.#chunks).toString() : undefined;
  }
}

/** Headers as `writeHead` takes them: an object, a list of pairs, or a flat list. */
function pairs(headers = {}) {
  if (!Array.isArray(headers)) return Object.entries(headers);
  if (Array.isArray(headers[0])) return headers;
  return headers.flatMap((name, i) => (i % 2 === 0 ? [[name, headers[i + 1]]] : []));
}

/** Headers with texts, and lists of texts, for values. */
export function texts(headers) {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, Array.isArray(value) ? value.map(String) : String(value)]));
}
