/** Programs: colours of Python, and lines that changed since the attempt before. */

import { el } from "./dom.js";

const PYTHON =
  /(#[^\n]*)|("""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|\b(False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)\b|\b(\d[\w.]*)/g;
const KINDS = ["code-note", "code-text", "code-key", "code-number"];
const MOST_LINES = 600;

/** A line of Python in coloured pieces. */
function pieces(line) {
  const found = [];
  let end = 0;
  for (const match of line.matchAll(PYTHON)) {
    const kind = KINDS[match.slice(1).findIndex((one) => one !== undefined)];
    found.push(line.slice(end, match.index), el("span", { class: kind }, match[0]));
    end = match.index + match[0].length;
  }
  return [...found, line.slice(end)];
}

/** Lines of both texts in one order: "same", "removed" or "added", by the longest common subsequence. */
export function lineDiff(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  if (a.length > MOST_LINES || b.length > MOST_LINES) return b.map((line) => ["same", line]);
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push(["same", a[i]]);
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || lengths[i + 1][j] >= lengths[i][j + 1])) {
      found.push(["removed", a[i]]);
      i += 1;
    } else {
      found.push(["added", b[j]]);
      j += 1;
    }
  }
  return found;
}

/** A program; with the one before it, its changes. */
export function programOf(text, before) {
  const lines = before === null ? text.split("\n").map((line) => ["same", line]) : lineDiff(before, text);
  const signs = { same: "  ", added: "+ ", removed: "\u2212 " };
  return el(
    "pre",
    {
      class: "code",
      tabindex: 0,
      role: "group",
      "aria-label": before === null ? "program" : "program, with the changes since the attempt before",
    },
    lines.map(([kind, line]) => el("div", { class: kind }, before === null ? "" : signs[kind], pieces(line))),
  );
}
