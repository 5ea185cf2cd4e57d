// Starts the real binary or the fixture server, an upstream to feed it, and gives tests something to wait on.
import { spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as passed } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

/** The checkout. */
export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
/** The packages from the registry. */
export const modules = path.join(root, 'tests/clients/node_modules');
export const binary = process.env.STENTOR_BIN ?? path.join(root, 'target/debug/stentor');
// The conformance example: what the public suites expect of a server. STENTOR_FIXTURE names another program for it.
const fixtureCommand = process.env.STENTOR_FIXTURE?.split(' ') ?? [path.join(path.dirname(binary), 'examples/conformance')];

/** How long anything may take. Far more than it does, so that a slow machine fails no test. */
export const PATIENCE_MS = 120_000;

/** How long one test may take, unless it says otherwise: much less than the runner gives its file, so that a test that hangs fails by its name. */
const TEST_TIMEOUT_MS = 300_000;

/**
 * Waits until something holds that no event tells: a metric, a list of the admin API, the state of a library; gives what `holds`
 * gave. `what` says what was waited for, or makes the text of it. It is the only loop of the tests that looks again after a while.
 */
export function until(what, holds, time_ms) {
  let isOver = false;
  const look = async () => {
    for (;;) {
      const found = await holds();
      if (found || isOver) return found;
      await passed(20);
    }
  };
  return within(look(), what, time_ms).finally(() => { isOver = true; });
}

/** A folder that ends with the test, or with the file's tests for `temporary({ after })`. */
export function temporary(t) {
  const folder = mkdtempSync(path.join(tmpdir(), 'stentor-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Runs `stentor` to its end: { code, stdout, stderr }. */
export async function run(...args) {
  const child = spawn(binary, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk) => (stdout += chunk));
  child.stderr.on('data', (chunk) => (stderr += chunk));
  const [code, signal] = await once(child, 'close');
  return { code, signal, stdout, stderr };
}

/**
 * Runs a program until the test ends: { child, closed, text, says, end }. `text()` is what it has printed, and `says` waits until a pattern is in it;
 * gives the match.
 */
export function program(t, command, args, options) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
  const closed = once(child, 'close');
  let text = '';
  // A command that isn't there is told by `says`.
  closed.catch((error) => (text += error));
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (text += chunk));
  const end = async () => {
    child.kill('SIGTERM');
    await closed.catch(() => {});
  };
  t.after(end);
  const says = (pattern) => until(() => `${command} says ${pattern}:\n${text}`, () => {
    const found = pattern.exec(text);
    if (!found && (child.exitCode !== null || child.pid === undefined)) throw new Error(`${command} ended with ${child.exitCode}:\n${text}`);
    return found;
  });
  return { child, closed, text: () => text, says, end };
}

/** Starts `stentor serve` on free ports and waits for its line; ends it with the test. `command` runs it otherwise. */
export async function serve(t, { args = [], config, listen = '127.0.0.1:0', admin: adminAt = '127.0.0.1:0', command: [command, ...before] = [binary], timeout_ms } = {}) {
  const folder = temporary(t);
  const all = [...before, 'serve', '--listen', listen, '--admin', adminAt, '--log', 'json', ...args];
  const configFile = path.join(folder, 'stentor.toml');
  if (config) {
    writeFileSync(configFile, config);
    all.push('--config', configFile);
  }
  const { child, closed, log, address } = await start(t, command, all, timeout_ms);
  const { admin } = await logged({ log }, (line) => line.admin, 'its admin address');
  return { http: address, ws: address.replace('http', 'ws'), admin: `http://${admin}`, child, closed, log, configFile };
}

/** Tells of a time in milliseconds whether it lies between this call and now, to the second. */
export function clock() {
  const second = (ms) => Math.floor(ms / 1000);
  const begun = Date.now();
  return (ms) => second(begun) <= second(ms) && second(ms) <= second(Date.now());
}

