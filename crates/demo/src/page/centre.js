// The selected match. Unchanged parts aren't drawn again. A new version shares them with the previous
// version, so comparing references is enough.

import { $, colour, drawn, element, text } from './dom.js';

const PHASES = { before: 'before kick-off', half_time: 'half time', full_time: 'full time' };
const COLUMNS = 20;
const ROWS = 13;

export const clockOf = (match) => PHASES[match.phase] ?? match.clock.text;
export const isPlaying = (match) => !(match.phase in PHASES);

let shown = {};

/** Shows a version of a match centre. */
export function show(document) {
  const { match } = document;
  const isOther = shown.key !== document.key;
  if (isOther) shown = {};
  const before = shown;
  shown = document;
  const changed = (name) => before[name] !== document[name];
  if (changed('match')) {
    const isGoal = !isOther && `${before.match.score}` !== `${match.score}`;
    board(match, isGoal);
    colours(match);
  }
  if (changed('events')) list('events', document.events, before.events, eventLine);
  if (changed('commentary')) list('commentary', document.commentary.slice(0, 40), before.commentary, commentaryLine);
  if (changed('statistics')) statistics(document.statistics);
  if (changed('teams')) {
    ratings(document.teams, before.teams);
    pitch(document);
  }
  if (changed('momentum')) momentum(document.momentum);
}

function board(match, isGoal) {
  for (const side of ['home', 'away']) {
    const team = match[side];
    text($(side).querySelector('.name'), team.name);
    text($(side).querySelector('.scorers'), team.scorers.join('\n'));
  }
  const score = `${match.score[0]} – ${match.score[1]}`;
  text($('score'), score);
  if (isGoal) {
    $('score').classList.remove('flash');
    // Reading the size makes the browser notice that the class was removed.
    void $('score').offsetWidth;
    $('score').classList.add('flash');
    text($('said'), `Goal. ${match.home.name} ${match.score[0]}, ${match.away.name} ${match.score[1]}`);
  }
  text($('clock'), clockOf(match));
  const spectators = `${match.attendance.toLocaleString('en')} spectators`;
  text($('venue'), [match.competition, match.ground, match.weather, spectators, `referee ${match.referee}`].join(' · '));
  window.document.title = `${match.home.short} ${score} ${match.away.short} · Stentor`;
}

/** The teams' colours. If they are too similar, the away team gets another one. */
function colours({ home, away }) {
  const parts = (value) => [1, 3, 5].map((at) => parseInt(value.slice(at, at + 2), 16));
  const distance = (a, b) => Math.hypot(...parts(a).map((part, n) => part - parts(b)[n]));
  const ours = colour(home.colour);
  const theirs = [colour(away.colour), '#c4570c', '#1668b8'].find((one) => distance(ours, one) > 110);
  const { style } = window.document.documentElement;
  style.setProperty('--home-is', ours);
  style.setProperty('--away-is', theirs);
}

/** Shows a list, newest first. New items are marked. */
function list(id, items, before, line) {
  const known = before && new Set(before.map((item) => item.id));
  $(id).replaceChildren(...items.map((item) => {
    const node = line(item);
    if (known && !known.has(item.id)) node.classList.add('new');
    return node;
  }));
}

function eventLine(event) {
  const side = event.side === undefined ? '' : ['home', 'away'][event.side];
  return element('li', `${event.kind} ${side}`, element('time', '', event.minute), element('i'), element('span', '', event.text));
}

const commentaryLine = (line) => element('li', '', element('time', '', line.minute), element('span', '', line.text));

function statistics(rows) {
  $('statistics').replaceChildren(...rows.map((row) => {
    const bar = element('div', row.home + row.away > 0 ? 'bar' : 'bar none');
    for (const value of [row.home, row.away]) {
      const part = element('i');
      // `flex` shares that add up to less than 1 would leave a gap, so the values are multiplied by 100.
      part.style.setProperty('--share', value * 100);
      bar.append(part);
    }
    return element('div', 'stat', element('span', '', row.home), element('span', '', row.name), element('span', '', row.away), bar);
  }));
}

function ratings(teams, before) {
  const lists = teams.map((team, side) => {
    const played = team.players.filter((player) => player.state !== 'bench');
    const best = Math.max(...played.map((player) => player.rating));
    const old = new Map(before?.[side].players.map((player) => [player.id, player.rating]));
    const lines = played.map((player) => {
      const item = element('li', player.rating === best ? 'top' : player.rating >= 7 ? 'good' : player.rating < 6.2 ? 'low' : '');
      if (player.state !== 'on_pitch') item.classList.add('gone');
      if (old.has(player.id) && old.get(player.id) !== player.rating) item.classList.add('new');
      const { touches, passes, passes_completed: completed, shots } = player.statistics;
      const name = element('span', 'who', player.name.replace(/^(.)\S* /u, '$1. '));
      name.title = `${player.name}: ${touches} touches, ${completed}/${passes} passes, ${shots} shots`;
      item.append(element('span', 'nr', player.number), name, element('b', '', player.rating.toFixed(1)));
      return item;
    });
    const title = element('h3', '', team.name);
    title.style.setProperty('--team', `var(--${['home', 'away'][side]})`);
    return element('div', '', title, element('ol', '', ...lines));
  });
  $('ratings').replaceChildren(...lists);
}

/** The heat map: touches of both teams, in the colour of the team with more of them. */
function pitch({ match, teams }) {
  const heat = teams.map((team, side) => {
    const sum = new Float64Array(COLUMNS * ROWS);
    for (const player of team.players) {
      player.heat_map.forEach((row, y) => row.forEach((touches, x) => {
        sum[side === 0 ? y * COLUMNS + x : (ROWS - 1 - y) * COLUMNS + (COLUMNS - 1 - x)] += touches;
      }));
    }
    return sum;
  });
  const context = $('pitch').querySelector('canvas').getContext('2d');
  if (!context) return;
  const image = context.createImageData(COLUMNS, ROWS);
  const most = Math.max(1, ...heat[0], ...heat[1]);
  const { style } = window.document.documentElement;
  const rgb = ['home', 'away'].map((side) => parseInt(style.getPropertyValue(`--${side}-is`).slice(1), 16));
  for (let n = 0; n < COLUMNS * ROWS; n++) {
    const whose = heat[0][n] >= heat[1][n] ? 0 : 1;
    const value = rgb[whose];
    image.data.set([value >> 16, (value >> 8) & 255, value & 255, 235 * Math.sqrt(heat[whose][n] / most)], n * 4);
  }
  context.putImageData(image, 0, 0);
  text($('lefts'), `${match.home.short} attack →`);
  text($('rights'), `← ${match.away.short} attack`);
}

function momentum(values) {
  const width = 100 / Math.max(values.length, 90);
  const bars = values.map((value, n) => drawn('rect', {
    class: value > 0 ? 'h' : 'a',
    x: (n * width).toFixed(2),
    width: (width * 0.8).toFixed(2),
    y: value > 0 ? 32 - value * 0.3 : 32,
    height: Math.max(0.5, Math.abs(value) * 0.3),
  }));
  $('momentum').replaceChildren(drawn('line', { x1: 0, x2: 100, y1: 32, y2: 32 }), ...bars);
}
