// What views are made of: tables that keep their rows, problems, figures, and what is shown when there is nothing to show.

import { h, put, tone, url } from './dom.js';
import { span } from './format.js';
import { change } from './live.js';

const SHORT = 10; // characters of a text that never gets a second line

// columns: { label, num, narrow, class, sort, text(row), title(row), to(row) -> address, tone(row), bar(row) -> 0..1 }
export function table(
  label,
  columns,
  { sort = null, onSort = null, empty = 'Nothing here.' } = {},
) {
  const heads = columns.map((c) =>
    h(
      'th',
      {
        scope: 'col',
        class: [c.num && 'num', c.narrow && 'narrow'].filter(Boolean).join(' ') || null,
      },
      c.sort && onSort
        ? h('button', { class: 'sort', onclick: () => onSort(c.sort) }, c.label)
        : c.label,
    ),
  );
  const body = h('tbody'),
    none = h('p', { class: 'empty', hidden: true }, empty);
  const node = h(
    'div',
    null,
    h(
      'table',
      null,
      h('caption', { class: 'unseen' }, label),
      h('thead', null, h('tr', null, heads)),
      body,
    ),
    none,
  );
  const mark = (name, isUp) =>
    columns.forEach((c, at) => {
      if (c.sort && onSort)
        heads[at].setAttribute(
          'aria-sort',
          c.sort === name ? (isUp ? 'ascending' : 'descending') : 'none',
        );
    });
  mark(sort, false);
  return {
    node,
    mark,
    draw(rows) {
      none.hidden = rows.length > 0;
      while (body.children.length > rows.length) body.lastElementChild.remove();
      rows.forEach((row, number) => {
        const line =
          body.children[number] ??
          body.appendChild(
            h(
              'tr',
              null,
              columns.map((c, at) =>
                h(at ? 'td' : 'th', {
                  scope: at ? null : 'row',
                  class:
                    [c.num && 'num', c.narrow && 'narrow', c.class].filter(Boolean).join(' ') ||
                    null,
                }),
              ),
            ),
          );
        columns.forEach((c, at) => cell(line.children[at], c, row));
      });
    },
  };
}

function cell(td, column, row) {
  if (column.title && td.title !== column.title(row)) td.title = column.title(row);
  if (column.tone) tone(td, column.tone(row));
  if (column.bar) {
    const bar = td.firstChild ?? td.appendChild(h('i', { class: 'bar' })),
      width = `${Math.min(1, column.bar(row)) * 100}%`;
    if (bar.style.width !== width) bar.style.width = width;
  } else if (column.act) {
    let part = td.firstChild;
    if (!part) {
      part = td.appendChild(
        column.check
          ? h('input', { type: 'checkbox' })
          : h('button', { class: 'plain' }, column.button),
      );
      part.addEventListener(column.check ? 'change' : 'click', () =>
        column.act(part.row, part.checked),
      );
    }
    part.row = row;
    if (column.check) {
      part.checked = column.check(row);
      part.setAttribute('aria-label', column.name(row));
    }
  } else if (column.to) {
    const link = td.firstChild ?? td.appendChild(h('a')),
      to = column.to(row);
    if (link.getAttribute('href') !== to) link.setAttribute('href', to);
    put(link, column.text(row));
  } else put(td, column.text(row));
  td.classList.toggle('whole', !column.bar && td.textContent.length <= SHORT);
}

export function command(text) {
  if (!text) return null;
  const button = h(
    'button',
    {
      class: 'copy',
      onclick: () =>
        navigator.clipboard?.writeText(text).then(
          () => put(button, 'copied'),
          () => put(button, 'not copied'),
        ),
    },
    'copy',
  );
  return [h('code', null, text), ' ', button];
}
export const problem = (now) => (each) =>
  h(
    'li',
    { 'data-level': each.level },
    each.since_ms ? h('span', { class: 'since' }, `since ${span(now - each.since_ms)}`) : null,
    h(
      'p',
      null,
      each.group
        ? [h('a', { href: url('group', { name: each.group }) }, each.group), ': ']
        : `${each.subject}: `,
      each.message,
    ),
    h('p', { class: 'do' }, each.action, ' ', command(each.command)),
  );

export function problems() {
  const node = h('ol', { class: 'problems' });
  let shown = '';
  return {
    node,
    draw(rows, now) {
      const key = JSON.stringify(rows) + Math.floor(now / 30_000);
      if (key !== shown) {
        shown = key;
        node.replaceChildren(...rows.map(problem(now)));
      }
    },
  };
}

export function figures(rows) {
  const parts = rows.map(([label]) => ({
    value: h('dd'),
    note: h('dd', { class: 'note' }),
    label,
  }));
  const node = h(
    'dl',
    { class: 'facts' },
    parts.map((part) => h('div', null, h('dt', null, part.label), part.value, part.note)),
  );
  return {
    node,
    draw(state) {
      rows.forEach(([, read, note, mark], at) => {
        put(parts[at].value, read(state));
        put(parts[at].note, note?.(state) ?? '');
        tone(parts[at].value, mark?.(state));
      });
    },
  };
}

export const loading = () =>
  h(
    'section',
    { class: 'loading', 'aria-busy': 'true', 'aria-label': 'Loading' },
    [1, 2, 3, 4, 5].map(() => h('i')),
  );
export const failed = (error, again) =>
  h(
    'section',
    { class: 'state', role: 'alert' },
    h('h1', null, error.message),
    h('p', null, 'On the machine: ', h('code', null, 'rmq doctor')),
    h('p', null, h('button', { class: 'plain', onclick: again }, 'Try again')),
  );

export function signIn(onDone) {
  const note = h('p', { role: 'alert' }),
    user = h('input', { autocomplete: 'username', required: true }),
    password = h('input', { type: 'password', autocomplete: 'current-password', required: true });
  async function submit(event) {
    event.preventDefault();
    try {
      await change('sign-in', { user: user.value, password: password.value });
      onDone();
    } catch (error) {
      put(note, error.message);
      password.value = '';
    }
  }
  return h(
    'form',
    { class: 'state sign-in', onsubmit: submit },
    h('h1', null, 'Sign in'),
    h('p', null, 'With a user of this broker.'),
    h('label', null, 'User', user),
    h('label', null, 'Password', password),
    note,
    h('p', null, h('button', { class: 'main' }, 'Sign in')),
  );
}
