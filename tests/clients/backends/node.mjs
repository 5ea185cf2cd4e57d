// A backend with @stentor/backend for the tests: /hooks answers hooks, as do /express and /fastify, /call makes a call, /verify checks a signature.
import http from 'node:http';
import express from 'express';
import fastify from 'fastify';
import { Hooks, Stentor, verify } from '../../../clients/backend/node/index.js';

const hooks = new Hooks({
  secret: process.env.HOOK_SECRET,
  connect({ client, connection }, answer) {
    if (client.token === 'ada-token') answer.allow({ user: '42', info: { name: 'Ada' } });
    else if (client.token === 'greeted') answer.allow().emit('welcome', [], { rooms: [connection.session] });
    else if (client.token !== 'undecided') answer.deny('token_invalid', 'log in first');
  },
  subscribe({ room, connection }, answer) {
    if (room !== 'secret' || connection.rooms?.includes('staff')) answer.allow({ ttl: 60 });
  },
  events: {
    async join({ user }, answer, room) {
      answer.join(room).ack({ joined: room }).emit('joined', [user.id], { rooms: [room], except_sender: true }).emit('welcome');
    },
    leave: (_, answer, ...rooms) => answer.leave(...rooms).disconnect(),
    fail() { throw new Error('as the test wants it'); },
    unencodable: (_, answer) => answer.ack(1n),
  },
  notice({ notice }) {
    if (notice === 'resync') throw new Error('as the test wants it');
  },
  onError: () => {},
});
const stentor = new Stentor({ url: process.env.STENTOR_ADMIN, token: process.env.STENTOR_TOKEN, timeoutMs: Number(process.env.STENTOR_TIMEOUT_MS) });

const routes = {
  '/hooks': hooks.listener,
  async '/call'(request, response) {
    const [method, ...args] = JSON.parse(Buffer.concat(await request.toArray()));
    const answer = await stentor[method](...args).then((result) => ({ result }), ({ status, code, retry, published }) => ({ error: { status, code, retry, published } }));
    response.end(JSON.stringify(answer));
  },
  async '/verify'(request, response) {
    const { header, body, secret } = JSON.parse(Buffer.concat(await request.toArray()));
    response.end(JSON.stringify({ result: verify(header, Buffer.from(body), secret) }));
  },
};
const app = fastify();
app.register(hooks.fastify, { path: '/fastify' });
await app.ready();
routes['/fastify'] = app.routing;
const framework = express();
framework.post('/express', hooks.listener);
routes['/express'] = framework;
const server = http.createServer((request, response) => routes[request.url](request, response));
server.listen(0, '127.0.0.1', () => console.log('listening on', server.address().port));
