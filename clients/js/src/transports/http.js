// stentor.v1 over plain HTTP (docs/fallbacks.md, "Newline-delimited JSON"), with the part of WebSocket's API that v1.js uses.
//
//   POST ndjson ──► a response with lines ──► sse: it doesn't end
//                                         └─► polling: it ends after the first lines, and another one follows
//   POST ndjson/SID?n=1, then 2, …            the client's messages, one request at a time: repeated with the same number until it is answered
//
// Browsers send a preflight before each address of another origin to which a request with a token goes. Such requests have their query in the header
// `Stentor-Query`, and go to `ndjson` and `ndjson/session` only: one preflight for each, for as long as the browser remembers it.
//
// A response that lasts has a place (places.js). Without one, the server answers at once, and the client asks again after a pause.

import { StentorError, library } from '../error.js';
import { takePlace } from '../places.js';

/** The pause between two polls without a place: at first, and the longest one if there is nothing. */
const PAUSE_MS = 250;
const PAUSE_MAX_MS = 2_000;
/** Time until a request without an answer is repeated. */
const REPEAT_MS = 1_000;
/** Time that an attempt which is given up may take to learn of its session, so that it can end it. */
const ABANDONED_MS = 3_000;
/** The longest pause before the end of a lost session is sent again. A little later, the server ends the session by itself. */
const END_MAX_MS = 16_000;
/** Maximum size of a request that browsers send although the page is left: less than the 64 KiB that they allow all of them together. */
const LAST_CHARS_MAX = 16_000;

/** The error of a request without a response. Browsers open six connections to a server over HTTP/1.1. */
export const noResponse = () => new StentorError('no_response', "no response: the server is slow, or other tabs use all connections to it", true);

/** The details of `lost` for a response with an error. */
export function failure({ status, headers }) {
  // 4xx: the server would refuse the same request again, except 408 and 429 (RFC 9110, section 15.5; RFC 6585).
  // With a new token, it isn't the same.
  const challenge = headers.get('www-authenticate') ?? '';
  const isExpired = challenge.includes('token_expired');
  const token = isExpired ? 'expired' : status === 401 ? 'refused' : undefined;
  const retry = !/^4(?!08|29)/.test(status) || isExpired;
  return { code: status, reason: `the server answers ${status} ${challenge}`.trim(), retry, token, afterMs: headers.get('retry-after') * 1000 || 0 };
}

