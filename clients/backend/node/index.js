// @stentor/backend: the admin API and the hooks of Stentor, for Node. docs/admin-api.md and docs/hooks.md describe the fields.
import { createHmac, timingSafeEqual } from 'node:crypto';

/** Hooks whose signature is older are refused, in seconds. */
const SIGNATURE_AGE_MAX_S = 300;
/** A hook's request is at most as long, in bytes: Stentor sends up to 100 questions. */
const REQUEST_BYTES_MAX = 32 * 1024 * 1024;
const FAILURE = 'the backend has failed';

/** A failed call. `status` is that of HTTP, 0 without an answer; `code` is for programs; `retry` says that the same call may succeed later. */
export class StentorError extends Error {
  constructor(status, code, message, options) {
    super(message, options);
    this.name = 'StentorError';
    this.status = status;
    this.code = code;
    this.retry = status === 0 || status === 408 || status === 503 || code === 'in_progress';
  }
}

/** The admin API. `target` names sessions: `rooms`, `sessions`, `namespace`, `except`. */
export class Stentor {
  #url;
  #token;
  #timeoutMs;

  constructor({ url = 'http://127.0.0.1:8001', token, timeoutMs = 10_000 } = {}) {
    this.#url = url.replace(/\/+$/, '');
    this.#token = token;
    this.#timeoutMs = timeoutMs;
  }

