// The code examples beside the room. They show how other clients join the room, and can be copied.

import { $, choice, element, loaded, text } from './dom.js';
import { admin, libraries, needsToken, roomConfig } from './facts.js';
import { ROOM } from './room.js';

const CONSOLE = 'Paste it into the browser console of this page.';

const SNIPPETS = {
  'stentor.js': {
    hint: CONSOLE,
    second: ['/?client=stentor.js#room', 'Open this in a second tab'],
    code: `const stentor = Stentor.connect('${location.origin}');
stentor.room('${ROOM}').on('message', (data, { event }) => {
  console.log(event, data);
});
stentor.publish('${ROOM}', { from: 'me', text: 'hi' }, 'chat');
stentor.publish('${ROOM}', { kind: 'goal' }, 'reaction');`,
  },
  'Socket.IO': {
    hint: libraries['socket.io'] ? CONSOLE : "Socket.IO's client library isn't installed: see Delivery.",
    second: libraries['socket.io'] && ['/?client=socket.io#room', 'Open a second tab with Socket.IO'],
    code: `const socket = io('${location.origin}');
socket.on('chat', (data) => console.log('chat', data));
socket.on('reaction', (data) => console.log('reaction', data));
socket.emit('join', { from: 'me' });
socket.emit('chat', { from: 'me', text: 'hi' });
socket.emit('reaction', { kind: 'goal' });`,
  },
  Configuration: {
    hint: `This is all that the server needs for the room. With stentor.js, clients may publish to any room; with Socket.IO, only to ${ROOM}.`,
    code: roomConfig.trim(),
  },
};

const token = needsToken ? ' -H "Authorization: Bearer $STENTOR_SERVER_ADMIN_TOKEN"' : '';
text($('terminal'), `curl ${admin}/api/v1/publish \\
  -H 'Content-Type: application/x-ndjson'${token} -d '
{"room": "${ROOM}", "event": "chat", "data": {"from": "curl", "text": "hello"}}
{"room": "${ROOM}", "event": "reaction", "data": {"kind": "goal"}}'`);

for (const name of Object.keys(SNIPPETS)) {
  const label = element('label', '', name);
  const input = choice('code', name, label, select);
  input.checked = name === 'stentor.js';
  $('codes').append(input, label);
}

function select(name) {
  const { code, hint, second } = SNIPPETS[name];
  text($('snippet'), code);
  text($('hint'), hint);
  $('second').hidden = !second;
  if (second) {
    $('second').href = second[0];
    text($('second'), second[1]);
  }
  // The example for the browser's console needs the library on the page.
  if (name === 'Socket.IO' && libraries['socket.io']) loaded(libraries['socket.io']).catch((error) => text($('hint'), error.message));
}

select('stentor.js');

for (const button of document.querySelectorAll('[data-copies]')) {
  button.addEventListener('click', () => copy(button, $(button.dataset.copies)));
}

/** Browsers let pages copy on loopback addresses and over HTTPS. Elsewhere, the text is selected. */
async function copy(button, source) {
  try {
    await navigator.clipboard.writeText(source.textContent);
    say(button, 'Copied');
  } catch {
    getSelection().selectAllChildren(source);
    say(button, 'Press Ctrl+C');
  }
}

function say(button, what) {
  button.dataset.label ??= button.textContent;
  text(button, what);
  text($('copied'), what === 'Copied' ? 'Copied to the clipboard' : 'The text is selected. Press Ctrl+C to copy it.');
  clearTimeout(button.timer);
  button.timer = setTimeout(() => {
    text(button, button.dataset.label);
    text($('copied'), '');
  }, 2_500);
}
