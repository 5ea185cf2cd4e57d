// The button that stops the demo's API for a while: the page keeps its documents, marked as stale, and goes on when the API answers.

import { $, text } from './dom.js';
import { stopEvent } from './facts.js';

/** When the API answers again, or 0 while it isn't stopped. */
let until = 0;
/** Whether the shown document has been stale since the API was stopped. */
let wasStale = false;

if (stopEvent) {
  $('outage').hidden = false;
  $('stop').addEventListener('click', stop);
}

/** Sends the event by a connection of its own. A hook passes it to the API. */
function stop() {
  // The button keeps the focus, so it isn't disabled as such.
  if (until) return;
  const socket = new WebSocket(`${location.origin.replace('http', 'ws')}/ws`);
  socket.onopen = () => socket.send(JSON.stringify({ type: 'event', event: stopEvent, id: 1 }));
  socket.onmessage = ({ data }) => {
    const { id, type, data: answer } = JSON.parse(data);
    if (id !== 1) return;
    socket.close();
    if (type !== 'ok') return text($('stopped'), 'The API can’t be stopped now.');
    until = Date.now() + answer.seconds * 1000;
    wasStale = false;
    $('stop').setAttribute('aria-disabled', 'true');
    count();
  };
  socket.onerror = () => text($('stopped'), 'The API can’t be stopped now.');
}

function count() {
  const seconds = Math.ceil((until - Date.now()) / 1000);
  const kept = wasStale ? ' The documents stay, marked as stale.' : '';
  if (seconds > 0) text($('stopped'), `The API answers with 503 for ${seconds} s.${kept}`);
  else text($('stopped'), 'The API answers again. Stentor asks it soon.');
  if (until) setTimeout(count, 250);
}

/** The state of the shown document. */
export function seen(state) {
  if (!until) return;
  wasStale ||= state === 'stale';
  if (state !== 'live' || Date.now() < until) return;
  until = 0;
  $('stop').removeAttribute('aria-disabled');
  text($('stopped'), 'The API answers again, and the documents are live. No client had to reconnect.');
}
