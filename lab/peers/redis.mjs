// A Redis of a peer's own, for the adapters of Socket.IO: the system's `redis-server` on a free port of loopback, which keeps
// nothing on disk and ends with the process that started it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';

const readyWithinMs = 10_000;

/// Starts it; returns its port. Any error ends the process with a message.
export async function startRedis(peer) {
  const fail = (what) => {
    console.error(`${peer}: ${what}`);
    process.exit(1);
  };
  const port = await freePort();
  const options = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--loglevel', 'warning'];
  // Also where this process is killed: setpriv(1) is of util-linux, as Redis's package is of Debian.
  const redis = spawn('setpriv', ['--pdeathsig', 'KILL', '--', 'redis-server', ...options], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  redis.on('error', (error) => fail(`setpriv can't be run: ${error.message}`));
  redis.on('exit', (code) => fail(code === 127 ? 'redis-server is not installed' : `redis-server ended (${code})`));
  process.on('exit', () => redis.kill('SIGKILL'));
  const deadline = Date.now() + readyWithinMs;
  while (!(await answers(port))) {
    if (Date.now() > deadline) fail('redis-server does not answer');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return port;
}

/// One that takes it in between shows as a Redis that ends.
async function freePort() {
  const server = createServer().listen({ host: '127.0.0.1', port: 0 });
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

function answers(port) {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port });
    const over = (answered) => (socket.destroy(), resolve(answered));
    socket.on('error', () => over(false));
    socket.on('data', () => over(true));
    socket.write('PING\r\n');
  });
}
