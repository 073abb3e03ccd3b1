// Messages: lists, one message with its body, dead letters. Bodies are foreign: shown as text nodes, opened up to 64 KiB.

import { h, put, url } from './dom.js';
import { bytes, count, moment, short, span } from './format.js';
import { button, resend } from './change.js';
import { ask } from './live.js';
import { figures, table } from './parts.js';

const place = (r) => ({ topic: r.topic, queue: r.queue, offset: r.offset });
const columns = [
  {
    label: 'Stored',
    class: 'mono id',
    text: (r) => moment(r.stored),
    to: (r) => url('message', place(r)),
  },
  { label: 'Queue', num: true, narrow: true, text: (r) => r.queue },
  { label: 'Offset', num: true, narrow: true, text: (r) => r.offset },
  { label: 'Key', class: 'mono one', text: (r) => r.key, title: (r) => r.key },
  { label: 'Tag', class: 'mono one', narrow: true, text: (r) => r.tag, title: (r) => r.tag },
  { label: 'Size', num: true, narrow: true, text: (r) => bytes(r.size) },
  { label: 'Body', class: 'mono body', text: (r) => (r.cut ? `${r.text}…` : r.text) },
];

const field = (label, name, value, extra = {}) =>
  h(
    'label',
    null,
    label,
    h('input', { name, value: value ?? '', autocomplete: 'off', spellcheck: 'false', ...extra }),
  );
const local = (ms) => {
  const d = new Date(Number(ms));
  return Number.isNaN(d.getTime()) || !ms
    ? ''
    : new Date(d.getTime() - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
};

export function messages(query) {
  const found = h('p', { class: 'quiet', role: 'status' });
  const names = h('datalist', { id: 'topic-names' });
  const topic = field('Topic', 'topic', query.topic, { required: true, list: names.id });
  let asked = 0;
  topic.addEventListener('input', async (event) => {
    const mine = ++asked;
    const { rows } = await ask('find', { q: event.target.value }).catch(() => ({ rows: [] }));
    if (mine !== asked) return;
    const found = rows.filter((row) => row.kind === 'topic');
    names.replaceChildren(...found.map((row) => h('option', { value: row.name })));
  });
  const form = h(
    'form',
    {
      class: 'search',
      onsubmit: (event) => {
        event.preventDefault();
        const given = Object.fromEntries(new FormData(form));
        if (given.at) given.at = String(new Date(given.at).getTime());
        const next = url('messages', given);
        if (location.hash === next) dispatchEvent(new HashChangeEvent('hashchange'));
        else location.hash = next;
      },
    },
    topic,
    names,
    field('Key or id', 'key', query.key || query.id),
    field('Text', 'q', query.q),
    field('From', 'at', local(query.at), { type: 'datetime-local', step: '1' }),
    h('button', { class: 'main' }, 'Find'),
  );
  const isDead = (query.topic ?? '').startsWith('%DLQ%'),
    chosen = new Set();
  const again = button('Send chosen again…', () =>
    resend(query.topic.slice(5), { offsets: [...chosen].join(',') }),
  );
  again.disabled = true;
  again.hidden = !isDead;
  const pick = {
    label: 'Choose',
    check: (r) => chosen.has(r.offset),
    name: (r) => `Choose offset ${r.offset}`,
    act: (r, yes) => {
      if (yes) chosen.add(r.offset);
      else chosen.delete(r.offset);
      again.disabled = !chosen.size;
    },
  };
  const list = table('Messages', isDead ? [...columns, pick] : columns, {
    empty: query.topic ? 'No message was found.' : 'Name a topic.',
  });
  const node = h(
    'div',
    null,
    h('header', { class: 'page' }, h('h1', null, 'Messages'), found, again),
    form,
    list.node,
  );
  const wanted = { ...query };
  if (/^[0-9A-F]{32}$|^[0-9A-F]{56}$/i.test(query.key ?? '')) {
    wanted.id = query.key;
    delete wanted.key;
  }
  const asks = query.topic || wanted.id;
  return {
    title: 'Messages',
    once: asks ? 'messages' : 'session',
    query: asks ? wanted : {},
    node,
    update(s) {
      if (!asks) {
        put(found, '');
        list.draw([]);
        return;
      }
      put(
        found,
        `looked at ${count(s.looked)}${s.complete ? ', these are all' : `, there are more${s.until ? `; back to ${moment(s.until)}` : ''}`}`,
      );
      list.draw(s.rows);
    },
  };
}

// A body is text if it is UTF-8 without zero bytes; JSON is indented as text, so that large numbers stay as they are.
function opened(base64) {
  const data = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(data);
    if (!text.includes('\0')) return /^\s*[[{]/.test(text) ? indented(text) : text;
  } catch {
    /* no text */
  }
  return hex(data);
}
function hex(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, 4096); at += 16) {
    const part = [...data.subarray(at, at + 16)];
    lines.push(
      `${at.toString(16).padStart(8, '0')}  ${part
        .map((each) => each.toString(16).padStart(2, '0'))
        .join(' ')
        .padEnd(
          48,
        )} ${part.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : '.')).join('')}`,
    );
  }
  return lines.join('\n') + (data.length > 4096 ? '\n…' : '');
}
export function indented(text) {
  let out = '',
    depth = 0,
    isText = false,
    isEscaped = false;
  for (const each of text) {
    if (isText) {
      out += each;
      if (isEscaped) isEscaped = false;
      else if (each === '\\') isEscaped = true;
      else if (each === '"') isText = false;
      continue;
    }
    if (each === '"') {
      isText = true;
      out += each;
    } else if (each === '{' || each === '[') {
      depth += 1;
      out += `${each}\n${'  '.repeat(Math.min(depth, 40))}`;
    } else if (each === '}' || each === ']') {
      depth = Math.max(0, depth - 1);
      out = `${out.trimEnd()}\n${'  '.repeat(Math.min(depth, 40))}${each}`;
    } else if (each === ',') out += `,\n${'  '.repeat(Math.min(depth, 40))}`;
    else if (each === ':') out += ': ';
    else if (!/\s/.test(each)) out += each;
  }
  return out;
}

