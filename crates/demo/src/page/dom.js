// Helpers for building the page.

const SVG = 'http://www.w3.org/2000/svg';

export const $ = (id) => document.getElementById(id);

/** Sets a text if it differs. */
export function text(node, value) {
  if (node.textContent !== `${value}`) node.textContent = value;
}

export function element(tag, className, ...content) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...content.map((part) => (part instanceof Node ? part : `${part}`)));
  return node;
}

export function drawn(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const name in attributes) node.setAttribute(name, attributes[name]);
  return node;
}

/** A radio button of which only the label is visible. */
export function choice(name, value, label, chosen) {
  const input = document.createElement('input');
  Object.assign(input, { type: 'radio', name, value, id: `${name}-${value}` });
  label.htmlFor = input.id;
  input.addEventListener('change', () => chosen(value));
  return input;
}

export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(bytes < 1e4 ? 1 : 0)} kB`;
  return `${(bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0)} MB`;
}

/** The colour from a document, or grey. */
export const colour = (value) => (/^#[0-9a-f]{6}$/i.test(value) ? value : '#888888');

/** Loads a script of the server once. */
export function loaded(url) {
  const there = document.querySelector(`script[src="${url}"]`);
  if (there) return there.whenLoaded;
  const script = element('script');
  script.whenLoaded = new Promise((resolve, reject) => {
    script.onload = resolve;
    script.onerror = () => reject(new Error(`${url} could not be loaded`));
  });
  script.src = url;
  document.head.append(script);
  return script.whenLoaded;
}
