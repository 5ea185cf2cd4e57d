// Clients that see who is in a room: plain WebSocket, @stentor/client and Socket.IO.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { connect } from '../../clients/js/src/index.js';
import { issuer, token } from './admin.mjs';
import { event, inbox, until, within } from './harness.mjs';

export const ROOM = 'chat/7';

/** A token whose user is shown with a name, and may see who is in rooms unless told not to. */
function member(user, maySee = true) {
  const allow = maySee ? [{ rooms: ['chat/*'], allow: ['presence'] }] : [];
  return token({ sub: user, stentor: { info: { name: user.toUpperCase() }, allow } });
}

export const config = `
[rooms]
presence = ["chat/"]
presence_grace = "10s"
[auth]
${issuer}[[permissions]]
rooms = ["chat/*"]
allow = ["subscribe"]
[[rules]]
event = "join"
join = ["{}"]
ack = true
[[rules]]
event = "leave"
leave = ["{}"]
ack = true
`;

/** A client of `stentor.v1`: `ask(message)` gives the answer, `notice()` the next notice. */
export async function plain(t, server, user, maySee) {
  const socket = new WebSocket(`${server.ws}/ws`, ['stentor.v1'], { headers: { Authorization: `Bearer ${member(user, maySee)}` } });
  t.after(() => socket.terminate());
  const messages = inbox(socket);
  await once(socket, 'open');
  const { session } = await messages.json();
  const notices = [];
  let id = 0;
  const next = async (wanted) => {
    const message = await within(messages.json(), `a message for ${user}`);
    if (message.type === 'presence' && message.id === undefined) notices.push(message);
    return wanted(message);
  };
  const ask = async (message) => {
    id += 1;
    socket.send(JSON.stringify({ id, ...message }));
    for (;;) {
      let answer;
      if (await next((message) => (answer = message).id === id)) return answer;
    }
  };
  const notice = async () => {
    while (!notices.length) await next(() => false);
    return notices.shift();
  };
  return { socket, session, ask, notice };
}

/** @stentor/client in the room: its connection, its presence, and what that emitted about others. */
export function watcher(t, server, user, maySee) {
  const connection = connect(server.http, { WebSocket, getToken: () => member(user, maySee) });
  t.after(() => connection.close());
  const presence = connection.room(ROOM).presence();
  const seen = [];
  for (const name of ['join', 'leave', 'error']) presence.on(name, (what) => what.user !== user && seen.push([name, what.user ?? what.code]));
  return { connection, presence, seen };
}

export async function socketio(t, server, user, maySee) {
  const socket = io(server.http, { forceNew: true, transports: ['websocket'], auth: { token: member(user, maySee) } });
  t.after(() => socket.disconnect());
  socket.notices = [];
  socket.on('stentor:presence', (notice) => socket.notices.push(notice));
  await event(socket, 'connect');
  assert.deepEqual(await within(socket.emitWithAck('join', ROOM), 'the answer to join'), { ok: true });
  socket.presence = (options) => within(socket.emitWithAck('stentor:presence', ROOM, ...(options ? [options] : [])), 'the members');
  return socket;
}

export const users = (members) => members.map(({ user }) => user).sort();

/** Until a watcher's list is current, and of these users. */
export const shows = ({ presence }, ...wanted) => until(`${wanted} are there`, () => presence.isCurrent && `${users(presence.members)}` === `${wanted}`);
