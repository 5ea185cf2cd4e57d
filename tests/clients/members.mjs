// Clients that reconnect by themselves and keep a log of what they receive: real ones, and such that cost next to nothing, for the mass.
// A member of a room receives messages { n }, counted from 1; a follower of a feed, documents { n }.
import http from 'node:http';
import { EventSource } from 'eventsource';
import { io } from 'socket.io-client';
import io2 from 'socket.io-client-2';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { connect } from '../../clients/js/src/index.js';
import { leanWebSocket } from './lean.mjs';
import { Primus } from './primus.mjs';

export const now = () => performance.now();

/** What a client has seen. */
class Log {
  opens = [];
  ends = [];
  /** Numbers of messages or versions, in the order of their arrival. */
  numbers = [];
  /** What it couldn't resume, and attempts that failed, as text. */
  gaps = [];
  failures = [];
  isOpen = false;

  constructor(kind, topic) {
    Object.assign(this, { kind, topic });
    this.ready = new Promise((resolve) => { this.isReady = resolve; });
  }

  opened() {
    this.isOpen = true;
    this.opens.push(now());
    this.isReady();
  }

  ended() {
    if (this.isOpen) this.ends.push(now());
    this.isOpen = false;
  }
}

/** The messages of stentor.v1 for a member that resumes. */
function member(log) {
  let position;
  return {
    subscribe: () => ({ id: 1, type: 'subscribe', room: log.topic, ...position }),
    hear(message) {
      if (message.type === 'ok') log.opened();
      else if (message.type === 'error') log.gaps.push(message.code);
      else if (message.type === 'disconnect') log.retry_ms = message.reconnect_after_ms;
      else if (message.type === 'message') {
        position = { epoch: message.epoch, offset: message.offset };
        log.numbers.push(message.data.n);
      }
    },
  };
}

/** Calls `open(gone)` again and again, as socket.io-client would: after 0.5 to 1.5 s, unless the server has named a time. */
function again(log, open) {
  let connection;
  let timer;
  let isClosed = false;
  const start = () => {
    const opens = log.opens.length;
    connection = open((why) => {
      if (isClosed) return;
      if (log.opens.length === opens) log.failures.push(why ?? 'closed');
      log.ended();
      timer = setTimeout(start, log.retry_ms ?? 500 + Math.random() * 1000);
      log.retry_ms = undefined;
    });
  };
  start();
  return () => {
    isClosed = true;
    clearTimeout(timer);
    connection();
  };
}

let sessions = 0;

/** Reads an event stream: calls `heard(fields)` for each event. */
function stream(url, headers, heard, gone) {
  const request = http.get(url, { headers, agent: false }, (response) => {
    if (response.statusCode !== 200) request.destroy();
    let rest = '';
    response.setEncoding('utf8').on('data', (chunk) => {
      const blocks = (rest + chunk).split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        heard(Object.fromEntries(block.split('\n').map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trimStart()])));
      }
    });
  });
  request.on('error', () => {}).on('close', () => gone());
  return () => request.destroy();
}

/**
 * Each kind of client: `open(log, url)` starts one and returns what ends it. `topic` is 'room' or 'feed', `retryMax_ms` is the longest
 * time after which it reconnects, by its own back-off.
 */
