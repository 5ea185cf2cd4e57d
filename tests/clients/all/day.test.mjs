// A day in short: users come and go, tokens expire, a feed changes, limits are hit, the configuration is reloaded, certificates rotate, a hook
// fails and returns. Nobody loses a message of a room with history, and memory stays flat.
//
// STENTOR_DAY_S is how long it takes: 600 for ten minutes.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import test from 'node:test';
import { setTimeout as passed } from 'node:timers/promises';
import { io } from 'socket.io-client';
import WebSocket from 'ws';
import { connect } from '../../../clients/js/src/index.js';
import { admin, issuer, now, reload, token as sign } from '../admin.mjs';
import { certificate, fingerprint } from '../certificates.mjs';
import { backend as hookBackend, hook, secret } from '../hook-backends.mjs';
import { feedsFrom, logged, serve, temporary, until, upstream } from '../harness.mjs';

const DAY_S = Number(process.env.STENTOR_DAY_S ?? 24);
const TIMEOUT_MS = (DAY_S + 120) * 1000;
const HOURS = 6;
const TOKEN_S = 8;
// The certificates are of the test.
process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
process.removeAllListeners('warning');

const token = (sub) => sign({ sub, jti: randomUUID(), exp: now() + TOKEN_S });

/** A member of the lobby that never renews its token: the server ends it, and it resumes with another one. */
function forgetful(server, name) {
  const log = { numbers: [], closes: [], gaps: [], open() {}, isOver: false };
  let position;
  log.open = () => {
    const socket = new WebSocket(`${server.ws}/ws`, ['stentor.v1', `stentor.bearer.${token(name)}`]);
    socket.on('open', () => socket.send(JSON.stringify({ id: 1, type: 'subscribe', room: 'lobby', ...position })));
    socket.on('message', (data) => {
      const message = JSON.parse(data);
      if (message.type === 'error') log.gaps.push(message.code);
      if (message.type !== 'message' || message.event !== 'news') return;
      position = { epoch: message.epoch, offset: message.offset };
      log.numbers.push(message.data.n);
    });
    socket.on('error', () => {});
    socket.on('close', (code) => {
      log.closes.push(code);
      if (!log.isOver) setTimeout(log.open, 50);
    });
    log.end = () => { log.isOver = true; socket.terminate(); };
  };
  log.open();
  return log;
}

