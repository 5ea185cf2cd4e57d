// The charts: time series of the overview, each with axes, unit and legend.
//
// uPlot draws on a canvas. The legend is made here, so that it can be operated with the keyboard and read aloud.

import { at, choice, element, units } from './dom.js';

/** Times that the server keeps, in seconds. */
const KEPT_SECONDS = 900;
const MINUTES = [1, 2, 5, 10, 15];
/** Number of lines of a chart. Of more series, the largest are drawn, and the sum of the others. */
const LINES_MAX = 8;
const HEIGHT = 190;
const TITLES = {
  connections: ['Connections and sessions', 'sessions by protocol'],
  messages: ['Messages', 'per second'],
  bytes: ['Bytes', 'per second'],
  latency: ['Delivery latency', 'publication to kernel, last minute'],
  cpu: ['CPU', '% of one processor'],
  memory: ['Memory for clients', 'by class'],
  fetches: ['Fetches of feeds', 'per second, by outcome'],
  waiting: ['Waiting bytes', 'by receiver'],
  cluster: ['Cluster and workers', 'number'],
};
/** Legends of memory whose class alone doesn't say what it holds. Without them, the lists' send buffers seem to be a class: they are frames and publications. */
const LEGENDS = {
  publications: 'messages and documents',
  frames: 'messages, encoded for sending',
  'send buffers': 'queues, without messages',
};
/** Colours with 3:1 against the card, light and dark. */
const COLORS = [
  ['#0b7a53', '#4fd39a'], ['#1f5fbf', '#7db2ff'], ['#b4520a', '#f0a050'], ['#8a3fb0', '#cf9bf0'],
  ['#b3261e', '#ff8178'], ['#5c6b00', '#c3d24a'], ['#00707c', '#4fd0e0'], ['#6b5b53', '#c0aca2'],
];
const DASHES = [[], [6, 3]];
/** Steps of an axis with bytes. */
const BINARY_STEPS = Array.from({ length: 50 }, (_, i) => 2 ** i);

const times = [];
const charts = new Map();
let minutes = 5;

const isDark = () => {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
};
const css = (name) => {
  const probe = at('main');
  probe.style.outlineColor = `var(${name})`;
  return getComputedStyle(probe).outlineColor;
};

function format(unit, value) {
  return value === null || value === undefined || Number.isNaN(value) ? '–' : units[unit](value);
}

