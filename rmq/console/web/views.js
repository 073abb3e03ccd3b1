// One function a view: { title, live, node, update(state) }. `live` names the stream and its query.

import { h, put, url } from './dom.js';
import { bound, brief, bytes, count, every, moment, rate, share, short, span } from './format.js';
import { command, figures, problems, table } from './parts.js';
import { button, groupSettings, putBack, resetOffsets, sendTo, topicSettings } from './change.js';
import { hill, tide } from './plot.js';
import { broker, brokers, delays, transactions } from './machine.js';
import { dead, message, messages } from './messages.js';

const levelTone = (row) => (row.level === 'bad' || row.level === 'warn' ? row.level : '');
const groupColumns = [
  { label: 'Group', sort: 'name', text: (r) => r.name, to: (r) => url('group', { name: r.name }) },
  { label: 'Behind', sort: 'lag', num: true, text: (r) => short(r.lag), tone: levelTone },
  { label: 'Waits', sort: 'waits', num: true, text: (r) => (r.lag ? span(r.waits_ms) : '') },
  { label: 'Out /s', sort: 'out', num: true, narrow: true, text: (r) => rate(r.out) },
  { label: 'Clients', sort: 'clients', num: true, narrow: true, text: (r) => count(r.clients) },
  { label: 'Why', text: (r) => r.message, tone: levelTone },
];
const topicColumns = [
  { label: 'Topic', sort: 'name', text: (r) => r.name, to: (r) => url('topic', { name: r.name }) },
  { label: 'In /s', sort: 'in', num: true, text: (r) => rate(r.in) },
  { label: 'Out /s', sort: 'out', num: true, text: (r) => rate(r.out) },
  { label: 'Behind', sort: 'lag', num: true, text: (r) => (r.groups ? short(r.lag) : 'no group') },
  { label: 'Groups', sort: 'groups', num: true, narrow: true, text: (r) => count(r.groups) },
  { label: 'Queues', sort: 'queues', num: true, narrow: true, text: (r) => count(r.queues) },
  { label: 'Kept', num: true, narrow: true, text: (r) => short(r.kept) },
];

function overview() {
  const title = h('h1'),
    list = problems(),
    more = h('p'),
    plot = tide('Messages', 'No message since this chart began, at most five minutes ago.');
  const now = {
    in: h('b'),
    out: h('b'),
    due: h('span', { title: 'What would leave if every group kept up: the dotted line' }),
  };
  const facts = figures([
    [
      'Takes messages',
      (s) => (s.writable ? 'yes' : 'no'),
      (s) => `${count(s.refused)} refused since the start`,
      (s) => (s.writable ? '' : 'bad'),
    ],
    ['A send takes', (s) => bound(s.send_p99_ms, 3000), () => '99 of 100, last minute'],
    ['Dead letters', (s) => count(s.dead), () => 'in the last hour', (s) => (s.dead ? 'warn' : '')],
    [
      'Disk',
      (s) => share(s.disk.used / s.disk.total),
      (s) =>
        !s.disk.total
          ? 'its size is not told'
          : s.disk.growth_per_hour == null
            ? `${bytes(s.disk.total - s.disk.used)} free`
            : `+${bytes(s.disk.growth_per_hour)} an hour`,
    ],
    ['Connections', (s) => count(s.connections)],
    ['Runs for', (s) => span(s.up_ms), (s) => `rmq ${s.version}`],
  ]);
  const ofGroups = table(
      'Groups that are furthest behind',
      groupColumns.filter((c) => !c.narrow),
    ),
    ofTopics = table(
      'Busiest topics',
      topicColumns.filter((c) => !c.narrow),
    );
  const allGroups = h('a', { href: '#/groups' }),
    allTopics = h('a', { href: '#/topics' });
  const node = h(
    'div',
    null,
    title,
    list.node,
    more,
    h(
      'section',
      { class: 'flow' },
      h(
        'header',
        null,
        h('h2', null, 'Messages'),
        h(
          'p',
          { class: 'now' },
          h('span', { class: 'in' }, now.in, ' in /s'),
          h('span', { class: 'out' }, now.out, ' out /s'),
          h('span', { class: 'quiet' }, 'of ', now.due, ' due'),
        ),
      ),
      plot.node,
    ),
    facts.node,
    h(
      'div',
      { class: 'halves' },
      h(
        'section',
        null,
        h('header', null, h('h2', null, 'Furthest behind'), allGroups),
        ofGroups.node,
      ),
      h(
        'section',
        null,
        h('header', null, h('h2', null, 'Busiest topics'), allTopics),
        ofTopics.node,
      ),
    ),
  );
  return {
    title: 'Overview',
    live: { view: 'overview' },
    node,
    update(s) {
      const wrong = s.problems.length;
      put(
        title,
        wrong ? `${wrong === 1 ? 'One thing' : `${wrong} things`} to look at` : 'Nothing is wrong',
      );
      list.draw(s.problems.slice(0, 3), s.now);
      more.replaceChildren(
        ...(wrong > 3
          ? [h('a', { href: '#/problems' }, `${wrong - 3} more that are less urgent`)]
          : []),
      );
      put(now.in, count(s.incoming.at(-1)));
      put(now.out, count(s.outgoing.at(-1)));
      put(now.due, rate(s.due));
      plot.draw(s);
      facts.draw(s);
      ofGroups.draw(s.groups);
      ofTopics.draw(s.topics);
      put(allGroups, every('group', s.groups_total));
      put(allTopics, every('topic', s.topics_total));
      badge(wrong);
    },
  };
}

