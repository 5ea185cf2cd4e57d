// The room: a chat and a reaction counter that this page shares with every other client. The page joins with stentor.js, or
// with Socket.IO's own client if it is opened with ?client=socket.io. The matches have a connection of their own, because
// the page can change their transport.

import { $, drawn, element, loaded, text } from './dom.js';
import { libraries } from './facts.js';

export const ROOM = 'lobby';

/** The page keeps this many of the last messages. */
export const MESSAGES_MAX = 50;
export const TEXT_CHARS_MAX = 200;
const NAME_CHARS_MAX = 24;
const COUNT_MAX = 999_999;
/** Icons in flight at the same time. */
const FLYING_MAX = 20;
const ANSWER_TIMEOUT_MS = 10_000;

/** Drawn, because not every system has a font with emoji: the name, and the class of each shape with its path. */
const REACTIONS = {
  goal: ['Goal', ['light', 'M12 3a9 9 0 1 0 .01 0z'], ['', 'M12 8.2l3.7 2.7-1.4 4.3H9.7l-1.4-4.3zM8 3.6l4 2.6 4-2.6a9 9 0 0 0-8 0zM3 12l3.4-2.5L5 5.6A9 9 0 0 0 3 12zM21 12l-3.4-2.5L19 5.6a9 9 0 0 1 2 6.4zM6.6 19.2l.6-4.2-4-.6a9 9 0 0 0 3.4 4.8zM17.4 19.2l-.6-4.2 4-.6a9 9 0 0 1-3.4 4.8z']],
  heart: ['Heart', ['', 'M12 20.7C4 15.2 2.8 11 2.8 8.7A4.9 4.9 0 0 1 12 6.6a4.9 4.9 0 0 1 9.2 2.1c0 2.3-1.2 6.5-9.2 12z']],
  fire: ['Fire', ['', 'M12.4 2c.8 4.4-5.9 6.6-5.9 12.4a5.7 5.7 0 0 0 11.4.2c.1-2.9-1.2-4.4-1.9-6.2-.6 1.4-1.2 2.1-2.2 2.6.8-3.7.2-7-1.4-9z']],
  wow: ['Wow', ['', 'M12 3a9 9 0 1 0 .01 0z'], ['dark', 'M8.7 8a1.4 1.7 0 1 0 .01 0zM15.3 8a1.4 1.7 0 1 0 .01 0zM12 13.4a2.5 3 0 1 0 .01 0z']],
};
const NAMES = [['Bold', 'Brave', 'Calm', 'Keen', 'Merry', 'Quick', 'Swift', 'Witty'], ['Badger', 'Falcon', 'Heron', 'Lynx', 'Marten', 'Otter', 'Puffin', 'Robin']];

const pick = (list) => list[Math.floor(Math.random() * list.length)];
/** The name of this page in the room. */
export const me = NAMES.map(pick).join(' ');

/* ---- The two clients ---- */

const CLIENTS = { 'stentor.js': joinWithStentor, 'Socket.IO': joinWithSocketIo };
const wanted = new URLSearchParams(location.search).get('client');
const client = wanted === 'socket.io' && libraries['socket.io'] ? 'Socket.IO' : 'stentor.js';

function joinWithStentor() {
  // Rooms need a WebSocket. Messages wait until it is open.
  const stentor = Stentor.connect(location.origin, { transport: 'websocket' });
  stentor.on('state', (state, { reason }) => status(state === 'open', reason));
  stentor.room(ROOM).on('message', (data, { event }) => receive(event, data));
  stentor.publish(ROOM, { from: me, client }, 'joined').catch(failed);
  return (event, data) => stentor.publish(ROOM, data, event);
}

async function joinWithSocketIo() {
  await loaded(libraries['socket.io']);
  const socket = io(location.origin);
  const publish = async (event, data) => {
    const answer = await socket.timeout(ANSWER_TIMEOUT_MS).emitWithAck(event, data);
    if (!answer.ok) throw new Error(answer.message);
  };
  // A new connection is in no room, so it must join again.
  socket.on('connect', () => {
    status(true);
    publish('join', { from: me, client }).catch(failed);
  });
  socket.on('disconnect', (reason) => status(false, reason));
  socket.on('connect_error', (error) => status(false, error.message));
  socket.onAny(receive);
  return publish;
}

function status(isOpen, reason) {
  $('roomstate').dataset.state = isOpen ? 'open' : 'waiting';
  text($('roomstate'), isOpen ? `in “${ROOM}” with ${client}` : reason ?? 'connecting');
}

