// Numbers and times as people read them; null is not told, and is not 0.

const whole = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 0 });
export const count = (n) => (n == null ? '–' : whole.format(n));
export const share = (n) => (Number.isFinite(n) ? `${Math.round(n * 100)} %` : '–');
export const rate = (n) =>
  n == null ? '–' : n === 0 ? '0' : n < 10 ? n.toFixed(1) : whole.format(n);
function scaled(n, steps) {
  for (const [unit, size] of steps)
    if (n < size * 1000)
      return `${(n / size).toFixed(size === 1 || n / size >= 100 ? 0 : 1)} ${unit}`.trim();
  const [unit, size] = steps.at(-1);
  return `${whole.format(n / size)} ${unit}`;
}
export const short = (n) =>
  n == null
    ? '–'
    : n < 10_000
      ? whole.format(n)
      : scaled(n, [
          ['', 1],
          ['k', 1e3],
          ['M', 1e6],
          ['G', 1e9],
        ]);
export const bytes = (n) =>
  n == null
    ? '–'
    : scaled(n, [
        ['B', 1],
        ['kB', 1e3],
        ['MB', 1e6],
        ['GB', 1e9],
        ['TB', 1e12],
      ]);
export function span(ms) {
  if (ms == null) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 90) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800)
    return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.round(seconds / 86_400)} d`;
}
// A bound that 99 of 100 kept; one more than the last bound says that they did not.
export const bound = (ms, last) =>
  ms == null ? '–' : ms > last ? `> ${span(last)}` : ms < 1 ? `≤ ${ms} ms` : `≤ ${span(ms)}`;
const two = (n) => String(n).padStart(2, '0');
export function clock(ms) {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}
export function moment(ms) {
  const d = new Date(ms);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(ms)}`;
}

// What others wrote must neither hide nor turn text around: such characters are shown by number.
export const plain = (text) =>
  String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (each) =>
    each === '\n' || each === '\t' ? each : `\\u{${each.codePointAt(0).toString(16)}}`,
  );

// A link to a whole list: "all 12 topics", "the only topic".
export const every = (noun, number) =>
  number === 1 ? `the only ${noun}` : `all ${count(number)} ${noun}s`;
// Ids of clients are long, and differ at both ends.
export const brief = (id) =>
  id && id.length > 28 ? `${id.slice(0, 16)}…${id.slice(-9)}` : (id ?? '–');
