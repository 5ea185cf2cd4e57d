// Feeds on Node: undici fetches a JSON document per key, fast-json-patch compares it with the last one, ws sends the patch to
// the key's subscribers and the whole document to new ones. The messages are those of `stentor.v1`, so that the lab audits them.
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import jsonpatch from 'fast-json-patch';
import { Pool } from 'undici';
import { WebSocketServer } from 'ws';

const { values } = parseArgs({
  options: {
    mode: { type: 'string', default: 'feed' },
    port: { type: 'string', default: '0' },
    upstream: { type: 'string', default: 'http://127.0.0.1:8080' },
    'interval-ms': { type: 'string', default: '1000' },
  },
});
const intervalMs = Number(values['interval-ms']);
// The lab's API accepts 64 connections.
const upstream = new Pool(values.upstream, { connections: 64 });
const feeds = new Map();

function snapshot({ key, offset, text }) {
  return `{"type":"snapshot","feed":${JSON.stringify(key)},"epoch":1,"offset":${offset},"state":"live","data":${text}}`;
}

function delta({ key, offset, document }, old) {
  const patch = jsonpatch.compare(old, document);
  return JSON.stringify({ type: 'delta', feed: key, epoch: 1, base: offset - 1, offset, patch });
}

async function refresh(feed) {
  const { statusCode, body } = await upstream.request({ path: `/${feed.key}`, method: 'GET' });
  const text = await body.text();
  if (statusCode !== 200) throw new Error(`status ${statusCode}`);
  if (text === feed.text) return;
  const old = feed.document;
  Object.assign(feed, { text, document: JSON.parse(text), offset: feed.offset + 1 });
  const message = old === undefined ? snapshot(feed) : delta(feed, old);
  for (const subscriber of feed.subscribers) subscriber.send(message);
}

async function poll(feed) {
  while (feed.subscribers.size > 0) {
    await refresh(feed).catch((error) => console.error(`feeds-node: ${feed.key}: ${error.message}`));
    await sleep(intervalMs);
  }
  feeds.delete(feed.key);
}

const server = new WebSocketServer({ host: '127.0.0.1', port: Number(values.port), backlog: 4096 });

server.on('connection', (client, request) => {
  const key = new URL(request.url, 'http://localhost').searchParams.get('feed');
  const feed = feeds.get(key) ?? { key, offset: 0, subscribers: new Set() };
  feed.subscribers.add(client);
  client.on('error', () => {});
  client.on('close', () => feed.subscribers.delete(client));
  if (feed.offset > 0) client.send(snapshot(feed));
  if (!feeds.has(key)) {
    feeds.set(key, feed);
    poll(feed);
  }
});

server.on('listening', () => console.log(`ready http://127.0.0.1:${server.address().port}`));
process.on('SIGTERM', () => process.exit(0));
