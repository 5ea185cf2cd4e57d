// The status page: asks for the token, and refreshes findings, charts and lists while the page is visible.

import { ask, token } from './api.js';
import * as charts from './charts.js';
import { at, bytes, duration, element, show } from './dom.js';
import { refreshLists, setStatus } from './lists.js';

const STATUS_MS = 2000;
const LISTS_MS = 5000;

function say(text, failed = false) {
  if (at('state').textContent !== text) at('state').textContent = text;
  at('state').classList.toggle('failed', failed);
}

/** The parts of a text, with those in backquotes as code. */
const coded = (text) => text.split('`').map((part, i) => (i % 2 ? element('code', { textContent: part }) : part));

function showFindings(findings) {
  const texts = JSON.stringify(findings);
  if (at('findings').dataset.shown === texts) return;
  at('findings').dataset.shown = texts;
  const lines = findings.map(({ severity, text, document: path }) => element(
    'li', { className: severity },
    element('b', { textContent: severity === 'error' ? 'Error: ' : 'Warning: ' }), ...coded(text), ' ',
    element('a', { href: path, textContent: 'What to do' }),
  ));
  at('findings').replaceChildren(...(lines.length ? lines : [element('li', { textContent: 'Nothing.' })]));
}

let uptime = 0;
function showStatus(status) {
  // The samples of the previous process don't continue.
  if (status.uptime_seconds < uptime) charts.clear();
  uptime = status.uptime_seconds;
  const parts = [`version ${status.version}`, status.ready ? 'ready' : 'not ready', `up ${duration(status.uptime_seconds)}`];
  const { process } = status;
  if (process) parts.push(`${bytes(process.resident_bytes)} resident`, `${show(process.file_descriptors)} of ${show(process.file_descriptors_max)} file descriptors`);
  say(parts.join(' · '));
  setStatus(status);
}

/** Runs a request, and says if it fails. Without the right token, the page asks for it. */
async function attempt(request) {
  try {
    await request();
    return true;
  } catch (error) {
    if (error.status === 401) {
      const had = token.isSet;
      token.clear();
      at('login').hidden = false;
      at('main').hidden = true;
      at('token').focus();
      say(had ? 'The server refused the token.' : 'The server requires its admin token.', had);
    } else {
      say(`No status: ${error.message}`, true);
    }
    return false;
  }
}

let listed = -Infinity;
async function refresh() {
  if (!document.hidden && at('login').hidden) {
    const isShown = await attempt(async () => {
      showStatus(await ask('status'));
      const overview = await ask(`overview?after_ms=${charts.latest()}`);
      // Charts have no width before.
      at('main').hidden = false;
      showFindings(overview.findings);
      charts.append(overview);
    });
    if (isShown && performance.now() - listed >= LISTS_MS) {
      listed = performance.now();
      await attempt(refreshLists);
    }
  }
  setTimeout(refresh, STATUS_MS);
}

at('login').addEventListener('submit', (event) => {
  event.preventDefault();
  token.set(at('token').value);
  at('token').value = '';
  at('login').hidden = true;
  listed = -Infinity;
});

refresh();
