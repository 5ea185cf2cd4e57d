// What the measurements of pages share: servers and pages that end with the program, a network in between, and statistics.
import { once } from 'node:events';
import net from 'node:net';

/** Stands in for a test: what is given to `after` runs at the end, the newest first. */
export function stage() {
  const ends = [];
  const end = async () => {
    while (ends.length) await ends.pop()();
  };
  return { after: (then) => ends.push(then), end };
}

/** The value below which that part of the values is; `undefined` if it is missing. */
export function quantile(values, part) {
  const sorted = [...values].sort((a, b) => (a ?? Infinity) - (b ?? Infinity));
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
}

/** A table in Markdown. */
export const table = (head, rows) => [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');

/**
 * A network to a port of this machine. Each chunk takes `delayMs`; with the chance `loss`, it takes `LOSS_MS` more, as a packet that is sent again, and those
 * behind it wait.
 */
const LOSS_MS = 1_000;
export async function network(t, port) {
  const it = { delayMs: 0, loss: 0 };
  const open = new Set();
  const carry = (from, to, connection) => {
    let freeAt = 0;
    const later = (then) => {
      const due = Date.now() + it.delayMs + (Math.random() < it.loss ? LOSS_MS : 0);
      freeAt = Math.max(freeAt, due);
      if (freeAt <= Date.now()) return then();
      return setTimeout(then, freeAt - Date.now());
    };
    from.on('data', (bytes) => connection.isDead || later(() => connection.isDead || to.write(bytes)));
    from.on('end', () => connection.isDead || later(() => to.end()));
    from.on('error', () => to.destroy());
    from.on('close', () => {
      open.delete(connection);
      if (!connection.isDead) later(() => to.destroy());
    });
  };
  const server = net.createServer({ allowHalfOpen: true }, (client) => {
    const upstream = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    const connection = { client, upstream, isDead: false };
    open.add(connection);
    for (const socket of [client, upstream]) socket.setNoDelay(true);
    carry(client, upstream, connection);
    carry(upstream, client, connection);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => {
    server.close();
    for (const { client, upstream } of open) for (const socket of [client, upstream]) socket.destroy();
  });
  /** Resets the connections, as a router that has forgotten them. */
  it.reset = () => open.forEach(({ client, upstream }) => {
    client.resetAndDestroy();
    upstream.destroy();
  });
  /** Ends the connections, as a proxy does with idle ones. */
  it.finish = () => open.forEach(({ client, upstream }) => {
    client.end();
    upstream.destroy();
  });
  /** From now on, nothing passes on the open connections, and nobody is told. */
  it.swallow = () => open.forEach((connection) => { connection.isDead = true; });
  it.url = `http://127.0.0.1:${server.address().port}`;
  return it;
}
