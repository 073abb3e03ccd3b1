// Above the line what comes in, below it what goes out, one scale: what does not keep up is seen as a shape.

import { s, h } from './dom.js';
import { short, clock } from './format.js';

function nice(top) {
  const unit = 10 ** Math.floor(Math.log10(top || 1));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * unit).find((each) => top <= each);
}
const points = (values, y) =>
  values
    .map((value, at) => `${((at / (values.length - 1)) * 100).toFixed(2)},${y(value).toFixed(2)}`)
    .join(' ');

export function tide(label, empty) {
  const up = s('polygon', { class: 'in' }),
    down = s('polygon', { class: 'out' }),
    upLine = s('polyline', { class: 'in' }),
    downLine = s('polyline', { class: 'out' });
  const cross = s('line', { class: 'cross', y1: 0, y2: 200, x1: -9, x2: -9 }),
    due = s('line', { class: 'due', x1: 0, x2: 100, y1: -9, y2: -9 });
  const svg = s(
    'svg',
    { viewBox: '0 0 100 200', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    [50, 100, 150].map((y) => s('line', { x1: 0, x2: 100, y1: y, y2: y })),
    up,
    down,
    upLine,
    downLine,
    due,
    cross,
  );
  const above = h('span', { class: 'y y1' }),
    below = h('span', { class: 'y y2' }),
    tip = h('output', { hidden: true });
  const begin = h('p', { class: 'begin', hidden: true }, empty);
  const node = h(
    'div',
    { class: 'tide', role: 'img', tabindex: '0' },
    svg,
    above,
    below,
    tip,
    begin,
    h(
      'div',
      { class: 'x' },
      ['−5 min', '−4 min', '−3 min', '−2 min', '−1 min', 'now'].map((text) =>
        h('span', null, text),
      ),
    ),
  );
  let data = null;
  const show = cursor(
    { node, svg, cross, tip },
    5,
    () => data?.incoming.length ?? 0,
    (at, back) => [
      h('b', null, clock(data.now - back * 1000)),
      h('span', { class: 'in' }, `${short(data.incoming[at])} in`),
      h('span', { class: 'out' }, `${short(data.outgoing[at])} out`),
    ],
  );
  return {
    node,
    draw(state) {
      data = state;
      begin.hidden = [...state.incoming, ...state.outgoing].some((each) => each > 0);
      const top = nice(Math.max(...state.incoming, ...state.outgoing, state.due ?? 0, 1)),
        y = state.due ? 100 + (state.due / top) * 100 : -9;
      due.setAttribute('y1', y);
      due.setAttribute('y2', y);
      const a = points(state.incoming, (v) => 100 - (v / top) * 100),
        b = points(state.outgoing, (v) => 100 + (v / top) * 100);
      upLine.setAttribute('points', a);
      downLine.setAttribute('points', b);
      up.setAttribute('points', `0,100 ${a} 100,100`);
      down.setAttribute('points', `0,100 ${b} 100,100`);
      above.textContent = below.textContent = `${short(top / 2)}/s`;
      node.setAttribute(
        'aria-label',
        `${label}: ${short(state.incoming.at(-1))} in and ${short(state.outgoing.at(-1))} out in the last second; in five minutes at most ${short(Math.max(...state.incoming))} in and ${short(Math.max(...state.outgoing))} out. Arrow keys read single seconds.`,
      );
      show();
    },
  };
}

// A line that the pointer and the arrow keys move by `step`; `text` fills the tip at a place.
function cursor({ node, svg, cross, tip }, step, length, text) {
  let at = null;
  function show() {
    const last = length() - 1,
      x = last >= 0 && at !== null ? (at / last) * 100 : -9;
    tip.hidden = x < 0;
    cross.setAttribute('x1', x);
    cross.setAttribute('x2', x);
    if (x < 0) return;
    tip.style.left = `${Math.min(84, Math.max(1, x))}%`;
    tip.replaceChildren(...text(at, last - at));
  }
  function move(to) {
    at = length() ? Math.max(0, Math.min(length() - 1, Math.round(to))) : null;
    show();
  }
  node.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    if (length()) move(((event.clientX - box.left) / box.width) * (length() - 1));
  });
  for (const name of ['pointerleave', 'blur'])
    node.addEventListener(name, () => {
      at = null;
      show();
    });
  node.addEventListener('keydown', (event) => {
    const by = { ArrowLeft: -step, ArrowRight: step }[event.key];
    if (by && length()) {
      event.preventDefault();
      move((at ?? length() - 1) + by);
    }
  });
  return show;
}

// One number of the last hour: a hill, with gaps where nobody counted.
export function hill(label, words) {
  const area = s('path', { class: 'out' }),
    cross = s('line', { class: 'cross', y1: 0, y2: 100, x1: -9, x2: -9 });
  const svg = s(
    'svg',
    { viewBox: '0 0 100 100', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    s('line', { x1: 0, x2: 100, y1: 50, y2: 50 }),
    area,
    cross,
  );
  const half = h('span', { class: 'y y2' }),
    tip = h('output', { hidden: true }),
    begin = h('p', { class: 'begin', hidden: true });
  const node = h(
    'div',
    { class: 'tide hill', role: 'img', tabindex: '0', hidden: true },
    svg,
    half,
    tip,
    begin,
    h(
      'div',
      { class: 'x' },
      ['−60 min', '−45 min', '−30 min', '−15 min', 'now'].map((text) => h('span', null, text)),
    ),
  );
  let data = null;
  const show = cursor(
    { node, svg, cross, tip },
    3,
    () => data?.hour.length ?? 0,
    (at, back) => [
      h('b', null, clock(data.now - back * data.step_ms)),
      h('span', null, data.hour[at] == null ? 'not counted' : `${short(data.hour[at])} ${words}`),
    ],
  );
  return {
    node,
    draw(state) {
      node.hidden = !state.hour;
      if (!state.hour) return;
      data = state;
      const most = Math.max(...state.hour.map((value) => value ?? 0)),
        top = nice(Math.max(most, 1)),
        wide = 100 / state.hour.length;
      begin.hidden = most > 0;
      begin.textContent = state.hour.every((value) => value == null)
        ? 'This chart begins now: it counts from the first look on.'
        : 'Nothing in this hour.';
      area.setAttribute(
        'd',
        state.hour
          .map((value, at) =>
            value
              ? `M${(at * wide).toFixed(2)},100V${(100 - (value / top) * 100).toFixed(2)}h${wide.toFixed(2)}V100`
              : '',
          )
          .join(''),
      );
      half.textContent = short(top / 2);
      node.setAttribute(
        'aria-label',
        `${label}: ${short(state.hour.at(-1))} ${words} now, at most ${short(most)} in the last hour. Arrow keys move along it.`,
      );
      show();
    },
  };
}
