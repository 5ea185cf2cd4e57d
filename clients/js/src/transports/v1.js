// stentor.v1 (docs/protocol.md) over anything with the API of WebSocket: the browser's, npm `ws`, SockJS, HTTP (http.js), or Engine.IO, for which the
// page's Socket.IO client has a connection.

import { now } from '../clock.js';
import { StentorError, library } from '../error.js';
import { failure, httpSocket } from './http.js';

/** A pause of this many ticks of the heartbeat's timer: the machine slept, or the page was frozen. */
const TICKS_MAX = 4;
/** Close codes about the token (docs/close-codes.md). */
const TOKEN_CODES = { 4408: 'refused', 4505: 'expired' };

export function websocket(base, link, options) {
  const WebSocket = library(options, 'WebSocket');
  const url = new URL('ws', base);
  url.protocol = url.protocol.replace('http', 'ws');
  const { getToken, token } = options;
  // Browsers let a page set no header of a WebSocket but this one. With stentor.v1, a refusal has a reason.
  const protocols = getToken && ['stentor.v1', ...(token ? [`stentor.bearer.${token}`] : [])];
  const forbids = (directive) => `the page's Content-Security-Policy forbids ${url.origin}: add it to ${directive}`;
  let socket;
  try {
    socket = new WebSocket(url.href, protocols);
  } catch (error) {
    // Firefox's exception has no message.
    throw error.name === 'NS_ERROR_CONTENT_BLOCKED' ? Error(forbids('connect-src')) : error;
  }
  // Chromium reports a blocked connection with `error` only, without `close`.
  const { document } = globalThis;
  const blocked = ({ blockedURI, effectiveDirective }) => {
    if (!blockedURI?.startsWith(url.origin)) return;
    carrier.fail({ reason: forbids(effectiveDirective), retry: false });
  };
  const carrier = speak(socket, link, options, () => document?.removeEventListener('securitypolicyviolation', blocked));
  document?.addEventListener('securitypolicyviolation', blocked);
  return carrier;
}

export function sockjs(base, link, options) {
  const SockJS = library(options, 'SockJS');
  const url = new URL('sockjs', base);
  if (options.token) url.searchParams.set('token', options.token);
  return speak(new SockJS(url.href), link, options);
}

export const sse = (base, link, options) => ({ ...speak(httpSocket(base, options), link, options), isHttp: true });
export const polling = (base, link, options) => ({ ...speak(httpSocket(base, options, true), link, options), isHttp: true });

/**
 * Engine.IO, by a manager of socket.io-client 2 to 4. Its own reconnection is off: it knows neither our backoff nor other transports. Packets aren't
 * Socket.IO's, so nothing is left to parse.
 */
export function socketio(base, link, options) {
  const { Manager } = library(options, 'io');
  const { ioOptions, token } = options;
  class Parser {
    add() {}
    on() {}
    off() {}
    removeListener() {}
    destroy() {}
  }
  const { engine } = new Manager(base.origin, {
    ...ioOptions,
    path: new URL('engine.io/', base).pathname,
    parser: { Encoder: Parser, Decoder: Parser },
    reconnection: false,
    // The header is for polls, and for Node.
    ...(token && { extraHeaders: { ...ioOptions?.extraHeaders, Authorization: `Bearer ${token}` }, protocols: ['stentor.v1', `stentor.bearer.${token}`] }),
  });
  const socket = { send: (text) => engine.write(text), close: () => engine.close() };
  let hasOpened = false;
  engine.on('open', () => {
    hasOpened = true;
    socket.onopen?.();
  });
  engine.on('data', (data) => socket.onmessage?.({ data }));
  // Any packet is a sign of life.
  engine.on('heartbeat', () => socket.onmessage?.({ data: '' }));
  engine.on('error', ({ message, description, context }) => {
    const get = (name) => context?.getResponseHeader?.(name) ?? context?.headers?.get(name);
    // After a cut, the server may have ended the session, whose next poll it answers with 400. Another one may be opened.
    socket.onclose?.(description > 0 ? { ...failure({ status: description, headers: { get } }), ...(hasOpened || description === 400) && { retry: true } } : { reason: message });
  });
  engine.on('close', (reason, { context } = {}) => {
    // Polls end with a packet if the server doesn't want the client to return.
    const isFinal = reason === 'transport close' && engine.transport.name === 'polling';
    socket.onclose?.({ reason, ...context?.code && { code: context.code, reason: context.reason }, ...isFinal && { retry: false } });
  });
  return speak(socket, link, options);
}

