// stentor.v1 (docs/protocol.md) over anything that looks like a WebSocket: the browser's, npm `ws`, or SockJS.

import { StentorError, library } from '../error.js';

export function websocket(base, link, options) {
  const WebSocket = library(options, 'WebSocket');
  const url = new URL('ws', base);
  url.protocol = url.protocol.replace('http', 'ws');
  return speak(new WebSocket(url.href), link, options);
}

export function sockjs(base, link, options) {
  const SockJS = library(options, 'SockJS');
  return speak(new SockJS(new URL('sockjs', base).href), link, options);
}

function speak(socket, link, { heartbeatTimeoutMs }) {
  // Answers come in the order of the requests, and each names its request.
  const asked = new Map();
  let lastId = 0;
  let early = [];
  let heardAt = Date.now();
  let pingedAt = 0;
  let heart;

  const write = (text) => (early ? early.push(text) : socket.send(text));
  const ask = (request, answered) => {
    asked.set(++lastId, answered);
    write(JSON.stringify({ id: lastId, ...request }));
  };
  const ignore = () => {};
  const end = (why) => {
    clearInterval(heart);
    for (const answered of asked.values()) {
      answered(new StentorError('connection_lost', 'the connection was lost', true));
    }
    asked.clear();
    if (why) link('lost', why);
  };

  // Browsers don't tell of the server's pings, so a silent connection is asked for a sign of life. What counts is how
  // long that question goes unanswered: timers of a page in the background are late.
  const watch = (pingMs) => {
    const halfMs = (heartbeatTimeoutMs ?? 2 * pingMs) / 2;
    heart = setInterval(() => {
      const now = Date.now();
      if (now - Math.max(pingedAt, heardAt) < halfMs) return;
      if (pingedAt > heardAt) return end({ reason: 'the server is silent' });
      pingedAt = now;
      ask({ type: 'ping' }, ignore);
    }, halfMs / 4);
  };

  socket.onerror = ignore;
  socket.onopen = () => {
    for (const text of early.splice(0)) socket.send(text);
    early = null;
  };
  socket.onclose = ({ code, reason }) => end({ code, reason, again: !(code >= 4400 && code < 4500) });
  socket.onmessage = ({ data }) => {
    heardAt = Date.now();
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    const answered = asked.get(message.id);
    if (message.type === 'welcome') {
      watch(message.ping_ms ?? 25_000);
      link('opened', message.session);
    } else if (message.type === 'ok' || message.type === 'error') {
      const error = message.type === 'error' ? new StentorError(message.code, message.message, message.retry) : null;
      asked.delete(message.id);
      if (answered) answered(error);
      else if (error) link('erred', error);
    } else {
      link('received', message, data.length);
    }
  };

  return {
    subscribe(key, position, terms) {
      ask({ type: 'subscribe', feed: key, ...terms, ...position }, (error) => {
        if (error) link('refused', key, error);
        else if (position) link('confirmed', key);
      });
    },
    unsubscribe: (key) => ask({ type: 'unsubscribe', feed: key }, ignore),
    join(room, position) {
      ask({ type: 'subscribe', room, ...position }, (error) => error && link('erred', error));
    },
    leave: (room) => ask({ type: 'unsubscribe', room }, ignore),
    publish({ text, resolve, reject }) {
      asked.set(++lastId, (error) => (error ? reject(error) : resolve()));
      write(`{"id":${lastId},"type":"publish",${text}}`);
    },
    close() {
      end();
      // An attempt that is given up may still fail, which is no news: there `onerror` stays.
      socket.onopen = socket.onmessage = socket.onclose = null;
      // Only npm `ws` can do without the goodbye of a server that is silent.
      if (pingedAt > heardAt) socket.terminate?.();
      socket.close();
    },
  };
}
