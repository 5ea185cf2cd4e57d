// The button that stops the demo's API for a while or, in a cluster, the node that fetches the shown match. The page keeps its
// documents, marked as stale, and goes on when the API answers or another node has taken over.

import { $, text } from './dom.js';
import { stopEvent, stopNodeEvent } from './facts.js';

/** Time within which another node takes over, in seconds. */
const TAKEOVER_S = 10;
/** Number of connections by which the page looks for the node to stop. A balancer gives each to any node. */
const CONNECTIONS_MAX = 20;

/** What is stopped now: { at, seconds, node, wasStale }, where `node` is the name of a node. */
let stopped;
/** The name of the node that fetches the shown match. */
let fetching;

if (stopEvent || stopNodeEvent) $('outage').hidden = false;
if (stopNodeEvent) text($('stopped'), 'Stop the node that fetches this match, and see how another one takes over.');
label();
$('stop').addEventListener('click', () => stop().catch((error) => end(error.message)));

function label() {
  text($('stop'), stopNodeEvent ? `Stop node ${fetching ?? ''}`.trim() : 'Stop the API');
}

async function stop() {
  // The button keeps the focus, so it isn't disabled as such.
  if (stopped || (stopNodeEvent && !fetching)) return;
  stopped = { at: Date.now(), node: stopNodeEvent && fetching, wasStale: false };
  $('stop').setAttribute('aria-disabled', 'true');
  stopped.seconds = stopNodeEvent ? await stopNode(fetching) : (await ask(stopEvent)).seconds;
  stopped.at = Date.now();
  count();
}

async function stopNode(node) {
  for (let n = 0; n < CONNECTIONS_MAX; n++) {
    if ((await ask(stopNodeEvent, { node })).stops) return TAKEOVER_S;
  }
  throw new Error(`Node ${node} can’t be reached.`);
}

/** Sends an event by a connection of its own. A hook passes it to the API of the node that has the connection. */
function ask(event, data) {
  const socket = new WebSocket(`${location.origin.replace('http', 'ws')}/ws`);
  return new Promise((resolve, reject) => {
    socket.onopen = () => socket.send(JSON.stringify({ type: 'event', event, data, id: 1 }));
    socket.onmessage = ({ data: message }) => {
      const { id, type, data: answer } = JSON.parse(message);
      if (id !== 1) return;
      socket.close();
      if (type === 'ok') resolve(answer);
      else reject(new Error('This can’t be stopped now.'));
    };
    socket.onclose = () => reject(new Error('This can’t be stopped now.'));
  });
}

function count() {
  if (!stopped) return;
  const { at, seconds, node, wasStale } = stopped;
  const left = Math.ceil((at + seconds * 1000 - Date.now()) / 1000);
  const kept = wasStale ? ' The documents stay, marked as stale.' : '';
  if (node) text($('stopped'), `Node ${node} has ended. Another node takes over ${left > 0 ? `within ${left} s` : 'soon'}.${kept}`);
  else if (left > 0) text($('stopped'), `The API answers with 503 for ${left} s.${kept}`);
  else text($('stopped'), 'The API answers again. Stentor asks it soon.');
  setTimeout(count, 250);
}

function end(outcome) {
  stopped = undefined;
  $('stop').removeAttribute('aria-disabled');
  text($('stopped'), outcome);
}

/** The state of the shown document, and the node that has fetched its newest version. */
export function seen(state, node) {
  fetching = node ?? fetching;
  label();
  if (!stopped?.seconds) return;
  const { at, seconds } = stopped;
  stopped.wasStale ||= state === 'stale';
  if (stopped.node) {
    if (state !== 'live' || fetching === stopped.node) return;
    end(`Node ${fetching} has taken over for node ${stopped.node} after ${((Date.now() - at) / 1000).toFixed(1)} s.`);
  } else if (state === 'live' && Date.now() >= at + seconds * 1000) {
    end('The API answers again, and the documents are live. No client had to reconnect.');
  }
}