  publish(room, data, fields) { return this.#post('publish', { room, data, ...fields }); }

  publishAll(messages) {
    return this.#call('POST', 'publish', messages.map((message) => `${JSON.stringify(message)}\n`).join(''), 'application/x-ndjson');
  }

  emit(target, event, ...args) { return this.#post('emit', { ...target, event, args }, waitMs(target.ack)); }

  join(target, rooms) { return this.#post('join', { ...target, join: rooms }); }

  leave(target, rooms) { return this.#post('leave', { ...target, leave: rooms }); }

  disconnect(target, fields) { return this.#post('disconnect', { ...target, ...fields }); }

  sessions(target, fields) { return this.#post('sessions', { ...target, ...fields }); }

  revoke(fields) { return this.#post('revocations', fields); }

  push(key, document, { sequence, type = 'application/json' } = {}) {
    const isText = typeof document === 'string' || document instanceof Uint8Array;
    return this.#call('PUT', feed(key, sequence), isText && type !== 'application/json' ? document : JSON.stringify(document), type);
  }

  remove(key, { sequence } = {}) { return this.#call('DELETE', feed(key, sequence)); }

  #post(operation, fields, waitMs) { return this.#call('POST', operation, JSON.stringify(fields), 'application/json', waitMs); }

  async #call(method, path, body, type, waitMs = 0) {
    const headers = {};
    if (type) headers['Content-Type'] = type;
    if (this.#token) headers.Authorization = `Bearer ${this.#token}`;
    let response;
    let text;
    try {
      response = await fetch(`${this.#url}/api/v1/${path}`, { method, headers, body, signal: AbortSignal.timeout(this.#timeoutMs + waitMs), redirect: 'error' });
      text = await response.text();
    } catch (cause) {
      throw new StentorError(0, 'unreachable', `${this.#url} doesn't answer: ${cause.cause?.message ?? cause.message}`, { cause });
    }
    const answer = parsed(text);
    if (response.ok && !answer?.error) return answer;
    const { code = 'unexpected', message = text.slice(0, 200) } = answer?.error ?? answer ?? {};
    throw Object.assign(new StentorError(response.status, code, message), answer?.error && { published: answer.published });
  }
}

/** The time that Stentor waits for acknowledgements before it answers, in milliseconds. It refuses more than `60s`, and what isn't a duration. */
function waitMs(ack) {
  const [, value, unit] = /^(\d+) *(m?s)$/.exec(ack?.timeout) ?? [];
  return Math.min(value * (unit === 's' ? 1_000 : 1) || 0, 60_000);
}

const feed = (key, sequence) => `feeds/${key.split('/').map(encodeURIComponent).join('/')}${sequence === undefined ? '' : `?sequence=${sequence}`}`;

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Whether a hook's request is Stentor's: its `Stentor-Signature`, its body as received, and the secret or several of them. */
export function verify(signature, body, secrets, now = Date.now() / 1000) {
  const [, time, hex] = /^t=(\d{1,15}),v1=([0-9a-f]{64})$/.exec(signature ?? '') ?? [];
  if (!time || Math.abs(now - time) > SIGNATURE_AGE_MAX_S) return false;
  const given = Buffer.from(hex, 'hex');
  return [secrets].flat().filter(Boolean).some((secret) => timingSafeEqual(createHmac('sha256', secret).update(`${time}.`).update(body).digest(), given));
}

/** The answer to a question. Without `allow()`, clients may not connect, subscribe or publish; events are accepted without it. */
export class Answer {
  fields = {};

  allow(fields) {
    for (const name of ['code', 'message', 'retry']) delete this.fields[name];
    return this.#set({ ...fields, allow: true });
  }

  deny(code = 'not_allowed', message = undefined, { retry } = {}) { return this.#set({ allow: false, code, message, retry }); }

  join(...rooms) { return this.#add('join', rooms); }

  leave(...rooms) { return this.#add('leave', rooms); }

  ack(...args) { return this.#set({ ack: args }); }

  /** `target`: `rooms` (also ids of sessions), `all`, `except_sender` and `volatile`; without rooms, the client itself. */
  emit(event, args = [], target = {}) { return this.#add('emit', [{ event, arguments: args, ...target }]); }

  disconnect() { return this.#set({ disconnect: true }); }

  #set(fields) {
    Object.assign(this.fields, fields);
    return this;
  }

  #add(name, more) { return this.#set({ [name]: [...(this.fields[name] ?? []), ...more] }); }
}

/**
 * Answers hooks. Handlers get the question and its answer, and may be asynchronous: `connect`, `subscribe`, `publish`, and in `events` by name, whose
 * handlers also get the event's arguments; `event` for all others; `notice` gets each notice. A handler that throws denies its own question only; if that
 * of notices throws, Stentor sends them again.
 */
export class Hooks {
  #secrets;
  #handlers;

  constructor({ secret, onError = (error) => console.error(error), ...handlers }) {
    this.#secrets = [secret].flat();
    if (!this.#secrets.every((secret) => typeof secret === 'string' && secret)) throw new TypeError('Hooks: `secret` is missing: it is the `secret` of [[hooks]] in stentor.toml');
    this.#handlers = { onError, ...handlers };
  }

  /** Answers a request: `{ status, body }`, from its signature and its body as received. */
  async handle(signature, body) {
    if (!verify(signature, body, this.#secrets)) return { status: 401, body: '{"message":"the signature is missing, wrong or too old"}' };
    const request = parsed(body.toString());
    if (!request) return { status: 400, body: '{"message":"the body isn\'t JSON"}' };
    const { questions = [], notices = [], node } = request;
    try {
      for (const notice of notices) await this.#handlers.notice?.(notice, node);
    } catch (error) {
      this.#handlers.onError(error);
      return { status: 500, body: JSON.stringify({ message: FAILURE }) };
    }
    const answers = await Promise.all(questions.map((question) => this.#answer(question)));
    return { status: 200, body: `{"answers":[${answers.join(',')}]}` };
  }

  /** The answer as JSON: one that can't be encoded fails its own question only. */
  async #answer(question) {
    const { id, hook, event } = question;
    const answer = new Answer();
    if (hook !== 'event') answer.deny();
    try {
      const { events = {}, [hook]: other } = this.#handlers;
      const own = hook === 'event' && Object.hasOwn(events, event) ? events[event] : undefined;
      if (own) await own(question, answer, ...question.arguments);
      else if (other) await other(question, answer);
      else answer.deny(hook === 'event' ? 'unknown_event' : 'not_allowed');
      return JSON.stringify({ id, ...answer.fields });
    } catch (error) {
      this.#handlers.onError(error, question);
      return JSON.stringify({ id, allow: false, code: 'internal', message: FAILURE });
    }
  }

  /** For node:http, and for Express, before any parser of bodies: `app.post('/hooks', hooks.listener)`. */
  listener = async (request, response, next) => {
    try {
      const chunks = [];
      let length = 0;
      for await (const chunk of request) {
        length += chunk.length;
        // Discards the rest of a body that is too long: the answer is lost if the connection ends while the body arrives.
        if (length > REQUEST_BYTES_MAX) chunks.length = 0;
        else chunks.push(chunk);
      }
      const tooLong = { status: 413, body: '{"message":"the body is too long"}' };
      const { status, body } = length > REQUEST_BYTES_MAX ? tooLong : await this.handle(request.headers['stentor-signature'], Buffer.concat(chunks));
      response.writeHead(status, { 'Content-Type': 'application/json' }).end(body);
    } catch (error) {
      if (next) next(error);
      // A request that breaks off is no failure of the process.
      else if (error !== request.errored) throw error;
    }
  };

  /** For Fastify: `app.register(hooks.fastify, { path: '/hooks' })`. */
  fastify = async (app, { path = '/hooks' } = {}) => {
    app.removeAllContentTypeParsers();
    app.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: REQUEST_BYTES_MAX }, (_, body, done) => done(null, body));
    app.post(path, { bodyLimit: REQUEST_BYTES_MAX }, async (request, reply) => {
      const { status, body } = await this.handle(request.headers['stentor-signature'], request.body ?? Buffer.alloc(0));
      return reply.code(status).type('application/json').send(body);
    });
  };
}
