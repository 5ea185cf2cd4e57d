// Types of @stentor/client. See README.md for the guide.

/** The transport. All support the same. */
export type Transport = 'websocket' | 'sse' | 'polling' | 'socket.io' | 'sockjs';

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export interface ConnectOptions {
  /**
   * One transport, or a list to fall back through, the best one first. Default: `auto`, which is `websocket`, `sse`, `polling`; while the page's
   * first WebSocket takes longer than 700 ms to open, data comes over HTTP.
   */
  transport?: Transport | Transport[] | 'auto';
  /** The client library for the transport `socket.io`. Default: the page's `io`. */
  io?: unknown;
  /** Further options for `io`: `transports`, `extraHeaders`, … `path` and `auth` have no effect. */
  ioOptions?: object;
  /** The client library for the transport `sockjs`. Default: the page's `SockJS`. */
  SockJS?: unknown;
  /** The WebSocket class. Node before 22 has none: pass that of npm `ws`. */
  WebSocket?: unknown;
  /** Replaces the global `fetch`, for `sse` and `polling`. */
  fetch?: typeof fetch;
  /**
   * Returns the user's token, or a promise of it; `undefined` if nobody is signed in. Called before each attempt to connect, and when the
   * server reports that the token expires soon. If it fails, the client emits an `error` with the code `no_token`, and calls it again with
   * backoff.
   */
  getToken?: (call: { reason: TokenReason }) => string | undefined | Promise<string | undefined>;
  /**
   * Sends cookies over `sse` and `polling` to a server of another origin, too, as WebSockets do. The server must list the page's origin by name, not
   * by `*`. Default: `false`.
   */
  withCredentials?: boolean;
  /** Time for a transport to open, in milliseconds. It then counts as failed. The time of `getToken` doesn't count. Default: 10,000. */
  connectTimeoutMs?: number;
  /**
   * While a fallback is in use, the longest time until the client tries the first transport of the list again, in milliseconds, with full jitter:
   * at first up to 10,000, doubled each time. Default: 400,000.
   */
  preferredRetryMs?: number;
  /**
   * Silence after which the client treats the connection as dead, in milliseconds. Default: twice the server's `ping_ms`, which is 50,000.
   */
  heartbeatTimeoutMs?: number;
  /** Delay before the next attempt, in milliseconds, random: at first up to `initialMs` (500), up to half as much again each time, in the end between half of `maxMs` (4,000) and `maxMs`. */
  backoff?: { initialMs?: number; maxMs?: number };
  /**
   * The keys that the server accepts. Default: those of docs/protocol.md. With `keys = "utf8"` in `[[feeds]]`: `UTF8_KEYS`. A feed with
   * another key is `not_found`, without a request.
   */
  keys?: RegExp;
  /**
   * `false`: the state is `paused` until `resume()`. On a server that renders pages, a connection to the page's own server (no address, or a
   * path) is always `paused`. Default: `true`.
   */
  autoConnect?: boolean;
  /** Time for the answer to a publication or an event, in milliseconds. It then fails with `timeout`. Default: none. */
  publishTimeoutMs?: number;
  /** Maximum number of publications and events that wait for a connection or an answer. Default: 1,000. */
  queueMax?: number;
  /** Their maximum total length, in characters of JSON. Default: 1,000,000. */
  queueCharsMax?: number;
}

/**
 * Why a token is needed: `connect`: for an attempt to connect. `expiring`: the token of the open connection expires soon. `expired`, `refused`:
 * the server has just answered so to the last token. If the token after `refused` is the same, or is refused too, the connection is `refused`.
 */
export type TokenReason = 'connect' | 'expiring' | 'expired' | 'refused';

/** `open`: the server has answered. `waiting`: until the next attempt. `refused`: the server doesn't allow a reconnect. `paused`: until `resume()`. `closed`: by `close()`. */
export type ConnectionState = 'connecting' | 'open' | 'waiting' | 'refused' | 'paused' | 'closed';

export interface ConnectionDetails {
  transport: Transport;
  /** With `open`: the session's id in the server's log. */
  session?: string;
  /** The reason why there is no connection, for humans. */
  reason?: string;
  /** The close code or HTTP status, if there was one. */
  code?: number;
  /** With `waiting`: the time until the next attempt. */
  retryMs?: number;
}

/**
 * `loading`: no document yet. `live`: the document is current. `stale`: a newer version may exist, because requests to the
 * upstream fail or there is no connection. `complete`: no newer version will come. `not_found`: there is no such feed, or it was refused.
 */
