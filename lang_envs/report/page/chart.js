/** Charts in SVG: lines with bands, and means with intervals. */

import { el, short, tableOf } from "./dom.js";
import { lineStyle } from "./colours.js";

const [WIDTH, HEIGHT] = [560, 300];
const EDGE = { left: 52, right: 120, top: 26, bottom: 38 };
const MOST_POINTS = 320;

/** Lowest and highest of any number of numbers: as arguments of Math.min they would be too many. */
export function extent(numbers) {
  return numbers.reduce(([low, high], one) => [Math.min(low, one), Math.max(high, one)], [Infinity, -Infinity]);
}

/** About five round numbers from low to high. */
export function ticks(low, high) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + span * 1e-9; k += 1)
    found.push(Number((k * step).toPrecision(12)));
  return found;
}

function scale(low, high, from, to) {
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

/** Keep the lowest and highest point of each column of pixels: nothing that can be seen is lost. */
export function thinned(x, y) {
  if (x.length <= 2 * MOST_POINTS) return x.map((_, i) => i);
  const kept = new Set([0, x.length - 1]);
  const [first, width] = [x[0], (x[x.length - 1] - x[0]) / MOST_POINTS];
  const columns = new Map();
  x.forEach((one, i) => {
    const column = Math.floor((one - first) / width);
    const [low, high] = columns.get(column) || [i, i];
    columns.set(column, [y[i] < y[low] ? i : low, y[i] > y[high] ? i : high]);
  });
  for (const both of columns.values()) both.forEach((i) => kept.add(i));
  return [...kept].sort((a, b) => a - b);
}

function path(xs, ys, places) {
  return places.map((i, n) => `${n ? "L" : "M"}${xs(i).toFixed(1)} ${ys(i).toFixed(1)}`).join("");
}

/**
 * Curves with their intervals, and those of the seeds as thin lines.
 * @param {string} title
 * @param {{label: string, steps: number[], values: number[], low: ?number[], high: ?number[], by_seed: Object}[]} curves
 */
export function lineChart(title, xTitle, yTitle, curves) {
  const all = curves.flatMap((one) =>
    [one.values, one.low || [], one.high || [], ...Object.values(one.by_seed)].flat(),
  );
  const [low, high] = extent(all);
  const [from, to] = extent(curves.flatMap((one) => one.steps));
  const pad = (high - low || Math.abs(high) || 1) * 0.05;
  const x = scale(from, to, EDGE.left, WIDTH - EDGE.right);
  const y = scale(low - pad, high + pad, HEIGHT - EDGE.bottom, EDGE.top);
  const svg = el("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    width: WIDTH,
    height: HEIGHT,
    role: "img",
    "aria-label": `${title}; the numbers are in the table below`,
  });
  for (const one of ticks(low - pad, high + pad)) {
    svg.append(el("line", { class: "axis", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(one), y2: y(one) }));
    svg.append(el("text", { class: "tick", x: EDGE.left - 6, y: y(one) + 4, "text-anchor": "end" }, short(one)));
  }
  for (const one of ticks(from, to)) {
    svg.append(
      el(
        "text",
        { class: "tick", x: x(one), y: HEIGHT - EDGE.bottom + 17, "text-anchor": "middle" },
        one.toLocaleString("en"),
      ),
    );
  }
  svg.append(
    el(
      "text",
      { class: "tick", x: (EDGE.left + WIDTH - EDGE.right) / 2, y: HEIGHT - 4, "text-anchor": "middle" },
      xTitle,
    ),
  );
  svg.append(el("text", { class: "tick", x: 4, y: 12 }, yTitle.length > 70 ? `${yTitle.slice(0, 69)}\u2026` : yTitle));
  const ends = [];
  curves.forEach((curve, place) => {
    const { colour, dash } = lineStyle(place);
    const places = thinned(curve.steps, curve.values);
    const xs = (i) => x(curve.steps[i]);
    if (curve.low && curve.high) {
      const there = path(xs, (i) => y(curve.high[i]), places);
      const back = path(xs, (i) => y(curve.low[i]), [...places].reverse()).replace("M", "L");
      svg.append(el("path", { d: `${there}${back}Z`, fill: colour, opacity: 0.15 }));
    }
    for (const values of Object.values(curve.by_seed)) {
      svg.append(
        el("path", {
          d: path(xs, (i) => y(values[i]), thinned(curve.steps, values)),
          fill: "none",
          stroke: colour,
          "stroke-width": 0.8,
          opacity: 0.45,
        }),
      );
    }
    svg.append(
      el("path", {
        d: path(xs, (i) => y(curve.values[i]), places),
        fill: "none",
        stroke: colour,
        "stroke-width": 2.2,
        "stroke-dasharray": dash,
      }),
    );
    ends.push({ label: curve.label, colour, dash, at: y(curve.values[curve.values.length - 1]) });
  });
  labelled(svg, ends);
  return el("figure", null, svg, el("figcaption", null, title, " ", numbersTable(xTitle, curves)));
}

