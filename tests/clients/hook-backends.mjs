// Backends of hooks, and clients that ask them.
import { io } from 'socket.io-client';
import { PATIENCE_MS, queue, website } from './harness.mjs';

export const secret = '0123456789abcdef';

/** A backend that answers with what `answer` gives for each question, or with 500 while `fails`, or lets `respond` handle the request. */
export async function backend(t, { answer = () => ({}), fails = () => false, respond } = {}) {
  const seen = [];
  const url = await website(t, async (request, response) => {
    const body = Buffer.concat(await request.toArray());
    const { questions } = JSON.parse(body);
    seen.push({ headers: request.headers, body, questions, method: request.method, url: request.url });
    if (fails()) return response.writeHead(500).end();
    if (respond) return respond(response, questions);
    const answers = await Promise.all(questions.map(async (question) => ({ id: question.id, ...await answer(question) })));
    response.end(JSON.stringify({ answers }));
  });
  return { url: `${url}/hooks?a=1`, seen };
}

// Servers that tests start wait for backends longer than a busy machine keeps these waiting.
process.env.STENTOR_LIMITS_DECISION_TIMEOUT = '60s';

/** The configuration of a hook, with a long timeout unless `more` has one. */
export function hook(name, url, more = '') {
  const timeout = /^timeout = /m.test(more) ? '' : 'timeout = "50s"\n';
  return `[[hooks]]\nname = "${name}"\nurl = "${url}"\n${timeout}${more}\n`;
}

/** A Socket.IO client that is connected. */
export async function connected(t, server, options = {}, namespace = '') {
  const socket = io(server.http + namespace, { forceNew: true, reconnection: false, ...options });
  t.after(() => socket.disconnect());
  await new Promise((resolve, reject) => { socket.on('connect', resolve); socket.on('connect_error', reject); });
  return socket;
}

export const ask = (socket, ...event) => socket.timeout(PATIENCE_MS).emitWithAck(...event);

/** A client of `stentor.v1`, over anything that looks like a WebSocket and that was created just now. */
export async function plain(t, socket) {
  const received = queue();
  socket.onmessage = ({ data }) => received.put(JSON.parse(data));
  // `onclose` follows.
  socket.onerror = () => {};
  socket.onclose = ({ code, reason }) => received.put(new Error(`closed with ${code} ${reason}`));
  t.after(() => socket.close());
  const next = async () => {
    const message = await received.next('a message');
    if (message instanceof Error) throw message;
    return message;
  };
  const { session } = await next();
  return { session, next, send: (message) => socket.send(JSON.stringify(message)) };
}

/** A backend of notices, which `respond` takes or refuses; returns its URL. */
export const noticeBackend = (t, respond) => website(t, async (request, response) => respond(Buffer.concat(await request.toArray()), response, request));