function speak(socket, link, { heartbeatTimeoutMs }, settled = () => {}) {
  // Handlers of answers, by the `id` of their requests.
  const pending = new Map();
  let lastId = 0;
  let early = [];
  let receivedAt = now();
  let pingedAt = 0;
  let heartbeat;
  let afterMs;
  let isChecked = true;
  let bytesMax = Infinity;

  const write = (text) => (early ? early.push(text) : socket.send(text));
  const request = (fields, answered) => {
    pending.set(++lastId, answered);
    write(JSON.stringify({ id: lastId, ...fields }));
  };
  const ignore = () => {};
  const failed = (error) => error && link('failed', error);
  const end = (why) => {
    const report = link;
    // Subscriptions need no answer any more.
    link = ignore;
    settled();
    clearInterval(heartbeat);
    for (const answered of pending.values()) {
      answered(new StentorError('connection_lost', 'the connection was lost', true));
    }
    pending.clear();
    if (why) report('lost', why);
  };
  const ping = () => {
    pingedAt = now();
    request({ type: 'ping' }, ignore);
  };

  // Browsers hide the server's pings, so the client sends its own on a silent connection. The time without an answer counts,
  // not the time of silence: timers of a page in the background are late.
  const watch = (pingMs) => {
    const halfMs = (heartbeatTimeoutMs ?? 2 * pingMs) / 2;
    let tickedAt = now();
    heartbeat = setInterval(() => {
      const pauseMs = now() - tickedAt;
      tickedAt += pauseMs;
      // The network may be another one now.
      if (pauseMs > TICKS_MAX * (halfMs / 4)) return link('woken');
      if (tickedAt - Math.max(pingedAt, receivedAt) < halfMs) return;
      if (pingedAt > receivedAt) return end({ reason: 'the server is silent' });
      // A check, which is a ping, opens another connection soon if there is no answer.
      link('silent');
    }, halfMs / 4);
  };

  socket.onerror = ignore;
  socket.onopen = () => {
    settled();
    for (const text of early.splice(0)) socket.send(text);
    early = null;
  };
  socket.onclose = ({ code, reason, ...more }) => end({ code, reason, retry: !/^44/.test(code), afterMs, token: TOKEN_CODES[code], ...more });
  socket.onmessage = ({ data }) => {
    receivedAt = now();
    if (!isChecked) {
      isChecked = true;
      link('alive');
    }
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    const { type, id } = message;
    const answered = pending.get(id);
    if (type === 'welcome') {
      watch(message.ping_ms ?? 25_000);
      socket.bytesMax = bytesMax = message.message_bytes_max ?? Infinity;
      link('opened', message.session);
    } else if (type === 'ok' || type === 'error' || (type === 'presence' && answered)) {
      const error = type === 'error' && new StentorError(message.code, message.message, message.retry);
      pending.delete(id);
      if (answered) answered(error, message);
      else if (message.presence) link('unwatched', message.presence, error);
      else if (message.feed) link('refused', message.feed, error);
      else if (message.room) link('joined', message.room, error);
      else failed(error);
    } else if (type === 'token_expiring') {
      link('expiring', (token) => carrier.auth(token, failed));
    } else if (type === 'disconnect') {
      afterMs = message.reconnect_after_ms;
    } else {
      link('received', message, data.length);
    }
  };

  const carrier = {
    subscribe(key, position, subscribeOptions) {
      request({ type: 'subscribe', feed: key, ...subscribeOptions, ...position }, (error) => {
        if (error) link('refused', key, error);
        else if (position) link('confirmed', key);
      });
    },
    unsubscribe: (key) => request({ type: 'unsubscribe', feed: key }, ignore),
    join(room, position) {
      request({ type: 'subscribe', room, ...position }, (error) => link('joined', room, error));
    },
    leave: (room) => request({ type: 'unsubscribe', room }, ignore),
    watch: (room, presence, answered = ignore) => request({ type: 'subscribe', room, presence }, answered),
    auth: (token, answered) => request({ type: 'auth', token }, answered),
    members: (room, query, answered) => request({ type: 'presence', room, ...query }, answered),
    publish({ text, resolve, reject }) {
      const frame = `{"id":${++lastId},${text}}`;
      // Bytes are counted only if the characters could be too many.
      if (frame.length * 3 > bytesMax && new TextEncoder().encode(frame).length > bytesMax) {
        return reject(new StentorError('too_long', `a message has at most ${bytesMax} bytes`));
      }
      pending.set(lastId, (error, { data } = {}) => (error ? reject(error) : resolve(data)));
      write(frame);
    },
    check(silenceMs) {
      if (now() - receivedAt < silenceMs) return false;
      isChecked = false;
      ping();
      return true;
    },
    fail: end,
    // Forgets what waits for the WebSocket to open.
    forget() {
      early &&= [];
      pending.clear();
    },
    close() {
      end();
      // An attempt that is abandoned may still fail: `onerror` stays.
      socket.onopen = socket.onmessage = socket.onclose = null;
      // npm `ws` would wait for the close frame of a silent server.
      if (pingedAt > receivedAt) socket.terminate?.();
      socket.close();
    },
  };
  return carrier;
}