/** `isPolling`: no response lasts. */
export function httpSocket(base, options, isPolling) {
  const fetch = library(options, 'fetch');
  const reading = new AbortController();
  const { signal } = reading;
  const queue = [];
  let sid;
  // Lines that have been received, and the number of the last request with messages.
  let received = 0;
  let number = 0;
  let isSending = false;
  let isClosing = false;
  /** Whether the request that opens the session has been sent. */
  let isOpening = false;
  let pauseMs = PAUSE_MS;
  let leave;
  // The last line of a session that the server has ended.
  let last;

  const wait = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
  const request = (query, more) => {
    const { token, withCredentials } = options;
    const { location } = globalThis;
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    let path = `ndjson${sid ? `/${sid}` : ''}?${query}`;
    let cache = 'no-store';
    if (token && location && location.origin !== base.origin) {
      headers['Stentor-Query'] = sid ? `sid=${sid}&${query}` : query;
      path = `ndjson${sid ? '/session' : ''}`;
      // Chromium ignores what it knows of preflights with another mode. The server forbids that its answers are stored.
      cache = 'default';
    }
    return fetch(new URL(path, base), { cache, headers, ...(withCredentials && { credentials: 'include' }), ...more });
  };
  const stop = () => {
    reading.abort();
    leave?.();
  };
  const lose = (why) => {
    if (signal.aborted) return;
    stop();
    // Only this connection may be lost. The session ends now, or when the network is back, and not after a while.
    if (sid && !last) end(REPEAT_MS);
    socket.onclose?.(why);
  };
  const end = (ms) => request('end=1', { method: 'POST' }).catch(async () => {
    if (ms > END_MAX_MS) return;
    // In Node, the process doesn't live on for this.
    await new Promise((resolve) => { setTimeout(resolve, ms).unref?.(); });
    end(2 * ms);
  });
  /** Ends if the server answers a request with an error. A session that it doesn't know may be opened again. */
  const refused = (why) => lose(sid && /4(04|09|10)/.test(why.code) ? { ...why, retry: true } : why);
  /** As many messages as a request may have, as its body. */
  const batch = () => {
    let chars = 0;
    let count = 0;
    // A character has at most three bytes.
    while (count < queue.length && (!count || (chars + queue[count].length) * 3 < socket.bytesMax)) chars += queue[count++].length + 1;
    return queue.splice(0, count).join('\n');
  };

  function take(line) {
    if (line) {
      received += 1;
      pauseMs = PAUSE_MS;
    }
    if (line.startsWith('{"type":"session"')) {
      ({ sid } = JSON.parse(line));
      isOpening = false;
      if (isClosing) stop();
      return send();
    }
    if (line.startsWith('{"type":"disconnect"')) last = JSON.parse(line);
    socket.onmessage?.({ data: line });
  }

  async function read() {
    if (signal.aborted) return;
    try {
      socket.onopen();
      while (!signal.aborted) {
        const place = leave ? undefined : await takePlace(base);
        if (signal.aborted) return place?.();
        leave ??= place;
        const bytes = !leave ? '&bytes=0' : isPolling ? '&bytes=1' : '';
        isOpening = !sid;
        const response = await request(`received=${received}${bytes}`, { signal, ...(!sid && { method: 'POST', body: batch() }) });
        if (!response.ok) return refused(failure(response));
        const type = response.headers.get('content-type');
        if (!type?.startsWith('application/x-ndjson')) return lose({ reason: `something else answers in place of the server: ${type}` });
        // A sign of life.
        socket.onmessage?.({ data: '' });
        let rest = '';
        const decoder = new TextDecoder();
        const reader = response.body.getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          const lines = (rest + decoder.decode(value, { stream: true })).split('\n');
          rest = lines.pop();
          for (const line of lines) if (!signal.aborted) take(line);
        }
        if (last) return lose({ code: last.code, reason: last.reason });
        // Streams end with such a line only.
        if (rest || !sid || !bytes) return lose({});
        if (!leave) {
          await wait(pauseMs);
          pauseMs = Math.min(2 * pauseMs, PAUSE_MAX_MS);
        }
      }
    } catch ({ message }) {
      lose({ reason: message });
    }
  }

  /** Sends what is queued, one request at a time. The last one ends the session. */
  async function send() {
    if (isSending || !sid || !(isClosing || (queue.length && !signal.aborted))) return;
    isSending = true;
    const body = batch();
    const isLast = isClosing && !queue.length;
    number += 1;
    for (;;) {
      try {
        const response = await request(`n=${number}${isLast ? '&end=1' : ''}`, { method: 'POST', body, keepalive: isLast && body.length < LAST_CHARS_MAX });
        if (response.ok) break;
        const why = failure(response);
        // Otherwise the server, or a proxy, is busy.
        if (!why.retry || why.token) return refused(why);
      } catch {}
      if (signal.aborted) break;
      await wait(REPEAT_MS);
    }
    isSending = isLast;
    send();
  }

  const socket = {
    bytesMax: Infinity,
    send(text) {
      queue.push(text);
      pauseMs = PAUSE_MS;
      send();
    },
    close() {
      if (isClosing || signal.aborted) return;
      isClosing = true;
      if (isOpening) return void setTimeout(stop, ABANDONED_MS);
      stop();
      send();
    },
  };
  // The first request includes all messages that are sent in this turn.
  setTimeout(read);
  return socket;
}