export function message(query) {
  const facts = figures([
    [
      'Stored',
      (s) => moment(s.row.stored),
      (s) => `${span(Math.max(0, s.now - s.row.stored))} ago`,
    ],
    ['Sent', (s) => moment(s.row.born), (s) => `from ${s.born_host}`],
    [
      'Size',
      (s) => bytes(s.stored_size),
      (s) => (s.compressed ? `compressed with ${s.compressed}` : ''),
    ],
    ['Came again', (s) => count(s.row.again), () => 'times'],
  ]);
  const body = h('pre', { class: 'message', tabindex: '0', 'aria-label': 'Body' }),
    note = h('p', { class: 'quiet' });
  const properties = table(
    'Properties',
    [
      { label: 'Name', class: 'mono', text: (r) => r[0] },
      { label: 'Value', class: 'mono', text: (r) => r[1] },
    ],
    { empty: 'No properties.' },
  );
  const journey = table(
    'Groups',
    [
      { label: 'Group', text: (r) => r.group, to: (r) => url('group', { name: r.group }) },
      {
        label: 'State',
        text: (r) =>
          ({
            passed: 'passed it',
            'not wanted': 'does not want it',
            waits: r.before == null ? 'has not begun' : `waits with ${short(r.before)} before it`,
          })[r.state],
      },
    ],
    { empty: 'No group reads this topic.' },
  );
  const isDead = (query.topic ?? '').startsWith('%DLQ%');
  const whole = h(
    'a',
    { href: `api/body?${new URLSearchParams(query)}`, download: '' },
    'Save the stored bytes',
  );
  const node = h(
    'div',
    null,
    h(
      'header',
      { class: 'page' },
      h(
        'p',
        { class: 'crumb' },
        h('a', { href: url('messages', { topic: query.topic }) }, 'Messages'),
        ' ',
        h('a', { href: url('topic', { name: query.topic }) }, query.topic),
      ),
      h('h1', { class: 'mono' }, `${query.queue}:${query.offset}`),
      isDead
        ? button('Send again…', () => resend(query.topic.slice(5), { offsets: query.offset }))
        : null,
    ),
    facts.node,
    h('section', null, h('header', null, h('h2', null, 'Body'), whole), body, note),
    h(
      'div',
      { class: 'halves' },
      h('section', null, h('header', null, h('h2', null, 'Properties')), properties.node),
      h(
        'section',
        null,
        h('header', null, h('h2', null, 'Groups that read the topic')),
        journey.node,
      ),
    ),
  );
  return {
    title: `${query.topic} ${query.queue}:${query.offset}`,
    once: 'message',
    query,
    node,
    update(s) {
      facts.draw(s);
      put(body, opened(s.body));
      put(
        note,
        [
          s.cut && 'only the first 64 KiB are shown',
          s.opened === false && 'it cannot be decompressed here, and is shown as it is stored',
        ]
          .filter(Boolean)
          .join('; '),
      );
      properties.draw([
        ['id', s.row.id],
        ['offset id', s.offset_id],
        ...Object.entries(s.properties),
      ]);
      journey.draw(s.journey);
    },
  };
}

