/** One episode: the player, the credit of each token, and the same situation elsewhere. */

import { findRow, readEpisode, linkOf, nameOf } from "./data.js";
import { el, put, refresh, announce, button, copyButton, longText, short, signed, visible, refuse } from "./dom.js";
import { diverging } from "./colours.js";
import { go, hashOf, present } from "./route.js";
import { COLOURS, creditNames, creditsOf, creditTable, detailsOf, numbersOf, scaleOf, stripOf } from "./tokens.js";
import { OWN, RULES } from "./credit.js";
import { extent } from "./chart.js";
import { programOf } from "./code.js";
import { drawFrame } from "./pictures.js";
import { has, marked } from "./find.js";
import { comparison, siblings } from "./compare.js";
import { neighbourOf } from "./episodes.js";
import { situationTable } from "./situation.js";
import { headerOf, linesOf, replayable, textOf } from "./records.js";

const SPEEDS = [0.5, 1, 2, 5, 10];
const MOST_ACTIONS = 60;
const MOST_OTHERS = 24;
const SETTINGS = ["gamma", "lambda", "lambdaToken", "gammaToken"];
const DEFAULTS = { gamma: 0.95, lambda: 0.95, lambdaToken: 1, gammaToken: 0.95 };
const LABELS = { gamma: "\u03b3", lambda: "\u03bb", lambdaToken: "\u03bb_token", gammaToken: "\u03b3_token" };
const LETTERS = { gamma: "g", lambda: "l", lambdaToken: "lt", gammaToken: "gt" };

let open = null; // the episode that is drawn, with the elements that change
let ticket = 0; // of the last request: a slow block must not replace a later choice
let timer = null;
let speed = 1;
let showsDiff = true;

/** Forget what is drawn: another view, or another theme. */
export function closeEpisode() {
  stop();
  open = null;
  ticket += 1;
}

/** Draw the episode that a link names; in brief, as part of another view, the player alone and without keys. */
export async function drawEpisode(view, state, { isBrief = false } = {}) {
  const row = findRow(state.a, state.t, state.s, state.n, state.at);
  if (!row) {
    closeEpisode();
    const reason = state.a ? "This episode is not in this report." : "No episode is chosen.";
    refuse(view, "Episode", reason, "#v=episodes", "See the episodes");
    return;
  }
  if (!open || open.row !== row) {
    stop();
    const own = (ticket += 1);
    const episode = await readEpisode(row);
    if (own !== ticket) return;
    build(view, row, episode, isBrief);
  }
  if (open.episode) update(state);
}

// ---------------------------------------------------------------------- the parts

function build(view, row, episode, isBrief) {
  open = { row, episode, view, isBrief, drawn: "" };
  const others = siblings(row);
  const links = el(
    "p",
    { class: "row no-print" },
    button("\u2039 episode", "p", () => neighbour(-1)),
    button("episode \u203a", "n", () => neighbour(1)),
    others.length ? el("a", { href: hashOf(comparison(row, others[0])) }, "compare") : null,
  );
  if (!episode) {
    put(
      view,
      el("h2", null, nameOf(row)),
      links,
      el(
        "p",
        null,
        `Return ${short(row.return)} in ${row.steps} steps. The steps of this episode are not in this report; write it with more episodes shown, or record them with --steps.`,
      ),
    );
    return;
  }
  const frames = episode.actions.length + (episode.finalObservation === null ? 0 : 1);
  Object.assign(open, {
    frames,
    sums: episode.rewards.reduce((sums, one) => [...sums, sums[sums.length - 1] + one], [0]),
  });
  const part = (name, tag = "div", props = {}) => (open[name] = el(tag, props));
  const isCode =
    Boolean(episode.code) ||
    (episode.admissible.every((one) => one === null) && episode.actions.some((one) => one.includes("\n")));
  open.isCode = isCode;
  const shown = [
    part("where", "div", { class: "where row" }),
    player(frames),
    el(
      "div",
      { class: `stage${episode.pictures ? " pictured" : ""}${isCode ? " coded" : ""}` },
      episode.pictures
        ? el(
            "div",
            null,
            el("h3", null, "Picture"),
            (open.canvas = el("canvas", { role: "img", width: episode.size[0], height: episode.size[1] })),
          )
        : null,
      el(
        "div",
        null,
        el("h3", null, "Observation"),
        part("observation", "div", { class: "box", tabindex: 0, role: "group", "aria-label": "observation" }),
      ),
      el("div", null, el("h3", null, isCode ? "Program" : "Admissible actions"), part("actions")),
    ),
  ];
  const details = [
    part("notes"),
    el("h3", null, "Token credit"),
    part("credit"),
    el("h3", null, "All actions"),
    part("legend", "p", { class: "row" }),
    part("steps", "ol", { class: "steps" }),
    part("elsewhere"),
  ];
  put(
    view,
    isBrief
      ? [el("h3", null, "Last episode"), el("p", null, el("a", { href: hashOf(linkOf(row)) }, nameOf(row))), shown]
      : [el("h2", null, nameOf(row)), links, shown, details, exports()],
  );
  if (episode.noPictures) open.observation.before(el("p", { class: "dim" }, `No pictures: ${episode.noPictures}`));
  if (others.length && !isBrief) elsewhere(others);
}

