// Size and latency of the updates: figures, and two graphs of the last 60 updates.

import { $, drawn, element, size, text } from './dom.js';

const POINTS = 60;
const HEIGHT = 96;

let updates = [];
let count = 0;
const total = { received: 0, whole: 0 };
/** The feeds whose first document has arrived. */
const begun = new WeakSet();

/** Sizes of the last whole documents, by key, so that documents that aren't shown needn't be serialized each time. */
const wholes = new Map();

/** Starts again, because another match is shown. */
export function restart() {
  updates = [];
}

/** Counts an update of any feed. Returns its size and that of the whole document, in bytes. A feed's first document isn't an update. */
export function counted(feed, document, change) {
  const { key } = feed;
  const bytes = change.chars ?? JSON.stringify(change.patch ?? document).length;
  // A document's size changes slowly, so it is measured once in 16 updates.
  const known = wholes.get(key);
  const isDue = !known || known.updates % 16 === 0;
  const whole = change.kind === 'snapshot' ? bytes : isDue ? JSON.stringify(document).length : known.whole;
  wholes.set(key, { whole, updates: (known?.updates ?? 0) + 1 });
  if (begun.has(feed)) {
    total.received += bytes;
    total.whole += whole;
    text($('total'), size(total.received));
    text($('whole'), size(total.whole));
    const share = (100 * total.received) / total.whole;
    text($('share'), `${share.toFixed(share < 10 ? 1 : 0)} %`);
  }
  begun.add(feed);
  return { bytes, whole };
}

/** Shows an update of the selected match. */
export function show({ bytes, whole }, document, change) {
  count += 1;
  const age = Number.isFinite(document.generated_ms) ? Math.max(0, Date.now() - document.generated_ms) : undefined;
  updates = [...updates, { bytes, whole, kind: change.kind, age }].slice(-POINTS);
  text($('bytes'), size(bytes));
  text($('instead'), change.kind === 'delta' ? `instead of ${size(whole)}` : 'the whole document');
  text($('count'), `${count} update${count === 1 ? '' : 's'}`);
  sizes();
  ages();
  operations(change);
}

function sizes() {
  const [label, svg] = ['.scale', 'svg'].map((part) => $('sizes').querySelector(part));
  const most = Math.max(...updates.map(({ whole }) => whole));
  const left = POINTS - updates.length;
  const bar = (kind, x, value, least) => {
    const height = Math.max(least, (HEIGHT * value) / most);
    return drawn('rect', { class: kind, x: x + 0.12, width: 0.76, y: HEIGHT - height, height });
  };
  svg.replaceChildren(...updates.flatMap(({ bytes, whole, kind }, n) => [bar('whole', left + n, whole, 0), bar(kind, left + n, bytes, 2)]));
  text(label, size(most));
}

function ages() {
  const known = updates.map(({ age }) => age).filter((age) => age !== undefined);
  if (known.length === 0) return;
  const [label, svg] = ['.scale', 'svg'].map((part) => $('ages').querySelector(part));
  // The scale changes rarely: it ends at the next of 10, 25, 50, 100, …
  const most = Math.max(...known);
  const scale = [10, 25, 50].flatMap((step) => [1, 10, 100, 1e3, 1e4].map((by) => step * by)).sort((a, b) => a - b).find((step) => step >= most) ?? most;
  const left = POINTS - known.length;
  const points = known.map((age, n) => `${left + n},${(HEIGHT - (HEIGHT * age) / scale).toFixed(1)}`);
  svg.replaceChildren(
    drawn('path', { d: `M${left},${HEIGHT} L${points.join(' L')} L${POINTS - 1},${HEIGHT} Z` }),
    drawn('polyline', { points: points.join(' ') }),
  );
  text(label, duration(scale));
  const sorted = [...known].sort((a, b) => a - b);
  text($('age'), `${duration(known.at(-1))}, median ${duration(sorted[Math.floor(sorted.length / 2)])}`);
}

const duration = (ms) => (ms < 1000 ? `${ms} ms` : `${Math.round(ms / 100) / 10} s`);

/** Shows the first operations of a patch, if the list is open. */
function operations(change) {
  text($('changes'), change.kind === 'delta' ? `The last patch: ${change.patch.length} operations` : 'The last update was a whole document');
  if (!$('operations').closest('details').open) return;
  const lines = (change.patch ?? []).slice(0, 40).map(({ op, path, value }) => {
    // The page cuts a long path at its start (right-to-left text), because paths differ at their end. The
    // left-to-right marks keep the slashes in place.
    const where = element('span', '', `\u200e${path}\u200e`);
    where.title = path;
    return element('li', '', element('b', '', op), where, element('em', '', value === undefined ? '' : JSON.stringify(value).slice(0, 60)));
  });
  $('operations').replaceChildren(...lines);
}
