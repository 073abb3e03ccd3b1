// Elements without a framework. All text enters as text nodes; markup is never parsed.

import { plain } from './format.js';

const SVG = 'http://www.w3.org/2000/svg';

function build(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(9))
    if (child !== null && child !== undefined && child !== false)
      node.append(typeof child === 'object' ? child : plain(child));
  return node;
}

export const h = (tag, props, ...children) => build(document.createElement(tag), props, children);
export const s = (tag, props, ...children) =>
  build(document.createElementNS(SVG, tag), props, children);

// Writes only what differs, so that focus, selection and scroll stay.
export function put(node, text) {
  const now = plain(text);
  const only = node.firstChild;
  if (only?.nodeType === 3 && !only.nextSibling) {
    if (only.data !== now) only.data = now;
  } else node.textContent = now;
}
export const tone = (node, value) => {
  if ((node.dataset.tone ?? '') !== (value ?? '')) node.dataset.tone = value ?? '';
};
export function url(view, query = {}) {
  const rest = new URLSearchParams(
    Object.entries(query).filter(([, value]) => value !== '' && value != null),
  ).toString();
  return `#/${view}${rest ? `?${rest}` : ''}`;
}
