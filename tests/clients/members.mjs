// Clients that reconnect by themselves and keep a log of what they receive: real ones, and such without a library, for the mass.
// A member of a room receives messages { n }, counted from 1; a follower of a feed, documents { n }.
import { EventSource } from 'eventsource';
import { io } from 'socket.io-client';
import io2 from 'socket.io-client-2';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { connect } from '../../clients/js/src/index.js';
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

/** A member without a library, over a WebSocket. `opens` says of a text whether it subscribes then, `take` reads any other one, and `wrap` makes a text of a message. */
const lean = (path, opens, take, wrap = JSON.stringify) => (log, url) => {
  const { subscribe, hear } = member(log);
  return again(log, (gone) => {
    const socket = new WebSocket(`${url.replace('http', 'ws')}${path()}`, { perMessageDeflate: false });
    socket.on('message', (data) => {
      const text = data.toString();
      if (opens(text)) socket.send(wrap(subscribe()));
      else take(text, hear, socket);
    });
    socket.on('error', () => {}).on('close', () => gone());
    return () => socket.terminate();
  });
};

const leanWebSocket = lean(() => '/ws', (text) => text.includes('"welcome"'), (text, hear) => hear(JSON.parse(text)));
const leanEngineIo = lean(() => '/engine.io/?EIO=4&transport=websocket', (text) => text[0] === '0', (text, hear, socket) => {
  if (text[0] === '2') socket.send('3');
  else if (text[0] === '4') hear(JSON.parse(text.slice(1)));
}, (message) => `4${JSON.stringify(message)}`);
const leanSockJs = lean(() => `/sockjs/000/lean${process.pid}x${sessions++}/websocket`, (text) => text === 'o', (text, hear) => {
  if (text[0] === 'a') for (const message of JSON.parse(text.slice(1))) hear(JSON.parse(message));
}, (message) => JSON.stringify([JSON.stringify(message)]));

/** Requests of a browser, which Stentor answers otherwise while it drains (docs/fallbacks.md). */
export const ofBrowser = (url, init) => fetch(url, { ...init, headers: { ...init.headers, 'User-Agent': 'Mozilla/5.0' } });

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
  Primus: { topic: 'room', retryMax_ms: 1500, open: primus },
  'sockjs-client': { topic: 'room', retryMax_ms: 1500, open: sockjs },
  EventSource: {
    topic: 'feed',
    retryMax_ms: 4500,
    open(log, url) {
      const source = new EventSource(`${url}/sse/${log.topic}`, { fetch: ofBrowser });
      source.addEventListener('open', () => log.opened());
      source.addEventListener('error', () => (log.isOpen ? log.ended() : log.failures.push('error')));
      source.addEventListener('snapshot', ({ data }) => log.numbers.push(JSON.parse(data).n));
      return () => source.close();
    },
  },
  'lean WebSocket': { topic: 'room', retryMax_ms: 1000, isLean: true, open: leanWebSocket },
  'lean Engine.IO': { topic: 'room', retryMax_ms: 1500, isLean: true, open: leanEngineIo },
  'lean SockJS': { topic: 'room', retryMax_ms: 1500, isLean: true, open: leanSockJs },
};

function primus(log, url) {
  const primus = new Primus(url, { strategy: 'disconnect', reconnect: { min: 500, factor: 1.5, max: 1500 } });
  const { subscribe, hear } = member(log);
  primus.on('open', () => primus.write(subscribe()));
  primus.on('data', hear);
  primus.on('reconnect scheduled', () => log.ended());
  primus.on('error', () => {});
  return () => primus.end();
}

function sockjs(log, url) {
  const { subscribe, hear } = member(log);
  return again(log, (gone) => {
    const socket = new SockJS(`${url}/sockjs`);
    socket.onopen = () => socket.send(JSON.stringify(subscribe()));
    socket.onmessage = ({ data }) => hear(JSON.parse(data));
    socket.onclose = ({ reason }) => gone(reason);
    return () => socket.close();
  });
}

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
