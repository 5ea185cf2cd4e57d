// A notification service at its size: 1,800 socket.io-clients join rooms by a rule, then 30 messages of 1,000 characters
// come from the publish API, ten a second. Nothing is lost; the times are told, not judged.
import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { io } from 'socket.io-client';
import { publish } from '../admin.mjs';
import { serve, within } from '../harness.mjs';

const CLIENTS = 1_800;
const BROADCASTS = 30;
const CHARACTERS = 1_000;
const PACE_MS = 100;

const rules = `
[[rules]]
event = "join_room"
join = ["{}"]
ack = true
`;

/** Time since this process began, in milliseconds. */
const now = () => performance.now();

test(`${CLIENTS} clients, ${BROADCASTS} broadcasts of ${CHARACTERS} characters`, async (t) => {
  const server = await serve(t, { config: rules, args: ['--cores', '2'] });
  const delays = [];
  const heard = Array.from({ length: CLIENTS }, () => []);
  let owed = CLIENTS * BROADCASTS;
  let finish;
  const all = new Promise((resolve) => { finish = resolve; });

  const begun = now();
  const sockets = [];
  t.after(() => { for (const socket of sockets) socket.disconnect(); });
  const join = (n) => within(new Promise((resolve, reject) => {
    const socket = io(server.http, { forceNew: true, transports: ['websocket'], reconnection: false });
    sockets.push(socket);
    socket.on('connect_error', reject);
    socket.on('disconnect', (reason) => reject(new Error(`client ${n}: ${reason}`)));
    socket.on('notification', ({ number, at, text }) => {
      delays.push(now() - at);
      heard[n].push(number);
      assert.equal(text.length, CHARACTERS);
      if (!--owed) finish();
    });
    socket.on('connect', () => socket.emit('join_room', 'everybody', (answer) => (answer.ok ? resolve() : reject(new Error(answer.message)))));
  }), `client ${n}`);
  for (let n = 0; n < CLIENTS; n += 100) await Promise.all(Array.from({ length: 100 }, (_, more) => join(n + more)));
  t.diagnostic(`${CLIENTS} clients had joined after ${Math.round(now() - begun)} ms`);

  for (let number = 0; number < BROADCASTS; number++) {
    const data = { number, at: now(), text: 'x'.repeat(CHARACTERS) };
    await publish(server, { room: 'everybody', event: 'notification', data });
    await passed(PACE_MS);
  }
  await within(all, `all messages, of which are missing ${owed}`);

  const expected = Array.from({ length: BROADCASTS }, (_, number) => number);
  for (const numbers of heard) assert.deepEqual(numbers, expected);
  // Also the client's own time is in it: one process receives for all.
  delays.sort((a, b) => a - b);
  const at = (share) => delays[Math.min(delays.length - 1, Math.floor(share * delays.length))].toFixed(1);
  t.diagnostic(`from publishing to a client's handler, ms: first ${at(0)}, median ${at(0.5)}, p99 ${at(0.99)}, last ${at(1)}`);
});