export const KINDS = {
  'socket.io-client by WebSocket': { topic: 'room', retryMax_ms: 1500, open: socketIo(io, { transports: ['websocket'] }) },
  'socket.io-client by polling': { topic: 'room', retryMax_ms: 1500, open: socketIo(io, { transports: ['polling'] }) },
  'socket.io-client by polling, then WebSocket': { topic: 'room', retryMax_ms: 1500, open: socketIo(io, {}) },
  // Can't be recovered: it begins anew each time.
  'socket.io-client 2': { topic: 'room', retryMax_ms: 1500, anew: true, open: socketIo(io2, { transports: ['websocket'] }) },
  '@stentor/client': { topic: 'room', retryMax_ms: 1500, open: library('websocket') },
  '@stentor/client by SockJS': { topic: 'room', retryMax_ms: 1500, open: library('sockjs') },
  Primus: {
    topic: 'room',
    retryMax_ms: 1500,
    open(log, url) {
      const primus = new Primus(url, { strategy: 'disconnect', reconnect: { min: 500, factor: 1.5, max: 1500 } });
      const { subscribe, hear } = member(log);
      primus.on('open', () => primus.write(subscribe()));
      primus.on('data', hear);
      primus.on('reconnect scheduled', () => log.ended());
      primus.on('error', () => {});
      return () => primus.end();
    },
  },
  'sockjs-client': {
    topic: 'room',
    retryMax_ms: 1500,
    open(log, url) {
      const { subscribe, hear } = member(log);
      return again(log, (gone) => {
        const socket = new SockJS(`${url}/sockjs`);
        socket.onopen = () => socket.send(JSON.stringify(subscribe()));
        socket.onmessage = ({ data }) => hear(JSON.parse(data));
        socket.onclose = ({ reason }) => gone(reason);
        return () => socket.close();
      });
    },
  },
  EventSource: {
    topic: 'feed',
    retryMax_ms: 4500,
    open(log, url) {
      const source = new EventSource(`${url}/sse/${log.topic}`);
      source.addEventListener('open', () => log.opened());
      source.addEventListener('error', () => (log.isOpen ? log.ended() : log.failures.push('error')));
      source.addEventListener('snapshot', ({ data }) => log.numbers.push(JSON.parse(data).n));
      return () => source.close();
    },
  },
  'lean WebSocket': {
    topic: 'room',
    retryMax_ms: 1000,
    isLean: true,
    open(log, url) {
      const { subscribe, hear } = member(log);
      return again(log, (gone) => leanWebSocket(url, '/ws', {
        open: (send) => send(JSON.stringify(subscribe())),
        message: (text) => hear(JSON.parse(text)),
        gone,
      }).cut);
    },
  },
  'lean Engine.IO': {
    topic: 'room',
    retryMax_ms: 1500,
    isLean: true,
    open(log, url) {
      const { subscribe, hear } = member(log);
      return again(log, (gone) => leanWebSocket(url, '/engine.io/?EIO=4&transport=websocket', {
        message(text, send) {
          if (text[0] === '0') send(`4${JSON.stringify(subscribe())}`);
          else if (text[0] === '2') send('3');
          else if (text[0] === '4') hear(JSON.parse(text.slice(1)));
        },
        gone,
      }).cut);
    },
  },
  'lean Socket.IO': {
    topic: 'room',
    retryMax_ms: 1500,
    isLean: true,
    open(log, url) {
      let before;
      let offset;
      return again(log, (gone) => leanWebSocket(url, '/socket.io/?EIO=4&transport=websocket', {
        message(text, send) {
          if (text[0] === '0') send(`40${before ? JSON.stringify({ pid: before.pid, offset }) : ''}`);
          else if (text[0] === '2') send('3');
          else if (text.startsWith('40')) {
            const session = JSON.parse(text.slice(2));
            if (session.sid === before?.sid) log.opened();
            else {
              if (before) log.gaps.push('not recovered');
              send(`420${JSON.stringify(['join', log.topic])}`);
            }
            before = session;
          } else if (text.startsWith('430')) log.opened();
          else if (text.startsWith('42')) {
            const [, { n }, position] = JSON.parse(text.slice(2));
            offset = position;
            log.numbers.push(n);
          }
        },
        gone,
      }).cut);
    },
  },
  'lean SockJS': {
    topic: 'room',
    retryMax_ms: 1500,
    isLean: true,
    open(log, url) {
      const { subscribe, hear } = member(log);
      return again(log, (gone) => leanWebSocket(url, `/sockjs/000/member${process.pid}x${sessions++}/websocket`, {
        message(text, send) {
          if (text === 'o') send(JSON.stringify([JSON.stringify(subscribe())]));
          else if (text[0] === 'a') for (const message of JSON.parse(text.slice(1))) hear(JSON.parse(message));
        },
        gone,
      }).cut);
    },
  },
  'lean SSE': {
    topic: 'feed',
    retryMax_ms: 4500,
    isLean: true,
    open(log, url) {
      let last;
      let retry;
      return again(log, (gone) => {
        let isFirst = true;
        return stream(`${url}/sse/${log.topic}`, last ? { 'Last-Event-ID': last } : {}, (fields) => {
          if (isFirst) log.opened();
          isFirst = false;
          if (fields.id) last = fields.id;
          if (fields.retry) retry = Number(fields.retry);
          if (fields.event === 'snapshot') log.numbers.push(JSON.parse(fields.data).n);
        }, () => {
          log.retry_ms = retry;
          gone();
        });
      });
    },
  },
};

function socketIo(io, options) {
  return (log, url) => {
    const socket = io(url, { forceNew: true, ...options });
    socket.on('connect', () => {
      if (socket.recovered) return log.opened();
      if (log.opens.length > 0 && io !== io2) log.gaps.push('not recovered');
      return socket.emit('join', log.topic, () => log.opened());
    });
    socket.on('connect_error', ({ message }) => log.failures.push(message));
    socket.on('disconnect', () => log.ended());
    socket.on('news', ({ n }) => log.numbers.push(n));
    return () => socket.disconnect();
  };
}

function library(transport) {
  return (log, url) => {
    const stentor = connect(url, { WebSocket, SockJS, transport });
    stentor.on('state', (state) => {
      if (state === 'open') log.opened();
      else log.ended();
    });
    stentor.on('error', ({ code }) => log.gaps.push(code));
    stentor.room(log.topic).on('message', ({ n }) => log.numbers.push(n));
    return () => stentor.close();
  };
}

/** Starts a client of a kind. */
export function start(kind, topic, url) {
  const log = new Log(kind, topic);
  const stop = KINDS[kind].open(log, url);
  log.close = () => {
    // What follows is no end that the server caused.
    log.isOpen = false;
    stop();
  };
  return log;
}

/** What is wrong with what a client received: sentences. `last` is the number that each has to receive in the end. */
export function lost(log, last) {
  const { kind, topic, numbers, gaps } = log;
  const who = `${kind} in ${topic}`;
  const wrong = gaps.map((gap) => `${who}: ${gap}`);
  const isFeed = KINDS[kind].topic === 'feed';
  numbers.slice(1).forEach((n, i) => {
    const before = numbers[i];
    const isNext = isFeed || KINDS[kind].anew ? n > before || (isFeed && n === before) : n === before + 1;
    if (!isNext) wrong.push(`${who}: ${n} after ${before}`);
  });
  if (numbers.at(-1) !== last && !(isFeed && numbers.at(-1) > last)) wrong.push(`${who}: ${numbers.at(-1)} is the last one, not ${last}`);
  return wrong;
}
