// The chat whose handlers run in a worker. This page sends it numbered messages all the time, so that a restart can be watched: which
// process answers each message, whether one is missing, and whether the connection stays. The card is hidden without a worker.

import { $, drawn, element, loaded, text } from './dom.js';
import { libraries, worker } from './facts.js';
import { clipped, hue, me, nameOf, MESSAGES_MAX, TEXT_CHARS_MAX } from './room.js';

const INTERVAL_MS = 250;
/** Messages in the graph. */
const SHOWN = 60;

/** The last messages, oldest first: { process }, which is 0 until it has answered. */
let sent = [];
let numbers = { sent: 0, answered: 0, disconnects: 0, isInOrder: true };
/** The processes that have answered, in order. */
const processes = [];
/** When the restart was asked for, or 0. */
let asked = 0;

if (worker && libraries['socket.io']) start().catch((error) => state(false, error.message));

function state(isOpen, what) {
  $('workerstate').dataset.state = isOpen ? 'open' : 'waiting';
  text($('workerstate'), what);
}

async function start() {
  $('worker').hidden = false;
  $('restart').hidden = !worker.canRestart;
  text($('program'), worker.program.trim());
  await loaded(libraries['socket.io']);
  const socket = io(location.origin, { path: worker.path });
  socket.on('connect', () => {
    // A new connection has a new socket, whose count begins again.
    sent = [];
    numbers = { ...numbers, sent: 0, answered: 0 };
    state(true, 'connected');
  });
  socket.on('disconnect', (reason) => {
    numbers.disconnects += 1;
    state(false, reason);
  });
  socket.on('connect_error', (error) => state(false, error.message));
  socket.on('chat', heard);
  setInterval(() => { if (socket.connected && !document.hidden) count(socket); }, INTERVAL_MS);
  $('restart').addEventListener('click', () => restart(socket));
  $('ask').placeholder = `Message as ${me}`;
  $('ask').maxLength = TEXT_CHARS_MAX;
  $('tell').addEventListener('submit', (event) => {
    event.preventDefault();
    const said = $('ask').value.trim();
    if (!said) return;
    $('ask').value = '';
    socket.emit('chat', me, said);
  });
}

function count(socket) {
  const message = { process: 0 };
  const number = numbers.sent + 1;
  numbers.sent = number;
  sent = [...sent, message].slice(-SHOWN);
  socket.emit('count', (handled, process) => {
    message.process = process;
    if (handled !== number || numbers.answered !== number - 1) numbers.isInOrder = false;
    numbers.answered = number;
    if (processes.at(-1) !== process) followed(process);
    draw();
  });
  draw();
}

/** Another process answers. */
function followed(process) {
  const last = processes.at(-1);
  processes.push(process);
  if (last !== undefined) {
    const waited = asked ? ` after ${((performance.now() - asked) / 1000).toFixed(1)} s` : '';
    text($('restarted'), `Process ${process} has continued for process ${last}${waited}.`);
  }
  asked = 0;
  $('restart').removeAttribute('aria-disabled');
}

function restart(socket) {
  // The button keeps the focus, so it isn't disabled as such.
  if (asked) return;
  asked = performance.now();
  $('restart').setAttribute('aria-disabled', 'true');
  text($('restarted'), `Process ${processes.at(-1) ?? ''} hands over. Messages wait for the next process.`);
  socket.emit('restart');
}

function draw() {
  const bars = sent.map(({ process }, at) => {
    const kind = process === 0 ? 'whole' : processes.indexOf(process) % 2 ? 'snapshot' : 'delta';
    return drawn('rect', { x: at, y: 0, width: 0.8, height: 1, class: kind });
  });
  $('stream').replaceChildren(...bars);
  text($('process'), processes.at(-1) ?? '–');
  text($('answered'), `${numbers.answered.toLocaleString('en')} of ${numbers.sent.toLocaleString('en')}`);
  text($('order'), numbers.isInOrder ? 'each once, in order' : 'not in order');
  text($('dropped'), numbers.disconnects);
}

/** Shows a message of the chat. Any client can send anything, so nothing is taken as it comes. */
function heard(from, what, process) {
  const log = $('heard');
  const name = element('b', '', nameOf(from));
  name.style.setProperty('--hue', hue(nameOf(from)));
  log.append(element('p', '', name, ' ', element('span', '', clipped(what, TEXT_CHARS_MAX)), ' ', element('small', '', `process ${clipped(process, 10)}`)));
  while (log.children.length > MESSAGES_MAX) log.firstChild.remove();
  log.scrollTop = log.scrollHeight;
}
