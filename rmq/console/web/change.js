// Changes: fields, then what would happen and the same as a command, then the button. Read-only shows the whole way and stops at the last step.

import { h, put } from './dom.js';
import { ask, change } from './live.js';
import { moment } from './format.js';
import { command } from './parts.js';

// inputs: { name, label, value, kind: text | number | flag | time | long | choice, choices }
export function dialog(title, name, fixed, inputs, onDone = () => {}) {
  const fields = inputs.map((each) => ({ ...each, node: input(each) }));
  const would = h('ul', { class: 'would' }),
    shell = h('p', { class: 'shell' }),
    note = h('p', { role: 'alert' });
  const act = h('button', { class: 'main', type: 'submit', disabled: true }, title),
    away = h('button', { class: 'plain', type: 'button' }, 'Cancel');
  const form = h(
    'form',
    { method: 'dialog' },
    h('h2', { id: 'dialog-title' }, title),
    h(
      'div',
      { class: 'fields' },
      fields.map((each) => h('label', null, each.label, each.node)),
    ),
    h('h3', null, 'What would happen'),
    would,
    shell,
    note,
    h('p', { class: 'buttons' }, act, ' ', away),
  );
  const node = h('dialog', { 'aria-labelledby': 'dialog-title' }, form);
  const given = () => ({
    ...fixed,
    ...Object.fromEntries(
      fields.filter((each) => read(each) !== undefined).map((each) => [each.name, read(each)]),
    ),
  });
  let asked = 0,
    timer = 0;
  async function plan() {
    const mine = ++asked;
    try {
      const told = await change(`do/${name}`, { ...given(), dry: true });
      if (mine !== asked) return;
      would.replaceChildren(...told.would.map((text) => h('li', null, text)));
      shell.replaceChildren(...command(told.command));
      put(note, told.refused ? `Not here: ${told.refused}.` : '');
      act.disabled = Boolean(told.refused);
    } catch (error) {
      if (mine === asked) {
        would.replaceChildren();
        shell.replaceChildren();
        put(note, error.message);
        act.disabled = true;
      }
    }
  }
  form.addEventListener('input', () => {
    act.disabled = true;
    clearTimeout(timer);
    timer = setTimeout(plan, 200);
  });
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    act.disabled = true;
    try {
      finish(await change(`do/${name}`, given()));
    } catch (error) {
      put(note, error.message);
      act.disabled = false;
    }
  });
  function finish(told) {
    const texts = told.done.length ? told.done : ['Done.'];
    const undo = told.undo
      ? h(
          'button',
          {
            class: 'plain',
            type: 'button',
            onclick: () => {
              node.close();
              dialog('Put it back', 'undo', { undo: told.undo }, [], onDone);
            },
          },
          'Put it back',
        )
      : null;
    form.replaceChildren(
      h('h2', { id: 'dialog-title' }, title),
      h(
        'ul',
        { class: 'would' },
        texts.map((text) => h('li', null, text)),
      ),
      h('p', { class: 'quiet' }, 'The audit has it.'),
      h(
        'p',
        { class: 'buttons' },
        h('button', { class: 'main', type: 'button', onclick: () => node.close() }, 'Close'),
        ' ',
        undo,
      ),
    );
    form.querySelector('button').focus();
    onDone();
  }
  away.addEventListener('click', () => node.close());
  node.addEventListener('close', () => node.remove());
  document.body.append(node);
  node.showModal();
  plan();
}

function input(each) {
  const value = each.value ?? '';
  if (each.kind === 'long')
    return h('textarea', { rows: String(each.rows ?? 6), spellcheck: 'false' });
  if (each.kind === 'flag' || each.kind === 'choice') {
    const choices =
      each.kind === 'flag'
        ? [
            ['true', 'true'],
            ['false', 'false'],
          ]
        : each.choices;
    return h(
      'select',
      null,
      choices.map(([key, text]) =>
        h('option', { value: key, selected: key === String(value) }, text),
      ),
    );
  }
  return h('input', {
    type: { number: 'number', time: 'datetime-local' }[each.kind] ?? 'text',
    value,
    step: each.kind === 'time' ? '1' : null,
    min: each.kind === 'number' ? '0' : null,
    autocomplete: 'off',
  });
}
function read(each) {
  const value = each.node.value;
  if (each.kind === 'flag') return value === 'true';
  if (each.kind === 'number') return value === '' ? undefined : Number(value);
  if (each.kind === 'time') return value === '' ? -1 : new Date(value).getTime();
  return value;
}

export const button = (text, onclick) => h('button', { class: 'plain', onclick }, text);
export const PERMS = [
  ['6', 'read and write'],
  ['4', 'read'],
  ['2', 'write'],
];
export function sendTo(topic) {
  dialog(`Send a message to ${topic}`, 'sendMessage', { topic }, [
    { name: 'key', label: 'Key' },
    { name: 'tag', label: 'Tag' },
    { name: 'properties', label: 'Properties, NAME=VALUE in each line', kind: 'long', rows: 2 },
    { name: 'body', label: 'Body', kind: 'long' },
  ]);
}
export function topicSettings(state) {
  dialog('Change the topic', 'updateTopic', { topic: state.row.name }, [
    {
      name: 'readQueueNums',
      label: 'Queues to read',
      kind: 'number',
      value: state.settings.readQueueNums,
    },
    {
      name: 'writeQueueNums',
      label: 'Queues to write',
      kind: 'number',
      value: state.settings.writeQueueNums,
    },
    { name: 'perm', label: 'Permission', kind: 'choice', choices: PERMS, value: state.row.perm },
  ]);
}
export function groupSettings(state) {
  dialog('Change the group', 'updateSubGroup', { group: state.row.name }, [
    {
      name: 'consumeEnable',
      label: 'May consume',
      kind: 'flag',
      value: state.settings?.consumeEnable ?? true,
    },
    {
      name: 'retryMaxTimes',
      label: 'Attempts until a dead letter',
      kind: 'number',
      value: state.settings?.retryMaxTimes,
    },
  ]);
}
export function resetOffsets(state) {
  const topics = [...new Set(state.queues.map((each) => each.topic))];
  dialog('Reset offsets', 'resetOffsetByTime', { group: state.row.name }, [
    {
      name: 'topic',
      label: 'Topic',
      kind: 'choice',
      choices: topics.map((each) => [each, each]),
      value: topics[0],
    },
    { name: 'timestamp', label: 'Continue at; empty is the end', kind: 'time' },
  ]);
}
export async function putBack(group) {
  const { rows } = await ask('replaced', { group });
  const choices = rows.map((each) => [
    each.key,
    `${moment(each.at)}, ${each.topic}, by ${each.user || 'somebody'}`,
  ]);
  dialog('Put offsets back', 'undo', {}, [
    {
      name: 'undo',
      label: 'What they were before the reset of',
      kind: 'choice',
      choices: choices.length ? choices : [['', 'no reset is known']],
    },
  ]);
}
export const resend = (group, what, onDone) =>
  dialog('Send again', 'resendDeadLetters', { group, ...what }, [], onDone);