export function badge(number) {
  const node = document.getElementById('badge');
  node.hidden = !number;
  put(node, number || '');
}

function allProblems() {
  const list = problems(),
    note = h('p', { class: 'quiet' });
  return {
    title: 'Problems',
    live: { view: 'problems' },
    node: h('div', null, h('h1', null, 'Problems'), note, list.node),
    update(s) {
      put(
        note,
        `${s.rows.length || 'Nothing'} ${s.rows.length ? 'to look at' : 'is wrong'}; looked ${s.sampled ? `${span(s.now - s.sampled)} ago` : 'not yet'}. rmq doctor shows the same, and more about the machine.`,
      );
      list.draw(s.rows, s.now);
      badge(s.rows.length);
    },
  };
}

// A list of the broker: it filters, sorts and cuts. With `row`, the height of one, the page scrolls over all of them: it shows those
// that are seen, between two spaces.
function listing(title, view, columns, query, first, { row = 0, system = null, note = null } = {}) {
  const now = {
    sort: query.sort || first,
    up: query.up || '',
    q: query.q || '',
    system: query.system || '',
    n: query.n || '60',
  };
  const live = { view, query: { ...now } };
  const found = h('p', { class: 'quiet', role: 'status' });
  const go = (next) => location.replace(url(view, { ...now, ...next }));
  let timer = 0;
  const field = h('input', {
    type: 'search',
    value: now.q,
    placeholder: 'Filter by name',
    'aria-label': `Filter ${title.toLowerCase()} by name`,
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => go({ q: field.value, n: '60' }), 200);
    },
  });
  const box =
    system &&
    h(
      'label',
      { class: 'check' },
      h('input', {
        type: 'checkbox',
        checked: now.system === '1',
        onchange: (event) => go({ system: event.target.checked ? '1' : '' }),
      }),
      ` ${system}`,
    );
  const list = table(title, columns, {
    sort: now.sort,
    empty: 'No name has this in it.',
    onSort: (name) => go({ sort: name, up: name === now.sort && !now.up ? '1' : '' }),
  });
  list.mark(now.sort, now.up === '1');
  const more = h(
    'p',
    { class: 'more', hidden: true },
    h('button', { class: 'plain', onclick: () => go({ n: '200' }) }, 'Show up to 200'),
  );
  const before = h('div'),
    after = h('div'),
    all = h('div', { class: row ? 'rows' : null }, before, list.node, after);
  let start = 0,
    shown = 0;
  function seen() {
    const high = Math.ceil(innerHeight / row),
      top = Math.floor((scrollY - all.offsetTop) / row) - 15;
    return {
      from: Math.max(0, Math.min(top, shown - high)),
      n: Math.min(200, Math.max(60, high + 30)),
    };
  }
  function moved() {
    if (!all.isConnected) {
      removeEventListener('scroll', moved);
      return;
    }
    const place = seen();
    if (Math.abs(place.from - start) <= 12) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      Object.assign(live.query, seen());
      live.again?.();
    }, 60);
  }
  if (row) addEventListener('scroll', moved, { passive: true });
  return {
    title,
    live,
    field,
    node: h(
      'div',
      null,
      h('header', { class: 'page' }, h('h1', null, title), found, box, field),
      note?.node,
      all,
      more,
    ),
    update(s) {
      put(found, s.found === s.total ? count(s.total) : `${count(s.found)} of ${count(s.total)}`);
      note?.update(s);
      if (row) {
        start = s.start;
        shown = s.found;
        before.style.height = `${start * row}px`;
        after.style.height = `${Math.max(0, s.found - start - s.rows.length) * row}px`;
      } else more.hidden = s.rows.length >= s.found || now.n === '200';
      list.draw(s.rows);
    },
  };
}

