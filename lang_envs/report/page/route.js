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

let redraw = () => {};

/** Name the function that draws a state. */
export function onRoute(draw) {
  redraw = draw;
  addEventListener("hashchange", () => draw(stateOf(location.hash)));
}

/** Go to a state: as a new entry of the history, or in place of the present one. */
export function go(state, { replace = false } = {}) {
  const hash = hashOf(state);
  if (!replace) {
    if (location.hash === hash) redraw(stateOf(hash));
    else location.hash = hash;
    return;
  }
  history.replaceState(null, "", hash);
  redraw(stateOf(hash));
}