/** A request on a connection of its own, with any headers, which `fetch` doesn't allow: { status, headers, text }. The other options are those of `http.request`. */
export const request = (url, { body, ...options } = {}) => new Promise((resolve, reject) => {
  const outgoing = (url.startsWith('https:') ? https : http).request(url, { agent: false, ...options }, (response) => {
    // A server may answer, and close the connection, before it has read the body.
    outgoing.off('error', reject).on('error', () => {});
    const { statusCode: status, headers } = response;
    response.toArray().then((chunks) => resolve({ status, headers, text: Buffer.concat(chunks).toString() }), reject);
  });
  outgoing.on('error', reject).end(body);
});

/** The status of a GET request. */
export const statusOf = async (server, target, headers) => (await request(`${server}${target}`, { headers })).status;

/** The first line of a server's log for which `wanted` holds, which may come after what is on standard output or on the wire. */
export function logged({ log }, wanted, what = 'a line') {
  const search = async () => {
    for (let at = 0; ;) {
      for (; at < log.length; at += 1) {
        const line = JSON.parse(log[at]);
        if (wanted(line)) return line;
      }
      await once(log.lines, 'line');
    }
  };
  return within(search(), () => `${what} in the log:\n${log.join('\n')}`);
}

/**
 * Says `ready` until everybody has heard one: a core knows of the others' members a moment after those were told that they are.
 * `heard` are promises; more of it may come after they have been kept.
 */
export async function introduced(say, heard) {
  let all = false;
  const known = Promise.all(heard).then(() => { all = true; });
  const said = until('all have heard `ready`', async () => {
    if (!all) await say();
    return all;
  });
  await Promise.all([known, said]);
}

/**
 * Starts the fixture server with one of its profiles on a free port; ends it with the test, or with the file's tests
 * for `fixture({ after }, …)` with node:test's own `after`.
 */
export async function fixture(t, profile) {
  const [command, ...before] = fixtureCommand;
  const { child, closed, log, address } = await start(t, command, [...before, '--profile', profile, '--listen', '127.0.0.1:0']);
  return { http: address, ws: address.replace('http', 'ws'), child, closed, log };
}

/** Runs a server until the test ends, from the moment when it says `ready http://…` or `ready https://…`. */
async function start(t, command, args, timeout_ms = TEST_TIMEOUT_MS) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const closed = once(child, 'close');
  // A command that isn't there is told below.
  closed.catch(() => {});
  const log = Object.assign([], { lines: new EventEmitter() });
  let stderr = '';
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
    for (let end; (end = stderr.indexOf('\n')) >= 0; stderr = stderr.slice(end + 1)) log.push(stderr.slice(0, end));
    log.lines.emit('line');
  });
  // What is thrown in a timer fails the test that has set it. Some servers run for a whole file.
  const hangs = t.name && setTimeout(() => { throw new Error(`not within ${timeout_ms} ms, log of ${command}:\n${log.join('\n')}`); }, timeout_ms);
  t.after(async () => {
    clearTimeout(hangs);
    if (child.pid === undefined) return;
    if (child.exitCode !== null || child.signalCode !== null) return;
    // Unlike after SIGTERM, clients that are left needn't be spread over `drain_window`.
    child.kill('SIGINT');
    const impatience = setTimeout(() => child.kill('SIGKILL'), PATIENCE_MS);
    await closed;
    clearTimeout(impatience);
  });
  const line = await new Promise((resolve, reject) => {
    let stdout = '';
    child.stdout.on('data', (chunk) => {
      stdout += chunk;
      if (stdout.includes('\n')) resolve(stdout.split('\n')[0]);
    });
    child.once('error', reject);
    child.once('close', (code) => reject(new Error(`${command} ended with ${code} before it was ready:\n${log.join('\n')}${stderr}`)));
  });
  const address = /^ready (https?:\/\/\S+)$/.exec(line)?.[1];
  if (!address) throw new Error(`not the line expected: ${line}`);
  return { child, closed, log, address };
}

