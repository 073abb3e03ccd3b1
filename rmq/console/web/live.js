// One stream for the view that is looked at, single questions beside it.
// A hidden page holds no stream: browsers allow six connections to a host, all tabs together.

const QUIET_MS = 6000;
let source = null,
  wanted = null,
  watchdog = 0,
  heard = 0,
  isPaused = false,
  onStatus = () => {};

export const whenStatus = (fn) => {
  onStatus = fn;
};
export const paused = () => isPaused;
export function pause(yes) {
  isPaused = yes;
  if (yes) {
    close();
    onStatus('paused', heard);
  } else if (wanted) open();
}

export async function ask(path, query = {}, signal = undefined) {
  const answer = await fetch(`api/${path}?${new URLSearchParams(query)}`, {
    signal,
    credentials: 'same-origin',
  });
  return result(answer);
}
export async function change(path, body) {
  return result(
    await fetch(`api/${path}`, {
      method: 'POST',
      credentials: 'same-origin',
      headers: { 'Content-Type': 'application/json', 'X-Rmq': '1' },
      body: JSON.stringify(body),
    }),
  );
}
async function result(answer) {
  const data = await answer
    .json()
    .catch(() => ({ error: `The broker answered ${answer.status} without a reason.` }));
  if (!answer.ok) throw Object.assign(new Error(data.error), { status: answer.status });
  return data;
}

export function follow(view, query, onState, onBye) {
  wanted = { view, query, onState, onBye, state: null };
  close();
  if (!isPaused || !wanted.state) open();
}
export function close() {
  source?.close();
  source = null;
  clearInterval(watchdog);
}

const place = (mine) => `api/live?${new URLSearchParams({ view: mine.view, ...mine.query })}`;

function open() {
  const mine = wanted;
  if (document.hidden && mine.state) return;
  source = new EventSource(place(mine));
  source.addEventListener('full', (event) => {
    mine.state = JSON.parse(event.data);
    told(mine);
  });
  source.addEventListener('diff', (event) => {
    apply(mine.state, JSON.parse(event.data));
    told(mine);
  });
  source.addEventListener('bye', (event) => {
    if (mine === wanted) {
      close();
      mine.onBye(JSON.parse(event.data).why);
    }
  });
  source.onerror = () => {
    if (mine !== wanted || isPaused) return;
    onStatus('lost', heard);
    if (source?.readyState === EventSource.CLOSED) refused(mine);
  };
  clearInterval(watchdog);
  watchdog = setInterval(() => {
    if (source && heard && Date.now() - heard > QUIET_MS) onStatus('lost', heard);
  }, 1000);
}

// A browser does not try again after an answer that is no stream, and does not show it: ask for the sentence.
async function refused(mine) {
  close();
  const control = new AbortController();
  let answer = null,
    said = null;
  try {
    answer = await fetch(place(mine), { signal: control.signal, credentials: 'same-origin' });
    if (!answer.ok) said = (await answer.json()).error;
  } catch {
    /* nobody answers */
  }
  control.abort();
  if (mine !== wanted) return;
  if (said) mine.onBye(said);
  else
    setTimeout(() => {
      if (mine === wanted && !source && !isPaused) open();
    }, 1000);
}

function told(mine) {
  if (mine !== wanted) return;
  heard = Date.now();
  onStatus('live', heard);
  mine.onState(mine.state);
}

// A change is nested as the state is: {"+": v} moves a line on, {"=": v} replaces, all else goes deeper.
export function apply(state, changes) {
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || typeof value !== 'object') state[key] = value;
    else if ('=' in value) state[key] = value['='];
    else if ('+' in value) {
      state[key].shift();
      state[key].push(value['+']);
    } else apply(state[key], value);
  }
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) close();
  else if (wanted && !isPaused && !source) open();
});
