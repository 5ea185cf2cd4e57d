// Stores: values of a connection that are kept current while somebody subscribes to them, by the store contract of Svelte.
//
// All subscribers of a feed or a room share one store. It is closed `LINGER_MS` after the last one has left, so that frameworks that unmount a
// component and mount it again (React's StrictMode, a change of pages) neither subscribe twice nor lose the document.

const LINGER_MS = 5_000;
const MESSAGES_MAX = 100;

/** The open stores of each connection, by name. */
const stores = new WeakMap();

/** The store of that name: an open one, or one with this value. `start(update)` opens it, and returns how to close it. */
function store(connection, name, value, start) {
  if (!stores.has(connection)) stores.set(connection, new Map());
  const open = stores.get(connection);
  const found = open.get(name);
  if (found) return found;
  const subscribers = new Set();
  let stop;
  let timer;
  const update = (next) => {
    value = next;
    for (const [run] of [...subscribers]) run(value);
  };
  const close = () => {
    if (open.get(name) === it) open.delete(name);
    stop = stop();
  };
  const it = {
    get: () => value,
    subscribe(run) {
      const subscriber = [run];
      clearTimeout(timer);
      if (!stop) {
        if (!open.has(name)) open.set(name, it);
        stop = start(update);
      }
      subscribers.add(subscriber);
      run(value);
      return () => {
        if (subscribers.delete(subscriber) && !subscribers.size) timer = setTimeout(close, LINGER_MS);
      };
    },
  };
  return it;
}

/** `{ document, state, reason }` of a feed. */
export function feedStore(connection, key, options) {
  const name = JSON.stringify(['feed', key, options]);
  return store(connection, name, { document: undefined, state: 'loading', reason: '' }, (update) => {
    const feed = connection.feed(key, options);
    const read = () => update({ document: feed.document, state: feed.state, reason: feed.reason });
    feed.on('change', read);
    feed.on('state', read);
    read();
    return () => feed.close();
  });
}

/** `{ state, reason, messages }` of a room: its last `messagesMax` messages, oldest first. */
export function roomStore(connection, name, { messagesMax = MESSAGES_MAX } = {}) {
  const empty = { state: 'joining', reason: '', messages: [] };
  return store(connection, JSON.stringify(['room', name, messagesMax]), empty, (update) => {
    let value = empty;
    let id = 0;
    const become = (change) => update(value = { ...value, ...change });
    const room = connection.room(name);
    room.on('message', (data, { event }) => become({ messages: [...value.messages, { id: ++id, event, data }].slice(-messagesMax) }));
    room.on('state', (state, reason) => become({ state, reason }));
    become({ state: room.state });
    return () => room.close();
  });
}

/** `{ state, transport, … }` of a connection: what its event `state` reports. */
export function connectionStore(connection) {
  const now = () => ({ state: connection.state, transport: connection.transport, session: connection.session });
  return store(connection, 'connection', now(), (update) => {
    update(now());
    return connection.on('state', (state, details) => update({ state, ...details }));
  });
}
