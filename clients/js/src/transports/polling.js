// Feeds by plain requests: `GET /feed/KEY?wait=ETAG` is answered when there is another version than that (docs/protocol.md,
// "Over HTTP"). What works everywhere, one document at a time.
//
// Browsers open six connections to a server, for all tabs together. Where there are more than `WAITING_MAX` feeds, none of
// them waits at the server: each is asked for every `CROWDED_MS`.

import { library } from '../error.js';
import { failure, parsed } from './http.js';

const WAITING_MAX = 4;
const CROWDED_MS = 2_000;
/** Least time between two requests for a feed that bring nothing new, if the server doesn't let them wait. */
const IDLE_MS = 500;
/** Three times what the server lets a request wait (limits.request_timeout). */
const HEARTBEAT_TIMEOUT_MS = 30_000;

export function polling(base, link, options) {
  const fetch = library(options, 'fetch');
  const feeds = new Map();

  const close = () => {
    for (const over of feeds.values()) over.abort();
    feeds.clear();
  };
  const lose = (why) => {
    close();
    link('lost', why);
  };

  /** Asks for one feed until it is over. Whether what we have is the newest is asked without waiting for another one. */
  async function follow(key, position) {
    const over = new AbortController();
    const { signal } = over;
    let tag = position && `${position.epoch}-${position.offset}`;
    let method = tag ? 'HEAD' : 'GET';
    feeds.set(key, over);
    while (!signal.aborted) {
      const began = Date.now();
      const now = await once(key, tag, over, method);
      const restMs = feeds.size > WAITING_MAX ? CROWDED_MS : now === tag && Date.now() - began < IDLE_MS ? IDLE_MS : 0;
      tag = now;
      method = 'GET';
      if (restMs > 0) await new Promise((resolve) => { setTimeout(resolve, restMs); });
    }
  }

  /** One request; gives the tag of what we have then. */
  async function once(key, tag, over, method) {
    const { signal } = over;
    const silence = setTimeout(lose, options.heartbeatTimeoutMs ?? HEARTBEAT_TIMEOUT_MS, { reason: 'the server is silent' });
    try {
      const url = new URL(`feed/${key}`, base);
      // Without `wait` the browser's cache asks whether there is another version.
      const waits = tag && method === 'GET' && feeds.size <= WAITING_MAX;
      if (waits) url.searchParams.set('wait', tag);
      const response = await fetch(url, { method, cache: waits ? 'no-store' : 'no-cache', signal });
      const text = await response.text();
      if (signal.aborted) return tag;
      const { status } = response;
      const found = /"((\d+)-(\d+))"/.exec(response.headers.get('etag'));
      if (status === 404) {
        over.abort();
        feeds.delete(key);
        link('opened');
        link('received', { type: 'state', feed: key, state: 'not_found', reason: text.trim() });
      } else if (status === 304 || (found && found[1] === tag)) {
        link('opened');
        link('confirmed', key);
      } else if (status === 504 || (found && method === 'HEAD')) {
        // No document came in time, or there is another one; but the server is there.
        link('opened');
        return undefined;
      } else if (response.ok && found && (text || response.headers.get('content-length') === '0')) {
        const [, now, epoch, offset] = found;
        link('opened');
        link('received', { type: 'snapshot', feed: key, epoch: +epoch, offset: +offset, data: parsed(text) }, text.length);
        return now;
      } else {
        // Browsers take a head that was cut off for a whole one: there is no body then, and perhaps no tag.
        lose(response.ok ? { reason: 'the answer is not whole' } : failure(response));
      }
    } catch (error) {
      if (!signal.aborted) lose({ reason: error.message });
    } finally {
      clearTimeout(silence);
    }
    return tag;
  }

  setTimeout(() => feeds.size === 0 && link('opened'));
  return {
    subscribe(key, position) {
      feeds.get(key)?.abort();
      follow(key, position);
    },
    unsubscribe(key) {
      feeds.get(key)?.abort();
      feeds.delete(key);
    },
    close,
    isPatient: true,
  };
}
