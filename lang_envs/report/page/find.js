/** Find a text in all episodes: every block is read, and each distinct text is matched once. */

import { report, readTexts, readPacked, linkOf, nameOf } from "./data.js";
import { el, put, announce, folded } from "./dom.js";
import { go, hashOf, present } from "./route.js";

const [MOST, AROUND] = [300, 60];
const FIELDS = [
  ["o", "observation"],
  ["a", "action"],
  ["n", "note"],
];

/** Whether a text holds some words. */
export const has = (text, words) => folded(text).includes(folded(words));

/** A text with the places marked where it holds some words. */
export function marked(text, words) {
  if (!words) return [text];
  const [found, low, wanted] = [[], folded(text), folded(words)];
  let end = 0;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, end)) {
    found.push(text.slice(end, at), el("mark", null, text.slice(at, at + words.length)));
    end = at + words.length;
  }
  return [...found, text.slice(end)];
}

/** All places of some words: pairs of an episode, a step and a field. */
export async function search(words) {
  const { strings, lists } = await readTexts();
  const matching = new Set();
  strings.forEach((one, place) => {
    if (has(one, words)) matching.add(place);
  });
  const inLists = new Set(lists.flatMap((one, place) => (one.some((text) => matching.has(text)) ? [place] : [])));
  const hits = [];
  for (const row of report.rows) {
    if (row.place === null) continue;
    const packed = await readPacked(row);
    packed.a.forEach((_, step) => {
      const found = FIELDS.filter(([name]) => packed[name] && matching.has(packed[name][step]));
      if (packed.d && matching.has(packed.d[step].error)) found.push(["error", "error"]);
      for (const [name, field] of found)
        hits.push({
          row,
          step: step + 1,
          field,
          text: strings[name === "error" ? packed.d[step].error : packed[name][step]],
        });
      if (inLists.has(packed.l[step]))
        hits.push({
          row,
          step: step + 1,
          field: "admissible actions",
          text: lists[packed.l[step]]
            .filter((text) => matching.has(text))
            .map((text) => strings[text])
            .join(", "),
        });
    });
    if (packed.f !== undefined && matching.has(packed.f))
      hits.push({ row, step: packed.a.length + 1, field: "final observation", text: strings[packed.f] });
  }
  return hits;
}

/** Draw the places of some words. */
export async function drawFind(view, state) {
  const words = state.q || "";
  put(
    view,
    el("h2", null, "Find"),
    el(
      "p",
      null,
      words
        ? "Searching."
        : "Type words into the field at the top: observations, actions, lists, notes and errors of all episodes are searched.",
    ),
  );
  if (!words) return;
  const here = hashOf(present());
  const hits = await search(words);
  if (hashOf(present()) !== here) return; // another view by now
  const fields = [...new Set(hits.map((one) => one.field))];
  const found = state.f ? hits.filter((one) => one.field === state.f) : hits;
  drawHits(view, words, found, fields, state);
}

function drawHits(view, words, hits, fields, state) {
  const n = new Set(hits.map((one) => one.row)).size;
  const most = Number(state.shown) || MOST;
  const change = (more) => go({ ...state, ...more }, { replace: true });
  const count = `${hits.length.toLocaleString("en")} ${hits.length === 1 ? "place" : "places"} in ${n.toLocaleString("en")} ${n === 1 ? "episode" : "episodes"}`;
  const title = hits.length > most ? `${count}; the first ${most} are shown` : count;
  put(
    view,
    el("h2", null, `Find: ${words}`),
    el("p", { id: "count" }, title),
    fields.length > 1 || state.f
      ? el(
          "label",
          { class: "row no-print" },
          "in",
          el(
            "select",
            { on: { change: (event) => change({ f: event.target.value, shown: "" }) } },
            ["", ...fields].map((one) =>
              el("option", { value: one, selected: one === (state.f || "") }, one || "all texts"),
            ),
          ),
        )
      : null,
    el(
      "ol",
      { class: "hits" },
      hits.slice(0, most).map((hit) => {
        const at = Math.max(0, folded(hit.text).indexOf(folded(words)) - AROUND);
        const part = hit.text.slice(at, at + words.length + 2 * AROUND);
        return el(
          "li",
          null,
          el(
            "a",
            { href: hashOf(linkOf(hit.row, { step: hit.step, q: words })) },
            `${nameOf(hit.row)}, step ${hit.step}`,
          ),
          ` ${hit.field}`,
          el(
            "div",
            { class: "dim" },
            at ? "\u2026" : "",
            marked(part, words),
            at + part.length < hit.text.length ? "\u2026" : "",
          ),
        );
      }),
    ),
  );
  if (hits.length > most)
    view.append(
      el("button", { type: "button", on: { click: () => change({ shown: most + MOST }) } }, `show the next ${MOST}`),
    );
  announce(title);
}
