// The chat of examples/chat/socketio, and users that talk in it.
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { io } from 'socket.io-client';
import { modules, queue, root, temporary, until, ways, within } from './harness.mjs';

/** A copy of the example, with the packages of these tests. */
export function example(t) {
  const folder = path.join(temporary(t), 'socketio');
  cpSync(path.join(root, 'examples/chat/socketio'), folder, { recursive: true, filter: (name) => !name.includes('node_modules') });
  mkdirSync(path.join(folder, 'node_modules/@stentor'), { recursive: true });
  symlinkSync(path.join(root, 'clients/socketio-server'), path.join(folder, 'node_modules/@stentor/socket.io'));
  for (const name of ['express', 'express-session', 'socket.io']) symlinkSync(path.join(modules, name), path.join(folder, 'node_modules', name));
  return folder;
}

/** The environment of a worker of the chat. */
export const environment = (stentor, port) => ({ PORT: String(port), STENTOR: stentor.admin.replace('http', 'ws'), CLIENTS: stentor.http });

/** A client of the chat: its socket, and a queue of its events. */
export function user(t, url, nickname, options) {
  const socket = io(url, { forceNew: true, auth: { nickname }, ...options });
  t.after(() => socket.close());
  const events = queue();
  for (const event of ['connect', 'disconnect']) socket.on(event, (reason) => events.put([event, reason]));
  socket.on('connect_error', ({ message }) => events.put(['connect_error', message]));
  socket.onAny((...event) => events.put(event));
  return { socket, next: events.next };
}

/**
 * Users by each transport talk until they are told to `stop`: then none may have been disconnected, and each has every message once, those of
 * each user in order. `more(n)` waits for n further answers.
 */
export function talk(t, url) {
  let isOver = false;
  let answered = 0;
  const users = Object.entries(ways).map(([name, options]) => {
    const socket = io(url, { forceNew: true, auth: { nickname: name }, ...options });
    t.after(() => socket.close());
    const self = { name, socket, sent: 0, heard: {}, failures: [] };
    for (const event of ['disconnect', 'connect_error']) socket.on(event, (reason) => self.failures.push(`${event}: ${reason}`));
    socket.on('message', ({ from, text }) => (self.heard[from] ??= []).push(Number(text)));
    return self;
  });
  const speak = async (self) => {
    while (!isOver) {
      await within(self.socket.emitWithAck('message', `${self.sent++}`), `an answer for ${self.name}`);
      answered += 1;
    }
  };
  const connected = until('all users are connected', () => users.every(({ socket }) => socket.connected));
  const talking = connected.then(() => Promise.all(users.map(speak)));
  talking.catch(() => {});
  const more = async (n) => {
    const least = answered + n;
    await until(() => `${n} more answers: ${users.map(({ name, failures }) => `${name} ${failures}`)}`, () => answered >= least);
  };
  const stop = async () => {
    isOver = true;
    await talking;
    const all = users.map(({ name, sent }) => [name, Array.from({ length: sent }, (_, n) => n)]);
    await until('all messages', () => users.every(({ heard }) => all.every(([name, numbers]) => (heard[name]?.length ?? 0) >= numbers.length)));
    for (const { name, heard, failures } of users) {
      assert.deepEqual(failures, [], name);
      assert.deepEqual(heard, Object.fromEntries(all), `what ${name} has heard`);
    }
  };
  return { more, stop };
}