test(`a day in ${DAY_S} s`, { timeout: TIMEOUT_MS }, async (t) => {
  const folder = temporary(t);
  const files = certificate(folder);
  const api = await upstream(t);
  let version = 0;
  api.documents.set('scores', () => ({ version: ++version }));
  // The hook's backend, which is out of order from time to time.
  let works = true;
  const { url: backend } = await hookBackend(t, { answer: () => ({ ack: ['thanks'] }), fails: () => !works });

  const config = (hour) => `${feedsFrom(api.url, `${100 + hour}ms`)}
[origins]
allow = ["https://${hour}.example.com"]
[rooms]
history_length = 1000
[session_limits]
publications_per_second = 20
[auth]
${issuer}
[[permissions]]
topics = ["lobby", "noise", "scores"]
allow = ["subscribe", "publish", "history"]
[[tls]]
certificate = "${files.certificate}"
key = "${files.key}"
${hook('orders', backend, `on = ["event"]\nsecret = "${secret}"`)}`;
  const server = await serve(t, { config: config(0), args: ['--cores', '2'], timeout_ms: TIMEOUT_MS });

  const residents = Array.from({ length: 20 }, (_, n) => {
    const log = { numbers: [], versions: [], gaps: [] };
    const client = connect(server.http, { WebSocket, getToken: () => token(`resident-${n}`) });
    client.on('error', ({ code }) => log.gaps.push(code));
    client.room('lobby').on('message', ({ n }) => log.numbers.push(n));
    client.feed('scores').on('change', (document) => log.versions.push(document.version));
    log.end = () => client.close();
    log.isOpen = () => client.state === 'open';
    return log;
  });
  const others = Array.from({ length: 5 }, (_, n) => forgetful(server, `forgetful-${n}`));
  const everybody = [...residents, ...others];
  let isOver = false;
  t.after(() => { isOver = true; everybody.forEach(({ end }) => end()); });
  await until('everybody is there', () => residents.every((log) => log.isOpen()));
  await passed(500);

  let last = 0;
  const publisher = (async () => {
    for (; !isOver; await passed(100)) {
      await admin(server, 'publish', { room: 'lobby', event: 'news', data: { n: ++last } });
    }
  })();
  // Users who order something and leave.
  const orders = { answered: 0, refused: 0 };
  const visitors = (async () => {
    for (let n = 0; !isOver; n++) {
      const socket = io(server.http, { forceNew: true, rejectUnauthorized: false, transports: n % 2 ? ['polling'] : ['websocket'], auth: { token: token(`visitor-${n}`) } });
      const answer = await socket.timeout(10_000).emitWithAck('order', { n }).catch((error) => error);
      orders[answer === 'thanks' ? 'answered' : 'refused']++;
      socket.disconnect();
      await passed(50);
    }
  })();
  // One that publishes too much.
  let tooMany = 0;
  const flooder = (async () => {
    for (let n = 0; !isOver; n++) {
      const socket = new WebSocket(`${server.ws}/ws`, ['stentor.v1', `stentor.bearer.${token(`flooder-${n}`)}`]);
      socket.on('message', (data) => { tooMany += JSON.parse(data).code === 'too_many_requests'; });
      socket.on('error', () => {});
      await once(socket, 'open');
      for (let sent = 0; sent < 100; sent++) socket.send(JSON.stringify({ id: sent, type: 'publish', room: 'noise', data: sent }));
      await passed(500);
      socket.terminate();
    }
  })();
  const running = Promise.all([publisher, visitors, flooder]);

  const memory = [];
  const bytes = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`, 'utf8'))[1]) * 1024;
  let shown = await fingerprint(server.http);
  for (let hour = 1; hour <= HOURS; hour++) {
    const quarter = () => Promise.race([passed((DAY_S * 1000) / HOURS / 4), running]);
    await quarter();
    certificate(folder);
    const changed = await reload(server, config(hour));
    assert.deepEqual([changed.status, changed.restart_needed], [200, []], JSON.stringify(changed));
    assert.ok(changed.applied.includes('origins.allow'), changed.applied.join());
    const next = await fingerprint(server.http);
    assert.notEqual(next, shown, 'the new certificate is used');
    shown = next;
    await quarter();
    works = false;
    assert.equal((await reload(server, `${config(hour)}\n[nonsense]\n`)).status, 422);
    await quarter();
    works = true;
    writeFileSync(server.configFile, config(hour));
    await quarter();
    memory.push(bytes());
  }
  isOver = true;
  await running;

  const newest = version;
  const isThere = ({ numbers, versions }) => numbers.at(-1) === last && (versions ?? [newest]).at(-1) >= newest;
  await until('everybody has the last message', () => everybody.every(isThere)).catch(() => {});
  for (const { numbers, gaps, versions } of everybody) {
    assert.deepEqual(numbers, Array.from({ length: last }, (_, n) => n + 1));
    assert.deepEqual(gaps, []);
    assert.ok((versions ?? []).every((version, n) => n === 0 || version > versions[n - 1]), 'versions go forward');
    assert.ok(!versions || versions.at(-1) >= newest);
  }
  // It was such a day.
  const closes = others.flatMap(({ closes }) => closes);
  assert.ok(closes.length > 0 && closes.every((code) => code === 4505), `${closes}`);
  assert.ok(orders.answered > HOURS && orders.refused > 0, JSON.stringify(orders));
  assert.ok(tooMany > 0);
  await logged(server, ({ level, message }) => level !== 'INFO' && /hook|backend/.test(message), 'of the hook that fails');
  t.diagnostic(`${last} messages to ${everybody.length} members; orders: ${JSON.stringify(orders)}; expired: ${closes.length}; refused publications: ${tooMany}`);
  t.diagnostic(`memory (RSS) by hour, MB: ${memory.map((bytes) => (bytes / 1e6).toFixed(1)).join(' ')}`);
  // From the second hour on; 8 MB for what the allocator keeps.
  assert.ok(memory.at(-1) <= memory[1] * 1.1 + 8e6, `memory grows: ${memory}`);
});