export type FeedState = 'loading' | 'live' | 'stale' | 'complete' | 'not_found';

/** Options of a subscription. See docs/protocol.md, "subscribe". */
export interface SubscribeOptions {
  /** Maximum number of versions per second. */
  rate?: number;
  /** `false`: whole documents only. */
  delta?: boolean;
  policy?: 'latest' | 'queue' | 'drop_oldest';
}

/** An operation of a JSON Patch (RFC 6902). The server uses these only. */
export type Operation =
  | { op: 'add' | 'replace'; path: string; value: Json }
  | { op: 'remove'; path: string }
  | { op: 'move'; from: string; path: string };

/** The change that led to a version. */
export type Change = {
  /** The position of this version. */
  epoch: number;
  offset: number;
  /** Length of the message in characters. */
  chars?: number;
} & (
  | { kind: 'snapshot' }
  /** `patch` turned the version `base` into this one. It shares values with the document: don't modify it. */
  | { kind: 'delta'; base: number; patch: Operation[] }
);

/** Removes the listener. */
export type Unsubscribe = () => void;

/** A document that the server keeps up to date. */
export interface Feed<T = Json> {
  readonly key: string;
  /**
   * The newest version; `undefined` before the first one. Documents are immutable: each new version is a new value, which
   * shares its unchanged parts with the old one. Don't modify it. A document that isn't text is a `Uint8Array`.
   */
  readonly document: T | undefined;
  readonly state: FeedState;
  /** The reason for the state, for humans. */
  readonly reason: string;
  readonly epoch: number | undefined;
  readonly offset: number | undefined;
  /** Called with each new version, but not with the current one. */
  on(event: 'change', listener: (document: T, change: Change) => void): Unsubscribe;
  on(event: 'state', listener: (state: FeedState, reason: string) => void): Unsubscribe;
  close(): void;
}

export interface RoomMessage<Event extends string = string> {
  /** The event name, if the publisher set one. */
  event?: Event;
  /** The position, if the room keeps history. */
  epoch?: number;
  offset?: number;
  /** `base64` if the data is binary. */
  encoding?: string;
}

/** `joining`: not a member yet, or not at the moment. `refused`: the server doesn't allow it. */
export type RoomState = 'joining' | 'joined' | 'refused';

/** A room. If it keeps history, messages missed during a disconnect follow after the reconnect. */
export interface Room<T = Json, Event extends string = string> {
  readonly name: string;
  readonly state: RoomState;
  on(event: 'message', listener: (data: T, message: RoomMessage<Event>) => void): Unsubscribe;
  on(event: 'state', listener: (state: RoomState, reason: string) => void): Unsubscribe;
  /**
   * Who is in the room. Each call returns a new object; all objects of a room share one list, which is kept current until the last of
   * them, or of the room's, is closed. The room must have presence (`rooms.presence`), and the client's token must allow it.
   */
  presence<I = Json>(): Presence<I>;
  close(): void;
}

/** A member of a room: a session. */
export interface Member<I = Json> {
  readonly session: string;
  /** The subject of its token. Absent for anonymous clients. */
  readonly user?: string;
  /** What others may know, by its token. */
  readonly info?: I;
  /** When it joined, in milliseconds since 1970. */
  readonly since: number;
}

/** Who is in a room. */
export interface Presence<I = Json> {
  /** The room's name. */
  readonly room: string;
  /** How many members there are. In large rooms, more than are listed. */
  readonly count: number;
  readonly members: Member<I>[];
  /** Whether the list is current: it has been read since the last reconnect. */
  readonly isCurrent: boolean;
  /**
   * A user or an anonymous session has joined or left. A user joins with the first of their sessions, and leaves with the last.
   * Not called for the members of the first list, and not for a user who reconnects in time.
   */
  on(event: 'join' | 'leave', listener: (member: Member<I>) => void): Unsubscribe;
  /** The members or their number have changed, or the list has been read. */
  on(event: 'change', listener: () => void): Unsubscribe;
  /** The list can't be read: `not_allowed`, `no_presence`, or another code of docs/protocol.md. */
  on(event: 'error', listener: (error: StentorError) => void): Unsubscribe;
  close(): void;
}