class Chart {
  constructor({ name, unit }) {
    this.name = name;
    this.unit = unit;
    this.series = new Map();
    // The budget is far above the other lines, until it matters.
    this.hidden = new Set(['budget']);
    this.hasChosen = false;
    const [title, subtitle] = TITLES[name] ?? [name, ''];
    this.title = title;
    this.caption = element('small');
    this.plot = element('div', { className: 'plot', role: 'img' });
    this.legend = element('div', { className: 'legend', role: 'group' });
    this.legend.setAttribute('aria-label', `Lines of the chart ${title}`);
    this.subtitle = subtitle;
    this.card = element('article', { className: 'card' }, element('h3', {}, `${title} `, this.caption), this.plot, this.legend);
    this.card.id = `chart-${name}`;
    at('charts').append(this.card);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.plot);
  }

  /** Appends samples. A series that begins now has no earlier values. */
  append(series, before, count) {
    for (const values of this.series.values()) values.push(...Array(count).fill(null));
    for (const { name, values } of series) {
      if (!this.series.has(name)) this.series.set(name, Array(before + count).fill(null));
      this.series.get(name).splice(before, count, ...values);
    }
  }

  trim(excess) {
    for (const values of this.series.values()) values.splice(0, excess);
  }

  /** The lines that are drawn: `[name, values]`. */
  lines() {
    const all = [...this.series].filter(([, values]) => values.some((value) => value !== null));
    if (all.length <= LINES_MAX) return all;
    const most = ([, values]) => values.reduce((max, value) => Math.max(max, value ?? 0), 0);
    const sorted = all.filter(([name]) => name !== 'budget').sort((a, b) => most(b) - most(a));
    const shown = sorted.slice(0, LINES_MAX - 2);
    const rest = sorted.slice(LINES_MAX - 2);
    const sum = times.map((_, i) => rest.reduce((sum, [, values]) => (values[i] === null ? sum : (sum ?? 0) + values[i]), null));
    return [...shown, [`${rest.length} others`, sum], ...all.filter(([name]) => name === 'budget')];
  }

  draw() {
    const lines = this.lines();
    this.card.hidden = lines.length === 0;
    if (this.card.hidden) return;
    const budget = this.series.get('budget')?.at(-1);
    if (budget) {
      const used = [...this.series].reduce((sum, [name, values]) => (name === 'budget' ? sum : sum + (values.at(-1) ?? 0)), 0);
      const percent = (used / budget) * 100;
      if (!this.hasChosen) this.hidden = new Set(percent > 50 ? [] : ['budget']);
      this.caption.textContent = `${units.bytes(used)} of ${units.bytes(budget)} (${percent < 0.1 ? 'below 0.1 %' : units.percent(percent)}), ${this.subtitle}`;
    } else {
      this.caption.textContent = this.subtitle;
    }
    const names = JSON.stringify(lines.map(([name]) => name));
    if (names !== this.names) {
      this.names = names;
      this.build(lines);
    }
    this.uplot.batch(() => {
      this.uplot.setData([times, ...lines.map(([, values]) => values)], false);
      this.uplot.setScale('x', { min: (times.at(-1) ?? 0) - minutes * 60, max: times.at(-1) ?? 0 });
      lines.forEach(([name], i) => {
        const isShown = !this.hidden.has(name);
        if (this.uplot.series[i + 1].show !== isShown) this.uplot.setSeries(i + 1, { show: isShown });
      });
    });
    this.showValues();
  }

  build(lines) {
    this.uplot?.destroy();
    const color = (i) => COLORS[i % COLORS.length][isDark() ? 1 : 0];
    const axis = { stroke: () => css('--soft'), font: '12px system-ui, sans-serif', grid: { stroke: () => css('--line'), width: 1 }, ticks: { show: false } };
    const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString('en-GB').replace(/:00$/, '');
    const incrs = this.unit.startsWith('bytes') ? { incrs: BINARY_STEPS } : {};
    this.uplot = new uPlot({
      width: this.plot.clientWidth || 400,
      height: HEIGHT,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, y: false, points: { size: 6 } },
      scales: { x: { time: true }, y: { range: (_, min, max) => [Math.min(0, min ?? 0), max > 0 ? max * 1.08 : 1] } },
      axes: [
        { ...axis, size: 28, space: 58, values: (_, splits) => splits.map(clock) },
        { ...axis, ...incrs, size: 76, space: 34, values: (_, splits) => splits.map((value) => format(this.unit, value)) },
      ],
      series: [{}, ...lines.map(([name], i) => ({
        label: name, stroke: () => color(i), width: 1.8, dash: DASHES[Math.floor(i / COLORS.length) % DASHES.length],
        show: !this.hidden.has(name), points: { show: false },
      }))],
      hooks: { setCursor: [() => this.showValues()] },
    }, [times, ...lines.map(([, values]) => values)], this.plot);
    this.values = lines.map(([name]) => [name, element('b')]);
    const legends = this.name === 'memory' ? LEGENDS : {};
    this.legend.replaceChildren(...this.values.map(([name, value], i) => {
      const key = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
      const line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
      for (const [attribute, text] of Object.entries({ x1: 0, x2: 14, y1: 4, y2: 4, stroke: color(i) })) line.setAttribute(attribute, text);
      key.setAttribute('aria-hidden', 'true');
      key.append(line);
      const button = element('button', { type: 'button' }, key, `${legends[name] ?? name} `, value);
      button.setAttribute('aria-pressed', String(!this.hidden.has(name)));
      button.addEventListener('click', () => this.toggle(name, button));
      return button;
    }));
  }

  toggle(name, button) {
    this.hasChosen = true;
    if (!this.hidden.delete(name)) this.hidden.add(name);
    button.setAttribute('aria-pressed', String(!this.hidden.has(name)));
    this.draw();
  }

  /** Shows the values at the cursor, otherwise the latest ones. */
  showValues() {
    if (!this.values || !this.uplot) return;
    const index = this.uplot.cursor.idx ?? times.length - 1;
    this.values.forEach(([, value], i) => { value.textContent = format(this.unit, this.uplot.data[i + 1]?.[index]); });
    const said = this.values.map(([name, value]) => `${name} ${value.textContent}`).join(', ');
    this.plot.setAttribute('aria-label', `${this.title}, the last ${minutes} minutes. ${said}`);
  }

  resize() {
    const width = this.plot.clientWidth;
    if (this.uplot && width > 0 && width !== this.uplot.width) this.uplot.setSize({ width, height: HEIGHT });
  }

  recolor() {
    this.names = undefined;
    this.draw();
  }
}

/** The time of the latest sample, for the next request. */
export const latest = () => Math.round((times.at(-1) ?? 0) * 1000);

/** Adds a response of `GET /api/v1/overview`. */
export function append({ times_ms: more, charts: changed }) {
  const before = times.length;
  times.push(...more.map((time) => time / 1000));
  for (const { name, unit, series } of changed) {
    if (!charts.has(name)) charts.set(name, new Chart({ name, unit }));
    charts.get(name).append(series, before, more.length);
  }
  const first = (times.at(-1) ?? 0) - KEPT_SECONDS;
  const excess = times.findIndex((time) => time >= first);
  if (excess > 0) {
    times.splice(0, excess);
    for (const chart of charts.values()) chart.trim(excess);
  }
  draw();
}

/** Forgets all samples: those of another process follow. */
export function clear() {
  times.length = 0;
  for (const chart of charts.values()) chart.series.clear();
}

function draw() {
  for (const chart of charts.values()) chart.draw();
}

for (const count of MINUTES) {
  choice('ranges', count, `${count} min`, count === minutes, (chosen) => {
    minutes = chosen;
    draw();
  });
}

function recolor() {
  for (const chart of charts.values()) chart.recolor();
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolor);
at('theme').addEventListener('click', () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
  recolor();
});
