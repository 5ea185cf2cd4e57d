// An application with its own options, its own HTTP server, and a backend, on the real server: @stentor/socket.io with the real socket.io.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { test } from 'node:test';
import express from 'express';
import { Server } from 'socket.io';
import { io as connect } from 'socket.io-client';
import connect2 from 'socket.io-client-2';
import { attach } from '../../clients/socketio-server/src/index.js';
import { event, listening, logged, request, serve } from './harness.mjs';

const CONFIG = '[server]\naccess_log = true\n[[links]]\napp = "shop"\nhttp = true\n';
const PAGE = 'http://page.test';
const OPTIONS = {
  path: '/shop/socket',
  pingInterval: 4_000,
  pingTimeout: 3_000,
  maxHttpBufferSize: 1e8,
  cookie: { name: 'shop' },
  cors: { origin: [PAGE], credentials: true, methods: ['GET', 'POST'] },
  allowEIO3: true,
};

/** A worker with an Express application. `settings`: those of `attach`. */
async function worker(t, stentor, options, settings = {}) {
  const app = express();
  app.set('trust proxy', true);
  app.get('/hello', (asked, answer) => answer.json({ from: settings.name, ip: asked.ip, protocol: asked.protocol, host: asked.headers.host }));
  app.post('/upload', express.raw({ limit: '10mb' }), (asked, answer) => answer.status(201).send(String(asked.body.length)));
  const server = http.createServer(app);
  await listening(t, server);
  const io = new Server(options);
  t.after(() => io.close());
  const link = attach(io, stentor.admin.replace('http', 'ws'), { http: server, signals: false, ...settings });
  return { io, link };
}

test('options, pages and commands of an application work as in its own server', async (t) => {
  const stentor = await serve(t, { config: CONFIG });
  const { io, link } = await worker(t, stentor, OPTIONS, { name: 'first' });
  await link.listen();

  // Options.
  const target = `${stentor.http}/shop/socket/?EIO=4&transport=polling`;
  const opened = await request(target, { headers: { Origin: PAGE } });
  const { sid, ...open } = JSON.parse(opened.text.slice(1));
  assert.deepEqual(open, { upgrades: ['websocket'], pingInterval: 4_000, pingTimeout: 3_000, maxPayload: 1_000_000 });
  assert.deepEqual(opened.headers['set-cookie'], [`shop=${sid}; Path=/; HttpOnly; SameSite=Lax`]);
  assert.equal(opened.headers['access-control-allow-origin'], PAGE);
  assert.equal(opened.headers['access-control-allow-credentials'], 'true');
  const preflight = await request(target, { method: 'OPTIONS', headers: { Origin: PAGE, 'Access-Control-Request-Headers': 'x-own' } });
  assert.equal(preflight.status, 204);
  assert.equal(preflight.headers['access-control-allow-methods'], 'GET,POST');
  assert.equal(preflight.headers['access-control-allow-headers'], 'x-own');
  assert.equal((await request(target, { headers: { Origin: 'http://another.test' } })).status, 403);
  const old = connect2(stentor.http, { path: '/shop/socket', forceNew: true });
  t.after(() => old.close());
  await event(old, 'connect');

  // Workers whose options differ.
  const other = await worker(t, stentor, { ...OPTIONS, pingInterval: 5_000 }, { name: 'second' });
  const refusal = 'the options differ from those of the running workers: `pingInterval` is 5000, and 4000 there';
  await assert.rejects(other.link.listen(), { code: 'options_conflict', message: `Stentor refuses this worker: ${refusal}` });
  await logged(stentor, ({ reason }) => reason === refusal, 'the refusal');

  // Pages.
  const page = await request(`${stentor.http}/hello?secret`, { headers: { 'X-Forwarded-For': '1.2.3.4', Host: 'shop.test' } });
  assert.deepEqual(JSON.parse(page.text), { from: 'first', ip: '127.0.0.1', protocol: 'http', host: 'shop.test' });
  const uploaded = await request(`${stentor.http}/upload`, {
    method: 'POST', body: Buffer.alloc(3_000_000), headers: { 'Content-Type': 'application/octet-stream' },
  });
  assert.deepEqual([uploaded.status, uploaded.text], [201, '3000000']);
  const line = async (path) => {
    const { timestamp, level, duration_ms: duration, bytes, ...rest } = await logged(stentor, (one) => one.message === 'request' && one.path === path, path);
    assert.ok(timestamp && level === 'INFO' && Number.isInteger(duration));
    return [rest, bytes];
  };
  const [logLine, bytes] = await line('/hello');
  assert.deepEqual(logLine, { message: 'request', address: '127.0.0.1', method: 'GET', path: '/hello', status: 200 });
  assert.ok(bytes > page.text.length && bytes < 1_000, `${bytes} with the headers`);
  assert.equal((await line('/upload'))[0].status, 201);
  const script = await request(`${stentor.http}/shop/socket/socket.io.js`);
  assert.match(script.headers['content-type'], /javascript/);
  assert.equal((await request(`${stentor.http}/healthz`)).text, 'ok\n');

  // Commands of the backend.
  const joined = once(io, 'connection');
  const client = connect(stentor.http, { path: '/shop/socket', forceNew: true, transports: ['websocket'] });
  t.after(() => client.close());
  const [socket] = await joined;
  client.connected || await once(client, 'connect');
  const command = async (name, body) => JSON.parse((await request(`${stentor.admin}/api/v1/${name}`, {
    method: 'POST', body: JSON.stringify({ app: 'shop', ...body }), headers: { 'Content-Type': 'application/json' },
  })).text);
  assert.deepEqual(await command('join', { sessions: [socket.id], join: ['vip'] }), { sessions: 1 });
  const news = once(client, 'news');
  assert.deepEqual(await command('emit', { rooms: ['vip'], event: 'news', data: { text: 'hello' } }), { sessions: 1 });
  assert.deepEqual(await news, [{ text: 'hello' }]);
  client.on('question', (a, b, acknowledge) => acknowledge(a + b, 'é'));
  const question = { rooms: ['vip'], event: 'question', args: [1, 2], ack: { timeout: '60s' } };
  assert.deepEqual(await command('emit', question), { sessions: 1, acknowledgements: [[3, 'é']], missing: 0 });
  assert.deepEqual(await socket.emitWithAck('question', 3, 4), 7);
  const { sessions } = await command('sessions', { rooms: ['vip'] });
  assert.deepEqual(sessions.map(({ id, protocol, rooms }) => [id, protocol, rooms.sort()]), [[socket.id, 'link', [socket.id, 'vip'].sort()]]);
  const rooms = JSON.parse((await request(`${stentor.admin}/api/v1/rooms?app=shop&prefix=vip`)).text);
  assert.deepEqual(rooms, { rooms: [{ name: 'vip', sessions: 1 }] });
  assert(socket.rooms.has('vip'), 'the worker knows the room');
  const left = [once(client, 'disconnect'), once(socket, 'disconnect')];
  assert.deepEqual(await command('disconnect', { rooms: ['vip'] }), { sessions: 1 });
  const [[reason], [ofServer]] = await Promise.all(left);
  assert.deepEqual([reason, ofServer], ['io server disconnect', 'server namespace disconnect']);
  assert.match(JSON.stringify(await command('emit', { app: 'none', rooms: ['a'], data: 1 })), /there is no \[\[links\]\] with the app/);
});
