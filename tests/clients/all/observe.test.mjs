// How long deliveries take, as operators see it.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http from 'node:http';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import WebSocket from 'ws';
import { admin, metric } from '../admin.mjs';
import { request, serve, statusOf, until } from '../harness.mjs';

test('the latency of deliveries is sampled, slow clients included, and replays are not', async (t) => {
  const server = await serve(t, { config: `
[server]
cores = 1
[limits]
send_buffer_bytes_max = "128MiB"
[rooms]
history_length = 1000
history_bytes_max = "128MiB"
` });
  const publish = (data) => admin(server, 'publish', { room: 'news', data });
  const sum = (suffix, label) => metric(server, `delivery_seconds_${suffix}`, label);
  const open = async () => {
    const socket = new WebSocket(`${server.ws}/ws`, ['stentor.v1']);
    t.after(() => socket.terminate());
    await once(socket, 'open');
    return socket;
  };
  const join = async () => {
    const socket = await open();
    const received = [];
    socket.on('message', (text) => received.push(JSON.parse(text)));
    socket.send(JSON.stringify({ type: 'subscribe', id: 1, room: 'news' }));
    await until('the answer', () => received.some(({ type }) => type === 'ok'));
    return { socket, received, messages: () => received.filter(({ type }) => type === 'message').length };
  };
  const [fast, slow] = [await join(), await join()];
  const begun = performance.now();
  // The first fan-out of a core is sampled, then each 64th.
  for (let n = 0; n < 64; n += 1) await publish(n);
  await until('64 messages', () => fast.messages() === 64 && slow.messages() === 64);
  await until('two samples', async () => await sum('count') === 2);
  assert.ok(await sum('sum') < (performance.now() - begun) / 1000);

  // More than the kernel takes for a client that doesn't read: 36 MB by default. The first of these messages and the 65th are sampled.
  slow.socket.pause();
  // It can't be deflated.
  const large = randomBytes(525 << 10).toString('base64');
  for (let n = 0; n < 70; n += 1) await publish(large);
  await until('134 messages', () => fast.messages() === 134);
  await passed(1500);
  assert.ok(await sum('count') < 6, 'what waits for the slow client is not counted yet');
  slow.socket.resume();
  await until('134 messages', () => slow.messages() === 134);
  await until('six samples', async () => await sum('count') === 6);
  assert.ok(await sum('bucket', 'le="1.0"') < 6, 'the slow client is above a second');

  // Old messages are old.
  const late = await open();
  const replayed = [];
  late.on('message', (text) => replayed.push(JSON.parse(text)));
  late.send(JSON.stringify({ type: 'subscribe', id: 1, room: 'news', epoch: fast.received.find(({ epoch }) => epoch)?.epoch, offset: 1 }));
  await until('what was missed', () => replayed.filter(({ type }) => type === 'message').length > 66);
  assert.equal(await sum('count'), 6);
});

test('lines of an access log that is not read are dropped and counted', async (t) => {
  const server = await serve(t, { config: '[server]\naccess_log = true\n' });
  server.child.stderr.pause();
  const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
  t.after(() => agent.destroy());
  const count = () => metric(server, 'access_log_lines_dropped_total');
  assert.equal(await count(), 0);
  await until('lines are dropped', async () => {
    await Promise.all(Array.from({ length: 2_000 }, () => request(`${server.http}/healthz`, { agent })));
    return await count() > 0;
  });
  assert.equal(await statusOf(server.http, '/healthz'), 200);
  server.child.stderr.resume();
});
