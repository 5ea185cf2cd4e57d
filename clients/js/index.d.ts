// Types of @stentor/client. README.md tells how it is used.

/** How bytes travel. `websocket` and `sockjs` carry rooms as well, the others feeds only. */
export type Transport = 'websocket' | 'sse' | 'polling' | 'socket.io' | 'sockjs';

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export interface ConnectOptions {
  /** One transport, or several to fall back through, the best one first. `websocket` if it is left out. */
  transport?: Transport | Transport[];
  /** The library of the transport `socket.io`; the page's own `io` if it is left out. */
  io?: unknown;
  /** What `io` is given besides: `auth`, `transports`, … */
  ioOptions?: object;
  /** The library of the transport `sockjs`; the page's own `SockJS` if it is left out. */
  SockJS?: unknown;
  /** For Node before 22, which has none: that of npm `ws`. */
  WebSocket?: unknown;
  /** Instead of the global `fetch`, for `sse` and `polling`. */
  fetch?: typeof fetch;
  /** How long a transport may take to open before it counts as failed: 10,000 if it is left out. */
  openMs?: number;
  /**
   * While another than the first transport of a list carries, the first one is looked at again after so long, and up to twice as
   * long: 200,000 if it is left out.
   */
  climbMs?: number;
  /**
   * How long a server may be silent before it is taken for dead. Left out: `websocket` and `sockjs` twice what the server
   * says, `sse` 50,000, `polling` 30,000, which must be more than the server's `limits.wait_time_max`. Socket.IO has its own.
   */
  silenceMs?: number;
  /** Time to the next attempt, with full jitter: up to 500 first, doubled each time, up to 30,000, if they are left out. */
  backoff?: { firstMs?: number; mostMs?: number };
  /** Publications that may wait for a connection or an answer: 1,000 if it is left out. */
  queueMax?: number;
  /** Their length together, in characters of JSON: 1,000,000 if it is left out. */
  queueCharsMax?: number;
}

/** `waiting`: for the next attempt. `refused`: the server says not to come back. `closed`: by `close()`. */
export type ConnectionState = 'connecting' | 'open' | 'waiting' | 'refused' | 'closed';

export interface ConnectionDetails {
  transport: Transport;
  /** What the server calls the session in its logs, with `open`. */
  session?: string;
  /** Why there is no connection: words for people. */
  reason?: string;
  /** A close code or an HTTP status, where there was one. */
  code?: number;
  /** With `waiting`: how long. */
  retryMs?: number;
}

/**
 * `loading`: no document yet. `live`: as new as the source allows. `stale`: newer ones may exist, because the source fails
 * or because there is no connection. `ended`: no newer one will come. `lost`: there is no such feed, or it was refused.
 */
export type FeedState = 'loading' | 'live' | 'stale' | 'ended' | 'lost';

/** What the server is asked for, over `websocket`, `sockjs` and `socket.io`. See docs/protocol.md, "subscribe". */
export interface Terms {
  /** At most so many versions a second. */
  rate?: number;
  /** `false`: whole documents only. */
  delta?: boolean;
  policy?: 'latest' | 'queue' | 'drop_oldest';
}

/** An operation of a JSON Patch (RFC 6902), as the server makes them. */
export type Operation =
  | { op: 'add' | 'replace'; path: string; value: Json }
  | { op: 'remove'; path: string }
  | { op: 'move'; from: string; path: string };

/** How a document became what it is. */
export type Change = {
  /** Which life of the feed, and which version in it. */
  epoch: number;
  offset: number;
  /** Length of the message as text; not known over Socket.IO. */
  chars?: number;
} & (
  | { kind: 'snapshot' }
  /** `patch` turned the version `base` into this one. It shares its values with the document: don't change it. */
  | { kind: 'delta'; base: number; patch: Operation[] }
);

/** Ends what `on` began. */
export type Off = () => void;

/** A document that the server keeps up to date. */
export interface Feed<T = Json> {
  readonly key: string;
  /**
   * The newest version; `undefined` before the first one. A document that was handed out never changes: each new version
   * is another value, which shares with the old one what is the same. Don't change it either.
   */
  readonly document: T | undefined;
  readonly state: FeedState;
  /** Why, for people. */
  readonly reason: string;
  readonly epoch: number | undefined;
  readonly offset: number | undefined;
  /** A new version. Not called for the one that is there already. */
  on(event: 'change', listener: (document: T, change: Change) => void): Off;
  on(event: 'state', listener: (state: FeedState, reason: string) => void): Off;
  close(): void;
}

export interface RoomMessage {
  /** The name that it was published with. */
  event?: string;
  /** Where the room keeps history. */
  epoch?: number;
  offset?: number;
  /** `base64` where the data was bytes. */
  encoding?: string;
}

/** What is said in a room. Where the room keeps history, nothing is missed after a short absence. */
export interface Room<T = Json> {
  readonly name: string;
  on(event: 'message', listener: (data: T, message: RoomMessage) => void): Off;
  close(): void;
}

export declare class StentorError extends Error {
  /** A code of docs/protocol.md, or `connection_lost`, `queue_full`, `closed`, `not_carried`, `no_library`, `no_transport`. */
  readonly code: string;
  /** The same may succeed later. */
  readonly retry: boolean;
}

export declare class Connection {
  readonly state: ConnectionState;
  /** The one that is in use or tried. */
  readonly transport: Transport;
  readonly session: string | undefined;
  /**
   * A feed of its own for each call; those of one key share document and subscription, until the last one is closed. With
   * `terms`, these hold for the key from now on. For a feed that is `lost` it asks again.
   */
  feed<T = Json>(key: string, terms?: Terms): Feed<T>;
  room<T = Json>(name: string): Room<T>;
  /**
   * Says something to everybody in a room. Resolved when the server has taken it. Without a connection it waits for one;
   * what was sent when a connection ended is rejected with `connection_lost`, as it may have arrived, and never sent twice.
   */
  publish(room: string, data?: Json, event?: string): Promise<void>;
  on(event: 'state', listener: (state: ConnectionState, details: ConnectionDetails) => void): Off;
  /** What the server says that concerns no single feed or publication. */
  on(event: 'error', listener: (error: StentorError) => void): Off;
  /** Goes on by another transport, or another list of them, from the documents that are there. */
  use(transport: Transport | Transport[]): void;
  /** Connects anew, now: also after `refused`. */
  reconnect(): void;
  close(): void;
}

/** Connects to the server at `url`: `https://live.example.com`, or with a path where a proxy has it; the page's own server if it is left out. */
export declare function connect(url?: string | URL | null, options?: ConnectOptions): Connection;

/** The document that a JSON Patch makes of `document`, which stays as it is. Throws where the patch doesn't fit. */
export declare function patched(document: Json, patch: Operation[]): Json;