/** The promise's value, or a failure that says what was waited for: a text, or a function that makes it then. */
export function within(promise, what, time_ms = PATIENCE_MS) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${time_ms} ms: ${typeof what === 'function' ? what() : what}`)), time_ms);
    // A wait that its test has given up doesn't keep the process alive.
    timer.unref();
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/**
 * The arguments of the next event of an emitter of any kind (`once` of node:events also fails on `error`). If `failure`
 * names another event, that one comes as an error.
 */
export function event(emitter, name, time_ms, failure) {
  return within(new Promise((resolve, reject) => {
    emitter.once(name, (...args) => resolve(args));
    if (failure) emitter.once(failure, (error) => reject(error instanceof Error ? error : new Error(String(error))));
  }), `the event ${name}`, time_ms);
}

/** Has a server of the test's own listen until the test ends; its port. */
export async function listening(t, server) {
  const open = new Set();
  server.on('connection', (socket) => open.add(socket)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    for (const socket of open) socket.destroy();
  });
  return server.address().port;
}

/** The URL of a web server of the test's own, which answers as `http.createServer` would. */
export const website = async (t, answer) => `http://127.0.0.1:${await listening(t, http.createServer(answer))}`;

/**
 * An upstream whose documents the test sets: `documents.set(key, {...})`; counts requests by key. A function makes a document for each request, or
 * answers the request itself.
 */
export async function upstream(t) {
  const documents = new Map();
  const requests = new Map();
  const url = await website(t, (request, response) => {
    const key = request.url.slice(1);
    requests.set(key, (requests.get(key) ?? 0) + 1);
    if (!documents.has(key)) return response.writeHead(404).end();
    const value = documents.get(key);
    const document = typeof value === 'function' ? value(request, response) : value;
    if (document === response || document === undefined) return undefined;
    return response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(document));
  });
  return { documents, requests, url };
}

/** A page of an origin of its own: the origin, and the page's address. */
export async function elsewhere(t) {
  const origin = await website(t, (_, response) => response.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>elsewhere</p>'));
  return { origin, address: `${origin}/page` };
}

/** What is `put`, in order: `await queue.next()`. */
export function queue() {
  const waiting = [];
  const received = [];
  return {
    put: (item) => (waiting.length ? waiting.shift()(item) : received.push(item)),
    next: (what = 'more') => (received.length ? Promise.resolve(received.shift()) : within(new Promise((resolve) => waiting.push(resolve)), what)),
  };
}

/** A queue of what a WebSocket receives: `await inbox.next()`, in order. */
export function inbox(socket) {
  const { put, next } = queue();
  socket.on('message', (data, binary) => put({ data: binary ? data : data.toString(), binary }));
  socket.on('close', (code, reason) => put({ closed: code, reason: reason.toString() }));
  return {
    next,
    async json() {
      const item = await next('a message');
      if (item.closed !== undefined) throw new Error(`closed with ${item.closed} ${item.reason}`);
      return JSON.parse(item.data);
    },
    /** The next message for which `wanted` holds; earlier ones are left out. */
    async until(wanted) {
      for (;;) {
        const message = await this.json();
        if (wanted(message)) return message;
      }
    },
  };
}

/** The configuration of one feed that takes in everything from an upstream, as fast as is allowed. */
export const feedsFrom = (url, interval = '50ms') => `
[[feeds]]
name = "all"
prefix = ""
url = "${url}/"
poll_interval = "${interval}"
`;

/** Rules by which clients of Socket.IO join a room, and say something in one. */
export const JOIN = '[[rules]]\nevent = "join"\njoin = ["{}"]\nack = true\n';
export const SAY = '[[rules]]\nevent = "say"\nbroadcast = ["{room}"]\nack = true\n';

/** The ways by which clients of Engine.IO connect. */
export const ways = {
  polling: { transports: ['polling'] },
  websocket: { transports: ['websocket'] },
  upgrade: { transports: ['polling', 'websocket'] },
};