function topic(query) {
  const facts = figures([
    ['In', (s) => `${rate(s.row.in)} /s`],
    ['Out', (s) => `${rate(s.row.out)} /s`],
    ['Furthest behind', (s) => short(s.row.lag)],
    ['Kept', (s) => short(s.row.kept), () => 'messages'],
    ['Queues', (s) => count(s.queues.length)],
    ['Stored once', (s) => count(s.stored_once), () => 'retried sends'],
  ]);
  const hour = hill('Messages that came', 'in 20 s');
  let top = 1,
    last = null;
  const queues = table('Queues', [
    { label: 'Queue', text: (r) => r.queue },
    { label: 'Share of what comes in', class: 'barcell', bar: (r) => r.in / top },
    { label: 'In /s', num: true, text: (r) => rate(r.in) },
    { label: 'First offset', num: true, narrow: true, text: (r) => r.first },
    { label: 'End', num: true, narrow: true, text: (r) => r.end },
    { label: 'Kept', num: true, text: (r) => short(r.kept) },
  ]);
  const groups = table(
    'Groups',
    groupColumns.filter((c) => !c.narrow),
    { empty: 'No group reads this topic.' },
  );
  const node = h(
    'div',
    null,
    h(
      'header',
      { class: 'page' },
      h('p', { class: 'crumb' }, h('a', { href: '#/topics' }, 'Topics')),
      h('h1', { class: 'mono' }, query.name),
      h('a', { href: url('messages', { topic: query.name }) }, 'messages'),
      button('Send…', () => sendTo(query.name)),
      button('Settings…', () => topicSettings(last)),
    ),
    facts.node,
    hour.node,
    h(
      'div',
      { class: 'halves' },
      h('section', null, h('header', null, h('h2', null, 'Queues')), queues.node),
      h('section', null, h('header', null, h('h2', null, 'Groups that read it')), groups.node),
    ),
  );
  return {
    title: query.name,
    live: { view: 'topic', query },
    node,
    update(s) {
      last = s;
      top = Math.max(...s.queues.map((q) => q.in), 0.001);
      facts.draw(s);
      hour.draw(s);
      queues.draw(s.queues);
      groups.draw(s.groups);
    },
  };
}

function group(query) {
  const why = h('section', { class: 'why' }),
    kind = h('p', { class: 'quiet' });
  const hour = hill('What waits', 'wait');
  let shown = '',
    top = 1,
    last = null;
  const facts = figures([
    [
      'Behind',
      (s) => count(s.row.lag),
      (s) => (s.row.lag ? `waits ${span(s.row.waits_ms)}` : ''),
      (s) => (s.row.level === 'bad' ? 'bad' : ''),
    ],
    ['Arrives', (s) => `${rate(s.arriving)} /s`],
    ['Is done', (s) => (s.done == null ? '–' : `${rate(s.done)} /s`)],
    ['Comes again', (s) => `${rate(s.again)} /s`],
    ['Dead letters', (s) => count(s.dead), () => 'in the last hour'],
  ]);
  const queues = table('Lag by queue', [
    { label: 'Queue', text: (r) => `${r.topic} ${r.queue_id}` },
    {
      label: 'Behind',
      class: 'barcell',
      bar: (r) => r.lag / top,
      tone: (r) => (r.waits_ms >= 60_000 && r.lag ? 'bad' : ''),
    },
    { label: 'Messages', num: true, text: (r) => short(r.lag) },
    { label: 'Fetched', num: true, narrow: true, text: (r) => short(r.in_hand) },
    { label: 'Waits', num: true, narrow: true, text: (r) => (r.lag ? span(r.waits_ms) : '') },
    { label: 'Done /s', num: true, text: (r) => rate(r.done_per_s) },
    { label: 'Owner', class: 'mono id', text: (r) => brief(r.owner), title: (r) => r.owner ?? '' },
  ]);
  const clients = table(
    'Clients',
    [
      { label: 'Client', class: 'mono id', text: (r) => brief(r.id), title: (r) => r.id },
      { label: 'Address', class: 'mono', narrow: true, text: (r) => r.address },
      { label: 'Language', narrow: true, text: (r) => r.library },
      { label: 'Done /s', num: true, text: (r) => rate(r.done_per_s) },
    ],
    { empty: 'Nobody is connected.' },
  );
  const sides = table(
    'Subscriptions',
    [
      { label: 'Clients', text: (r) => r.clients },
      { label: 'Want', class: 'mono', text: (r) => r.wants },
    ],
    { empty: 'No member, no subscription.' },
  );
  const node = h(
    'div',
    null,
    h(
      'header',
      { class: 'page' },
      h('p', { class: 'crumb' }, h('a', { href: '#/groups' }, 'Groups')),
      h('h1', { class: 'mono' }, query.name),
      kind,
      button('Settings…', () => groupSettings(last)),
      button('Reset offsets…', () => resetOffsets(last)),
      button('Put back…', () => putBack(last.row.name)),
    ),
    why,
    facts.node,
    hour.node,
    h(
      'div',
      { class: 'halves' },
      h('section', null, h('header', null, h('h2', null, 'Lag by queue')), queues.node),
      h(
        'section',
        null,
        h('header', null, h('h2', null, 'Clients')),
        clients.node,
        h('header', null, h('h2', null, 'Subscriptions')),
        sides.node,
      ),
    ),
  );
  return {
    title: query.name,
    live: { view: 'group', query },
    node,
    update(s) {
      last = s;
      const key = JSON.stringify(s.why);
      if (key !== shown) {
        shown = key;
        why.dataset.level = s.why.level;
        why.replaceChildren(
          h('p', { class: 'say' }, s.why.message),
          ...s.why.details.map((text) => h('p', null, text)),
          h('p', null, s.why.action, ' ', command(s.why.command)),
          ...(s.why.catch_up ? [h('p', null, `${s.why.catch_up}.`)] : []),
        );
      }
      put(
        kind,
        [
          { CONSUME_PASSIVELY: 'push', CONSUME_ACTIVELY: 'pull', CONSUME_POP: 'pop' }[s.kind],
          s.model?.toLowerCase(),
        ]
          .filter(Boolean)
          .join(', ') || 'nobody is online',
      );
      top = Math.max(...s.queues.map((q) => q.lag), 1);
      facts.draw(s);
      hour.draw(s);
      queues.draw(s.queues);
      clients.draw(s.clients);
      sides.draw(s.sides);
    },
  };
}

