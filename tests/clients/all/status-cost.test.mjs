// The CPU time that an open status page takes from a server with 1,000 rooms and 100,000 sessions: below 1 % of a core.
import assert from 'node:assert/strict';
import test from 'node:test';
import { WebSocket } from 'ws';
import { serve } from '../harness.mjs';

const SESSIONS = 100_000;
/** Each client is connected to so many namespaces. Each of them is a session. */
const NAMESPACES = 500;
const ROOMS = 1000;
/** Intervals of the page's requests, in seconds. */
const STATUS_SECONDS = 2;
const LISTS_SECONDS = 5;

const namespace = (n) => (n ? `/n${n}` : '/');

/** Connects a client to all namespaces. */
async function connect(t, url) {
  const socket = new WebSocket(`${url.replace('http', 'ws')}/socket.io/?EIO=4&transport=websocket`);
  t.after(() => socket.terminate());
  let connected = 0;
  await new Promise((resolve, reject) => {
    socket.on('error', reject);
    socket.on('close', (code) => reject(new Error(`closed: ${code}`)));
    socket.on('message', (data) => {
      const text = data.toString();
      if (text.startsWith('0')) for (let n = 0; n < NAMESPACES; n++) socket.send(n ? `40${namespace(n)},` : '40');
      else if (text === '2') socket.send('3');
      else if (text.startsWith('44')) reject(new Error(text));
      else if (text.startsWith('40') && ++connected === NAMESPACES) resolve();
    });
  });
}

test('an open status page takes less than 1 % of a core', async (t) => {
  const others = Array.from({ length: NAMESPACES - 1 }, (_, n) => `"${namespace(n + 1)}"`);
  const server = await serve(t, { config: `[socketio]\nnamespaces_max = ${NAMESPACES}\nnamespaces = [${others}]\n` });
  for (let n = 0; n < SESSIONS / NAMESPACES; n++) await connect(t, server.http);
  const ask = async (path, body) => {
    const options = body && { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
    const response = await fetch(`${server.admin}/api/v1/${path}`, options);
    assert.equal(response.status, 200, path);
    return response.json();
  };
  for (let room = 0; room < ROOMS; room++) {
    await ask('join', { namespace: namespace(room % 10), join: [`room ${room}`] });
  }
  const status = await ask('status');
  assert.equal(status.data_plane.sessions, SESSIONS);
  assert.ok(status.data_plane.topics >= ROOMS);
  const after = (await ask('overview')).times_ms.at(-1) ?? 0;
  /** CPU time of one request, in seconds. */
  const cost = async (path, times) => {
    const begun = (await ask('status')).process.cpu_seconds;
    for (let n = 0; n < times; n++) await ask(path);
    return ((await ask('status')).process.cpu_seconds - begun) / times;
  };
  const costs = {
    status: await cost('status', 200),
    overview: await cost(`overview?after_ms=${after}`, 200),
    sessions: await cost('sessions?limit=1000&search=', 50),
    rooms: await cost('rooms?limit=1000&namespace=%2F&prefix=', 50),
  };
  const share = (costs.status + costs.overview) / STATUS_SECONDS + Math.max(costs.sessions, costs.rooms) / LISTS_SECONDS;
  for (const [name, seconds] of Object.entries(costs)) t.diagnostic(`${name}: ${(seconds * 1000).toFixed(2)} ms of CPU`);
  t.diagnostic(`an open page: ${(share * 100).toFixed(2)} % of a core`);
  assert.ok(share < 0.01, `${share}`);
});
