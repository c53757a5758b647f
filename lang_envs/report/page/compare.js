/** Two episodes of one situation side by side, until they part and after. */

import { report, findRow, readEpisode, linkOf, nameOf } from "./data.js";
import { el, put, short, signed, refuse } from "./dom.js";
import { go, hashOf, present } from "./route.js";

/** Episodes of the same task and reset seed; without a recorded seed, of the same seed and number. */
export function siblings(row) {
  return report.rows.filter(
    (one) =>
      one !== row &&
      one.task === row.task &&
      one.place !== null &&
      (row.resetSeed === null ? one.seed === row.seed && one.episode === row.episode : one.resetSeed === row.resetSeed),
  );
}

/** Parameters of a link to a comparison. */
export function comparison(row, other) {
  const at = other.at === null ? {} : { at2: other.at };
  return { ...linkOf(row), v: "compare", a2: other.agent, t2: other.task, s2: other.seed, n2: other.episode, ...at };
}

/** The first step at which two episodes differ in observation, action or reward; -1 if they are equal. */
export function parting(first, second) {
  const length = Math.max(first.actions.length, second.actions.length);
  for (let t = 0; t < length; t += 1) {
    if (
      first.actions[t] !== second.actions[t] ||
      first.observations[t] !== second.observations[t] ||
      first.rewards[t] !== second.rewards[t]
    )
      return t;
  }
  return -1;
}

/** Draw a comparison. */
export async function drawCompare(view, state) {
  const row = findRow(state.a, state.t, state.s, state.n, state.at);
  if (!row) {
    const reason = state.a
      ? "This episode is not in this report."
      : "Open an episode, and choose another one of the same situation.";
    refuse(view, "Compare", reason, "#v=episodes", "See the episodes");
    return;
  }
  const others = siblings(row);
  const isNamed = state.n2 !== undefined;
  const other = isNamed ? findRow(state.a2, state.t2, state.s2, state.n2, state.at2) : others[0];
  if (!other) {
    const reason = isNamed
      ? "The second episode is not in this report."
      : `${nameOf(row)}: no other episode has this task and reset seed.`;
    refuse(view, "Compare", reason, hashOf(linkOf(row)), "Open the first one");
    return;
  }
  const here = hashOf(present());
  const [first, second] = await Promise.all([row, other].map(readEpisode));
  if (hashOf(present()) !== here) return; // another view by now
  if (!others.includes(other)) others.unshift(other);
  const choice = el(
    "select",
    {
      "aria-label": "the other episode",
      on: { change: (event) => go(comparison(row, others[Number(event.target.value)]), { replace: true }) },
    },
    others.map((one, i) => el("option", { value: i, selected: one === other }, nameOf(one))),
  );
  const head = [
    el("h2", null, "Compare"),
    el("p", { class: "row" }, el("a", { href: hashOf(linkOf(row)) }, nameOf(row)), "with", choice),
  ];
  if (!first || !second) {
    put(view, head, el("p", null, "The steps of one of them are not in this report."));
    return;
  }
  const at = parting(first, second);
  const sentence =
    at < 0
      ? "The two episodes are identical."
      : at === 0
        ? "They differ from the first step."
        : `They are equal for ${at} ${at === 1 ? "step" : "steps"} and part at step ${at + 1}.`;
  const length = Math.max(first.actions.length, second.actions.length);
  const cells = [
    el("div", { class: "dim" }, "step"),
    ...[row, other].map((one) =>
      el(
        "div",
        null,
        el(
          "a",
          { href: hashOf(linkOf(one)) },
          one.at === null ? one.agent : `${one.agent}, step ${one.at.toLocaleString("en")}`,
        ),
        el("div", { class: "dim" }, `return ${short(one.return)}${one.success === null ? "" : one.success ? ", success" : ", no success"}`),
      ),
    ),
  ];
  const sums = [0, 0];
  for (let t = 0; t < length; t += 1) {
    const differs = first.actions[t] !== second.actions[t] || first.observations[t] !== second.observations[t];
    cells.push(
      el(
        "div",
        { class: `number${t === at ? " parts" : ""}`, id: t === at ? "parting" : null },
        t + 1,
        differs ? " \u2260" : "",
      ),
    );
    [first, second].forEach((one, side) => cells.push(sideOf(one, t, sums, side, t === at)));
  }
  put(
    view,
    head,
    el(
      "p",
      { id: "parting-sentence" },
      sentence,
      " ",
      at > 0
        ? el(
            "button",
            {
              type: "button",
              class: "no-print",
              on: { click: () => document.getElementById("parting").scrollIntoView({ block: "center" }) },
            },
            "go there",
          )
        : null,
    ),
    el("div", { class: "sides" }, cells),
  );
}

function sideOf(episode, t, sums, side, parts) {
  if (t >= episode.actions.length) return el("div", { class: "dim" }, t === episode.actions.length ? "over" : "");
  sums[side] += episode.rewards[t];
  const value = episode.values ? `, value ${short(episode.values[t][0], 3)}` : "";
  const link = el(
    "a",
    { href: hashOf(linkOf(episode.row, { step: t + 1 })) },
    episode.actions[t].split("\n")[0].slice(0, 200),
  );
  return el(
    "div",
    { class: parts ? "parts" : "" },
    link,
    el("div", { class: "dim" }, `${signed(episode.rewards[t])}, return ${short(sums[side])}${value}`),
  );
}
