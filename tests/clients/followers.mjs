// Clients that follow one feed until they have a last version, over any protocol: some are cut off on the way and come back with
// what they have, some read slowly.
import assert from 'node:assert/strict';
import http from 'node:http';
import { isDeepStrictEqual } from 'node:util';
import { Socket as EngineIo } from 'engine.io-client';
import { io } from 'socket.io-client';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { applyPatch } from '../../clients/js/src/index.js';
import { LEAN } from './lean.mjs';

/** A client is cut off so soon after it was told something, or if it is told nothing. */
const CUT_MS = [50, 1_000];

const subscribe = (kept, more) => ({ type: 'subscribe', feed: 'replay', ...more, ...(kept && { epoch: kept.epoch, offset: kept.offset }) });

/**
 * How each protocol is spoken: opens a connection for a client that has `kept`, hands what comes to `hear` as messages of
 * stentor.v1, and calls `gone` when it is over. Gives what cuts it off, and where it can, its stream to be paused.
 */
export const REAL = {
  websocket(url, kept, hear, gone) {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/ws`, { perMessageDeflate: false });
    socket.on('open', () => socket.send(JSON.stringify(subscribe(kept))));
    return overWebSocket(socket, hear, gone);
  },
  deflated(url, kept, hear, gone) {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/ws`, { perMessageDeflate: true });
    socket.on('open', () => socket.send(JSON.stringify(subscribe(kept, { policy: 'queue' }))));
    return overWebSocket(socket, hear, gone);
  },
  bodies(url, kept, hear, gone) {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/ws/replay`);
    return overWebSocket(socket, (data) => hear({ type: 'snapshot', data }), gone);
  },
  rated(url, kept, hear, gone) {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/ws`);
    socket.on('open', () => socket.send(JSON.stringify(subscribe(kept, { rate: 5 }))));
    return overWebSocket(socket, hear, gone);
  },
  socketio(url, kept, hear, gone) {
    const socket = io(url, { transports: ['websocket'], reconnection: false, forceNew: true });
    socket.on('connect', () => socket.emit('subscribe', 'replay', { delta: true, ...(kept && { epoch: kept.epoch, offset: kept.offset }) }));
    socket.on('feed', hear);
    socket.on('disconnect', gone);
    socket.on('connect_error', gone);
    return { cut: () => socket.io.engine.close(), stream: () => socket.io.engine.transport.ws?._socket };
  },
  'socketio without deltas'(url, kept, hear, gone) {
    const socket = io(url, { transports: ['polling'], query: { feed: 'replay' }, reconnection: false, forceNew: true });
    socket.on('feed', hear);
    socket.on('disconnect', gone);
    socket.on('connect_error', gone);
    return { cut: () => socket.io.engine.close() };
  },
  engineio(url, kept, hear, gone) {
    const socket = new EngineIo(url, { path: '/engine.io/', transports: ['polling', 'websocket'] });
    socket.on('open', () => socket.send(JSON.stringify(subscribe(kept))));
    socket.on('message', (text) => hear(JSON.parse(text)));
    socket.on('close', gone);
    return { cut: () => socket.close() };
  },
  sockjs: sockjs('websocket'),
  'sockjs streaming': sockjs('xhr-streaming'),
  'sockjs polling': sockjs('xhr-polling'),
  events(url, kept, hear, gone) {
    const headers = kept ? { 'Last-Event-ID': `replay!${kept.epoch.toString(16)}!${kept.offset.toString(16)}` } : {};
    let answer;
    const request = http.get(`${url}/sse/replay?delta=1`, { agent: false, headers }, (response) => {
      answer = response.setEncoding('utf8');
      let text = '';
      response.on('data', (piece) => {
        const events = (text += piece).split('\n\n');
        text = events.pop();
        for (const event of events) {
          const { id, event: type, data } = Object.fromEntries(event.split('\n').map((line) => line.split(/: (.*)/s)));
          if (type === 'delta') hear(JSON.parse(data));
          if (type !== 'snapshot') continue;
          const [feed, epoch, offset] = id.split('!');
          hear({ type, feed, epoch: parseInt(epoch, 16), offset: parseInt(offset, 16), data: JSON.parse(data) });
        }
      });
      response.on('close', gone);
    });
    request.on('error', gone);
    return { cut: () => request.destroy(), stream: () => answer };
  },
};

/** The same without libraries, for the mass. */
export const MASS = {
  ...Object.fromEntries(Object.entries(LEAN).map(([name, open]) => [name, (url, kept, hear, gone) => open(url, subscribe(kept), hear, gone)])),
  'lean events': REAL.events,
};