const clientColumns = [
  {
    label: 'Client',
    sort: 'client',
    class: 'mono id',
    text: (r) => brief(r.client),
    title: (r) => r.client,
  },
  {
    label: 'Group',
    sort: 'group',
    class: 'name',
    text: (r) => r.group,
    to: (r) => (r.kind === 'consumer' ? url('group', { name: r.group }) : '#/clients'),
  },
  { label: 'Kind', narrow: true, text: (r) => r.kind },
  { label: 'Library', narrow: true, text: (r) => r.library },
  {
    label: 'ms a message',
    num: true,
    text: (r) => (r.ms == null ? '–' : r.ms.toFixed(1)),
    tone: (r) => (r.ms > 100 ? 'bad' : ''),
  },
  { label: 'Done /s', num: true, text: (r) => rate(r.done) },
  { label: 'Fetched', num: true, narrow: true, text: (r) => count(r.in_hand) },
  { label: 'Address', class: 'mono', narrow: true, text: (r) => r.address },
  { label: 'Heard', num: true, narrow: true, text: (r) => `${span(r.heard_ms)} ago` },
];
function versions() {
  const node = h('p', { class: 'quiet' });
  return {
    node,
    update(s) {
      put(
        node,
        `${s.versions.map(([name, number]) => `${count(number)} × ${name}`).join(', ') || 'Nobody is connected'}. Speeds are known while messages wait for a client.`,
      );
    },
  };
}
function still(title, path, columns, note) {
  const list = table(title, columns);
  return {
    title,
    once: path,
    node: h(
      'div',
      null,
      h('header', { class: 'page' }, h('h1', null, title), h('p', { class: 'quiet' }, note)),
      list.node,
    ),
    update(s) {
      list.draw(s.rows);
    },
  };
}

export const views = {
  overview,
  problems: allProblems,
  topic,
  group,
  messages,
  message,
  dead,
  delays,
  transactions,
  broker,
  brokers,
  topics: (query) =>
    listing('Topics', 'topics', topicColumns, query, 'in', {
      row: 31,
      system: 'system topics too',
    }),
  groups: (query) => listing('Groups', 'groups', groupColumns, query, 'lag'),
  clients: (query) =>
    listing('Clients', 'clients', clientColumns, query, 'group', { note: versions() }),
  config: () =>
    still(
      'Configuration',
      'config',
      [
        { label: 'Key', class: 'mono', text: (r) => r.key },
        {
          label: 'Value',
          class: 'mono',
          text: (r) => r.value,
          tone: (r) => (r.is_default ? '' : 'warn'),
        },
        { label: 'State', text: (r) => (r.is_default ? 'default' : 'changed') },
      ],
      'What is in effect; secrets are left out.',
    ),
  audit: () =>
    still(
      'Audit',
      'audit',
      [
        { label: 'When', text: (r) => moment(r.time_ms) },
        { label: 'Who', text: (r) => r.user || r.source },
        { label: 'What', text: (r) => r.action },
        { label: 'About', class: 'mono', text: (r) => r.subject },
        { label: 'Change', class: 'mono', narrow: true, text: (r) => r.change },
      ],
      'The newest 200 changes of the last week.',
    ),
};
