// Feeds over Server-Sent Events (WHATWG HTML, 9.2): one response for all feeds, which doesn't end.
//
// Read with fetch, because EventSource reports no reason for a failure, chooses the time of the next attempt itself, and can't
// send a position at first. Other feeds need another request. Its `Last-Event-ID` has the positions, as in the server's
// own ids: `key!epoch!offset;…`, with the key percent-encoded and the numbers in hexadecimal. While other tabs have all places for streams
// (places.js), feeds are polled.

import { now } from '../clock.js';
import { library } from '../error.js';
import { takePlace } from '../places.js';
import { CHECK_PATH, encoded, failure, foreign, isOf, parsed, request } from './http.js';
import { polling } from './polling.js';

/** Length of address and id above which feeds and positions are in the body of a POST request (docs/protocol.md, "Over HTTP"). */
const ADDRESS_CHARS_MAX = 4_000;
/** Two of the server's heartbeats. */
const HEARTBEAT_TIMEOUT_MS = 50_000;
/** Time until the client asks again for a place. */
const PLACE_MS = 10_000;

export function sse(base, link, options) {
  const fetch = library(options, 'fetch');
  // The position in each feed, or undefined.
  const feeds = new Map();
  const timeoutMs = options.heartbeatTimeoutMs ?? HEARTBEAT_TIMEOUT_MS;
  let controller;
  let restart;
  let silence;
  let retryMs = 0;
  let receivedAt = now();
  let leave;
  let polls;

  const stop = () => {
    clearTimeout(restart);
    clearTimeout(silence);
    controller?.abort();
    polls = polls?.close();
  };
  const close = () => {
    stop();
    leave?.();
  };
  const lose = (why) => {
    close();
    link('lost', { afterMs: retryMs, ...why });
  };
  const received = () => {
    receivedAt = now();
    awaitBytes();
  };
  const awaitBytes = () => {
    clearTimeout(silence);
    silence = setTimeout(lose, timeoutMs, { reason: 'the server is silent' });
  };

  /** Opens another stream: one for all changes that are made together. Without a feed, checks whether the server answers. */
  const restartAfter = (ms) => {
    stop();
    restart = setTimeout(read, ms);
  };

  async function read() {
    controller = new AbortController();
    const { signal } = controller;
    if (!feeds.size) leave = leave?.();
    else if (!leave) {
      const place = await takePlace(base);
      if (signal.aborted) return place?.();
      if (!place) return poll();
      polls = polls?.close();
      leave = place;
    }
    const ids = [...feeds].map(([key, position]) => [key, position ? `${encoded(key)}!${position.epoch.toString(16)}!${position.offset.toString(16)}` : null]);
    const known = ids.filter(([, id]) => id);
    const id = known.map(([, id]) => id).join(';');
    const url = new URL(feeds.size ? 'sse?delta=1' : CHECK_PATH, base);
    for (const [key] of ids) url.searchParams.append('feed', key);
    const post = { method: 'POST', body: JSON.stringify({ feeds: Object.fromEntries(ids) }) };
    const isLong = url.href.length + id.length > ADDRESS_CHARS_MAX;
    if (isLong) url.searchParams.delete('feed');
    awaitBytes();
    try {
      const response = await fetch(url, request(options, id && !isLong ? { 'Last-Event-ID': id } : {}, { cache: 'no-store', signal, ...(isLong && post) }));
      if (!response.ok && (feeds.size || response.status !== 404)) return lose(failure(response));
      if (response.ok && !isOf(feeds.size ? 'text/event-stream' : 'application/json', response)) return lose(foreign(response));
      let isOpen = false;
      const decode = decoder(dispatch, (ms) => { retryMs = ms; });
      const reader = response.body.getReader();
      const text = new TextDecoder();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        received();
        if (!isOpen) {
          isOpen = true;
          link('opened');
          link('alive');
          for (const [key] of known) link('confirmed', key);
        }
        decode(text.decode(value, { stream: true }));
      }
      // A stream ends by itself if none of its feeds exists.
      if (feeds.size) lose();
      else restartAfter(timeoutMs);
    } catch (error) {
      if (!signal.aborted) lose({ reason: error.message });
    }
  }

  /** Polls all feeds until there is a place for a stream. */
  function poll() {
    restart = setTimeout(read, PLACE_MS);
    if (polls) return;
    const own = { lost: lose, received: take };
    polls = polling(base, (what, ...details) => (own[what] ? own[what](...details) : link(what, ...details)), options, true);
    for (const [key, position] of feeds) polls.subscribe(key, position);
  }

  /** Passes a message on, and notes its position. */
  function take(message, chars) {
    if (!feeds.has(message.feed)) return;
    // Another request for a feed that doesn't exist could end the stream of the others.
    if (message.state === 'not_found') feeds.delete(message.feed);
    else if (message.type !== 'state') feeds.set(message.feed, { epoch: message.epoch, offset: message.offset });
    link('received', message, chars);
  }

  function dispatch(type, data, id) {
    const [feed, epoch, offset] = id.split(';')[0].split('!');
    // `snapshot-base64`: a document of bytes.
    const [kind, encoding] = type.split('-');
    const message = { type: kind, encoding, feed: decodeURIComponent(feed), epoch: parseInt(epoch, 16), offset: parseInt(offset, 16) };
    const body = encoding ? data : parsed(data);
    if (kind === 'snapshot') message.data = body;
    else Object.assign(message, body);
    if (!controller.signal.aborted) take(message, data.length);
  }

  restartAfter(0);
  return {
    subscribe(key, position) {
      feeds.set(key, position);
      restartAfter(0);
    },
    unsubscribe(key) {
      if (feeds.delete(key)) restartAfter(0);
    },
    check(silenceMs) {
      if (now() - receivedAt < silenceMs) return false;
      restartAfter(0);
      return true;
    },
    isHttp: true,
    close,
  };
}

/** Parses the text of a stream, in pieces of any size. */
export function decoder(dispatch, retry) {
  let rest = '';
  let event = '';
  let data = [];
  let id = '';
  return (piece) => {
    const lines = (rest + piece).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      const [, name, value] = /^([^:]*):? ?([^]*)/.exec(line);
      if (!line) {
        if (data.length > 0) dispatch(event, data.join('\n'), id);
        event = '';
        data = [];
      } else if (name === 'data') data.push(value);
      else if (name === 'event') event = value;
      else if (name === 'id') id = value;
      else if (name === 'retry' && /^\d+$/.test(value)) retry(+value);
    }
  };
}
