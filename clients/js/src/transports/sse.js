// Feeds by Server-Sent Events (WHATWG HTML, 9.2): one response that doesn't end, for all feeds together.
//
// Read by fetch, not by EventSource, which tells neither why it failed nor lets the time of the next attempt be chosen,
// and can't say what it has. Other feeds mean another request; it says in `Last-Event-ID` where we are in each, as the
// server's own ids do: `key!epoch!offset;…`, the numbers in hexadecimal.

import { library } from '../error.js';
import { failure, parsed } from './http.js';

/** The server reads no longer id. */
const ID_CHARS_MAX = 4096;
/** Two of the server's heartbeats. */
const HEARTBEAT_TIMEOUT_MS = 50_000;

export function sse(base, link, options) {
  const fetch = library(options, 'fetch');
  // Where we are in each feed, or undefined.
  const feeds = new Map();
  let controller;
  let restart;
  let silence;
  let retryMs = 0;

  const close = () => {
    clearTimeout(restart);
    clearTimeout(silence);
    controller?.abort();
  };
  const lose = (why) => {
    close();
    link('lost', { afterMs: retryMs, ...why });
  };
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(lose, options.heartbeatTimeoutMs ?? HEARTBEAT_TIMEOUT_MS, { reason: 'the server is silent' });
  };

  /** Once for all changes that are made together. What the stream of now still brings is passed over. */
  const soon = () => {
    close();
    restart = setTimeout(() => (feeds.size > 0 ? read() : link('opened')));
  };

  async function read() {
    controller = new AbortController();
    const { signal } = controller;
    const asked = [...feeds];
    const url = new URL('sse?delta=1', base);
    for (const [key] of asked) url.searchParams.append('feed', key);
    const id = written(asked);
    heard();
    try {
      const response = await fetch(url, { headers: id ? { 'Last-Event-ID': id } : {}, cache: 'no-store', signal });
      if (!response.ok) return lose(failure(response));
      link('opened');
      for (const [key, position] of asked) if (position) link('confirmed', key);
      const take = decoder(dispatch, (ms) => { retryMs = ms; });
      const reader = response.body.getReader();
      const text = new TextDecoder();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        heard();
        take(text.decode(value, { stream: true }));
      }
      // Else all feeds of the stream were lost, and others aren't wanted.
      if (feeds.size > 0) lose({ reason: 'the stream has ended' });
      else close();
    } catch (error) {
      if (!signal.aborted) lose({ reason: error.message });
    }
  }

  function dispatch(type, data, id) {
    const body = parsed(data);
    const [feed, epoch, offset] = id.split(';')[0].split('!');
    const message = { type, feed, epoch: parseInt(epoch, 16), offset: parseInt(offset, 16) };
    if (type === 'snapshot') message.data = body;
    else Object.assign(message, body);
    if (controller.signal.aborted || !feeds.has(message.feed)) return;
    // Asking again for a feed that isn't there would end the stream of the others.
    if (message.state === 'not_found') feeds.delete(message.feed);
    else if (type !== 'state') feeds.set(message.feed, { epoch: message.epoch, offset: message.offset });
    link('received', message, data.length);
  }

  soon();
  return {
    subscribe(key, position) {
      feeds.set(key, position);
      soon();
    },
    unsubscribe(key) {
      if (feeds.delete(key)) soon();
    },
    close,
  };
}

function written(feeds) {
  let id = '';
  for (const [key, position] of feeds) {
    if (!position) continue;
    const entry = `${id ? ';' : ''}${key}!${position.epoch.toString(16)}!${position.offset.toString(16)}`;
    if (id.length + entry.length <= ID_CHARS_MAX) id += entry;
  }
  return id;
}

/** Takes the text of a stream in pieces, and hands out its events. */
export function decoder(dispatch, retry) {
  let rest = '';
  let event = '';
  let data = [];
  let id = '';
  return (piece) => {
    const lines = (rest + piece).split('\n');
    rest = lines.pop();
    for (const whole of lines) {
      const line = whole.endsWith('\r') ? whole.slice(0, -1) : whole;
      const colon = line.indexOf(':');
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
      if (line === '') {
        if (data.length > 0) dispatch(event, data.join('\n'), id);
        event = '';
        data = [];
      } else if (name === 'data') data.push(value);
      else if (name === 'event') event = value;
      else if (name === 'id') id = value;
      else if (name === 'retry' && /^\d+$/.test(value)) retry(Number(value));
    }
  };
}
