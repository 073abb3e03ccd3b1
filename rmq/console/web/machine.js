// Views of the machine: delays, open transactions, brokers.

import { h, put, url } from './dom.js';
import { bound, bytes, clock, count, moment, rate, share, short, span } from './format.js';
import { figures, problems, table } from './parts.js';

const HALF_HOUR = 1_800_000;
// Columns, one for each half hour of a day; the highest is named below them.
function histogram() {
  const list = h('ol', { class: 'histogram' }),
    under = h('p', { class: 'under' }),
    hint = h('p', { class: 'quiet' });
  const node = h('div', null, list, under, hint);
  return {
    node,
    draw(numbers, now) {
      const top = Math.max(1, ...numbers),
        at = (part) => clock(now + part * HALF_HOUR).slice(0, 5),
        peak = numbers.indexOf(top);
      while (list.children.length < numbers.length)
        list.append(h('li', { tabindex: '0' }, h('i'), h('span')));
      numbers.forEach((number, part) => {
        const item = list.children[part],
          [bar, text] = item.children,
          height = `${(number / top) * 100}%`;
        if (bar.style.height !== height) bar.style.height = height;
        put(text, `${at(part)}  ${count(number)}`);
        item.setAttribute('aria-label', `${count(number)} due from ${at(part)}`);
      });
      if (!under.children.length) under.append(...[0, 12, 24, 36, 47].map(() => h('span')));
      [0, 12, 24, 36, 47].forEach((part, number) => put(under.children[number], at(part)));
      put(
        hint,
        peak < 0
          ? 'No timed message is due within a day.'
          : `From ${at(peak)} on ${count(top)} come due within half an hour, ${rate(top / 1800)} a second.`,
      );
    },
  };
}

export function delays() {
  let most = 1;
  const facts = figures([
    [
      'Timed messages',
      (s) => count(s.timer?.waiting),
      (s) => (s.timer ? '' : 'timerWheelEnable is false'),
    ],
    ['Next', (s) => (s.timer?.next ? moment(s.timer.next) : '–')],
    [
      'Late',
      (s) => (s.timer ? span(s.timer.late_ms) : '–'),
      null,
      (s) => (s.timer?.late_ms > 10_000 ? 'warn' : ''),
    ],
    ['Later than a day', (s) => count(s.timer?.later)],
  ]);
  const due = histogram();
  const levels = table('Delay levels', [
    { label: 'Level', num: true, text: (r) => r.level },
    { label: 'Delay', num: true, text: (r) => span(r.delay_ms) },
    { label: 'Share', class: 'barcell', bar: (r) => r.waiting / most },
    { label: 'Waiting', num: true, text: (r) => count(r.waiting) },
    { label: 'Next', narrow: true, text: (r) => (r.next ? moment(r.next) : '–') },
    {
      label: 'Late',
      num: true,
      text: (r) => (r.late_ms ? span(r.late_ms) : '–'),
      tone: (r) => (r.late_ms > 10_000 ? 'warn' : ''),
    },
  ]);
  const hours = h(
    'section',
    null,
    h('header', null, h('h2', null, 'Timed messages of the next 24 hours')),
    due.node,
  );
  return {
    title: 'Delays',
    live: { view: 'delays' },
    node: h(
      'div',
      null,
      h('header', { class: 'page' }, h('h1', null, 'Delays')),
      facts.node,
      hours,
      h('section', null, h('header', null, h('h2', null, 'By level')), levels.node),
    ),
    update(s) {
      most = Math.max(1, ...s.levels.map((level) => level.waiting));
      hours.hidden = !s.timer;
      facts.draw(s);
      levels.draw(s.levels);
      if (s.timer) due.draw(s.timer.half_hours, s.now);
    },
  };
}

export function transactions() {
  const note = h('p', { class: 'quiet' });
  const list = table(
    'Open transactions',
    [
      {
        label: 'Open for',
        num: true,
        text: (r) => span(r.age_ms),
        tone: (r) => (r.age_ms > 60_000 ? 'warn' : ''),
      },
      { label: 'Topic', text: (r) => r.topic, to: (r) => url('topic', { name: r.topic }) },
      { label: 'Sender', narrow: true, text: (r) => r.group || '–' },
      { label: 'Key', class: 'mono', narrow: true, text: (r) => r.key },
      {
        label: 'Asked',
        num: true,
        text: (r) => `${r.checks} of ${r.most}`,
        tone: (r) => (r.checks > 2 ? 'warn' : ''),
      },
      {
        label: 'Who can be asked',
        text: (r) => r.client ?? 'nobody of this group is connected',
        tone: (r) => (r.client ? '' : 'bad'),
      },
      { label: 'Since', narrow: true, text: (r) => moment(r.since) },
      { label: 'Id', class: 'mono', narrow: true, text: (r) => r.id },
    ],
    { empty: 'No transaction is open.' },
  );
  return {
    title: 'Transactions',
    live: { view: 'transactions' },
    node: h(
      'div',
      null,
      h('header', { class: 'page' }, h('h1', null, 'Open transactions'), note),
      list.node,
    ),
    update(s) {
      put(
        note,
        s.total > s.rows.length
          ? `the oldest ${count(s.rows.length)} of ${count(s.total)}`
          : count(s.total),
      );
      list.draw(s.rows.map((row) => ({ ...row, most: s.check_max })));
    },
  };
}

