/** One situation in several episodes: other agents, and other checkpoints of a training. */

import { comparison } from "./compare.js";
import { linkOf } from "./data.js";
import { el, short, tableOf } from "./dom.js";
import { hashOf } from "./route.js";

const HEAD = [
  "agent",
  "trained steps",
  "return",
  "success",
  "steps",
  "action at this step",
  "its probability",
  "probability of this episode's action",
  "",
];

/**
 * A table of episodes with their choice at a step, where they stand before the same observation.
 * @param {{row: Object, episode: Object}[]} others the episodes, the open one among them
 * @param {Object} row the row of the open one
 * @param {?string} action its action at the step
 * @param {string} observation its observation there
 * @param {?number} t the step, from 0; null after the end
 */
export function situationTable(others, row, action, observation, t) {
  const rows = others.map(({ row: one, episode }) => {
    const same = episode && t !== null && t < episode.actions.length && episode.observations[t] === observation;
    const place = same ? (episode.admissible[t]?.indexOf(action) ?? -1) : -1;
    const share = place >= 0 ? episode.shares?.[t]?.[place] : null;
    const own = same && episode.logProbs ? Math.exp(episode.logProbs[t].reduce((a, b) => a + b, 0)) : null;
    const isOpen = one === row;
    return [
      el("a", { href: hashOf(linkOf(one)), class: isOpen ? "differs" : null }, one.agent),
      one.at === null ? "" : one.at.toLocaleString("en"),
      short(one.return),
      one.success === null ? "" : one.success ? "yes" : "no",
      one.steps,
      same ? episode.actions[t].split("\n")[0].slice(0, 60) : "in another situation",
      short(own, 3),
      short(share, 3),
      isOpen ? "this one" : el("a", { href: hashOf(comparison(row, one)) }, "compare"),
    ];
  });
  return tableOf(HEAD, rows, {}, "episodes of the same situation");
}