const PROTOCOLS = { ...REAL, ...MASS };

function overWebSocket(socket, hear, gone) {
  socket.on('message', (text) => hear(JSON.parse(text)));
  socket.on('close', gone);
  socket.on('error', () => {});
  return { cut: () => socket.terminate(), stream: () => socket };
}

function sockjs(transport) {
  return (url, kept, hear, gone) => {
    const socket = new SockJS(`${url}/sockjs`, null, { transports: [transport] });
    socket.onopen = () => socket.send(JSON.stringify(subscribe(kept)));
    socket.onmessage = ({ data }) => hear(JSON.parse(data));
    socket.onclose = gone;
    return { cut: () => socket.close() };
  };
}

/**
 * A client from its first connection until it has the last of `versions`; `run()` fails if it was told of anything that cannot
 * be. Cut off `cuts` times, or `slow`; one that `verifies` looks at every step for the version that it is. `sent` counts messages.
 */
export class Follower {
  constructor(url, { protocol, cuts = 0, slow = false, verifies = false }, versions, sent) {
    Object.assign(this, { url, protocol, cuts, slow, verifies, versions, sent, at: 0, heard: 0, resumed: 0, arrived: false, kept: null });
  }

  /** Whether what it has is the last version. The last match of the tournament tells at little cost that it is not. */
  get isLast() {
    const { kept: { data }, versions } = this;
    const last = versions.at(-1);
    return isDeepStrictEqual(data.matches?.at(-1), last.matches?.at(-1)) && isDeepStrictEqual(data, last);
  }

  run() {
    if (this.cuts > 0) this.cutAfter(CUT_MS[1]);
    return new Promise((resolve, reject) => { this.resolve = resolve; this.reject = reject; this.connect(); });
  }

  /** Cuts the connection off, whatever it is at; another one follows a little later. */
  cut() {
    const { link } = this;
    this.link = null;
    link?.cut();
    this.cuts -= 1;
    if (this.arrived && this.cuts === 0) return this.end();
    setTimeout(() => {
      this.connect();
      if (this.cuts > 0) this.cutAfter(CUT_MS[this.arrived ? 0 : 1]);
    }, 100 * Math.random());
  }

  cutAfter(time_ms) {
    clearTimeout(this.timer);
    this.told = false;
    this.timer = setTimeout(() => this.cut(), time_ms);
  }

  connect() {
    const mine = {};
    this.link = mine;
    this.said = Boolean(this.kept?.epoch);
    const gone = () => {
      if (this.link !== mine) return;
      this.link = null;
      // Where it is cut anyway, that is soon enough.
      if (this.cuts === 0) setTimeout(() => this.connect(), 50);
    };
    Object.assign(mine, PROTOCOLS[this.protocol](this.url, this.said ? this.kept : null, (message) => {
      if (this.link !== mine) return;
      try { this.hear(message); } catch (error) { this.end(error); }
    }, gone));
  }

  end(error) {
    const { link } = this;
    this.link = null;
    clearTimeout(this.timer);
    link?.cut();
    if (error) this.reject(error); else this.resolve();
  }

  hear(message) {
    const { kept, protocol } = this;
    if (message.type === 'snapshot') {
      if (message.epoch && kept) assert.ok(message.offset >= kept.offset, `${protocol}: an older version after a newer one`);
      this.kept = message;
      this.sent.snapshots += 1;
    } else if (message.type === 'delta') {
      assert.deepEqual([message.epoch, message.base], [kept.epoch, kept.offset], `${protocol}: for the version that it has`);
      this.kept = { ...kept, offset: message.offset, data: applyPatch(kept.data, message.patch) };
      this.sent.deltas += 1;
      if (this.said) this.resumed += 1;
    } else {
      return;
    }
    this.said = false;
    if (this.verifies) {
      const found = this.versions.findIndex((version, n) => n >= this.at && isDeepStrictEqual(this.kept.data, version));
      assert.notEqual(found, -1, `${protocol}: a version that there was, and no older one`);
      this.at = found;
    }
    this.arrived ||= this.isLast;
    if (this.arrived && this.cuts === 0) return this.end();
    if (this.cuts > 0 && !this.told) {
      this.cutAfter(CUT_MS[0]);
      this.told = true;
    }
    if (this.slow && this.heard++ % 20 === 0) {
      const stream = this.link?.stream?.();
      stream?.pause();
      setTimeout(() => stream?.resume(), 2_000);
    }
  }
}

