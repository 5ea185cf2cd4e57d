// Types of @stentor/client/react. See README.md, "React".

import type { Client, SubscribeOptions } from '@stentor/client';
import type { ConnectionValue, FeedValue, RoomValue } from '@stentor/client/store';

export interface FeedOptions<T> extends SubscribeOptions {
  /** The document until there is one, such as that of the page that a server has rendered. */
  initial?: T;
  /** The component suspends while the feed is `loading`. On a server, it is rendered without a document. */
  suspense?: boolean;
}

/** Subscribes to a feed. Components with the same key share one subscription, which ends five seconds after the last of them is unmounted. */
export declare function useFeed<Events extends object, Documents extends object, K extends keyof Documents & string>(
  connection: Client<Events, Documents>,
  key: K,
  options?: FeedOptions<Documents[K]>,
): FeedValue<Documents[K]>;

/** Joins a room. `messages` are the last `messagesMax` ones (100), oldest first. */
export declare function useRoom<Events extends object, Documents extends object>(
  connection: Client<Events, Documents>,
  name: string,
  options?: { messagesMax?: number },
): RoomValue<Events> & {
  /** Publishes to the room, as `Client.publish`. It stays the same function. */
  publish<E extends keyof Events & string>(data: Events[E], event: E, options?: { timeoutMs?: number; id?: string }): Promise<void>;
};

/** The state of a connection. On a server: `paused`. */
export declare function useConnection<Events extends object, Documents extends object>(connection: Client<Events, Documents>): ConnectionValue;
