// Feeds over Server-Sent Events (WHATWG HTML, 9.2): one response for all feeds, which doesn't end.
//
// Read with fetch, because EventSource reports no reason for a failure, chooses the time of the next attempt itself, and can't
// send a position at first. Other feeds need another request. Its `Last-Event-ID` has the positions, as in the server's
// own ids: `key!epoch!offset;…`, with the key percent-encoded and the numbers in hexadecimal.

import { now } from '../clock.js';
import { library } from '../error.js';
import { CHECK_PATH, authorization, encoded, failure, foreign, isOf, parsed } from './http.js';

/** The server ignores a longer id. */
const ID_CHARS_MAX = 4096;
/** Two of the server's heartbeats. */
const HEARTBEAT_TIMEOUT_MS = 50_000;

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

  const close = () => {
    clearTimeout(restart);
    clearTimeout(silence);
    controller?.abort();
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
    close();
    restart = setTimeout(read, ms);
  };

  async function read() {
    controller = new AbortController();
    const { signal } = controller;
    const subscribed = [...feeds];
    const url = new URL(feeds.size ? 'sse?delta=1' : CHECK_PATH, base);
    for (const [key] of subscribed) url.searchParams.append('feed', key);
    const id = lastEventId(subscribed);
    awaitBytes();
    try {
      const response = await fetch(url, { headers: { ...authorization(options), ...(id && { 'Last-Event-ID': id }) }, cache: 'no-store', signal });
      if (!response.ok && (feeds.size || response.status !== 404)) return lose(failure(response));
      if (response.ok && !isOf(feeds.size ? 'text/event-stream' : 'application/json', response)) return lose(foreign(response));
      let isOpen = false;
      const take = decoder(dispatch, (ms) => { retryMs = ms; });
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
          for (const [key, position] of subscribed) if (position) link('confirmed', key);
        }
        take(text.decode(value, { stream: true }));
      }
      // A stream ends by itself if none of its feeds exists.
      if (feeds.size) lose();
      else restartAfter(timeoutMs);
    } catch (error) {
      if (!signal.aborted) lose({ reason: error.message });
    }
  }

  function dispatch(type, data, id) {
    const [feed, epoch, offset] = id.split(';')[0].split('!');
    // `snapshot-base64`: a document of bytes.
    const [kind, encoding] = type.split('-');
    const message = { type: kind, encoding, feed: decodeURIComponent(feed), epoch: parseInt(epoch, 16), offset: parseInt(offset, 16) };
    const body = encoding ? data : parsed(data);
    if (kind === 'snapshot') message.data = body;
    else Object.assign(message, body);
    if (controller.signal.aborted || !feeds.has(message.feed)) return;
    // Another request for a feed that doesn't exist could end the stream of the others.
    if (message.state === 'not_found') feeds.delete(message.feed);
    else if (type !== 'state') feeds.set(message.feed, { epoch: message.epoch, offset: message.offset });
    link('received', message, data.length);
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
    close,
  };
}

function lastEventId(feeds) {
  let id = '';
  for (const [key, position] of feeds) {
    if (!position) continue;
    const longer = `${id && `${id};`}${encoded(key)}!${position.epoch.toString(16)}!${position.offset.toString(16)}`;
    if (longer.length <= ID_CHARS_MAX) id = longer;
  }
  return id;
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
