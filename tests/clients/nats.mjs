// A NATS of its own for a test, on a free port, ended with it.
import { rmSync } from 'node:fs';
import { engineServer, find } from './redis.mjs';

const program = find('nats-server');

/** Why tests with NATS can't run, or false. */
export const missing = !program && "nats-server isn't installed";

/** Starts NATS with JetStream: { url, port, stop, start }. It keeps what it stores when it is stopped, if `keeps`. */
export async function nats(t, { keeps = true } = {}) {
  const args = (port, folder) => {
    if (!keeps) rmSync(folder, { recursive: true, force: true });
    return ['-a', '127.0.0.1', '-p', port, '-js', '-sd', folder];
  };
  const { port, start, stop } = await engineServer(t, program, args, 'Server is ready', 'stderr');
  return { url: `nats://127.0.0.1:${port}`, port, start, stop };
}
