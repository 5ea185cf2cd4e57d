// @fastify/http-proxy in front of Stentor. Merge these lines into your server and change the addresses.
// tests/clients/all/more-proxies.test.mjs runs @fastify/http-proxy with this file.
import proxy from '@fastify/http-proxy';
import Fastify from 'fastify';

const app = Fastify();

/** The headers that the proxy states. Otherwise, Host would be Stentor's, and a client's own X-Forwarded headers would be passed on. */
const stated = ({ host, ip, protocol }) => ({ host, 'x-forwarded-for': ip, 'x-forwarded-host': host, 'x-forwarded-proto': protocol });

/** The headers of a WebSocket handshake. By default, the proxy passes on only the cookie: without Origin, Stentor takes the pages of all sites for programs. */
function handshake(headers, request) {
  const passed = ['authorization', 'cookie', 'origin', 'user-agent'].filter((name) => request.headers[name]);
  return { ...headers, ...Object.fromEntries(passed.map((name) => [name, request.headers[name]])), ...stated(request) };
}

app.register(proxy, {
  upstream: 'http://127.0.0.1:8000',
  websocket: true,
  replyOptions: { rewriteRequestHeaders: (request, headers) => ({ ...headers, ...stated(request) }) },
  wsClientOptions: { rewriteRequestHeaders: handshake },
  // Silence is at most 25 s (heartbeat.interval) plus 20 s (heartbeat.timeout). Idle connections: less than Stentor's limits.idle_timeout (75 s).
  undici: { headersTimeout: 75_000, bodyTimeout: 75_000, keepAliveMaxTimeout: 60_000 },
});

await app.listen({ host: '0.0.0.0', port: 80 });
