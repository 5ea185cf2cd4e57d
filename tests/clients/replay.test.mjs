// 125 recorded versions of a real document, to clients of all protocols: some are cut off 20 times on the way and come
// back with what they have, some read slowly. Each ends with the last version; 40 check at each step that what they have is
// a version that there was, and never an older one after a newer one. What is sent is measured.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import test from 'node:test';
import { setTimeout as after } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { Socket as EngineIo } from 'engine.io-client';
import { io } from 'socket.io-client';
import SockJS from 'sockjs-client';
import WebSocket from 'ws';
import { applied, binary } from './harness.mjs';

const recorded = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../../shared/data/worldcup-2026');
const CLIENTS = 200;
const VERIFYING = 40;
const CUTS = 20;
/** A client is cut off so soon after it was told something, or if it is told nothing. */
const CUT_MS = [50, 1_000];
/** Versions a second. */
const SPEED = 8;

const subscribe = (kept, more) => ({ type: 'subscribe', feed: 'replay', ...more, ...(kept && { epoch: kept.epoch, offset: kept.offset }) });

/**
 * How each protocol is spoken: opens a connection for a client that has `kept`, hands what comes to `hear` as messages of
 * stentor.v1, and calls `gone` when it is over. Gives what cuts it off, and where it can, its stream to be paused.
 */
const PROTOCOLS = {
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

/** A client from its first connection until it has the last version. */
class Follower {
  constructor(url, protocol, { cuts = 0, slow = false, versions, isLast, sent }) {
    Object.assign(this, { url, protocol, cuts, slow, versions, isLast, sent, at: 0, heard: 0, resumed: 0, arrived: false, kept: null });
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
      this.kept = { ...kept, offset: message.offset, data: message.patch.reduce(applied, kept.data) };
      this.sent.deltas += 1;
      if (this.said) this.resumed += 1;
    } else {
      return;
    }
    this.said = false;
    if (this.versions) {
      const found = this.versions.findIndex((version, n) => n >= this.at && isDeepStrictEqual(this.kept.data, version));
      assert.notEqual(found, -1, `${protocol}: a version that there was, and no older one`);
      this.at = found;
    }
    this.arrived ||= this.isLast(this.kept.data);
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

test('a replayed document arrives at its last version', { skip: !existsSync(recorded) && 'the recorded documents are not here' }, async (t) => {
  const args = ['demo', '--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--cores', '2', '--replay', recorded, '--speed', String(SPEED)];
  const child = spawn(binary, args, { stdio: ['ignore', 'pipe', 'ignore'] });
  const closed = once(child, 'close');
  t.after(async () => { child.kill('SIGTERM'); await closed; });
  const url = await new Promise((resolve, reject) => {
    let stdout = '';
    child.stdout.on('data', (chunk) => {
      const found = /ready (http:\/\/\S+)/.exec((stdout += chunk));
      if (found) resolve(found[1]);
    });
    child.once('close', (code) => reject(new Error(`the demo ended with ${code}`)));
  });
  const names = readdirSync(recorded).filter((name) => name.endsWith('.json')).sort();
  const versions = names.map((name) => JSON.parse(readFileSync(path.join(recorded, name))));
  const last = versions.at(-1);
  const final = last.matches.at(-1);
  // The last match of the tournament tells at little cost that it is not the last version.
  const isLast = ({ matches }) => isDeepStrictEqual(matches?.at(-1), final) && isDeepStrictEqual(matches, last.matches);
  const sent = { snapshots: 0, deltas: 0 };
  const protocols = Object.keys(PROTOCOLS);
  const manners = [{}, { cuts: CUTS }, { slow: true }];
  const followers = Array.from({ length: CLIENTS }, (_, n) => {
    const protocol = protocols[n % protocols.length];
    const manner = manners[Math.floor(n / protocols.length) % manners.length];
    return new Follower(url, protocol, { ...manner, versions: n < VERIFYING && versions, isLast, sent });
  });
  const ends = await Promise.all(followers.map(async (follower) => {
    // Not all at once.
    await after(1_000 * Math.random());
    return follower.run();
  }));
  assert.equal(ends.length, CLIENTS);
  for (const { kept, cuts, protocol } of followers) {
    assert.deepEqual(kept.data, last, protocol);
    assert.equal(cuts, 0, `${protocol}: not cut off as often as it should be`);
  }
  const resumed = followers.reduce((sum, follower) => sum + follower.resumed, 0);
  assert.ok(sent.deltas > 2 * sent.snapshots, JSON.stringify(sent));
  assert.ok(resumed > CLIENTS / 4, `only ${resumed} came back to a delta`);
  t.diagnostic(`${CLIENTS} clients: ${sent.snapshots} snapshots, ${sent.deltas} deltas; ${resumed} times a client that came back got a delta`);
});
