// A backend for Stentor's hooks: it says who clients are, and what their events do. docs/hooks.md
//   npm install @stentor/backend      # until its first release: npm install ../../../clients/backend/node
//   HOOK_SECRET=… node server.mjs [PORT]
import http from 'node:http';
import { Hooks } from '@stentor/backend';

const secret = process.env.HOOK_SECRET;
if (!secret) {
  console.error('HOOK_SECRET is missing: it is the secret of [[hooks]] in stentor.toml');
  process.exit(1);
}

// A real backend looks sessions up.
const users = new Map([['ada-token', '42'], ['bob-token', '43']]);

const hooks = new Hooks({
  secret,
  connect({ client }, answer) {
    const user = users.get(client.token);
    if (user) answer.allow({ user });
    else answer.deny('token_invalid', 'log in first');
  },
  events: {
    join({ user }, answer, room) {
      if (!user || room !== `user:${user.id}`) return answer.deny('not_allowed', `${room} isn't yours`);
      return answer.join(room).ack({ joined: room }).emit('joined', [user.id], { rooms: [room] });
    },
  },
});

const server = http.createServer(hooks.listener);
server.listen(Number(process.argv[2] ?? 9000), '127.0.0.1', () => console.log('listening on', server.address().port));
