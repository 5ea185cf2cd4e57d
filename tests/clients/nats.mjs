// A NATS of its own for a test, on a free port, ended with it.
import { engineServer, find } from './redis.mjs';

const program = find('nats-server');

/** Why tests with NATS can't run, or false. */
export const missing = !program && "nats-server isn't installed";

/** Starts NATS with JetStream: { url, port, stop, start }. It keeps what it stores. */
export async function nats(t) {
  const args = (port, folder) => ['-a', '127.0.0.1', '-p', port, '-js', '-sd', folder];
  const { port, start, stop } = await engineServer(t, program, args, 'Server is ready', 'stderr');
  return { url: `nats://127.0.0.1:${port}`, port, start, stop };
}
