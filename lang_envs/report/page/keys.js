/** Keys; each has a button or a link too. Single keys can be switched off. */

import { el, put } from "./dom.js";
import { EPISODE_KEYS, isOpen } from "./episode.js";
import { report } from "./data.js";

const KEYS = [
  ["\u2190 \u2192", "step before, next step"],
  ["Home End", "first, last step"],
  ["Space", "play or pause"],
  ["n p", "next episode, episode before"],
  ["j k", "next token, token before"],
  ["1 to 9", "estimators on or off"],
  ["v", "colour by"],
  ["r", "next reward"],
  ["i", "next invalid action"],
  ["c", "compare"],
  ["g", "the slider of steps"],
  ["/", "find in all texts"],
  ["o l u", "overview, list of episodes, runs"],
  ["t", "theme"],
  ["?", "these keys"],
  ["Esc", "close"],
];
const WORDS = [
  ["admissible actions", "the actions that the environment lists in this situation"],
  ["advantage", "how much better than expected a token was, by an estimator; positive ones are reinforced"],
  ["value", "the critic's estimate of the discounted return, before a token"],
  [
    "delta (BAD)",
    "value after a token, or reward and discounted next value after the last one, less the value before it",
  ],
  ["\u03b3, \u03bb", "discount, and trace of generalised advantage estimation, between actions"],
  [
    "\u03b3_token, \u03bb_token",
    "the same between the tokens of an action: POAD has \u03b3_token = 1, NTPO \u03b3_token = \u03b3",
  ],
  ["POAD, NTPO", "token-level estimators without and with a discount inside actions"],
  ["action-level", "one advantage for all tokens of an action, as in TWOSOME and turn-level PPO"],
  ["bi-level", "estimation over actions, continued inside each action; equal to POAD at \u03bb_token = 1"],
  ["forced", "a token without an alternative: the listed actions leave no other"],
  ["entropy", "of the distribution at a token, in nats; 0 for a forced one"],
  [
    "return, discounted return",
    "sum of the rewards, without and with a discount; tables and charts name the one they show",
  ],
  ["steps, moves", "decisions, and units of time: a decision may take several moves"],
  ["invalid", "an action outside the command set; refused: a valid command without effect"],
  ["terminated, truncated", "ended by success or failure, or by the time limit"],
  ["oracle", "an agent that plays optimally by looking inside the environment"],
  ["\u03a3", "running return"],
];
const VIEW_KEYS = { o: "#v=overview", l: "#v=episodes", u: "#v=runs" };
const STORED = "lang-envs-report-keys";
let single = true;

function helpDialog() {
  const dialog = document.getElementById("keys");
  const box = el("input", {
    type: "checkbox",
    id: "single-keys",
    checked: single,
    on: {
      change: (event) => {
        single = event.target.checked;
        try {
          localStorage.setItem(STORED, single ? "on" : "off");
        } catch {
          /* lasts for this page */
        }
      },
    },
  });
  put(
    dialog,
    el("h2", { id: "keys-title" }, "Keys and words"),
    el(
      "table",
      { class: "left" },
      el(
        "tbody",
        null,
        KEYS.map(([key, about]) =>
          el(
            "tr",
            null,
            el(
              "th",
              { scope: "row" },
              key.split(" ").map((one) => [one === "to" ? "to" : el("kbd", null, one), " "]),
            ),
            el("td", null, about),
          ),
        ),
      ),
    ),
    el("p", null, el("label", null, box, " keys of a single letter are on")),
    el("h3", null, "Words"),
    el(
      "dl",
      { class: "details", tabindex: 0 },
      WORDS.map(([word, about]) => [el("dt", null, word), el("dd", null, about)]),
    ),
    el("p", null, el("button", { type: "button", on: { click: () => dialog.close() } }, "close")),
  );
  dialog.showModal();
}

function isTyping(target) {
  return target.matches?.("input:not([type=range]):not([type=checkbox]), select, textarea");
}

/** Listen to the keyboard. */
export function watchKeys() {
  try {
    single = localStorage.getItem(STORED) !== "off";
  } catch {
    single = true;
  }
  document.getElementById("help").addEventListener("click", helpDialog);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isTyping(event.target)) return event.target.blur();
    if (
      event.ctrlKey ||
      event.altKey ||
      event.metaKey ||
      isTyping(event.target) ||
      document.getElementById("keys").open
    )
      return undefined;
    if (event.key === " " && event.target.closest?.("button, a, summary, input")) return undefined;
    if (
      ["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key) &&
      event.target.matches?.("input[type=range], .wide, .box, .actions, pre")
    )
      return undefined;
    const isSingle = event.key.length === 1 && event.key !== " ";
    if (isSingle && !single) return undefined;
    const command = commandOf(event.key);
    if (!command) return undefined;
    event.preventDefault();
    return command();
  });
}

function commandOf(key) {
  if (key === "/") return () => document.getElementById("find").focus();
  if (key === "?") return helpDialog;
  if (key === "t") return () => document.getElementById("theme").click();
  if (VIEW_KEYS[key] && report.index)
    return () => {
      location.hash = VIEW_KEYS[key];
    };
  return isOpen(key) && Object.hasOwn(EPISODE_KEYS, key) ? EPISODE_KEYS[key] : null;
}
