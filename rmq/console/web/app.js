// The frame: where we are, what is followed, keys, and what is shown when nothing can be shown.

import { h, put, url } from './dom.js';
import { clock } from './format.js';
import { ask, change, close, follow, pause, paused, whenStatus } from './live.js';
import { failed, loading, signIn } from './parts.js';
import { badge, views } from './views.js';

const at = (id) => document.getElementById(id);
const main = at('main'),
  live = at('live'),
  jump = at('jump'),
  found = at('found');
const PARENT = { topic: 'topics', group: 'groups', message: 'messages' };
let turn = 0,
  view = null;

function where() {
  const [path, rest] = location.hash.replace(/^#\/?/, '').split('?');
  return { name: path || 'overview', query: Object.fromEntries(new URLSearchParams(rest ?? '')) };
}

async function show() {
  const { name, query } = where(),
    mine = ++turn,
    make = Object.hasOwn(views, name) ? views[name] : null;
  const hadFocus =
    view?.field === document.activeElement && view?.name === name
      ? view.field.selectionStart
      : null;
  close();
  for (const link of document.querySelectorAll('.rail a'))
    if (link.dataset.view === (PARENT[name] ?? name)) {
      link.setAttribute('aria-current', 'page');
      const rail = link.closest('.rail'); // in a narrow window it scrolls to the side
      rail.scrollLeft = link.offsetLeft - (rail.clientWidth - link.offsetWidth) / 2;
    } else link.removeAttribute('aria-current');
  if (!make) {
    main.replaceChildren(
      failed(new Error('There is no such view.'), () => {
        location.hash = '#/';
      }),
    );
    return;
  }
  const wait = setTimeout(() => {
    if (mine === turn) main.replaceChildren(loading());
  }, 80);
  const problem = async (error) => {
    clearTimeout(wait);
    if (mine !== turn) return;
    try {
      await ask('session');
    } catch (refused) {
      if (refused.status === 401) {
        main.replaceChildren(signIn(begin));
        return;
      }
    }
    main.replaceChildren(failed(error, show));
  };
  view = { name, ...make(query) };
  const current = view;
  document.title = `${current.title} · rmq`;
  let isPlaced = false;
  const place = (state) => {
    if (mine !== turn) return;
    clearTimeout(wait);
    current.update(state);
    if (isPlaced) return;
    isPlaced = true;
    main.replaceChildren(current.node);
    scrollTo(0, 0);
    if (hadFocus !== null) {
      current.field.focus();
      current.field.setSelectionRange(hadFocus, hadFocus);
    }
  };
  try {
    if (current.once) {
      place(await ask(current.once, current.query));
      status('live', Date.now());
      return;
    }
    const { view: stream, query: wanted = {} } = current.live;
    place(
      (await ask(stream === 'overview' ? 'session' : stream, wanted).then((state) =>
        stream === 'overview' ? null : state,
      )) ?? (await first(stream, wanted, place, problem)),
    );
    current.live.again = () => {
      if (mine === turn)
        follow(stream, current.live.query, place, (why) => problem(new Error(why)));
    };
    if (stream !== 'overview') current.live.again();
  } catch (error) {
    if (error.name !== 'AbortError') await problem(error);
  }
}

// The overview has its lines only in the stream: wait for its first state.
const first = (stream, wanted, place, problem) =>
  new Promise((resolve) => {
    let begun = false;
    follow(
      stream,
      wanted,
      (state) => {
        if (begun) place(state);
        else {
          begun = true;
          resolve(state);
        }
      },
      (why) => problem(new Error(why)),
    );
  });

function status(kind, heard) {
  live.dataset.kind = kind;
  put(
    live.lastElementChild,
    {
      live: 'live',
      paused: 'paused',
      lost: heard ? `no answer since ${clock(heard)}` : 'no answer',
    }[kind],
  );
  live.setAttribute('aria-pressed', String(kind === 'paused'));
  document.body.dataset.link = kind;
  if (kind !== 'lost') {
    at('lost')?.remove();
    return;
  }
  if (at('lost') || !heard) return;
  document.body.append(
    h(
      'aside',
      { class: 'lost', id: 'lost', 'aria-label': 'Connection' },
      h('b', null, 'The broker does not answer. '),
      `What you see is from ${clock(heard)}. This page tries again by itself; on the machine: `,
      h('code', null, 'rmq doctor'),
    ),
  );
  put(at('say'), 'The connection to the broker is lost.');
}
whenStatus(status);

function theme(next) {
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem('rmq-theme', next);
  } catch {
    /* private windows */
  }
}
try {
  theme(localStorage.getItem('rmq-theme') ?? '');
} catch {
  theme('');
}
// The first step is always one that is seen: away from what the system shows.
const nextTheme = () => {
  const isDark = matchMedia('(prefers-color-scheme: dark)').matches;
  const order = isDark ? ['', 'light', 'dark'] : ['', 'dark', 'light'];
  theme(order[(order.indexOf(document.documentElement.dataset.theme) + 1) % 3]);
};
const KEYS = [
  ['/', 'jump to a topic or group'],
  ['g and a letter', 'a view: g o the overview, g t topics; the list at the left has them'],
  ['p', 'pause, and go on'],
  ['t', 'light, dark, as the system'],
  ['← →', 'single seconds of a chart that has the focus'],
  ['?', 'these keys'],
];
function showKeys() {
  const close = h('button', { class: 'main', type: 'submit' }, 'Close');
  const node = h(
    'dialog',
    { 'aria-labelledby': 'keys-title' },
    h(
      'form',
      { method: 'dialog' },
      h('h2', { id: 'keys-title' }, 'Keys'),
      h(
        'dl',
        { class: 'keys' },
        KEYS.flatMap(([key, text]) => [h('dt', null, h('kbd', null, key)), h('dd', null, text)]),
      ),
      h('p', { class: 'buttons' }, close),
    ),
  );
  node.addEventListener('close', () => node.remove());
  document.body.append(node);
  node.showModal();
}
at('keys').addEventListener('click', showKeys);
at('theme').addEventListener('click', nextTheme);
live.addEventListener('click', () => pause(!paused()));
at('leave').addEventListener('click', () =>
  change('sign-out', {}).finally(() => location.reload()),
);

