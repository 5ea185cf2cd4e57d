// Clients that see who is in a room: plain WebSocket, @stentor/client and Socket.IO.
import assert from 'node:assert/strict';
import WebSocket from 'ws';
import { connect } from '../../clients/js/src/index.js';
import { issuer, token } from './admin.mjs';
import { JOIN, until } from './harness.mjs';
import { ask, plain as connected, socketIo } from './sockets.mjs';

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
${JOIN}[[rules]]
event = "leave"
leave = ["{}"]
ack = true
`;

/** A client of `stentor.v1`: `ask(message)` gives the answer, `notice()` the next notice. */
export async function plain(t, server, user, maySee) {
  const socket = new WebSocket(`${server.ws}/ws`, ['stentor.v1'], { headers: { Authorization: `Bearer ${member(user, maySee)}` } });
  const notices = [];
  const take = (message) => message.type === 'presence' && notices.push(message);
  const { next, ...client } = await connected(t, socket, take);
  const notice = async () => {
    while (!notices.length) take(await next());
    return notices.shift();
  };
  return { ...client, notice };
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
  const socket = await socketIo(t, server.http, { transports: ['websocket'], auth: { token: member(user, maySee) } });
  socket.notices = [];
  socket.on('stentor:presence', (notice) => socket.notices.push(notice));
  assert.deepEqual(await ask(socket, 'join', ROOM), { ok: true });
  socket.presence = (options) => ask(socket, 'stentor:presence', ROOM, ...(options ? [options] : []));
  return socket;
}

export const users = (members) => members.map(({ user }) => user).sort();

/** Until a watcher's list is current, and of these users. */
export const shows = ({ presence }, ...wanted) => until(`${wanted} are there`, () => presence.isCurrent && `${users(presence.members)}` === `${wanted}`);
