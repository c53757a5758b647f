/** The list of episodes, with filters and sorting; all of its state is in the link. */

import { report, linkOf } from "./data.js";
import { el, put, announce, folded } from "./dom.js";
import { go, hashOf, present } from "./route.js";

const PAGE = 2000;
const COLUMNS = [
  { name: "agent", title: "agent", width: "minmax(7rem, 1.3fr)", text: (row) => row.agent },
  { name: "task", title: "task", width: "minmax(9rem, 1.7fr)", text: (row) => row.task },
  { name: "seed", title: "seed", width: "3.5rem", number: true },
  { name: "episode", title: "episode", width: "4.2rem", number: true },
  {
    name: "at",
    title: "trained steps",
    width: "6.5rem",
    number: true,
    text: (row) => (row.at === null ? "" : row.at.toLocaleString("en")),
  },
  {
    name: "success",
    title: "success",
    width: "5rem",
    number: true,
    text: (row) => (row.success === null ? "" : row.success ? "yes" : "no"),
  },
  { name: "return", title: "return", width: "5.5rem", number: true, text: (row) => fixed(row.return, 3) },
  { name: "steps", title: "steps", width: "4.5rem", number: true },
  { name: "invalid", title: "invalid", width: "5rem", number: true },
  {
    name: "ended",
    title: "ended",
    width: "6rem",
    text: (row) => (row.terminated ? "terminated" : row.truncated ? "truncated" : "not over"),
  },
];

function fixed(value, digits) {
  return value === null ? "" : Number.isInteger(value) ? String(value) : value.toFixed(digits);
}

function valueOf(row, name) {
  return name === "ended" ? (row.terminated ? "terminated" : row.truncated ? "truncated" : "not over") : row[name];
}

/** Rows that pass the filters of a link, in its order. */
export function chosenRows(state) {
  const words = folded(state.q || "");
  const kept = report.rows.filter(
    (row) =>
      (!state.a || row.agent === state.a) &&
      (!state.t || row.task === state.t) &&
      (!state.s || String(row.seed) === state.s) &&
      (!state.at || String(row.at) === state.at) &&
      (!state.success || String(row.success) === state.success) &&
      (!state.ended || valueOf(row, "ended") === state.ended) &&
      (!state.invalid || row.invalid > 0) &&
      (!state.from || row.return >= Number(state.from)) &&
      (!state.to || row.return <= Number(state.to)) &&
      (!words || folded(`${row.agent} ${row.task}`).includes(words)),
  );
  const [name, sign] = state.sort ? [state.sort.replace(/^-/, ""), state.sort.startsWith("-") ? -1 : 1] : [null, 1];
  if (!name || !COLUMNS.some((one) => one.name === name)) return kept;
  return kept
    .map((row, place) => [valueOf(row, name), place, row])
    .sort(([a, i], [b, j]) => {
      const [none, other] = [a === null || a === undefined, b === null || b === undefined];
      if (none || other) return none - other || i - j; // missing last in either direction
      const order = typeof a === "string" ? (a < b ? -1 : a > b ? 1 : 0) : a - b;
      return sign * order || i - j;
    })
    .map(([, , row]) => row);
}

/** Change parts of the link, and draw. */
function change(more) {
  go({ ...present(), ...more }, { replace: true });
}

/** The place of the list, below new filters; a field in use stays as it is, with its cursor. */
function listBelow(view, state) {
  const known = view.querySelector(".filters");
  if (known?.contains(document.activeElement) && document.activeElement.matches("input"))
    return known.nextElementSibling;
  const focused = known?.contains(document.activeElement) ? document.activeElement.name : null;
  const list = el("div");
  put(view, el("h2", null, "Episodes"), filters(state), list);
  if (focused) view.querySelector(`.filters [name="${focused}"]`)?.focus();
  return list;
}

let last = null; // the rows of the list that was drawn last

/** The episode after or before another one, in the order of the list; undefined at its ends. */
export function neighbourOf(row, by) {
  const rows = last && last.includes(row) ? last : report.rows;
  return rows[rows.indexOf(row) + by];
}