// -- the field at the top

let chosen = 0,
  asked = 0;
function choose(next) {
  const rows = [...found.children];
  chosen = rows.length ? (next + rows.length) % rows.length : 0;
  rows.forEach((row, number) => row.setAttribute('aria-selected', String(number === chosen)));
}
function shut() {
  found.hidden = true;
  jump.setAttribute('aria-expanded', 'false');
}
function go(row) {
  if (!row) return;
  shut();
  jump.value = '';
  jump.blur();
  location.hash = url(row.dataset.kind, { name: row.dataset.name });
}
jump.addEventListener('input', async () => {
  const mine = ++asked;
  if (!jump.value) {
    shut();
    return;
  }
  const { rows } = await ask('find', { q: jump.value }).catch(() => ({ rows: [] }));
  if (mine !== asked) return;
  found.replaceChildren(
    ...rows.map((row) => {
      const item = h(
        'li',
        { role: 'option', 'data-kind': row.kind, 'data-name': row.name },
        h('i', null, row.kind),
        h('b', null, row.name),
      );
      item.addEventListener('pointerdown', (event) => {
        event.preventDefault();
        go(item);
      });
      return item;
    }),
  );
  found.hidden = !rows.length;
  jump.setAttribute('aria-expanded', String(rows.length > 0));
  choose(0);
});
jump.addEventListener('keydown', (event) => {
  if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
    event.preventDefault();
    choose(chosen + (event.key === 'ArrowDown' ? 1 : -1));
  } else if (event.key === 'Enter') go(found.children[chosen]);
  else if (event.key === 'Escape') {
    shut();
    jump.blur();
  }
});
jump.addEventListener('blur', shut);

// -- keys

let isGo = false;
document.addEventListener('keydown', (event) => {
  if (
    event.target.closest('input, select, textarea, dialog') ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey
  )
    return;
  if (isGo) {
    isGo = false;
    const link = document.querySelector(`.rail a[data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      location.hash = link.getAttribute('href');
    }
    return;
  }
  const actions = {
    '/': () => jump.focus(),
    g: () => {
      isGo = true;
    },
    t: nextTheme,
    p: () => pause(!paused()),
    '?': showKeys,
  };
  if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
});

addEventListener('hashchange', show);
async function begin() {
  try {
    const told = await ask('session');
    put(at('node'), `${told.cluster} · ${told.node}`);
    put(at('who'), [told.user, !told.write && 'read only'].filter(Boolean).join(' · '));
    at('who').title = told.write ? '' : `Nothing can be changed here: ${told.reason}.`;
    at('leave').hidden = !told.signed_in;
    badge(told.problems);
    show();
  } catch (error) {
    main.replaceChildren(
      error.status === 401 ? signIn(begin) : failed(error, () => location.reload()),
    );
  }
}
begin();