function diskBar() {
  const used = h('i', { class: 'used' }),
    grows = h('i', { class: 'grow' }),
    early = h('u'),
    refuse = h('u'),
    text = h('p', { class: 'diskline quiet' });
  const bar = h('div', { class: 'disk', role: 'img' }, used, grows, early, refuse);
  return {
    node: h('div', null, bar, text),
    draw(own) {
      bar.hidden = !own.disk_total;
      if (bar.hidden) {
        put(text, `the size of the disk is not told; log ${bytes(own.log_size)}`);
        return;
      }
      const part = own.disk_used / own.disk_total,
        day = Math.max(0, Math.min(1 - part, ((own.disk_growth ?? 0) * 24) / own.disk_total)),
        percent = (number) => `${(number * 100).toFixed(1)}%`;
      used.style.width = percent(part);
      grows.style.left = percent(part);
      grows.style.width = percent(day);
      early.style.left = percent(own.disk_early);
      refuse.style.left = percent(own.disk_refuse);
      early.title = `from ${percent(own.disk_early)} on old files are deleted early`;
      refuse.title = `from ${percent(own.disk_refuse)} on messages are refused`;
      bar.setAttribute('aria-label', `Disk ${percent(part)} used`);
      put(
        text,
        `disk ${percent(part)} of ${bytes(own.disk_total)}, log ${bytes(own.log_size)}${own.disk_growth == null ? '' : `; +${bytes(own.disk_growth)} an hour`}${own.disk_hours == null ? '' : `: ${percent(own.disk_early)} in ${span(own.disk_hours * 3_600_000)}`}`,
      );
    },
  };
}

export function brokers() {
  const title = h('h2'),
    follows = h('p', { class: 'quiet' });
  const facts = figures([
      ['Role', (s) => s.own.role, (s) => `id ${s.own.id}`],
      ['Address', (s) => s.own.address],
      ['Connections', (s) => count(s.own.connections)],
      ['Memory', (s) => bytes(s.own.memory), (s) => `${count(s.own.cpu_s)} s of CPU`],
      [
        'Log',
        (s) => bytes(s.own.log_size),
        (s) => (s.own.kept_ms == null ? '' : `the oldest message is ${span(s.own.kept_ms)} old`),
      ],
      [
        'Messages out',
        (s) => count(s.own.out),
        (s) => `the broker read ${count(s.own.own_reads)} for itself`,
      ],
      ['Not on the disk yet', (s) => bytes(s.own.not_durable)],
      ['fsync p99', (s) => bound(s.own.flush_p99_ms, 5000), () => 'of the last minute'],
    ]),
    disk = diskBar();
  const replicas = table(
    'Replicas',
    [
      { label: 'Address', class: 'mono', text: (r) => r.address },
      { label: 'Lacks', num: true, text: (r) => bytes(r.behind) },
      {
        label: 'In sync',
        text: (r) => (r.in_sync ? 'yes' : 'no'),
        tone: (r) => (r.in_sync ? '' : 'warn'),
      },
      { label: 'Gets', num: true, text: (r) => `${bytes(r.rate)} /s` },
    ],
    { empty: 'Nobody copies this broker.' },
  );
  const place = h('p', { class: 'quiet' });
  const members = table(
    'Group',
    [
      { label: 'Broker', text: (r) => (r.is_own ? `${r.id} (this one)` : r.id) },
      {
        label: 'In the set',
        text: (r) => (r.in_set ? 'yes' : r.waited_for ? 'asked for' : 'no'),
        tone: (r) => (r.in_set ? '' : 'warn'),
      },
      {
        label: 'Lacks',
        num: true,
        text: (r) => (r.behind == null ? 'not connected' : bytes(r.behind)),
        tone: (r) => (r.behind == null ? 'bad' : ''),
      },
    ],
    { empty: 'Only the master knows the set.' },
  );
  const servers = table(
    'Name servers',
    [
      { label: 'Address', class: 'mono', text: (r) => r.address },
      {
        label: 'Knows this broker',
        text: (r) => (r.registered ? 'yes' : `no: ${r.error}`),
        tone: (r) => (r.registered ? '' : 'bad'),
      },
    ],
    { empty: 'None is configured.' },
  );
  const others = table(
    'Other brokers',
    [
      {
        label: 'Broker',
        text: (r) => `${r.name}${r.id ? ` (slave ${r.id})` : ''}`,
        to: (r) => url('broker', { address: r.address }),
      },
      { label: 'Address', class: 'mono', narrow: true, text: (r) => r.address },
      {
        label: 'Version',
        text: (r) => (r.answers ? (r.version ?? 'not told') : 'no answer'),
        tone: (r) => (r.answers ? '' : 'bad'),
      },
      { label: 'In /s', num: true, text: (r) => rate(r.in) },
      { label: 'Out /s', num: true, text: (r) => rate(r.out) },
      { label: 'Disk', num: true, narrow: true, text: (r) => share(r.disk) },
      { label: 'Runs for', narrow: true, text: (r) => r.up ?? '–' },
    ],
    { empty: 'No other broker is in this cluster.' },
  );
  const gap = h(
    'p',
    { class: 'quiet', hidden: true },
    'No name server answers: other brokers are not known.',
  );
  const section = (text, part) => h('section', null, h('header', null, h('h2', null, text)), part);
  const group = section('Group', h('div', null, place, members.node));
  const node = h(
    'div',
    null,
    h('header', { class: 'page' }, h('h1', null, 'Brokers')),
    h('header', null, title),
    disk.node,
    facts.node,
    follows,
    group,
    h(
      'div',
      { class: 'halves' },
      section('Replicas', replicas.node),
      section('Name servers', servers.node),
    ),
    section('The cluster', h('div', null, gap, others.node)),
  );
  return {
    title: 'Brokers',
    live: { view: 'brokers' },
    node,
    update(s) {
      put(title, s.own.name);
      disk.draw(s.own);
      facts.draw(s);
      put(
        follows,
        s.following
          ? s.following.is
            ? `follows ${s.following.master}`
            : `does not follow: ${s.following.state || 'no connection to its master'}`
          : '',
      );
      group.hidden = !s.group;
      if (s.group) {
        put(
          place,
          `epoch ${s.group.epoch}, ${s.group.is_master ? 'master' : 'slave'}; ${bytes(s.group.unconfirmed)} not confirmed`,
        );
        members.draw(s.group.members ?? []);
      }
      replicas.draw(s.replicas);
      servers.draw(s.name_servers);
      gap.hidden = s.cluster_rows !== null;
      others.node.hidden = s.cluster_rows === null;
      others.draw(s.cluster_rows ?? []);
    },
  };
}

