// A backend for Stentor's hooks: it says who clients are, and what their events do. docs/hooks.md
//   HOOK_SECRET=… node server.mjs [PORT]
import { createHmac, timingSafeEqual } from 'node:crypto';
import http from 'node:http';

const secret = process.env.HOOK_SECRET;
// A real backend looks sessions up.
const users = new Map([['ada-token', '42'], ['bob-token', '43']]);

const answers = {
  connect({ client }) {
    const user = users.get(client.token);
    return user ? { allow: true, user } : { allow: false, code: 'token_invalid', message: 'log in first' };
  },
  event({ event, arguments: [room], user }) {
    if (event !== 'join') return { allow: false, code: 'unknown_event' };
    if (!user || room !== `user:${user.id}`) return { allow: false, code: 'not_allowed', message: `${room} isn't yours` };
    return { join: [room], ack: [{ joined: room }], emit: [{ event: 'joined', arguments: [user.id], rooms: [room] }] };
  },
};

// One question that can't be answered mustn't fail the others.
function answer(question) {
  try {
    return { id: question.id, ...answers[question.hook](question) };
  } catch {
    return { id: question.id, allow: false, code: 'bad_request' };
  }
}

function isSigned(header, body) {
  const [, time, signature] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(header) ?? [];
  if (!time || Math.abs(Date.now() / 1000 - time) > 300) return false;
  const expected = createHmac('sha256', secret).update(`${time}.`).update(body).digest();
  return timingSafeEqual(expected, Buffer.from(signature, 'hex'));
}

const server = http.createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (!isSigned(request.headers['stentor-signature'], body)) return response.writeHead(401).end();
  const { questions } = JSON.parse(body);
  response.setHeader('content-type', 'application/json').end(JSON.stringify({ answers: questions.map(answer) }));
});
server.listen(Number(process.argv[2] ?? 9000), '127.0.0.1', () => console.log('listening on', server.address().port));