const failed = (error) => text($('roomerror'), `Not sent: ${error.message}`);

const joined = CLIENTS[client]();
Promise.resolve(joined).catch((error) => status(false, error.message));

async function publish(event, data) {
  try {
    await (await joined)(event, data);
    text($('roomerror'), '');
  } catch (error) {
    failed(error);
  }
}

/* ---- What the room says. Any client can publish anything, so nothing is taken as it comes. ---- */

function receive(event, data) {
  if (event === 'reaction') react(data);
  else if (event === 'counts') merge(data);
  else if (event === 'joined') welcome(data);
  else show('said', data?.from, typeof data === 'string' ? data : data?.text ?? JSON.stringify(data));
}

export const clipped = (value, max) => (typeof value === 'string' || typeof value === 'number' ? [...`${value}`.slice(0, 2 * max)].slice(0, max).join('') : '');
export const nameOf = (value) => clipped(value, NAME_CHARS_MAX).trim() || 'somebody';

/** Messages that aren't drawn yet. A hidden page draws nothing, so they are bounded too. */
let fresh = [];

function show(kind, from, what) {
  if (fresh.length === 0) requestAnimationFrame(draw);
  fresh = [...fresh, { kind, from: nameOf(from), what: clipped(what, TEXT_CHARS_MAX) }].slice(-MESSAGES_MAX);
}

function draw() {
  const log = $('log');
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  log.append(...fresh.map(({ kind, from, what }) => {
    const name = element('b', '', from);
    name.style.setProperty('--hue', hue(from));
    return element('p', from === me ? `${kind} mine` : kind, name, ' ', element('span', '', what));
  }));
  fresh = [];
  while (log.children.length > MESSAGES_MAX) log.firstChild.remove();
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

export const hue = (name) => [...name].reduce((sum, char) => (sum * 31 + char.codePointAt(0)) % 360, 7);

/* ---- Reactions ---- */

const counts = Object.fromEntries(Object.keys(REACTIONS).map((kind) => [kind, 0]));
const kindOf = (data) => (Object.hasOwn(REACTIONS, data?.kind) ? data.kind : undefined);

function icon(kind, ...also) {
  const svg = drawn('svg', { viewBox: '0 0 24 24', class: [kind, ...also].join(' '), 'aria-hidden': true });
  svg.append(...REACTIONS[kind].slice(1).map(([shape, d]) => drawn('path', { class: shape, d })));
  return svg;
}

for (const kind in REACTIONS) {
  const button = element('button', '', icon(kind), element('span', 'unseen', `${REACTIONS[kind][0]}: `), element('b', '', 0));
  button.type = 'button';
  button.id = `reaction-${kind}`;
  button.addEventListener('click', () => publish('reaction', { kind }));
  $('reactions').append(button);
}

function count(kind, value) {
  counts[kind] = Math.min(value, COUNT_MAX);
  text($(`reaction-${kind}`).querySelector('b'), counts[kind].toLocaleString('en'));
}

function react(data) {
  const kind = kindOf(data);
  if (!kind) return;
  count(kind, counts[kind] + 1);
  if ($('reactions').querySelectorAll('.fly').length >= FLYING_MAX || matchMedia('(prefers-reduced-motion: reduce)').matches) return;
  const flying = icon(kind, 'fly');
  flying.style.setProperty('--drift', `${Math.round(Math.random() * 60 - 30)}px`);
  flying.addEventListener('animationend', () => flying.remove());
  $(`reaction-${kind}`).append(flying);
}

/** A room keeps no state, so a page that joins learns the counts from one that is there. The first answer is enough. */
let answer;

function welcome(data) {
  show('joined', data?.from, data?.client ? `joined with ${clipped(data.client, NAME_CHARS_MAX)}` : 'joined');
  if (data?.from === me || Object.values(counts).every((n) => n === 0)) return;
  clearTimeout(answer);
  answer = setTimeout(() => publish('counts', counts), 100 + Math.random() * 400);
}

function merge(data) {
  clearTimeout(answer);
  for (const kind in counts) {
    if (Number.isSafeInteger(data?.[kind])) count(kind, Math.max(counts[kind], data[kind]));
  }
}

/* ---- The form ---- */

$('message').placeholder = `Message as ${me}`;
$('message').maxLength = TEXT_CHARS_MAX;
$('say').addEventListener('submit', (event) => {
  event.preventDefault();
  const said = $('message').value.trim();
  if (!said) return;
  $('message').value = '';
  publish('chat', { from: me, text: said });
});
