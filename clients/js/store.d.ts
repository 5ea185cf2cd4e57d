// Types of @stentor/client/store. See README.md, "Frameworks".

import type { Client, ConnectionDetails, ConnectionState, FeedState, RoomState, SubscribeOptions, Untyped } from '@stentor/client';

/** A store as Svelte defines it: `run` is called at once, and with each new value. The result ends that. */
export interface Store<T> {
  get(): T;
  subscribe(run: (value: T) => void): () => void;
}

export interface FeedValue<T> {
  /** The newest version; `undefined` before the first one. Immutable, as that of `Feed`. */
  document: T | undefined;
  state: FeedState;
  /** The reason for the state, for humans. */
  reason: string;
}

/** A message of a room. `id` numbers the messages that this page has received; `event` decides on the type of `data`. */
export type Message<Events extends object> = {
  [E in keyof Events & string]: { id: number; event: E; data: Events[E] };
}[keyof Events & string];

export interface RoomValue<Events extends object> {
  state: RoomState;
  reason: string;
  /** The last messages, oldest first. */
  messages: Message<Events>[];
}

export type ConnectionValue = { state: ConnectionState } & Partial<ConnectionDetails>;

/** A feed as a store. It is subscribed to while the store is, and five seconds longer. */
export declare function feedStore<Events extends object, Documents extends object, K extends keyof Documents & string>(
  connection: Client<Events, Documents>,
  key: K,
  options?: SubscribeOptions,
): Store<FeedValue<Documents[K]>>;

/** A room as a store. It is joined while the store is subscribed to, and five seconds longer. Default of `messagesMax`: 100. */
export declare function roomStore<Events extends object = Untyped, Documents extends object = Untyped>(
  connection: Client<Events, Documents>,
  name: string,
  options?: { messagesMax?: number },
): Store<RoomValue<Events>>;

/** The state of a connection as a store. */
export declare function connectionStore<Events extends object, Documents extends object>(
  connection: Client<Events, Documents>,
): Store<ConnectionValue>;
