// Hooks for React 18 and newer: stores, read by `useSyncExternalStore`.
//
// Hooks open no feed and no room while a page is rendered on a server. There, and while a browser hydrates the page, they return the values of a client
// that has received nothing yet.

import { useCallback, useMemo, useSyncExternalStore } from 'react';
import { connectionStore, feedStore, roomStore } from './store.js';

const SERVER = {
  feed: { document: undefined, state: 'loading', reason: '' },
  room: { state: 'joining', reason: '', messages: [] },
  connection: { state: 'paused' },
};

const useStore = (store, server) => useSyncExternalStore(store.subscribe, store.get, () => server);

/** The feed `key`: `{ document, state, reason }`. Until there is a document, it is `initial`, or with `suspense` the component waits for it. */
export function useFeed(connection, key, { initial, suspense, ...options } = {}) {
  const text = JSON.stringify(options);
  const store = useMemo(() => feedStore(connection, key, text === '{}' ? undefined : options), [connection, key, text]);
  const value = useStore(store, SERVER.feed);
  // A server doesn't wait, and a connection that is paused has nothing to wait for.
  if (suspense && globalThis.window && connection.state !== 'paused' && store.get().state === 'loading') throw loaded(store);
  return value.document === undefined && initial !== undefined ? { ...value, document: initial } : value;
}

/** The room `name`: `{ state, reason, messages, publish }`. */
export function useRoom(connection, name, { messagesMax } = {}) {
  const store = useMemo(() => roomStore(connection, name, { messagesMax }), [connection, name, messagesMax]);
  const publish = useCallback((...details) => connection.publish(name, ...details), [connection, name]);
  return { ...useStore(store, SERVER.room), publish };
}

/** The connection's `{ state, transport, … }`. */
export function useConnection(connection) {
  return useStore(useMemo(() => connectionStore(connection), [connection]), SERVER.connection);
}

/** Time for a component to be shown after its document has come: others beside it may still wait. */
const HOLD_MS = 30_000;

/** Promises of stores that are `loading`. */
const promises = new WeakMap();

/** The promise that a store is no longer `loading`. */
function loaded(store) {
  let promise = promises.get(store);
  if (!promise) {
    let resolve;
    promises.set(store, promise = new Promise((done) => { resolve = done; }));
    const end = store.subscribe(({ state }) => {
      if (state === 'loading') return;
      promises.delete(store);
      resolve();
      setTimeout(() => end(), HOLD_MS);
    });
  }
  return promise;
}