/** Draw the list. */
export function drawEpisodes(view, state) {
  const rows = chosenRows(state);
  last = rows;
  const shown = Math.max(PAGE, Number(state.shown) || 0);
  const columns = COLUMNS.filter((one) => one.name === "ended" || report.rows.some((row) => row[one.name] !== null));
  const list = listBelow(view, state);
  put(
    list,
    el(
      "p",
      { id: "count", role: "status" },
      `${rows.length.toLocaleString("en")} of ${report.rows.length.toLocaleString("en")} episodes`,
    ),
    el(
      "div",
      {
        class: "list",
        role: "table",
        "aria-label": "Episodes",
        "aria-rowcount": rows.length + 1,
        style: { "--columns": columns.map((one) => one.width).join(" ") },
      },
      el("div", { role: "rowgroup" }, header(columns, state)),
      el(
        "div",
        { role: "rowgroup" },
        rows.slice(0, shown).map((row) => rowOf(columns, row)),
      ),
    ),
    rows.length > shown
      ? el(
          "button",
          { type: "button", on: { click: () => change({ shown: shown + PAGE }) } },
          `show the next ${Math.min(PAGE, rows.length - shown)}`,
        )
      : null,
  );
}

function header(columns, state) {
  return el(
    "div",
    { role: "row", class: "head" },
    columns.map((column) => {
      const own = state.sort === column.name ? "ascending" : state.sort === `-${column.name}` ? "descending" : "none";
      const next = own === "ascending" ? `-${column.name}` : own === "descending" ? "" : column.name;
      const arrow = own === "ascending" ? " \u25b2" : own === "descending" ? " \u25bc" : "";
      return el(
        "div",
        { role: "columnheader", "aria-sort": own, class: column.number ? "number" : "" },
        el(
          "button",
          {
            type: "button",
            "data-sort": column.name,
            on: {
              click: () => {
                change({ sort: next });
                document.querySelector(`[data-sort="${column.name}"]`)?.focus();
                announce(
                  `sorted by ${column.title}: ${next ? (next[0] === "-" ? "descending" : "ascending") : "order of the files"}`,
                );
              },
            },
          },
          column.title + arrow,
        ),
      );
    }),
  );
}

function rowOf(columns, row) {
  return el(
    "div",
    { role: "row" },
    columns.map((column, place) => {
      const text = column.text ? column.text(row) : (row[column.name] ?? "");
      const content = place === 0 ? el("a", { href: hashOf(linkOf(row)) }, text) : text;
      return el(
        "div",
        {
          role: "cell",
          class: column.number ? "number" : "",
          "data-name": place > 1 ? column.title : null,
          title: place < 2 ? String(text) : null,
        },
        content,
      );
    }),
  );
}

function filters(state) {
  const select = (label, name, options) =>
    el(
      "label",
      null,
      label,
      el(
        "select",
        {
          name,
          on: {
            change: (event) => change({ [name]: event.target.value, shown: "" }),
          },
        },
        el("option", { value: "" }, "all"),
        options.map(([value, text]) => el("option", { value, selected: state[name] === value }, text)),
      ),
    );
  const same = (values) => [...new Set(values)].map((one) => [String(one), String(one)]);
  const seeds = same(report.rows.map((one) => one.seed));
  const trained = same(report.rows.filter((one) => one.at !== null).map((one) => one.at));
  const number = (label, name) =>
    el(
      "label",
      null,
      label,
      el("input", {
        type: "number",
        step: "any",
        name,
        value: state[name] || "",
        style: { width: "6.5rem" },
        on: { input: (event) => change({ [name]: event.target.value, shown: "" }) },
      }),
    );
  return el(
    "form",
    { class: "filters", "aria-label": "Filters", on: { submit: (event) => event.preventDefault() } },
    select("agent", "a", same(report.index.agents)),
    select("task", "t", same(report.index.tasks)),
    seeds.length > 1 ? select("seed", "s", seeds) : null,
    trained.length > 1 ? select("trained steps", "at", trained) : null,
    select("success", "success", [
      ["1", "yes"],
      ["0", "no"],
    ]),
    select("ended", "ended", [
      ["terminated", "terminated"],
      ["truncated", "truncated"],
    ]),
    select("invalid actions", "invalid", [["1", "at least one"]]),
    number("return from", "from"),
    number("return to", "to"),
    el(
      "label",
      null,
      "name contains",
      el("input", {
        type: "search",
        name: "q",
        value: state.q || "",
        on: { input: (event) => change({ q: event.target.value, shown: "" }) },
      }),
    ),
    el("button", { type: "button", name: "reset", on: { click: () => go({ v: "episodes" }) } }, "reset"),
  );
}
