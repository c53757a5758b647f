/** Overview, learning curves, and the runs with their settings. */

import { report, linkOf } from "./data.js";
import { el, put, copyButton, tableOf } from "./dom.js";
import { intervalChart, lineChart } from "./chart.js";
import { drawEpisode } from "./episode.js";

/** Draw charts above the tables; of one agent on one task, a player of its last episode below them. */
export async function drawOverview(state) {
  const place = document.getElementById("overview-chart");
  if (!place.childElementCount) drawCharts(place);
  const last = isSingle() && report.rows.findLast((row) => row.place !== null);
  if (last)
    await drawEpisode(document.getElementById("overview-player"), { ...state, ...linkOf(last) }, { isBrief: true });
}

/** Whether the report is of one agent on one task. */
function isSingle() {
  const { agents, tasks, curves } = report.index;
  const lines = new Set(curves.map((one) => JSON.stringify([one.task, one.label])));
  return Math.max(agents.length, tasks.length, lines.size) === 1;
}

/** A chart of the first metric for each task; of one agent on one task, its first learning curve too. */
function drawCharts(place) {
  const { scores, metrics, tasks, agents, curves } = report.index;
  const metric = metrics.find((one) => scores.some((score) => score.metric === one.name));
  const known = [...new Set(scores.map((one) => one.task))];
  const counts = `${report.rows.length.toLocaleString("en")} episodes of ${agents.length} ${agents.length === 1 ? "agent" : "agents"} on ${tasks.length} ${tasks.length === 1 ? "task" : "tasks"}.`;
  const link = el("a", { href: "#v=episodes" }, "See the episodes");
  put(
    place,
    report.rows.length ? el("p", null, counts, " ", link, ".") : null,
    curves.length ? el("p", null, el("a", { href: "#v=curves" }, "See the learning curves"), ".") : null,
    isSingle() && curves.length
      ? el("div", { class: "charts" }, lineChart(curves[0].title, "environment steps", curves[0].title, [curves[0]]))
      : null,
    metric
      ? el(
          "div",
          { class: "charts" },
          known.map((task) => {
            const rows = scores.filter((one) => one.task === task && one.metric === metric.name);
            const title = `${task}: ${metric.title}${rows.some((one) => one.low !== null) ? ", mean and 95 % interval over seeds" : ""}`;
            return rows.length
              ? intervalChart(
                  title,
                  rows.map((one) => ({ ...one, label: one.agent, text: String(one.value) })),
                )
              : null;
          }),
        )
      : null,
  );
}

/** All learning curves, by task and quantity. */
export function drawCurves(view) {
  const groups = new Map();
  for (const curve of report.index.curves) {
    const key = `${curve.task}: ${curve.title}`;
    groups.set(key, [...(groups.get(key) || []), curve]);
  }
  const seeded = report.index.curves.some((one) => Object.keys(one.by_seed).length > 1);
  const about = seeded
    ? "Thick lines: average over seeds with its 95 % interval (the overview says which average); thin lines: single seeds."
    : "";
  put(
    view,
    el("h2", null, "Learning curves"),
    groups.size ? el("p", { class: "dim" }, about) : el("p", null, "This report has no learning curves."),
    el(
      "div",
      { class: "charts" },
      [...groups].map(([title, curves]) => lineChart(title, "environment steps", curves[0].title, curves)),
    ),
  );
}

/** Runs side by side: facts that differ come first. */
export function drawRuns(view) {
  const { runs } = report.index;
  const names = [...new Set(runs.flatMap((one) => Object.keys(one.facts)))];
  const differ = (name) => new Set(runs.map((one) => one.facts[name])).size > 1;
  const sorted = [...names.filter(differ), ...names.filter((name) => !differ(name))];
  const rows = sorted.map((name) => [
    name,
    ...runs.map((one) =>
      differ(name) ? el("span", { class: "differs" }, one.facts[name] ?? "-") : (one.facts[name] ?? "-"),
    ),
  ]);
  const files = runs.flatMap((one) => Object.entries(one.files).map(([file, digest]) => [file, digest, one.name]));
  put(
    view,
    el("h2", null, "Runs"),
    runs.filter((one) => one.remark).map((one) => el("p", { class: "warning" }, `${one.name}: ${one.remark}`)),
    runs.length > 1 ? el("p", { class: "dim" }, "Settings that differ between runs come first and are marked.") : null,
    runs.length
      ? tableOf(["", ...runs.map((one) => one.name)], rows, { class: "left" })
      : el("p", null, "This report names no runs."),
    runs.some((one) => one.facts.command)
      ? el(
          "p",
          { class: "row no-print" },
          runs
            .filter((one) => one.facts.command)
            .map((one) => copyButton(`copy the command of ${one.name}`, () => one.facts.command)),
        )
      : null,
    files.length ? [el("h3", null, "Files"), tableOf(["file", "SHA-256", "run"], files, { class: "left" })] : null,
    el(
      "p",
      { class: "dim" },
      "Keys, passwords and home folders are left out of names, settings, commands and errors. Observations and notes are shown as they were recorded.",
    ),
  );
}
