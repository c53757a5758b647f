/** The link is the state: everything that is shown follows from the part of the address behind the #. */

/** The state of a link: texts by name. */
export function stateOf(hash) {
  return Object.fromEntries(
    [...new URLSearchParams(hash.replace(/^#/, ""))].filter(([name]) => /^[a-z][a-z0-9]*$/.test(name)),
  );
}

/** The link of a state. */
export function hashOf(state) {
  const kept = Object.entries(state).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return `#${new URLSearchParams(kept.map(([name, value]) => [name, String(value)]))}`;
}

const PAUSE = 200; // milliseconds between entries: browsers refuse more than about 100 in 10 seconds

let redraw = () => {};
let waiting = null; // the state that the address does not have yet
let clock = null;
let written = 0;

/** The state in use: that of the address, or the one that is about to become it. */
export function present() {
  return waiting || stateOf(location.hash);
}

function forget() {
  clearTimeout(clock);
  clock = waiting = null;
}

function write() {
  if (!waiting) return;
  history.replaceState(null, "", hashOf(waiting));
  written = performance.now();
  forget();
}

/** Name the function that draws a state. */
export function onRoute(draw) {
  redraw = draw;
  addEventListener("hashchange", () => {
    forget();
    draw(stateOf(location.hash));
  });
  addEventListener("pagehide", write);
  addEventListener("click", write, true); // before a link is followed
}

/** Go to a state: as a new entry of the history, or in place of the present one. */
export function go(state, { replace = false } = {}) {
  const hash = hashOf(state);
  if (!replace) {
    write();
    if (location.hash === hash) redraw(stateOf(hash));
    else location.hash = hash;
    return;
  }
  waiting = stateOf(hash);
  if (performance.now() - written > PAUSE) write();
  else clock = clock || setTimeout(write, PAUSE);
  redraw(stateOf(hash));
}
