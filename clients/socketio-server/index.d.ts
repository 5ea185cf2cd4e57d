// Types of @stentor/socket.io. See README.md for the guide.

import type { EventEmitter } from 'node:events';
import type { Server as HttpServer } from 'node:http';
import type { Server as HttpsServer } from 'node:https';
import type { Server } from 'socket.io';

export interface AttachOptions {
  /** The token of the application, or the admin token. */
  token?: string;
  /** Name of the application on Stentor. Default: its only one. */
  app?: string;
  /** Name of this worker. The process that replaces it has the same name. Default: the host's name, and the instance number of PM2 or of Node's cluster. */
  name?: string;
  /**
   * If this process crashes, what becomes of messages that it may have handled, because it hasn't acknowledged them.
   *
   * `disconnect`: the clients that sent them are disconnected, and connect again. `redeliver`: another worker handles them, at least once. `drop`: they
   * are dropped, so each is handled at most once. Default: `on_crash` of Stentor's configuration, which is `disconnect` unless it is set.
   */
  onCrash?: 'disconnect' | 'redeliver' | 'drop';
  /** Interval at which changes of `socket.data` are saved for the next process, in milliseconds. Default: 1,000. */
  stateInterval?: number;
  /** The worker's own HTTP server, or its port. A server serves the client's script, and `io.close()` closes it. Default: none. */
  http?: HttpServer | HttpsServer | number | (() => number | null | undefined);
  /** `false`: SIGTERM and SIGINT don't hand over. Default: `true`, and the process then exits unless the application handles the signal itself. */
  signals?: boolean;
  /** Time for asynchronous handlers of the last messages before sessions go to another worker, in milliseconds. Default: 200. */
  settle?: number;
}

export interface HandoverOptions {
  /** Overrides `settle` of `attach`. */
  settle?: number;
  /** Called, and awaited, when the last messages have been handled, and before the sessions are given back. */
  hook?: () => unknown;
}

/** `up`: the link is connected. */
export interface Up {
  /** Number of the link. */
  link: number;
  /** `true`: the same link continues after a broken connection, with all sessions. */
  resumed: boolean;
  /** Number of workers that take sessions, including this one. */
  peers: number;
}

export interface Stats {
  /** `true` while the link is connected. */
  isUp: boolean;
  /** Number of the link. `null`: there is none. */
  link: number | null;
  /** Number of workers that take sessions, including this one. */
  peers: number;
  /** Sessions of this worker. */
  sessions: number;
  framesIn: number;
  framesOut: number;
  bytesIn: number;
  bytesOut: number;
  /** Sessions that were taken over from other processes. */
  resumed: number;
  /** Sessions that were given to other processes. */
  released: number;
  /** Bytes that Stentor hasn't handled. */
  unacknowledgedBytes: number;
}

/** An error of the link. Without a listener for `error`, it is printed as one line. */
export class LinkError extends Error {
  /**
   * `version`, `token`, `app_unknown`, `options_conflict`: Stentor refuses this worker for good. `too_many_workers`, `replaced`, `protocol`: the link has ended,
   * and the worker tries again. `limit`: a message was too long and was dropped, or the link has ended because too much waited. `http`: an unexpected response. `closed`: the link has ended. Others: codes of Node, such as `ECONNREFUSED`.
   */
  code: string;
  /** `true` if the worker doesn't try again. */
  readonly isFinal: boolean;
}

export class Link extends EventEmitter {
  private constructor();
  /** Connects to Stentor. Resolves when clients can connect. Rejects if Stentor refuses this worker for good. */
  listen(): Promise<this>;
  /** Gives all sessions to other workers, or to the next process, and ends the link. Clients notice nothing. */
  handover(options?: HandoverOptions): Promise<void>;
  stats(): Stats;

  on(event: 'up', listener: (details: Up) => void): this;
  on(event: 'lost' | 'handover', listener: () => void): this;
  on(event: 'peers', listener: (count: number) => void): this;
  on(event: 'error', listener: (error: LinkError) => void): this;
  once(event: 'up', listener: (details: Up) => void): this;
  once(event: 'lost' | 'handover', listener: () => void): this;
  once(event: 'peers', listener: (count: number) => void): this;
  once(event: 'error', listener: (error: LinkError) => void): this;
}

/**
 * Makes a Socket.IO server a worker of Stentor. Call it right after `new Server(options)`, which gets no HTTP server: it replaces the engine and the adapter.
 *
 * `url`: the admin address of Stentor, such as `ws://127.0.0.1:8001`, `wss://stentor.example`, or `ws+unix:/run/stentor.sock`.
 */
export function attach(io: Server<any, any, any, any>, url: string | URL, options?: AttachOptions): Link;
