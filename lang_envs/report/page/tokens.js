/** Tokens with their numbers: the table of one action, the strips of all, and the details of one token. */

import { el, signed, short, visibleToken } from "./dom.js";
import { diverging } from "./colours.js";
import { RULES } from "./credit.js";

/** Ways to colour a token. */
export const COLOURS = ["advantage", "value", "delta", "probability", "entropy"];
const [LABEL, CELL, LETTER, WIDEST] = [150, 66, 8, 24]; // widths of the tables in pixels, and letters of a token
const LONG = 40; // tokens from which an action is a strip first

/** Advantages of an episode by estimator: computed where it has values, and recorded ones. */
export function creditsOf(episode, settings) {
  const found = new Map();
  if (episode.values) {
    const { rewards, values, options } = episode;
    const decisions = options && options.map((row) => row.map((n) => n !== 1));
    const numbers = { ...settings, rewards, values, decisions, finalValue: episode.finalValue ?? 0 };
    for (const rule of RULES) found.set(rule.name, rule.compute(numbers));
  }
  for (const [name, rows] of Object.entries(episode.credits))
    found.set(found.has(name) ? `${name}, recorded` : name, rows);
  return found;
}

/** Names of the estimators of an episode, as `creditsOf` has them. */
export function creditNames(episode) {
  const rules = episode.values ? RULES.map((one) => one.name) : [];
  return [...rules, ...Object.keys(episode.credits).map((name) => (rules.includes(name) ? `${name}, recorded` : name))];
}

/** Largest amount in the rows of some estimators; 1 if all are 0. */
export function scaleOf(credits, names) {
  let largest = 0;
  for (const name of names)
    for (const row of credits.get(name) || []) for (const one of row || []) largest = Math.max(largest, Math.abs(one));
  return largest || 1;
}

/** Temporal differences of BAD inside and between actions. */
function deltas(episode, settings, t) {
  const row = episode.values[t];
  const next = t + 1 < episode.values.length ? episode.values[t + 1][0] : (episode.finalValue ?? 0);
  return row.map((value, j) =>
    j + 1 < row.length ? row[j + 1] - value : episode.rewards[t] + settings.gamma * next - value,
  );
}

/** Numbers of the tokens of an action by the name of a colour; null where they are not known. */
export function numbersOf(episode, t, colour, advantages, settings) {
  if (colour === "advantage") return advantages ? advantages[t] : null;
  if (colour === "value") return episode.values && episode.values[t];
  if (colour === "delta") return episode.values && deltas(episode, settings, t);
  if (colour === "probability") return episode.logProbs && episode.logProbs[t].map((one) => Math.exp(one));
  return episode.entropies && episode.entropies[t];
}

const isForced = (episode, t, j) => Boolean(episode.options) && episode.options[t][j] === 1;

function painted(node, value, scale, isSigned) {
  const { background, ink } = diverging(value / scale);
  node.style.setProperty("background", background);
  node.style.setProperty("color", ink);
  if (isSigned && value !== 0) node.classList.add(value < 0 ? "minus" : "plus");
  return node;
}

/** The tokens of an action as spans in the flow of text. */
export function stripOf(episode, t, numbers, scale, isSigned) {
  return episode.tokens[t].map((text, j) => {
    const node = el("span", null, text.includes("\n") ? text : visibleToken(text));
    return numbers && numbers[j] !== null ? painted(node, numbers[j], scale, isSigned) : node;
  });
}

/**
 * The tokens of an action as columns, each estimator as a row; long actions take several tables.
 * @param {{episode: Object, t: number, credits: Map, names: string[], scale: number, token: number, width: number, choose: function(number): void, peek: function(number): void}} view
 */
