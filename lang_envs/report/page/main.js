/** The page: reads the index, and draws the view that the link names. */

import { report, readIndex } from "./data.js";
import { el, put } from "./dom.js";
import { onRoute, present, stateOf, hashOf } from "./route.js";
import { drawCurves, drawOverview, drawRuns } from "./summary.js";
import { drawEpisodes } from "./episodes.js";
import { closeEpisode, drawEpisode } from "./episode.js";
import { drawCompare } from "./compare.js";
import { drawFind } from "./find.js";
import { watchKeys } from "./keys.js";
import { watchTheme } from "./theme.js";

const VIEWS = {
  overview: ["Overview", null],
  curves: ["Curves", drawCurves],
  episodes: ["Episodes", drawEpisodes],
  episode: ["Episode", drawEpisode],
  compare: ["Compare", drawCompare],
  runs: ["Runs", drawRuns],
  find: ["Find", drawFind],
};
const LAST = new Map(); // the last link of each view: going back to the list keeps its filters

let drawing = 0; // views that wait for their episodes, of which several may be on the way

/** Draw the view of a state. */
async function draw(state) {
  const name = Object.hasOwn(VIEWS, state.v || "") ? state.v : "overview";
  const view = document.getElementById("view");
  const overview = document.getElementById("overview");
  const main = document.getElementById("main");
  drawing += 1;
  main.setAttribute("aria-busy", "true");
  LAST.set(name, hashOf({ ...state, v: name }));
  if (view.dataset.name !== name) {
    closeEpisode();
    put(view);
    view.dataset.name = name;
    scrollTo(0, 0);
  }
  overview.hidden = name !== "overview";
  view.hidden = name === "overview";
  drawTabs(name, state);
  try {
    if (name === "overview") await drawOverview(state);
    else await VIEWS[name][1](view, state);
  } catch (error) {
    put(
      view,
      el("h2", null, VIEWS[name][0]),
      el("p", { class: "warning" }, `This view cannot be drawn: ${error.message}`),
    );
    throw error;
  } finally {
    drawing -= 1;
    if (!drawing) main.setAttribute("aria-busy", "false");
  }
}

function drawTabs(name, state) {
  const hidden = (view) =>
    (view === "curves" && !report.index.curves.length) ||
    (["episode", "compare", "find"].includes(view) && view !== name && !LAST.has(view)) ||
    (["episodes", "episode", "compare", "find"].includes(view) && !report.rows.length);
  put(
    document.getElementById("views"),
    Object.entries(VIEWS)
      .filter(([view]) => !hidden(view))
      .map(([view, [title]]) =>
        el(
          "a",
          {
            href: view === name ? hashOf({ ...state, v: view }) : LAST.get(view) || `#v=${view}`,
            "aria-current": view === name ? "page" : null,
          },
          title,
        ),
      ),
  );
}

function fail(text) {
  const place = document.getElementById("failure");
  place.hidden = false;
  put(place, text);
}

async function start() {
  if (typeof DecompressionStream === "undefined")
    return fail(
      "This browser is too old for the episodes of this report (it lacks DecompressionStream): the tables below are complete. Browsers since May 2023 have it.",
    );
  watchTheme(() => {
    closeEpisode();
    put(document.getElementById("overview-chart"));
    draw(present());
  });
  try {
    await readIndex();
  } catch (error) {
    return fail(`The data of this report cannot be read (${error.message}). The file may be cut.`);
  }
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  const find = document.getElementById("find");
  document.getElementById("find-form").addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = hashOf({ v: "find", q: find.value });
  });
  onRoute(draw);
  watchKeys();
  await draw(stateOf(location.hash));
  document.body.dataset.ready = "1";
}

start();