/** Names at the ends of the lines, moved apart. */
function labelled(svg, ends) {
  const sorted = [...ends].sort((a, b) => a.at - b.at);
  let last = -Infinity;
  for (const end of sorted) last = end.place = Math.max(end.at, last + 14);
  const over = Math.max(0, last - (HEIGHT - EDGE.bottom));
  for (const end of sorted) {
    const [x, y] = [WIDTH - EDGE.right, end.place - over];
    svg.append(
      el("line", {
        x1: x + 4,
        x2: x + 22,
        y1: y,
        y2: y,
        stroke: end.colour,
        "stroke-width": 2.2,
        "stroke-dasharray": end.dash,
      }),
    );
    svg.append(
      el("text", { x: x + 26, y: y + 4 }, end.label.length > 16 ? `${end.label.slice(0, 15)}\u2026` : end.label),
    );
  }
}

function numbersTable(xTitle, curves) {
  const details = el("details", { class: "no-print" }, el("summary", null, "the numbers as a table"));
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    const seeds = [...new Set(curves.flatMap((one) => Object.keys(one.by_seed)))];
    const rows = curves.flatMap((one) =>
      one.steps.map((step, i) => [
        one.label,
        step.toLocaleString("en"),
        short(one.values[i]),
        one.low ? `${short(one.low[i])} to ${short(one.high[i])}` : "",
        ...seeds.map((seed) => (one.by_seed[seed] ? short(one.by_seed[seed][i]) : "")),
      ]),
    );
    const heads = ["curve", xTitle, "value", "interval", ...seeds.map((seed) => `seed ${seed}`)];
    details.append(tableOf(heads, rows));
  });
  return details;
}

/** Means with intervals, one line for each agent. */
export function intervalChart(title, rows) {
  const ends = rows.flatMap((one) => [one.value, one.low ?? one.value, one.high ?? one.value]);
  const [low, high] = extent([0, ...ends]);
  const [left, right, line] = [150, 20, 22];
  const height = rows.length * line + 26;
  const x = scale(low, high, left, WIDTH - right);
  const svg = el("svg", {
    viewBox: `0 0 ${WIDTH} ${height}`,
    width: WIDTH,
    height,
    role: "img",
    "aria-label": `${title}: ${rows.map((one) => `${one.label} ${one.text}`).join("; ")}`,
  });
  for (const one of ticks(low, high)) {
    svg.append(el("line", { class: "axis", x1: x(one), x2: x(one), y1: 0, y2: height - 20 }));
    svg.append(el("text", { class: "tick", x: x(one), y: height - 5, "text-anchor": "middle" }, short(one)));
  }
  rows.forEach((row, place) => {
    const { colour } = lineStyle(place);
    const y = place * line + line / 2;
    svg.append(
      el(
        "text",
        { x: left - 8, y: y + 4, "text-anchor": "end" },
        row.label.length > 22 ? `${row.label.slice(0, 21)}\u2026` : row.label,
      ),
    );
    if (row.low !== null)
      svg.append(el("line", { x1: x(row.low), x2: x(row.high), y1: y, y2: y, stroke: colour, "stroke-width": 3 }));
    svg.append(el("circle", { cx: x(row.value), cy: y, r: 5, fill: colour }));
  });
  return el("figure", null, svg, el("figcaption", { class: "dim" }, title));
}
