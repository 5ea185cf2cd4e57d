// Elements and formats. Names come from untrusted clients: all text is set as text, never as HTML.

export const at = (id) => document.getElementById(id);

/** Makes an element with these properties and children. */
export function element(kind, properties = {}, ...children) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Adds a choice to a set of radio buttons. */
export function choice(group, value, label, isChecked, choose) {
  const id = `${group}-${value}`;
  const input = element('input', { type: 'radio', name: group, id, value, checked: isChecked });
  input.addEventListener('change', () => choose(value));
  at(group).append(input, element('label', { htmlFor: id, textContent: label }));
}

const number = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const precise = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });

export const show = (value) => (typeof value === 'number' ? number.format(value) : String(value));
export const words = (name) => name.replaceAll('_', ' ');

export function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${number.format(value)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

/** A Unix time in seconds as a time of day in UTC, with the date if it isn't today. */
export function time(seconds) {
  const [date, clock] = new Date(seconds * 1000).toISOString().slice(0, 19).split('T');
  return date === new Date().toISOString().slice(0, 10) ? `${clock}Z` : `${date} ${clock}Z`;
}

/** A Unix time in seconds, with the time that has passed since. */
export const moment = (seconds) => `${new Date(seconds * 1000).toISOString().replace('.000', '')} (${duration(Math.max(0, Date.now() / 1000 - seconds))})`;

/** The formats of the charts' units. */
export const units = {
  count: (value) => precise.format(value),
  per_second: (value) => `${precise.format(value)}/s`,
  bytes,
  bytes_per_second: (value) => `${bytes(value)}/s`,
  seconds: (value) => (value < 1 ? `${precise.format(value * 1000)} ms` : `${precise.format(value)} s`),
  percent: (value) => `${precise.format(value)} %`,
};