export function dead(query) {
  if (!query.name) {
    const list = table(
      'Dead letters',
      [
        { label: 'Group', text: (r) => r.name, to: (r) => url('dead', { name: r.name }) },
        {
          label: 'In the last hour',
          num: true,
          text: (r) => count(r.hour),
          tone: (r) => (r.hour ? 'warn' : ''),
        },
        { label: 'Kept', num: true, text: (r) => short(r.kept) },
        { label: 'First', narrow: true, text: (r) => (r.first > 0 ? moment(r.first) : '–') },
        { label: 'Last', narrow: true, text: (r) => (r.last > 0 ? moment(r.last) : '–') },
      ],
      { empty: 'No group has dead letters.' },
    );
    return {
      title: 'Dead letters',
      once: 'dead',
      query,
      node: h(
        'div',
        null,
        h(
          'header',
          { class: 'page' },
          h('h1', null, 'Dead letters'),
          h(
            'p',
            { class: 'quiet' },
            'Messages that failed too often. No client says why: the logs of the consumers do.',
          ),
        ),
        list.node,
      ),
      update(s) {
        list.draw(s.rows);
      },
    };
  }
  let most = 1;
  const kinds = table('By topic and tag', [
    { label: 'Topic', text: (r) => r.topic || '–' },
    { label: 'Tag', class: 'mono', text: (r) => r.tag || '–' },
    { label: 'Share', class: 'barcell', bar: (r) => r.count / most },
    { label: 'Dead letters', num: true, text: (r) => count(r.count) },
    {
      label: 'Send again',
      button: 'these…',
      act: (r) => resend(query.name, { topic: r.topic, tag: r.tag }),
    },
  ]);
  const note = h('p', { class: 'quiet' }),
    actions = h('p', { class: 'actions' }),
    link = h('a', { href: url('messages', { topic: `%DLQ%${query.name}` }) }, 'Show them');
  actions.append(button('Send all again…', () => resend(query.name, { all: true })));
  return {
    title: `Dead letters of ${query.name}`,
    once: 'dead',
    query,
    node: h(
      'div',
      null,
      h(
        'header',
        { class: 'page' },
        h(
          'p',
          { class: 'crumb' },
          h('a', { href: '#/dead' }, 'Dead letters'),
          ' ',
          h('a', { href: url('group', { name: query.name }) }, 'group'),
        ),
        h('h1', { class: 'mono' }, query.name),
        link,
        note,
      ),
      actions,
      kinds.node,
    ),
    update(s) {
      put(note, `${count(s.kept)} kept; looked at the newest ${count(s.looked)}`);
      most = Math.max(1, ...s.kinds.map((kind) => kind.count));
      kinds.draw(s.kinds);
    },
  };
}
