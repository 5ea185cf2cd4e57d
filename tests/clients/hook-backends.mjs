// Backends of hooks, and clients that ask them.
import http from 'node:http';
import { once } from 'node:events';
import { io } from 'socket.io-client';

export const secret = '0123456789abcdef';

/** A backend that answers with what `answer` gives for each question, or lets `respond` handle the request. */
export async function backend(t, { answer = () => ({}), respond } = {}) {
  const seen = [];
  const server = http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const { questions } = JSON.parse(body);
    seen.push({ headers: request.headers, body, questions, method: request.method, url: request.url });
    if (respond) return respond(response, questions);
    const answers = await Promise.all(questions.map(async (question) => ({ id: question.id, ...await answer(question) })));
    response.end(JSON.stringify({ answers }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => { server.closeAllConnections(); server.close(); });
  return { url: `http://127.0.0.1:${server.address().port}/hooks?a=1`, seen, server };
}

/** The configuration of a hook. */
export const hook = (name, url, more = '') => `[[hooks]]\nname = "${name}"\nurl = "${url}"\n${more}\n`;

/** A Socket.IO client that is connected. */
export async function connected(t, server, options = {}, namespace = '') {
  const socket = io(server.http + namespace, { forceNew: true, reconnection: false, ...options });
  t.after(() => socket.disconnect());
  await new Promise((resolve, reject) => { socket.on('connect', resolve); socket.on('connect_error', reject); });
  return socket;
}

export const ask = (socket, ...event) => socket.timeout(20_000).emitWithAck(...event);

/** The samples of a metric by their labels. */
export async function metric(server, name) {
  const text = await (await fetch(`${server.admin}/metrics`)).text();
  const samples = text.split('\n').filter((line) => line.startsWith(`stentor_${name}{`) || line.startsWith(`stentor_${name} `));
  return Object.fromEntries(samples.map((line) => [line.match(/\{(.*)\}/)?.[1] ?? '', Number(line.split(' ').at(-1))]));
}

/** A client of `stentor.v1`, over anything that looks like a WebSocket. */
export async function plain(t, socket) {
  const messages = [];
  const waiting = [];
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    const wakes = waiting.shift();
    if (wakes) wakes(message); else messages.push(message);
  };
  t.after(() => socket.close());
  await new Promise((resolve) => { socket.onopen = resolve; });
  const next = () => messages.length > 0 ? Promise.resolve(messages.shift()) : new Promise((resolve) => waiting.push(resolve));
  const { session } = await next();
  return { session, next, send: (message) => socket.send(JSON.stringify(message)) };
}

/** A backend of notices, which `respond` takes or refuses; returns its URL. */
export async function noticeBackend(t, respond) {
  const server = http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    respond(Buffer.concat(chunks), response, request);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => { server.closeAllConnections(); server.close(); });
  return `http://127.0.0.1:${server.address().port}/`;
}