// Another broker of the cluster; what Java does not tell is a dash.
export function broker(query) {
  const title = h('h1', null, query.address),
    list = problems(),
    note = h('p', { class: 'quiet' });
  const tone = (row) => (row.level === 'bad' || row.level === 'warn' ? row.level : '');
  const facts = figures([
    ['Version', (s) => s.version || '–'],
    ['Runs for', (s) => span(s.up_ms)],
    ['Messages in', (s) => short(s.put), () => 'since its start'],
    ['Messages out', (s) => short(s.got)],
    ['Disk', (s) => share('share' in s.disk ? s.disk.share : s.disk.used / s.disk.total)],
  ]);
  const groups = table(
    'Groups',
    [
      { label: 'Group', text: (r) => r.name },
      { label: 'Behind', num: true, text: (r) => short(r.lag), tone },
      { label: 'Waits', num: true, text: (r) => (r.lag ? span(r.waits_ms) : '') },
      { label: 'Out /s', num: true, narrow: true, text: (r) => rate(r.out) },
      { label: 'Clients', num: true, narrow: true, text: (r) => count(r.clients) },
      { label: 'Why', text: (r) => r.message, tone },
    ],
    { empty: 'No group is told.' },
  );
  const topics = table(
    'Topics',
    [
      { label: 'Topic', text: (r) => r.name },
      { label: 'In /s', num: true, text: (r) => rate(r.in) },
      { label: 'Out /s', num: true, text: (r) => rate(r.out) },
      { label: 'Behind', num: true, text: (r) => short(r.lag) },
      { label: 'Kept', num: true, narrow: true, text: (r) => short(r.kept) },
      { label: 'Queues', num: true, narrow: true, text: (r) => count(r.queues) },
    ],
    { empty: 'No topic is told.' },
  );
  const section = (text, part) =>
    h('section', null, h('header', null, h('h2', null, text)), part.node);
  const node = h(
    'div',
    null,
    h(
      'header',
      { class: 'page' },
      h('p', { class: 'crumb' }, h('a', { href: '#/brokers' }, 'Brokers')),
      title,
      note,
    ),
    list.node,
    facts.node,
    h(
      'div',
      { class: 'halves' },
      section('Furthest behind', groups),
      section('Busiest topics', topics),
    ),
  );
  return {
    title: query.address,
    live: { view: 'broker', query },
    node,
    update(s) {
      put(title, s.node);
      put(
        note,
        s.told_by !== 'java'
          ? `${query.address}, as it tells itself; its own console shows more.`
          : `${query.address}. Java tells groups with offsets and the topics that they read${s.groups_total == null ? '; here there are too many, or it refused: rmq top shows them' : ''}. Speeds and waits count from the first look.`,
      );
      list.draw(s.problems.slice(0, 3), s.now);
      facts.draw(s);
      groups.draw(s.groups.slice(0, 60));
      topics.draw(s.topics.slice(0, 60));
    },
  };
}
