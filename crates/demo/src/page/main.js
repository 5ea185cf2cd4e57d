// The demo page: five matches, received with the client library over a transport that can be changed at runtime, and a room.

import * as centre from './centre.js';
import { $, choice, element, loaded, text } from './dom.js';
import { admin, clockSpeed, libraries, replay as hasReplay } from './facts.js';
import * as meter from './meter.js';
import * as outage from './outage.js';
import * as replay from './replay.js';
import './room.js';
import './snippets.js';
import './worker.js';

const MATCHES = [1, 2, 3, 4, 5];
const TRANSPORTS = { websocket: 'WebSocket', sse: 'SSE', polling: 'Polling', 'socket.io': 'Socket.IO', sockjs: 'SockJS' };
/** The npm package of each transport that needs a client library. */
const PACKAGES = { 'socket.io': 'socket.io-client', sockjs: 'sockjs-client' };

const stentor = Stentor.connect(location.origin);

/* ---- The connection ---- */

let until = 0;
stentor.on('state', (state, { reason, retryMs = 0 }) => {
  $('link').dataset.state = state;
  $('countdown').hidden = state !== 'waiting';
  $('again').hidden = state !== 'waiting' && state !== 'refused';
  until = Date.now() + retryMs;
  if (state === 'open') text($('linktext'), `live over ${TRANSPORTS[stentor.transport]}`);
  else if (state === 'connecting') text($('linktext'), 'connecting');
  else if (state === 'refused') text($('linktext'), reason);
  if (state === 'waiting') countdown();
});

function countdown() {
  if (stentor.state !== 'waiting') return;
  text($('linktext'), 'disconnected');
  text($('countdown'), `reconnecting in ${Math.max(0, (until - Date.now()) / 1000).toFixed(0)} s`);
  setTimeout(countdown, 250);
}

$('again').addEventListener('click', () => stentor.reconnect());

/* ---- The transports to choose from ---- */

for (const [name, title] of Object.entries(TRANSPORTS)) {
  const label = element('label', '', title);
  const input = choice('transport', name, label, go);
  input.checked = name === stentor.transport;
  // `null`: the library is missing. Transports that need no library aren't listed.
  input.disabled = libraries[name] === null;
  if (input.disabled) input.setAttribute('aria-describedby', 'missing');
  $('transports').append(input, label);
}

const missing = Object.keys(TRANSPORTS).filter((name) => libraries[name] === null);
if (missing.length > 0) {
  const listed = (names) => names.join(' and ');
  const reason = missing.length > 1 ? "are disabled because their client libraries aren't" : "is disabled because its client library isn't";
  text($('missing'), `${listed(missing.map((name) => TRANSPORTS[name]))} ${reason} installed. Restart the demo with make run, which installs client libraries with npm and reports a failure in the terminal. Or start it with --libraries and a node_modules folder that has ${listed(missing.map((name) => PACKAGES[name]))}.`);
  $('missing').hidden = false;
}

/** Switches to another transport, and loads its library if it has one. */
async function go(name) {
  try {
    if (libraries[name]) await loaded(libraries[name]);
    stentor.use(name);
  } catch (error) {
    text($('linktext'), error.message);
  }
}

/* ---- The status page ---- */

// The admin port is on the server's loopback address, unless it is configured otherwise.
$('status').href = `${admin}/`;
$('status').hidden = new URL(admin).hostname !== location.hostname && !(location.hostname === 'localhost' && new URL(admin).hostname === '127.0.0.1');

/* ---- The matches ---- */

text($('pace'), `The matches are simulated. Their clock runs ${clockSpeed} times as fast as yours: one second here is ${clockSpeed} seconds of play.`);

// `/#4` selects the fourth match. The default is the third match, which is far from its start and its end.
let current = MATCHES.find((id) => location.hash === `#${id}`) ?? MATCHES[2];
let feed;

for (const id of MATCHES) {
  const rows = ['when', '', ''].map((name) => element('div', name, element('span'), element('span')));
  const label = element('label', '', ...rows);
  const input = choice('match', id, label, select);
  input.checked = id === current;
  $('matches').append(element('div', 'choice', input, label));
  const scoreboard = stentor.feed(`scoreboard/${id}`);
  scoreboard.on('change', (document, change) => {
    meter.counted(scoreboard, document, change);
    tile(rows, document.match);
  });
}

function tile(rows, match) {
  const [when, ...sides] = rows.map((row) => row.children);
  text(when[0], centre.clockOf(match));
  rows[0].classList.toggle('live', centre.isPlaying(match));
  ['home', 'away'].forEach((side, n) => {
    text(sides[n][0], match[side].name);
    text(sides[n][1], match.score[n]);
    rows[n + 1].classList.toggle('ahead', match.score[n] > match.score[1 - n]);
  });
}

function select(id) {
  history.replaceState(null, '', `#${id}`);
  look(id);
}

/** Shows a match: subscribes to its document until another match is selected. */
function look(id) {
  feed?.close();
  current = Number(id);
  // Scrolls the list, so that the selected match is visible if not all matches fit.
  const card = $(`match-${current}`).parentNode;
  $('matches').scrollLeft = card.offsetLeft - ($('matches').clientWidth - card.clientWidth) / 2;
  meter.restart();
  const mine = feed = stentor.feed(`matchcentre/${current}`);
  const place = () => text($('place'), [mine.state === 'live' ? '' : `${mine.state}: ${mine.reason}`, mine.offset && `version ${mine.offset}`].filter(Boolean).join(', '));
  mine.on('state', () => {
    place();
    outage.seen(mine.state);
  });
  mine.on('change', (document, change) => {
    place();
    outage.seen(mine.state, document.node);
    const cost = meter.counted(mine, document, change);
    meter.show(cost, document, change);
    centre.show(document);
  });
}

look(current);

if (hasReplay) {
  const recorded = stentor.feed('replay');
  recorded.on('change', (document, change) => replay.show(document, change, meter.counted(recorded, document, change)));
}

/* ---- Light or dark ---- */

$('theme').addEventListener('click', () => {
  const root = window.document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = isDark ? 'light' : 'dark';
});
