/** Names sessions: the members of rooms, single sessions, or all Socket.IO clients of a namespace, with exceptions. */
export interface Target {
  /** The application of [[links]], for the sockets of its workers. */
  app?: string;
  rooms?: string[];
  sessions?: string[];
  namespace?: string;
  except?: { rooms?: string[]; sessions?: string[] };
}

export interface MessageFields {
  event?: string;
  namespace?: string;
  /** Of several messages to one room with the same key within five minutes, the first one counts. */
  idempotency_key?: string;
  /** Sessions that can't receive the message at once are skipped. */
  volatile?: boolean;
}

export interface Message extends MessageFields {
  room?: string;
  data?: unknown;
  args?: unknown[];
}

export interface Concerned {
  sessions: number;
  refused?: number;
  missing_nodes?: string[];
}

export interface Session {
  id: string;
  protocol: string;
  rooms: string[];
  user?: User;
  info?: unknown;
  [field: string]: unknown;
}

export interface User {
  id: string;
  issuer: string;
}

export class StentorError extends Error {
  /** The status of HTTP, 0 without an answer. */
  readonly status: number;
  readonly code: string;
  /** Whether the same call may succeed later. */
  readonly retry: boolean;
  /** Of `publishAll`: the number of messages before the invalid one. */
  readonly published?: number;
}

export class Stentor {
  /** `timeoutMs` of a call, 10,000 by default. A call with `ack` has its `timeout` in addition. */
  constructor(options?: { url?: string; token?: string; timeoutMs?: number });
  publish(room: string, data: unknown, fields?: MessageFields): Promise<{ published: number }>;
  publishAll(messages: Message[]): Promise<{ published: number }>;
  /** With `ack`, the answer has the acknowledgements of Socket.IO clients: the arguments of each. */
  emit(target: Target & { volatile?: boolean; ack?: { timeout: string } }, event: string, ...args: unknown[]): Promise<Concerned & { acknowledgements?: unknown[][]; missing?: number }>;
  join(target: Target, rooms: string[]): Promise<Concerned>;
  leave(target: Target, rooms: string[]): Promise<Concerned>;
  disconnect(target: Target, fields?: { close?: boolean }): Promise<Concerned>;
  sessions(target: Target, fields?: { limit?: number }): Promise<{ sessions: Session[]; count: number; truncated: boolean; missing_nodes?: string[] }>;
  revoke(fields: { subject?: string; issuer?: string; token_id?: string; session?: string; issued_before?: number; action?: 'refresh' | 'disconnect' }): Promise<{ sessions: number }>;
  /** The document as a JSON value; with another `type`, as text or bytes. */
  push(key: string, document: unknown, options?: { sequence?: number; type?: string }): Promise<{ changed: boolean }>;
  remove(key: string, options?: { sequence?: number }): Promise<{ changed: boolean }>;
}

export interface Question {
  id: number;
  hook: 'connect' | 'subscribe' | 'publish' | 'event';
  connection: { session?: string; protocol?: string; namespace?: string; address?: string; rooms?: string[]; more_rooms?: boolean; [field: string]: unknown };
  user: User | null;
  info?: unknown;
  /** What the client says of itself. Never trust it without a check. */
  client: { origin?: string; user_agent?: string; traceparent?: string; token?: string };
  room: string;
  feed?: string;
  event: string;
  arguments: unknown[];
  attachments?: string[];
  acknowledge?: boolean;
}

export interface Notice {
  sequence: number;
  notice: 'connected' | 'disconnected' | 'subscribed' | 'occupied' | 'vacated' | 'node_lost' | 'resync';
  at_ms: number;
  [field: string]: unknown;
}

export class Answer {
  allow(fields?: { user?: string; info?: unknown; permissions?: unknown; ttl?: number }): this;
  deny(code?: string, message?: string, options?: { retry?: boolean }): this;
  join(...rooms: string[]): this;
  leave(...rooms: string[]): this;
  ack(...args: unknown[]): this;
  /** A room may be the id of a session. */
  emit(event: string, args?: unknown[], target?: { rooms?: string[]; all?: boolean; except_sender?: boolean; volatile?: boolean }): this;
  disconnect(): this;
}

type Handler = (question: Question, answer: Answer) => unknown;

export function verify(signature: string | undefined, body: string | Uint8Array, secrets: string | string[], now?: number): boolean;

export class Hooks {
  constructor(options: {
    /** The `secret` of [[hooks]], or several while it changes. */
    secret: string | string[];
    connect?: Handler;
    subscribe?: Handler;
    publish?: Handler;
    event?: Handler;
    events?: Record<string, (question: Question, answer: Answer, ...args: any[]) => unknown>;
    notice?: (notice: Notice, node: string) => unknown;
    /** Without a question, the handler of notices has failed. */
    onError?: (error: unknown, question?: Question) => void;
  });
  handle(signature: string | undefined, body: string | Uint8Array): Promise<{ status: number; body: string }>;
  /** For node:http, and for Express before any parser of bodies. */
  listener: (request: any, response: any, next?: (error?: unknown) => void) => Promise<void>;
  /** A plugin for Fastify. */
  fastify: (app: any, options?: { path?: string }) => Promise<void>;
}