export function creditTable({ episode, t, credits, names, scale, token, width, choose, peek }) {
  const texts = episode.tokens[t];
  const rows = [];
  if (episode.logProbs)
    rows.push([
      "probability",
      (j) => (isForced(episode, t, j) ? "forced" : short(Math.exp(episode.logProbs[t][j]), 3)),
    ]);
  if (episode.values) rows.push(["value", (j) => episode.values[t][j].toFixed(3)]);
  if (episode.entropies)
    rows.push(["entropy", (j) => (episode.entropies[t][j] === null ? "" : episode.entropies[t][j].toFixed(3))]);
  const tableOfTokens = (places) => {
    const head = el(
      "tr",
      null,
      el("th", { scope: "row" }, "token"),
      places.map((j) =>
        el(
          "th",
          { scope: "col" },
          el(
            "button",
            {
              type: "button",
              class: `token${isForced(episode, t, j) ? " forced" : ""}`,
              "data-token": j,
              "data-name": j === token ? "token" : null,
              tabindex: j === token ? 0 : -1,
              "aria-current": j === token ? "true" : null,
              "aria-label": describe(episode, t, j, credits, names),
              on: { click: () => choose(j), pointerenter: () => peek(j), pointerleave: () => peek(token) },
            },
            visibleToken(texts[j]),
          ),
        ),
      ),
    );
    const plain = rows.map(([name, text]) =>
      el(
        "tr",
        null,
        el("th", { scope: "row" }, name),
        places.map((j) => el("td", null, text(j))),
      ),
    );
    const coloured = names
      .filter((name) => credits.get(name)?.[t])
      .map((name) =>
        el(
          "tr",
          { "data-rule": name },
          el("th", { scope: "row" }, name),
          places.map((j) =>
            el(
              "td",
              null,
              painted(
                el("span", { class: "token" }, signed(credits.get(name)[t][j])),
                credits.get(name)[t][j],
                scale,
                true,
              ),
            ),
          ),
        ),
      );
    return el("table", null, el("thead", null, head), el("tbody", null, plain, coloured));
  };
  const tables = () =>
    el(
      "div",
      { class: "credit wide", role: "group", "aria-label": "credit of each token", tabindex: 0 },
      linesOfTokens(texts, width).map(tableOfTokens),
    );
  if (texts.length <= LONG) return tables();
  const details = el("details", null, el("summary", null, "all numbers as tables"));
  details.addEventListener("toggle", () => {
    if (details.childElementCount === 1) details.append(tables());
  });
  const strip = texts.map((text, j) => {
    const node = el(
      "button",
      {
        type: "button",
        class: "token",
        "data-token": j,
        "data-name": j === token ? "token" : null,
        tabindex: j === token ? 0 : -1,
        "aria-current": j === token ? "true" : null,
        "aria-label": describe(episode, t, j, credits, names),
        on: { click: () => choose(j), pointerenter: () => peek(j), pointerleave: () => peek(token) },
      },
      visibleToken(text),
    );
    const row = credits.get(names[0])?.[t];
    return [row ? painted(node, row[j], scale, true) : node, text.includes("\n") ? el("br") : null];
  });
  return el(
    "div",
    null,
    el("p", { class: "dim" }, names[0] ? `coloured by the advantage of ${names[0]}` : ""),
    el("div", { class: "strip long", role: "group", "aria-label": "tokens of the action" }, strip),
    details,
  );
}

/** Places of tokens by line, as many as fit into the width. */
function linesOfTokens(texts, width) {
  const lines = [[]];
  const label = width < 600 ? 100 : LABEL;
  let used = label;
  texts.forEach((text, j) => {
    const own = Math.max(CELL, LETTER * Math.min(visibleToken(text).length, WIDEST) + 18);
    if (used + own > width && lines[lines.length - 1].length) {
      lines.push([]);
      used = label;
    }
    lines[lines.length - 1].push(j);
    used += own;
  });
  return lines;
}

function describe(episode, t, j, credits, names) {
  const first = names.find((name) => credits.get(name)?.[t]);
  const advantage = first ? `, advantage ${signed(credits.get(first)[t][j])} by ${first}` : "";
  const probability = episode.logProbs ? `, probability ${short(Math.exp(episode.logProbs[t][j]), 3)}` : "";
  return `${visibleToken(episode.tokens[t][j])}, token ${j + 1} of ${episode.tokens[t].length}${advantage}${probability}`;
}

/** All numbers of one token. */
export function detailsOf(episode, t, j, credits, names, settings) {
  const facts = [["token", `${visibleToken(episode.tokens[t][j])}, ${j + 1} of ${episode.tokens[t].length}`]];
  if (episode.logProbs) {
    const logProb = episode.logProbs[t][j];
    facts.push(["probability", `${short(Math.exp(logProb))} (log ${short(logProb)})`]);
  }
  if (episode.options)
    facts.push(["choices", episode.options[t][j] === 1 ? "1: forced" : episode.options[t][j].toLocaleString("en")]);
  if (episode.entropies && episode.entropies[t][j] !== null) facts.push(["entropy", short(episode.entropies[t][j])]);
  if (episode.values) {
    facts.push(["value before it", short(episode.values[t][j], 5)]);
    facts.push(["delta (BAD)", signed(deltas(episode, settings, t)[j], 5)]);
  }
  for (const name of names)
    if (credits.get(name)?.[t]) facts.push([`advantage, ${name}`, signed(credits.get(name)[t][j], 5)]);
  const others = episode.alternatives?.[t]?.[j];
  if (others)
    facts.push([
      "alternatives",
      others.map(([text, logProb]) => `${visibleToken(text)} ${short(Math.exp(logProb), 3)}`).join("   "),
    ]);
  return el(
    "dl",
    { class: "details", id: "details" },
    facts.map(([name, value]) => [el("dt", null, name), el("dd", null, value)]),
  );
}
