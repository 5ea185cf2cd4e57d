// The feeds and rooms of a connection. Each carrier in use subscribes to all of them, from the positions that the client has.

import { emit } from './emitter.js';
import { Feed, FeedStore } from './feed.js';
import { ASCII_KEYS } from './keys.js';
import { PresenceState } from './presence.js';
import { Room, RoomState } from './room.js';
import { ABSENT_MS } from './times.js';

export class Subscriptions {
  #stores = new Map();
  #rooms = new Map();
  #carrier;
  #keys;
  /** For requests that the server may accept later. */
  #backoff;
  #after;
  #failed;

  /**
   * `keys` are the keys that the server accepts. `after(ms, then)` is a timer that ends with the carrier in use; it returns what `clearTimeout` takes.
   * `failed(error)` reports an error to the application.
   */
  constructor(keys = ASCII_KEYS, backoff, after, failed) {
    this.#keys = keys;
    this.#backoff = backoff;
    this.#after = after;
    this.#failed = failed;
  }

  /** The names of the rooms that are joined. */
  get joined() {
    return [...this.#rooms.values()].filter(({ state }) => state === 'joined').map(({ name }) => name);
  }

  feed(key, subscribeOptions) {
    let store = this.#stores.get(key);
    const isNew = !store;
    if (isNew) this.#stores.set(key, store = new FeedStore(key));
    const isOther = subscribeOptions && JSON.stringify(subscribeOptions) !== JSON.stringify(store.subscribeOptions);
    if (isOther) store.subscribeOptions = subscribeOptions;
    const feed = new Feed(store, () => {
      this.#stores.delete(key);
      clearTimeout(store.timer);
      this.#carrier?.unsubscribe(key);
    });
    if (isNew || isOther || store.state === 'not_found') this.#subscribe(store);
    return feed;
  }

  room(name) {
    let room = this.#rooms.get(name);
    if (!room) {
      this.#rooms.set(name, room = new RoomState(name));
      this.#join(room);
    }
    return new Room(room, () => {
      this.#rooms.delete(name);
      room.presence?.disconnected();
      this.#carrier?.leave(name);
    }, () => {
      if (!room.presence) {
        room.presence = new PresenceState(name);
        this.#watch(room);
      }
      const { presence } = room;
      return [presence, () => {
        presence.disconnected();
        if (room.presence !== presence) return;
        room.presence = undefined;
        if (this.#rooms.get(name) === room) this.#carrier?.watch(name, false);
      }];
    });
  }

  /** Subscribes to everything by a carrier, which is in use from now on. */
  use(carrier) {
    this.#carrier = carrier;
    for (const store of this.#stores.values()) this.#subscribe(store);
    for (const room of this.#rooms.values()) this.#join(room);
  }

  /** There is no carrier any more. Feeds stay `live`, and rooms `joined`, if another one replaces it at once. */
  disconnected(reason, isReplaced) {
    this.#carrier = undefined;
    if (!isReplaced) for (const store of this.#stores.values()) store.disconnected(reason);
    for (const room of this.#rooms.values()) {
      if (room.state === 'joined' && !isReplaced) room.become('joining', reason);
      room.presence?.disconnected();
    }
  }

  /** Marks feeds as stale while it is unknown whether the connection works. */
  suspend(reason) {
    for (const store of this.#stores.values()) store.suspend(reason);
  }

  /** Ends what `suspend()` has begun: the connection works. */
  unsuspend() {
    for (const store of this.#stores.values()) store.resume();
  }

  /** The server doesn't allow a reconnect. */
  refuse(reason) {
    for (const store of this.#stores.values()) store.become('not_found', reason);
    for (const room of this.#rooms.values()) room.become('refused', reason);
  }

  /** Events of the carrier in use that are about feeds and rooms: see transports/index.js. */
  on = {
    received: (message, chars) => {
      const { type, room, feed } = message;
      if (type === 'message') return this.#rooms.get(room)?.receive(message);
      if (type === 'presence') return this.#rooms.get(room)?.presence?.receive(message);
      // Messages of a closed feed may still arrive.
      const store = this.#stores.get(feed);
      if (store && !store.receive(message, chars)) this.#subscribe(store);
      // It may exist later, as after a deploy of the API.
      if (store?.state === 'not_found') this.#askAgain(store, ABSENT_MS);
    },

    confirmed: (key) => this.#stores.get(key)?.confirmed(),

    joined: (name, error) => {
      const room = this.#rooms.get(name);
      if (!room) return;
      if (!error) return room.become('joined');
      error.room = name;
      this.#failed(error);
      if (error.code === 'history_expired') return;
      if (!error.retry) return room.become('refused', error.message);
      room.become('joining', error.message);
      this.#after(this.#backoff.delayMs(), () => this.#rooms.get(name) === room && this.#join(room));
    },

    refused: (key, error) => {
      const store = this.#stores.get(key);
      if (!store) return;
      error.feed = key;
      this.#failed(error);
      if (!error.retry) return store.become('not_found', error.message);
      this.#askAgain(store);
    },

    // A subscription may have ended before its first document.
    failed: (error) => {
      this.#failed(error);
      if (!error.retry) return;
      this.#after(this.#backoff.delayMs(), () => {
        for (const store of this.#stores.values()) if (store.state === 'loading') this.#subscribe(store);
      });
    },

    // The permission to list the members of a room was withdrawn.
    unwatched: (room, error) => {
      const presence = this.#rooms.get(room)?.presence;
      presence?.disconnected();
      presence?.failed(error);
    },
  };

  #subscribe(store) {
    // With some transports, an invalid key would fail the other feeds, or lead to another path.
    if (!this.#keys.test(store.key)) return store.become('not_found', 'bad key');
    if (store.state === 'not_found') store.become(store.position ? 'stale' : 'loading', 'connecting');
    this.#carrier?.subscribe(store.key, store.position, store.subscribeOptions);
  }

  /** Asks for a whole feed again after at least `leastMs` milliseconds. Its state stays until the answer. */
  #askAgain(store, leastMs) {
    clearTimeout(store.timer);
    store.timer = this.#after(this.#backoff.delayMs(leastMs), () => {
      store.needsSnapshot = true;
      this.#carrier.subscribe(store.key, store.position, store.subscribeOptions);
    });
  }

  #join(room) {
    this.#carrier?.join(room.name, room.position);
    this.#watch(room);
  }

  /** Handles a list of members, or a notice about them. */
  #watch(room) {
    const { name, presence } = room;
    if (!presence || !this.#carrier) return;
    const carrier = this.#carrier;
    carrier.watch(name, true, (error) => {
      if (this.#carrier !== carrier || this.#rooms.get(name)?.presence !== presence) return;
      if (!error) return presence.read((query, answered) => carrier.members(name, query, answered));
      if (error.retry) this.#after(this.#backoff.delayMs(), () => this.#rooms.get(name) === room && this.#watch(room));
      presence.failed(error);
    });
  }
}
