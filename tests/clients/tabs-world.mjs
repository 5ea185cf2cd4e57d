// Tabs of a browser on the virtual clock of client-world.mjs: their channels and locks; they end, freeze and go on.
import assert from 'node:assert/strict';
import { connectShared } from '../../clients/js/src/shared.js';
import { World, records } from './client-world.mjs';

const abort = () => Object.assign(new Error('the lock was stolen, or the request aborted'), { name: 'AbortError' });

export class Browser {
  #world;
  #channels = new Set();
  /** By name: the request that holds the lock, and those that wait. */
  #locks = new Map();
  #tabs = new Set();

  constructor(world) {
    const channels = this.#channels;
    this.#world = world;
    this.BroadcastChannel = class {
      tab = world.tabs.getStore();

      constructor(name) {
        this.name = name;
        channels.add(this);
      }

      postMessage(data) {
        if (!channels.has(this)) throw new Error('the channel is closed');
        for (const other of channels) {
          if (other.name !== this.name || other === this) continue;
          const copy = structuredClone(data);
          world.after(1, () => channels.has(other) && other.onmessage?.({ data: copy }), other.tab);
        }
      }

      close() {
        channels.delete(this);
      }
    };
    this.locks = { request: (...args) => this.#request(...args) };
  }

  #request(name, options, held) {
    if (!held) [options, held] = [{}, options];
    const tab = this.#world.tabs.getStore();
    return new Promise((resolve, reject) => {
      const request = { tab, held, resolve, reject };
      if (!this.#locks.has(name)) this.#locks.set(name, { waiting: [] });
      const lock = this.#locks.get(name);
      const aborted = () => {
        lock.waiting = lock.waiting.filter((other) => other !== request);
        reject(abort());
      };
      options.signal?.addEventListener('abort', aborted);
      request.granted = () => options.signal?.removeEventListener('abort', aborted);
      if (options.steal) {
        const { holder } = lock;
        if (holder) this.#world.after(0, () => holder.reject(abort()), holder.tab);
        lock.holder = undefined;
        lock.waiting.unshift(request);
      } else {
        lock.waiting.push(request);
      }
      this.#grant(lock);
    });
  }

  /** Gives a lock to the first that waits. */
  #grant(lock) {
    if (lock.holder || !lock.waiting.length) return;
    const request = lock.holder = lock.waiting.shift();
    request.granted();
    this.#world.after(0, async () => {
      const result = await request.held({});
      request.resolve(result);
      this.#release(lock, request);
    }, request.tab);
  }

  #release(lock, request) {
    if (lock.holder !== request) return;
    lock.holder = undefined;
    this.#grant(lock);
  }

  /** Opens a tab with a shared connection. */
  open(t, options) {
    const world = this.#world;
    const tab = { isFrozen: false, isOver: false };
    this.#tabs.add(tab);
    const { BroadcastChannel, locks } = this;
    tab.run = (then) => world.tabs.run(tab, then);
    tab.connection = tab.run(() => connectShared('http://server.test', { BroadcastChannel, locks, WebSocket: world.WebSocket, fetch: world.server.fetch, ...options }));
    t.after(() => tab.isOver || tab.run(() => tab.connection.close()));
    return tab;
  }

  /** The tab that leads the groups of this transport. */
  leader(transport) {
    for (const [name, { holder }] of this.#locks) if (name.startsWith(`stentor 1 ${transport} `) && /\}$/.test(name)) return holder?.tab;
    return undefined;
  }

  /** The tab ends without a word, as after a crash. */
  kill(tab) {
    tab.isOver = true;
    for (const channel of this.#channels) if (channel.tab === tab) this.#channels.delete(channel);
    for (const socket of this.#world.server.sockets) if (socket.tab === tab) this.#world.server.sockets.delete(socket);
    this.#world.server.forget(tab);
    for (const lock of this.#locks.values()) {
      lock.waiting = lock.waiting.filter((request) => request.tab !== tab);
      if (lock.holder?.tab === tab) this.#release(lock, lock.holder);
    }
  }
}

/** A browser with tabs that follow a feed and a room. */
export async function tabs(t, count, options = {}, seed = 1) {
  const world = new World(t, seed);
  world.server.isComplete = true;
  const browser = new Browser(world);
  const opened = [];
  const open = (more) => {
    const tab = browser.open(t, { transport: 'websocket', ...options, ...more });
    const { connection } = tab;
    tab.feed = tab.run(() => connection.feed('a'));
    tab.room = tab.run(() => connection.room('lobby'));
    Object.assign(tab, { versions: records(tab.feed, 'change'), heard: records(tab.room, 'message'), states: records(tab.feed, 'state'), errors: records(connection, 'error') });
    opened.push(tab);
    return tab;
  };
  for (let n = 0; n < count; n++) open();
  await world.pass(1_000);
  const { server } = world;
  // Those of an earlier network are dead.
  const connections = () => [...server.sockets, ...server.streams, ...server.waiting].filter(({ network }) => network === world.network).length;
  const check = (live, message) => {
    for (const [n, { connection, feed, room }] of live.entries()) {
      assert.deepEqual([connection.state, feed.state, feed.document?.n, room.state], ['open', 'live', server.version, 'joined'], `${message}, tab ${n}: ${feed.reason}`);
    }
  };
  return { world, server, browser, opened, open, check, connections };
}
