// The replayed document. If it is a list of matches, the page shows their results, the last changed result
// first. Otherwise it shows the document's text.

import { $, element, size, text } from './dom.js';

const RESULTS = 8;
const TEXT_CHARS = 4_000;

let order = [];
let seen;

/** Shows a version of the replayed document. */
export function show(document, change, { bytes, whole }) {
  $('replay').hidden = false;
  text($('replayplace'), `version ${change.offset}`);
  text($('replaytext'), change.kind === 'delta' ? `${size(bytes)} instead of ${size(whole)}, in ${count(change.patch.length, 'operation')}` : `the whole document, ${size(bytes)}`);
  const isResults = Array.isArray(document?.matches) && document.matches.every((match) => match?.team1 && match.team2);
  $('results').hidden = !isResults;
  $('replaydata').hidden = isResults;
  if (isResults) results(document.matches);
  else text($('replaydata'), JSON.stringify(document, null, 1).slice(0, TEXT_CHARS));
}

const count = (n, what) => `${n} ${what}${n === 1 ? '' : 's'}`;
const name = (team) => (typeof team === 'string' ? team : team.name ?? '?');

function results(matches) {
  const key = (match) => `${match.date} ${name(match.team1)} ${name(match.team2)}`;
  const played = matches.filter((match) => match.score?.ft ?? match.score);
  // Matches are compared by value, because a snapshot after a reconnect has new objects.
  const texts = new Map(played.map((match) => [key(match), JSON.stringify(match)]));
  const changed = seen ? played.filter((match) => seen.get(key(match)) !== texts.get(key(match))) : [];
  seen = texts;
  const now = new Map(played.map((match) => [key(match), match]));
  const inFront = changed.slice(-RESULTS).map(key).reverse();
  const rest = seen && order.length > 0 ? order : played.map(key).reverse();
  order = [...new Set([...inFront, ...rest])].filter((one) => now.has(one)).slice(0, RESULTS);
  const fresh = new Set(inFront);
  $('results').replaceChildren(...order.map((one) => {
    const match = now.get(one);
    const [home, away] = match.score.ft ?? match.score;
    const item = element('li', fresh.has(one) ? 'new' : '', element('span', '', name(match.team1)), element('b', '', `${home} : ${away}`), element('span', '', name(match.team2)));
    item.append(element('small', '', [match.date, match.group ?? match.round].filter(Boolean).join(' · ')));
    return item;
  }));
}
