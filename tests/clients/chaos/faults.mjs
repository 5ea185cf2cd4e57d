// What goes wrong between and in nodes: links to the engine that delay, cut and swallow, processes that die and stop.
import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as passed } from 'node:timers/promises';

/** A TCP link to `port` on this machine that a test can break: `link.delay_ms`, `link.swallows`, `link.cut()`. */
export async function link(cleanup, port) {
  const open = new Set();
  const it = { delay_ms: 0, swallows: { toEngine: false, fromEngine: false } };
  const server = net.createServer((client) => {
    const engine = net.connect(port, '127.0.0.1');
    const end = () => {
      open.delete(end);
      client.destroy();
      engine.destroy();
    };
    open.add(end);
    for (const socket of [client, engine]) socket.on('error', end).on('close', end).setNoDelay(true);
    const pass = (from, to, direction) => {
      // In order, also while the delay changes.
      let last = Promise.resolve();
      from.on('data', (bytes) => {
        if (it.swallows[direction]) return;
        const due = pause(it.delay_ms);
        last = last.then(() => due).then(() => to.writable && to.write(bytes));
      });
    };
    pass(client, engine, 'toEngine');
    pass(engine, client, 'fromEngine');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  it.port = server.address().port;
  it.cut = () => { for (const end of [...open]) end(); };
  cleanup.push(() => { it.cut(); server.close(); });
  return it;
}

/** Time between faults, and that of faults that last. */
export const pause = (time_ms) => passed(time_ms);

export const chosen = (random, list) => list[Math.floor(random() * list.length)];
export const between = (random, least, most) => least + random() * (most - least);

/**
 * Faults of the world until `ends()`, one after the other by a seed; some last while the next begins. All is well again when the promise
 * is kept. `note(text)` hears of each.
 */
export async function faults(world, random, note, ends) {
  const { nodes, engine, loses } = world;
  const lasting = new Set();
  const busy = new Set();
  /** Does something to a thing for a while, unless another fault concerns it. */
  const during = (thing, what, time_ms, begin, end) => {
    if (busy.has(thing)) return;
    busy.add(thing);
    note(`${what} for ${Math.round(time_ms)} ms`);
    const fault = (async () => {
      await begin();
      await pause(time_ms);
      await end();
    })().finally(() => { busy.delete(thing); lasting.delete(fault); });
    // Whoever waits for it hears of its failure.
    fault.catch(() => {});
    lasting.add(fault);
  };
  /** One of the nodes that run, if another one does. */
  const victim = () => {
    const well = nodes.filter((node) => !busy.has(node));
    return well.length > 1 ? chosen(random, well) : undefined;
  };
  const kinds = {
    kill: () => {
      const node = victim();
      if (node) during(node, `${node.name} is killed`, between(random, 200, 3000), () => node.kill(), () => node.start());
    },
    stop: () => {
      const node = victim();
      if (node) during(node, `${node.name} is stopped`, between(random, 200, 8000), () => node.signal('SIGSTOP'), () => node.signal('SIGCONT'));
    },
    cut: () => {
      const node = chosen(random, nodes);
      note(`the link of ${node.name} is cut`);
      node.link.cut();
    },
    delay: () => {
      const { name, link } = chosen(random, nodes);
      during(link, `the link of ${name} is slow`, between(random, 1000, 4000), () => { link.delay_ms = between(random, 20, 400); }, () => { link.delay_ms = 0; });
    },
    swallow: () => {
      const { name, link } = chosen(random, nodes);
      const direction = chosen(random, ['toEngine', 'fromEngine']);
      during(link, `the link of ${name} swallows ${direction}`, between(random, 500, 9000), () => { link.swallows[direction] = true; }, () => {
        // A stream that lacks bytes is of no use.
        link.cut();
        link.swallows[direction] = false;
      });
    },
    engine: () => during(engine, engine.stops ?? (loses ? 'the engine is killed and forgets' : 'the engine is killed'), between(random, 100, 3000), async () => {
      await engine.stop();
      world.deaths.push(Date.now());
    }, engine.start),
    clients: async () => {
      if (busy.has(engine) || !engine.command) return;
      const kind = chosen(random, ['normal', 'pubsub']);
      note(`the engine ends its ${kind} connections`);
      await engine.command('CLIENT', 'KILL', 'TYPE', kind);
    },
  };
  // The links are those to the Sentinel, without which a node stays with the primary that it has, also if that isn't the one any more.
  if (engine.stops) for (const kind of ['cut', 'delay', 'swallow']) delete kinds[kind];
  while (!ends()) {
    await kinds[chosen(random, Object.keys(kinds))]();
    await pause(between(random, 500, 2500));
  }
  await Promise.all(lasting);
  note('all is well again');
}
