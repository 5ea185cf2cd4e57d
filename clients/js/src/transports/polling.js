// Feeds by plain requests: `GET /feed/KEY?wait=ETAG` is answered when there is a version with another tag (docs/protocol.md,
// "Over HTTP"). One document per request, through every proxy.
//
// A request that waits at the server has a place (places.js). Without one, and with more than `WAITING_MAX` feeds, a feed is requested every
// `CROWDED_MS`, or later: all of them together at most every `PACE_MS`.

import { now } from '../clock.js';
import { library } from '../error.js';
import { takePlace } from '../places.js';
import { CHECK_PATH, encoded, failure, foreign, isOf, parsed, request } from './http.js';

const WAITING_MAX = 3;
const CROWDED_MS = 2_000;
const PACE_MS = 200;
/** Least time between two requests for a feed that bring nothing new, if the server doesn't let them wait. */
const IDLE_MS = 500;
/** Three times the default of limits.request_timeout. */
const HEARTBEAT_TIMEOUT_MS = 30_000;
/** In place of a key: there is no feed, and the carrier only checks whether the server answers. */
const CHECK = '';

/** The text of a body; `undefined` for one of bytes. */
function utf8(bytes) {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {}
}

/** `isShort`: no request waits. */
export function polling(base, link, options, isShort) {
  const fetch = library(options, 'fetch');
  const timeoutMs = options.heartbeatTimeoutMs ?? HEARTBEAT_TIMEOUT_MS;
  const feeds = new Map();
  /** Tags of the versions that the client has, by key. */
  const tags = new Map();
  let check;
  let receivedAt = now();

  const drop = (key) => {
    feeds.get(key)?.abort();
    feeds.delete(key);
    tags.delete(key);
  };
  const close = () => {
    clearTimeout(check);
    for (const [key] of feeds) drop(key);
  };
  const lose = (why) => {
    close();
    link('lost', why);
  };
  /** Drops a feed. If it was the last one, checks in `ms` whether the server answers. */
  const unsubscribe = (key, ms = 0) => {
    drop(key);
    clearTimeout(check);
    check = setTimeout(() => feeds.size || follow(CHECK), ms);
  };

  /** Requests one feed until it is dropped. The first request asks without waiting whether the version is the newest. */
  async function follow(key, tag) {
    const aborter = new AbortController();
    const { signal } = aborter;
    // Whether the first request was answered.
    let isNext = false;
    feeds.set(key, aborter);
    tags.set(key, tag);
    while (!signal.aborted) {
      const mayWait = !isShort && feeds.size <= WAITING_MAX;
      const leave = mayWait && isNext && tag && await takePlace(base);
      const beganAt = now();
      const newest = await once(key, tag, signal, isNext || !tag ? 'GET' : 'HEAD', leave);
      if (leave) leave();
      if (key === CHECK) return signal.aborted || unsubscribe(key, timeoutMs);
      const restMs = !mayWait || (isNext && tag && !leave) ? Math.max(CROWDED_MS, PACE_MS * feeds.size) : newest === tag && now() - beganAt < IDLE_MS && IDLE_MS;
      tag = newest;
      if (!signal.aborted) tags.set(key, tag);
      isNext = true;
      if (restMs) await new Promise((resolve) => { setTimeout(resolve, restMs); });
    }
  }

  /** One request. Returns the tag of the version that the client has then. */
  async function once(key, tag, signal, method, waits) {
    const silence = setTimeout(lose, timeoutMs, { reason: 'the server is silent' });
    try {
      const url = new URL(key === CHECK ? CHECK_PATH : `feed/${encoded(key)}`, base);
      // Without `wait`, the browser's cache asks whether there is another version.
      if (waits) url.searchParams.set('wait', tag);
      const response = await fetch(url, request(options, {}, { method, cache: waits ? 'no-store' : 'no-cache', signal }));
      const bytes = new Uint8Array(await response.arrayBuffer());
      if (signal.aborted) return tag;
      receivedAt = now();
      link('alive');
      const { status, ok } = response;
      const text = utf8(bytes);
      const isPage = isOf('text/html', response);
      // Proxies that compress change or remove the entity tag. A captive portal's page may have one that looks the same.
      const found = /"((\d+)-(\d+))"/.exec(response.headers.get('stentor-version') ?? (isPage || response.headers.get('etag')));
      if (key === CHECK && ok) {
        if (!isOf('application/json', response)) return lose(foreign(response));
        link('opened');
      } else if (status === 404) {
        unsubscribe(key);
        link('opened');
        link('received', { type: 'state', feed: key, state: 'not_found', reason: text?.trim() });
      } else if (status === 304 || (found && found[1] === tag)) {
        link('opened');
        link('confirmed', key);
      } else if (status === 504 || (found && method === 'HEAD')) {
        // No document came in time, or there is another one. The server is there.
        link('opened');
        return undefined;
      } else if (ok && found && (bytes.length || response.headers.get('content-length') === '0')) {
        const [, newest, epoch, offset] = found;
        link('opened');
        link('received', { type: 'snapshot', feed: key, epoch: +epoch, offset: +offset, data: text === undefined ? bytes : parsed(text) }, bytes.length);
        return newest;
      } else {
        // Browsers accept truncated headers: there is no body then, and perhaps no tag.
        lose(!ok ? failure(response) : isPage ? foreign(response) : {});
      }
    } catch (error) {
      if (!signal.aborted) lose({ reason: error.message });
    } finally {
      clearTimeout(silence);
    }
    return tag;
  }

  unsubscribe(CHECK);
  return {
    subscribe(key, position) {
      drop(CHECK);
      drop(key);
      follow(key, position && `${position.epoch}-${position.offset}`);
    },
    unsubscribe,
    check(silenceMs) {
      if (now() - receivedAt < silenceMs) return false;
      for (const [key, tag] of [...tags]) {
        drop(key);
        follow(key, tag);
      }
      return true;
    },
    close,
    isPatient: true,
    isHttp: true,
  };
}