function player(frames) {
  const keyed = (key) => (open.isBrief ? null : key);
  const range = el("input", {
    type: "range",
    min: 1,
    max: frames,
    step: 1,
    value: 1,
    "aria-label": "step",
    on: { input: (event) => show({ step: event.target.value, token: 1 }) },
  });
  const pace = el(
    "select",
    {
      "aria-label": "speed",
      on: {
        change: (event) => {
          speed = Number(event.target.value);
          if (timer) {
            stop();
            play();
          }
        },
      },
    },
    SPEEDS.map((one) => el("option", { value: one, selected: one === speed }, `${one} steps/s`)),
  );
  const rewards = open.episode.rewards;
  const largest = extent(rewards.map(Math.abs))[1] || 1;
  const marks = el(
    "div",
    { class: "marks", "aria-hidden": "true" },
    rewards.map((one, t) =>
      one === 0
        ? null
        : el("i", {
            title: `step ${t + 1}: ${signed(one)}`,
            style: { left: `${(100 * t) / Math.max(1, frames - 1)}%`, background: diverging(one / largest).background },
          }),
    ),
  );
  Object.assign(open, { range, toggle: button("play", keyed("Space"), () => (timer ? stop() : play())) });
  return el(
    "div",
    { class: "player", role: "group", "aria-label": "player" },
    button("|\u25c2", keyed("Home"), () => show({ step: 1, token: 1 }), { "aria-label": "first step" }),
    button("\u25c2", keyed("ArrowLeft"), () => move(-1), { "aria-label": "step before" }),
    open.toggle,
    button("\u25b8", keyed("ArrowRight"), () => move(1), { "aria-label": "next step" }),
    button("\u25b8|", keyed("End"), () => show({ step: frames, token: 1 }), { "aria-label": "last step" }),
    range,
    pace,
    button("next reward", keyed("r"), () => jump((t) => rewards[t] !== 0), {
      class: "jump",
      disabled: !rewards.some((one) => one !== 0),
    }),
    button("next invalid", keyed("i"), () => jump((t) => open.episode.invalid[t] === 1), {
      class: "jump",
      disabled: !open.episode.invalid.some((one) => one === 1),
    }),
    marks,
  );
}

function exports() {
  const { row, episode } = open;
  const at = row.at === null ? "" : `-${row.at}`;
  const name = `${row.agent}-${row.task}-${row.seed}-${row.episode}${at}`
    .replace(/[^A-Za-z0-9.-]+/g, "-")
    .slice(0, 100);
  return el(
    "p",
    { class: "row no-print" },
    copyButton("copy as text", () => textOf(row, episode)),
    copyButton("copy the step as JSON", () =>
      JSON.stringify(linesOf(row, episode)[Math.min(current().step, episode.actions.length) - 1], null, 1),
    ),
    button("download as JSONL", null, () =>
      download(
        `${name}.steps.jsonl`,
        [headerOf(row, episode), ...linesOf(row, episode)].map((one) => `${JSON.stringify(one)}\n`).join(""),
      ),
    ),
    row.resetSeed === null
      ? null
      : [
          button("download for replay", null, () =>
            download(`${name}.json`, JSON.stringify(replayable(row, episode), null, 1)),
          ),
          el(
            "span",
            null,
            "plays again, where lang_envs is installed, by ",
            el("code", null, `lang-envs replay ${name}.json`),
          ),
        ],
    row.replay
      ? [copyButton("copy the command for the results file", () => row.replay), el("code", null, row.replay)]
      : null,
  );
}