export declare class StentorError extends Error {
  /**
   * A code of docs/protocol.md, or `connection_lost`, `queue_full`, `closed`, `timeout`, `no_library`, `no_transport`,
   * `no_response` (a request has had no response for 3 s), `no_token` (`getToken` failed), `too_long` (a publication exceeds the server's limit or `queueCharsMax`), `origin_refused` (the server
   * refuses pages of this origin: see `[origins] allow`).
   */
  readonly code: string;
  /** Whether a retry may succeed. */
  readonly retry: boolean;
  /** The room that it is about, if there is one. */
  readonly room?: string;
  /** The feed that it is about, if there is one. */
  readonly feed?: string;
  /** With a publication or an event that failed: whether it may have arrived nevertheless. */
  readonly outcome?: 'not_published' | 'unknown';
}

/**
 * A connection whose types are known: `Events` names the events of rooms and the types of their data, `Documents` the keys of feeds and the types
 * of their documents. Keys may be patterns: `` interface Documents { [key: `scores/${string}`]: Score } ``.
 */
export type Client<Events extends object = Untyped, Documents extends object = Untyped> = Connection<Events, Documents>;

/** The default for `Events` and `Documents`: any name, any JSON. */
export interface Untyped {
  [name: string]: Json;
}

/** `T` if `Names` accepts any name, otherwise `never`. */
type IfUntyped<Names, T> = string extends keyof Names ? T : never;

export declare class Connection<Events extends object = Untyped, Documents extends object = Untyped> {
  readonly state: ConnectionState;
  /** The transport that is in use or being tried. */
  readonly transport: Transport;
  readonly session: string | undefined;
  /**
   * Subscribes to a feed. Each call returns a new object. All objects of a key share one document and one subscription, which
   * ends when the last of them is closed. `options` apply to all of them. If the feed is `not_found`, the client subscribes again.
   */
  feed<K extends keyof Documents & string>(key: K, options?: SubscribeOptions): Feed<Documents[K]>;
  feed<T = Json>(key: IfUntyped<Documents, string>, options?: SubscribeOptions): Feed<T>;
  room(name: string): Room<Events[keyof Events & string], keyof Events & string>;
  room<T = Json>(name: IfUntyped<Events, string>): Room<T>;
  /**
   * Publishes to a room. Resolves when the server has accepted the message. Without a connection, the message waits for one.
   * If the connection ends while the message is in flight, the promise is rejected with `connection_lost`. The message may
   * have arrived. With an `id` (1 to 128 visible ASCII characters, such as `crypto.randomUUID()`), the client sends it again, and the server publishes it
   * once. `timeoutMs` replaces `publishTimeoutMs`.
   */
  publish<E extends keyof Events & string>(room: string, data: Events[E], event: E, options?: { timeoutMs?: number; id?: string }): Promise<void>;
  publish(room: IfUntyped<Events, string>, data?: Json, event?: string, options?: { timeoutMs?: number; id?: string }): Promise<void>;
  /**
   * Sends an event to the rule or hook that handles it. A failure is an `error` of the connection. Events wait and keep their order as publications
   * do.
   */
  emit(event: string, data?: Json): void;
  /** As `emit`. Resolves with the answer: of a rule, `undefined`. */
  emitWithAck<T = Json | undefined>(event: string, data?: Json, options?: { timeoutMs?: number }): Promise<T>;
  on(event: 'state', listener: (state: ConnectionState, details: ConnectionDetails) => void): Unsubscribe;
  /** A message to this client alone: the reply of a hook, the echo of a rule, or a message to its session. */
  on(event: 'message', listener: (data: Json, message: { event?: string; encoding?: string }) => void): Unsubscribe;
  /** Called with all errors but those of publications and of presence. */
  on(event: 'error', listener: (error: StentorError) => void): Unsubscribe;
  /** Switches to another transport, or another list of them. Documents continue from their version. */
  use(transport: Transport | Transport[] | 'auto'): void;
  /** Reconnects now, also after `refused` and `pause()`. */
  reconnect(): void;
  /** Closes the connection until `resume()`. Feeds keep their documents and become `stale`; publications wait. */
  pause(): void;
  /** Ends a pause. Without one, nothing happens. */
  resume(): void;
  close(): void;
}

/** Connects to the server at `url`, such as `https://live.example.com`, with a path if the proxy needs one. Default: the page's own server. */
export declare function connect<Events extends object = Untyped, Documents extends object = Untyped>(
  url?: string | URL | null,
  options?: ConnectOptions,
): Client<Events, Documents>;

/** Applies a JSON Patch to a copy of `document` and returns it. Throws if the patch can't be applied. */
export declare function applyPatch(document: Json, patch: Operation[]): Json;

/** The keys that a server with `keys = "utf8"` accepts, for the option `keys`. */
export declare const UTF8_KEYS: RegExp;
