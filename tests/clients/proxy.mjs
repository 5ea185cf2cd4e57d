// A TCP proxy between a client and a server, which cuts connections: all at once when it is told to, or each one after as
// many bytes as chance decides. It can also hold back what the server sends.
import net from 'node:net';
import { listening } from './harness.mjs';

/** Evenly from 0 to 1, the same for the same seed (SplitMix32). */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) / 2 ** 32;
  };
}

/**
 * Proxies to `target`, `scheme://host:port`, which may be changed. `refuses(head)` says of the first bytes of a connection
 * whether it is closed instead; `budget()` how many bytes from the server it lives for; `changes(text)` gives what the server gets of
 * what a client has sent.
 * Between `stall()` and `flow()`, nothing comes from the server, also on new connections. After `forget()`, nothing comes on those that are open.
 */
export async function proxy(t, target, { refuses = () => false, budget = () => Infinity, changes = null } = {}) {
  const open = new Set();
  const upstreams = new Set();
  let isStalled = false;
  const it = { target, refuses, budget, changes, connections: 0, cuts: 0, bytes: 0 };
  const server = net.createServer((client) => {
    it.connections += 1;
    const { hostname, port } = new URL(it.target);
    const upstream = net.connect(port, hostname);
    let left = it.budget();
    let isFirst = true;
    const end = () => {
      open.delete(end);
      upstreams.delete(upstream);
      client.destroy();
      upstream.destroy();
    };
    open.add(end);
    upstreams.add(upstream);
    if (isStalled) upstream.pause();
    for (const socket of [client, upstream]) socket.on('error', end).on('close', end).setNoDelay(true);
    client.on('data', (bytes) => {
      if (isFirst && it.refuses(bytes.toString('latin1'))) return end();
      isFirst = false;
      upstream.write(it.changes ? Buffer.from(it.changes(bytes.toString('latin1')), 'latin1') : bytes);
    });
    upstream.on('data', (bytes) => {
      it.bytes += bytes.length;
      if (bytes.length < left) {
        left -= bytes.length;
        client.write(bytes);
        return;
      }
      it.cuts += 1;
      // What comes before the cut does arrive.
      upstream.destroy();
      client.end(bytes.subarray(0, left));
      left = 0;
    });
  });
  it.url = `http://127.0.0.1:${await listening(t, server)}`;
  it.stall = () => {
    isStalled = true;
    for (const upstream of upstreams) upstream.pause();
  };
  it.flow = () => {
    isStalled = false;
    for (const upstream of upstreams) upstream.resume();
  };
  it.forget = () => {
    for (const upstream of upstreams) upstream.pause();
    upstreams.clear();
  };
  it.cut = () => {
    for (const end of [...open]) end();
  };
  return it;
}
