// docs/from-socketio.md, "Run both side by side": its client, nginx location, configuration and publishing code, with a real
// Socket.IO server beside Stentor.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { once } from 'node:events';
import test from 'node:test';
import { Server } from 'socket.io';
import { io as connect } from 'socket.io-client';
import { listening, queue, root, serve } from '../harness.mjs';
import { missing, nginx } from '../proxies.mjs';

const page = readFileSync(`${root}/docs/from-socketio.md`, 'utf8').split('## Run both side by side')[1];
const block = (language, number = 0) => [...page.matchAll(new RegExp(`^ *\`\`\`${language}\\n(.*?)^ *\`\`\``, 'gms'))][number][1].replace(/^ {3}/gm, '');

test('a client of both servers receives what the backend publishes to both', { skip: missing('nginx') }, async (t) => {
  const server = http.createServer();
  const io = new Server(server);
  io.on('connection', (socket) => socket.join('lobby'));
  t.after(() => io.close());
  const port = await listening(t, server);

  const stentor = await serve(t, { config: block('toml') });
  const location = (upstream) => block('nginx').replace('127.0.0.1:8000', upstream);
  assert.match(block('nginx'), /127\.0\.0\.1:8000/);
  const proxy = await nginx(t, stentor, {
    whole: ({ upstream, port: own }) => `
      server {
        listen 127.0.0.1:${own};
        location / {
          proxy_pass http://127.0.0.1:${port};
          proxy_http_version 1.1;
          proxy_set_header Upgrade $http_upgrade;
          proxy_set_header Connection "upgrade";
          proxy_set_header Host $http_host;
        }
        ${location(upstream)}
      }`,
  });

  // The client, as on the page.
  const received = { app: queue(), live: queue() };
  const code = block('js').replace(/^import .*\n/, '').replaceAll('https://example.com', proxy.http);
  const client = new Function('io', 'console', `${code}\nreturn { app, live };`)(connect, { log: (news) => received.live.put(news) });
  t.after(() => { client.app.close(); client.live.close(); });
  client.app.on('news', (news) => received.app.put(news));
  for (const socket of [client.app, client.live]) if (!socket.connected) await once(socket, 'connect');
  // The rule has been applied once an acknowledgement has come back.
  assert.deepEqual(await client.live.timeout(60_000).emitWithAck('join', 'lobby'), { ok: true });

  // The backend, as on the page.
  const AsyncFunction = (async () => {}).constructor;
  await new AsyncFunction('io', block('js', 1).replace('http://127.0.0.1:8001', stentor.admin))(io);
  const news = { headline: 'Kick-off' };
  assert.deepEqual([await received.app.next('news'), await received.live.next('news')], [news, news]);
  // Both have upgraded from polling.
  for (const socket of [client.app, client.live]) {
    if (socket.io.engine.transport.name !== 'websocket') await once(socket.io.engine, 'upgrade');
    assert.equal(socket.io.engine.transport.name, 'websocket');
  }
});