function download(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/jsonl" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// ---------------------------------------------------------------------- state

/** The state of the link, with defaults; steps and tokens outside the episode become the nearest. */
function current(state = present()) {
  const { episode, frames } = open;
  const whole = (text, most) => Math.min(Math.max(1, Math.trunc(Number(text)) || 1), most);
  const step = whole(state.step, frames);
  const t = step - 1 < episode.actions.length ? step - 1 : null;
  const count = t === null || !episode.tokens ? 1 : episode.tokens[t].length;
  const settings = {};
  for (const name of SETTINGS) {
    const given = Number(state[LETTERS[name]]);
    settings[name] = state[LETTERS[name]] && given >= 0 && given <= 1 ? given : recorded(name);
  }
  const known = creditNames(episode);
  const wanted = state.by === undefined ? null : state.by.split(",");
  const names = known.filter((name) => (wanted ? wanted.includes(inLink(name)) : name !== OWN));
  const colours = COLOURS.filter((one) =>
    one === "advantage"
      ? known.length
      : one === "probability"
        ? episode.logProbs
        : one === "entropy"
          ? episode.entropies
          : episode.values,
  );
  return {
    state,
    step,
    t,
    token: whole(state.token, count),
    settings,
    known,
    names,
    colours,
    colour: colours.includes(state.colour) ? state.colour : colours[0],
    words: state.q,
  };
}

/** A name as it stands in a list of names in the link. */
const inLink = (name) => name.replace(/%/g, "%25").replace(/,/g, "%2C");

/** Change parts of the link, and draw. */
function show(more) {
  const { state } = current();
  go({ ...state, ...more }, { replace: true });
}

function move(by) {
  show({ step: Math.min(Math.max(1, current().step + by), open.frames), token: 1 });
}

function jump(test) {
  const { step } = current();
  const places = open.episode.rewards.map((_, t) => t).filter(test);
  if (!places.length) return announce("none in this episode");
  show({ step: (places.find((t) => t + 1 > step) ?? places[0]) + 1, token: 1 });
}

/** Whether an episode is drawn; keys that go to another one need no steps. */
export const isOpen = (key) => Boolean(open && !open.isBrief && (open.episode || "np".includes(key)));

function neighbour(by) {
  const next = neighbourOf(open.row, by);
  if (next) go(linkOf(next));
}

function play() {
  if (!open?.episode) return;
  if (current().step === open.frames) show({ step: 1, token: 1 });
  open.toggle.textContent = "pause";
  timer = setInterval(() => {
    if (open && current().step < open.frames) move(1);
    else stop();
  }, 1000 / speed);
}

function stop() {
  clearInterval(timer);
  timer = null;
  if (open?.toggle) open.toggle.textContent = "play";
}

// ---------------------------------------------------------------------- drawing a step

function update(state) {
  const now = current(state);
  const { episode } = open;
  const key = JSON.stringify([now.settings, now.names, now.colour, document.documentElement.dataset.theme]);
  if (open.drawn !== key) {
    open.credits = creditsOf(episode, now.settings);
    open.scale = scaleOf(open.credits, now.names);
    open.drawn = key;
    drawSteps(now);
  }
  drawWhere(now);
  drawObservation(now);
  drawActions(now);
  drawNotes(now);
  drawCredit(now);
  drawElsewhere(now);
  [...open.steps.children].forEach((one, t) => {
    one.classList.toggle("current", t === now.t);
    one.querySelector("a").toggleAttribute("aria-current", t === now.t);
  });
  open.range.value = now.step;
  open.range.setAttribute("aria-valuetext", `step ${now.step} of ${episode.actions.length}`);
  if (open.canvas) {
    drawFrame(open.canvas, episode, Math.min(now.step - 1, episode.pictures.length - 1));
    open.canvas.setAttribute("aria-label", visible(observationAt(now) || ""));
  }
}

const observationAt = (now) => (now.t === null ? open.episode.finalObservation : open.episode.observations[now.t]);

function drawWhere(now) {
  const { row, episode } = open;
  const place =
    now.t === null ? `after step ${episode.actions.length}` : `step ${now.step} of ${episode.actions.length}`;
  const paid = now.t === null ? "" : `, reward ${signed(episode.rewards[now.t])}`;
  const ended = row.terminated ? "terminated" : row.truncated ? "truncated" : "not over";
  const text = `${place}${paid}, return so far ${short(open.sums[now.t === null ? episode.actions.length : now.t + 1], 3)}`;
  put(
    open.where,
    el("strong", null, text),
    el(
      "span",
      { class: `outcome ${row.success ? "good" : "bad"}` },
      row.success === null ? ended : row.success ? `success, ${ended}` : `no success, ${ended}`,
    ),
    now.t !== null && episode.invalid[now.t] ? el("span", { class: "outcome bad" }, "invalid action") : null,
    el("span", { class: "dim" }, `return ${short(row.return)}`),
  );
  if (!timer) announce(text);
}

/** Sentences that were not in the observation before are marked. */
function drawObservation(now) {
  const text = observationAt(now) || "";
  const before = now.step > 1 ? open.episode.observations[now.step - 2] : null;
  const old = before === null ? null : new Set(sentences(before));
  const draw = (part) =>
    now.words
      ? marked(part, now.words)
      : old === null
        ? [part]
        : sentences(part).map((one) => (old.has(one) || !one.trim() ? one : el("mark", null, one)));
  put(open.observation, longText(text, draw, now.words));
}

const sentences = (text) => text.split(/(?<=\n)|(?<=\.)(?!\d)/);

function drawActions(now) {
  const { episode } = open;
  if (now.t === null) return void put(open.actions, el("p", { class: "dim" }, "The episode is over."));
  const listed = episode.admissible[now.t];
  const chosen = episode.actions[now.t];
  if (open.isCode || listed === null) return void refresh(open.actions, attempt(now));
  const shares = episode.shares && episode.shares[now.t].length === listed.length ? episode.shares[now.t] : null;
  const order = listed.map((text, i) => i);
  if (shares) order.sort((a, b) => shares[b] - shares[a] || a - b);
  const place = order.findIndex((i) => listed[i] === chosen);
  const item = (i) =>
    el(
      "li",
      { class: listed[i] === chosen ? "chosen" : null, "aria-current": listed[i] === chosen ? "true" : null },
      shares
        ? [
            el("span", { class: "share" }, `${(100 * shares[i]).toFixed(1)} %`),
            el(
              "span",
              { class: "track", "aria-hidden": "true" },
              el("span", { class: "bar", style: { width: `${(100 * shares[i]).toFixed(1)}%` } }),
            ),
          ]
        : null,
      now.words ? marked(listed[i], now.words) : listed[i],
    );
  const first = order.slice(0, MOST_ACTIONS);
  if (place >= MOST_ACTIONS) first.push(order[place]);
  if (now.words)
    first.push(...order.slice(MOST_ACTIONS).filter((i) => i !== order[place] && has(listed[i], now.words)));
  const list = el(
    "ul",
    { class: "actions", tabindex: 0, role: "list", "aria-label": "admissible actions" },
    first.map(item),
  );
  if (order.length > first.length) {
    list.append(
      el(
        "li",
        null,
        el(
          "button",
          { type: "button", on: { click: () => put(list, order.map(item)) } },
          `show all ${order.length.toLocaleString("en")}`,
        ),
      ),
    );
  }
  const probability =
    !shares && episode.logProbs
      ? `probability of the chosen action ${short(Math.exp(episode.logProbs[now.t].reduce((a, b) => a + b, 0)), 3)}`
      : null;
  put(
    open.actions,
    list,
    place < 0 ? el("p", null, "Chosen, not in the list: ", el("code", { class: "text" }, chosen)) : null,
    probability ? el("p", { class: "dim" }, probability) : null,
  );
}

/** A program, its changes since the attempt before, and its result. */
function attempt(now) {
  const { episode } = open;
  const [text, before] = [episode.actions[now.t], now.t > 0 ? episode.actions[now.t - 1] : null];
  const about = episode.code?.[now.t] || {};
  const scores = Object.entries(about.scores || {}).map(([split, score]) => `${split} AUC ${short(score)}`);
  const facts = [
    about.status ? `status ${about.status}` : null,
    about.score === undefined ? null : `score ${short(about.score)}`,
    ...scores,
  ].filter(Boolean);
  const diff = showsDiff && before !== null;
  return [
    facts.length ? el("p", null, facts.join(", ")) : null,
    about.error
      ? el("pre", { class: "code", tabindex: 0, role: "group", "aria-label": "error" }, el("div", null, about.error))
      : null,
    el(
      "p",
      { class: "row no-print" },
      before === null
        ? null
        : el(
            "button",
            {
              type: "button",
              "data-name": "changes",
              "aria-pressed": showsDiff,
              on: {
                click: () => {
                  showsDiff = !showsDiff;
                  update();
                },
              },
            },
            "changes since the attempt before",
          ),
      copyButton("copy the program", () => text),
    ),
    programOf(text, diff ? before : null),
  ];
}

function drawNotes(now) {
  const { episode } = open;
  const note = now.t === null ? null : episode.notes[now.t];
  const prompt = now.t === null || !episode.prompts ? null : episode.prompts[now.t];
  put(
    open.notes,
    note
      ? [
          el("h3", null, "Note of the agent"),
          el(
            "div",
            { class: "box", tabindex: 0, role: "group", "aria-label": "note" },
            longText(note, (part) => marked(part, now.words), now.words),
          ),
        ]
      : null,
    prompt
      ? el(
          "details",
          {
            open: open.promptShown,
            on: {
              toggle: (event) => {
                open.promptShown = event.target.open;
              },
            },
          },
          el("summary", null, `prompt: ${prompt.length.toLocaleString("en")} tokens`),
          el(
            "div",
            { class: "box", tabindex: 0, role: "group", "aria-label": "tokens of the prompt" },
            prompt.map((one) => [
              el(
                "span",
                { class: "mono text" },
                el("span", { class: "token" }, one.replace(/ /g, "\u2423").replace(/\n/g, "\u23ce")),
              ),
              one.includes("\n") ? el("br") : " ",
            ]),
          ),
        )
      : null,
  );
}

// ---------------------------------------------------------------------- credit

function drawCredit(now) {
  const { episode } = open;
  if (!episode.tokens)
    return void put(
      open.credit,
      el("p", { class: "dim" }, "No tokens were recorded: this agent answers with whole texts."),
    );
  if (!open.table) buildCredit();
  refresh(open.rules, now.known.length > 1 ? rules(now) : null);
  if (open.sliders) updateSliders(now);
  const table =
    now.t === null
      ? el("p", { class: "dim" }, "The episode is over: no action here.")
      : creditTable({
          episode,
          t: now.t,
          credits: open.credits,
          names: now.names,
          scale: open.scale,
          token: now.token - 1,
          width: open.view.clientWidth,
          choose: (j) => {
            show({ token: j + 1 });
            focusToken();
          },
          peek: (j) => drawDetails(now, j),
        });
  refresh(open.table, table, now.t === null ? null : (open.details = el("div")));
  if (now.t !== null) drawDetails(now, now.token - 1);
}

/** The parts of the credit. Sliders stay the same elements: one that is replaced while it is dragged lets go. */
function buildCredit() {
  const { episode, row } = open;
  const critic = episode.values
    ? "One critic's values: this shows how the estimators share out the same rewards, not the result of training with each."
    : Object.keys(episode.credits).length
      ? "Recorded credit; without values of a critic no other estimator can be computed."
      : "No values were recorded, so that no advantages can be computed.";
  const cut =
    episode.values && row.truncated && !row.terminated && episode.finalValue === null
      ? " The episode was truncated and the value after its end was not recorded: it is credited as if it had ended there."
      : "";
  put(
    open.credit,
    el("p", { class: "dim" }, critic, cut),
    (open.rules = el("div")),
    episode.values ? sliders() : null,
    (open.table = el("div", { class: "spread" })),
  );
}

/** The numbers of a token: of the chosen one, or of that under the pointer. */
function drawDetails(now, j) {
  put(open.details, detailsOf(open.episode, now.t, j, open.credits, now.names, now.settings));
}

function focusToken() {
  open.credit.querySelector('button.token[tabindex="0"]')?.focus();
}

function rules(now) {
  const chosen = (name) => now.names.includes(name);
  return el(
    "p",
    { class: "row rules no-print", role: "group", "aria-label": "estimators" },
    now.known.map((name, i) =>
      el(
        "button",
        {
          type: "button",
          "data-name": name,
          "aria-pressed": chosen(name),
          title: `${RULES.find((one) => one.name === name)?.about || "recorded"} (${i + 1})`,
          "aria-keyshortcuts": i < 9 ? String(i + 1) : null,
          on: { click: () => toggleRule(i) },
        },
        name,
      ),
    ),
  );
}

function toggleRule(i) {
  const { known, names } = current();
  if (i >= known.length) return;
  const chosen = known.filter((name, k) => names.includes(name) !== (k === i));
  show({ by: chosen.map(inLink).join(",") || "none" });
}

const recorded = (name) => (open.episode.settings || DEFAULTS)[name];

/** The estimators with the one that has a slider of its own. */
const withOwn = (now) => ({ by: now.known.filter((name) => now.names.includes(name) || name === OWN).join(",") });

function sliders() {
  open.sliders = new Map();
  const labels = SETTINGS.map((name) => {
    const input = el("input", {
      type: "range",
      min: 0,
      max: 1,
      step: 0.01,
      on: {
        input: () => show({ [LETTERS[name]]: input.value, ...(name === "gammaToken" ? withOwn(current()) : {}) }),
      },
    });
    const parts = { input, output: el("output"), recorded: el("span", { class: "dim" }) };
    open.sliders.set(name, parts);
    return el("label", null, LABELS[name], Object.values(parts));
  });
  const reset = () => {
    show(Object.fromEntries(Object.values(LETTERS).map((one) => [one, ""])));
    open.sliders.get(SETTINGS[0]).input.focus();
  };
  open.changed = el(
    "span",
    { class: "row", hidden: true },
    el("button", { type: "button", on: { click: reset } }, "reset"),
    el("span", { class: "dim" }, "recomputed in this page"),
  );
  return el(
    "div",
    { class: "sliders no-print", role: "group", "aria-label": "settings of the estimators" },
    labels,
    open.changed,
  );
}

function updateSliders(now) {
  for (const [name, parts] of open.sliders) {
    parts.input.value = now.settings[name];
    put(parts.output, now.settings[name].toFixed(2));
    put(parts.recorded, now.state[LETTERS[name]] ? `(recorded: ${recorded(name).toFixed(2)})` : null);
  }
  open.changed.hidden = !SETTINGS.some((name) => now.state[LETTERS[name]]);
}

/** The strips of all actions, coloured by one kind of number. */
function drawSteps(now) {
  const { episode } = open;
  const rows = episode.actions.map((_, t) =>
    now.colour ? numbersOf(episode, t, now.colour, open.credits.get(now.names[0]), now.settings) : null,
  );
  const isSigned = ["advantage", "value", "delta"].includes(now.colour);
  const scale =
    now.colour === "advantage"
      ? open.scale
      : extent([1e-9, ...rows.flatMap((row) => (row || []).map((one) => Math.abs(one ?? 0)))])[1];
  const choice =
    now.colours.length > 1
      ? el(
          "label",
          { class: "row no-print" },
          "colour by",
          el(
            "select",
            {
              id: "colour",
              on: {
                change: (event) => {
                  show({ colour: event.target.value });
                  document.getElementById("colour").focus();
                },
              },
            },
            now.colours.map((one) =>
              el(
                "option",
                { value: one, selected: one === now.colour },
                one === "advantage" && now.names[0] ? `advantage (${now.names[0]})` : one,
              ),
            ),
          ),
        )
      : null;
  const patch = (position) => el("i", { style: { background: diverging(position).background } });
  const legend =
    now.colour && rows.some(Boolean)
      ? el(
          "span",
          { class: "legend" },
          isSigned
            ? [
                `-${short(scale, 3)}`,
                [-1, -0.5, 0, 0.5, 1].map(patch),
                `+${short(scale, 3)}; underlined: positive, dashed: negative`,
              ]
            : ["0", [0, 0.33, 0.67, 1].map(patch), short(scale, 3)],
        )
      : null;
  put(open.legend, choice, legend);
  put(
    open.steps,
    episode.actions.map((text, t) =>
      el(
        "li",
        null,
        el(
          "a",
          {
            href: hashOf(linkOf(open.row, { step: t + 1 })),
            on: {
              click: (event) => {
                event.preventDefault();
                show({ step: t + 1, token: 1 });
              },
            },
          },
          `step ${t + 1}`,
        ),
        el(
          "div",
          { class: "strip", on: { click: (event) => chooseIn(event, t) } },
          episode.tokens ? stripOf(episode, t, rows[t], scale, isSigned) : text.slice(0, 300),
        ),
        el(
          "div",
          { class: "paid" },
          signed(episode.rewards[t]),
          episode.invalid[t] ? " invalid" : "",
          el("span", { class: "dim" }, ` \u03a3 ${short(open.sums[t + 1], 3)}`),
        ),
      ),
    ),
  );
}

/** A click on a token of a strip goes to it. */
function chooseIn(event, t) {
  const place = [...event.currentTarget.children].indexOf(event.target);
  if (place >= 0) show({ step: t + 1, token: place + 1 });
}

// ---------------------------------------------------------------------- the same situation elsewhere

/** Episodes with the same task and reset seed: other agents, and other checkpoints of a training. */
async function elsewhere(others) {
  const own = open;
  const rows = [open.row, ...others.slice(0, MOST_OTHERS)].sort((a, b) =>
    a.agent < b.agent ? -1 : a.agent > b.agent ? 1 : (a.at ?? 0) - (b.at ?? 0),
  );
  const episodes = await Promise.all(rows.map(readEpisode));
  if (own !== open) return;
  open.others = rows.map((row, i) => ({ row, episode: episodes[i] }));
  drawElsewhere(current());
}

/** The choice of each of them at the present step. */
function drawElsewhere(now) {
  if (!open.others) return;
  put(
    open.elsewhere,
    el("h3", null, "The same situation elsewhere"),
    el(
      "p",
      { class: "dim" },
      "Episodes of this task with the same reset seed: other agents, and other checkpoints of a training.",
    ),
    situationTable(
      open.others,
      open.row,
      now.t === null ? null : open.episode.actions[now.t],
      observationAt(now),
      now.t,
    ),
  );
}

// ---------------------------------------------------------------------- keys

/** Commands of the keyboard in this view, by key. */
export const EPISODE_KEYS = {
  ArrowLeft: () => move(-1),
  ArrowRight: () => move(1),
  Home: () => show({ step: 1, token: 1 }),
  End: () => show({ step: open.frames, token: 1 }),
  n: () => neighbour(1),
  p: () => neighbour(-1),
  " ": () => (timer ? stop() : play()),
  j: () => {
    const { t, token } = current();
    show({ token: t === null ? 1 : Math.min(token + 1, open.episode.tokens?.[t].length ?? 1) });
    focusToken();
  },
  k: () => {
    show({ token: Math.max(1, current().token - 1) });
    focusToken();
  },
  v: () => {
    const { colours, colour } = current();
    show({ colour: colours[(colours.indexOf(colour) + 1) % colours.length] });
  },
  r: () => jump((t) => open.episode.rewards[t] !== 0),
  i: () => jump((t) => open.episode.invalid[t] === 1),
  c: () => {
    const others = siblings(open.row);
    if (others.length) go(comparison(open.row, others[0]));
  },
  g: () => open.range.focus(),
  ...Object.fromEntries([...Array(9).keys()].map((i) => [String(i + 1), () => toggleRule(i)])),
};
