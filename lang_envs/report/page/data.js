/** The data of the report: the index at the start, texts and blocks of episodes when they are needed. */

const blocks = new Map();
const KEPT = 12;

/** The report: the index, and what is made of it. */
export const report = { index: null, texts: null, rows: [], places: new Map() };

/** Read an embedded block: base64, gzip, JSON. */
async function inflate(name) {
  const bytes = raw(name);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function raw(name) {
  const text = document.getElementById(`data-${name}`).textContent;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Read the index. */
export async function readIndex() {
  const index = await inflate("index");
  if (index.page !== 1) throw new Error(`Expected data of layout 1; got ${index.page}.`);
  report.index = index;
  const columns = index.episodes;
  report.rows = columns.place.map((place, i) => ({
    number: i,
    place,
    agent: index.agents[columns.agent[i]],
    task: index.tasks[columns.task[i]],
    seed: columns.seed[i],
    episode: columns.episode[i],
    at: columns.at[i],
    group: columns.group[i],
    resetSeed: columns.resetSeed[i],
    return: columns.return[i],
    discounted: columns.discounted[i],
    success: columns.success[i],
    steps: columns.steps[i],
    invalid: columns.invalid[i],
    terminated: columns.terminated[i],
    truncated: columns.truncated[i],
    replay: columns.replay[i],
    origin: index.origins[columns.origin[i]],
  }));
  for (const row of report.rows)
    report.places.set(keyOf(row.agent, row.task, row.seed, row.episode, row.at), row.number);
}

/** Links have the replacement character in place of a lone surrogate. */
const linked = (name = "") => name.toWellFormed?.() ?? name;

function keyOf(agent, task, seed, episode, at) {
  return JSON.stringify([
    linked(agent),
    linked(task),
    String(seed),
    String(episode),
    at === null || at === undefined ? "" : String(at),
  ]);
}

/** The row of an episode by names; undefined if there is none. */
export function findRow(agent, task, seed, episode, at) {
  return report.rows[report.places.get(keyOf(agent, task, seed, episode, at))];
}

/** Parameters of a link to an episode. */
export function linkOf(row, more = {}) {
  const at = row.at === null ? {} : { at: row.at };
  return { v: "episode", a: row.agent, t: row.task, s: row.seed, n: row.episode, ...at, ...more };
}

/** Name of an episode, for people. */
export function nameOf(row) {
  const at = row.at === null ? "" : `, at step ${row.at.toLocaleString("en")} of training`;
  return `${row.agent}, ${row.task}, seed ${row.seed}, episode ${row.episode}${at}`;
}

export async function readTexts() {
  report.texts = report.texts || (await inflate("texts"));
  return report.texts;
}

/** Read the block of an episode; a few stay in memory. */
async function readBlock(number) {
  const known = blocks.get(number) || inflate(`b${number}`);
  blocks.delete(number);
  blocks.set(number, known);
  if (blocks.size > KEPT) blocks.delete(blocks.keys().next().value);
  return known;
}

/** An episode as it is in its block: places of texts and integers. */
export async function readPacked(row) {
  const block = await readBlock(Math.floor(row.place / report.index.perBlock));
  return block[row.place % report.index.perBlock];
}

/** An episode in texts and numbers; null where the report has no steps of it. */
export async function readEpisode(row) {
  if (row.place === null) return null;
  const [packed, { strings, lists }] = await Promise.all([readPacked(row), readTexts()]);
  const text = (place) => (place === null || place === undefined ? null : strings[place]);
  const list = (place) => (place === null || place === undefined ? null : lists[place].map(text));
  const thousandth = (rows) => rows && rows.map((one) => one && one.map((x) => (x === null ? null : x / 1000)));
  return {
    row,
    env: packed.env === undefined ? row.task : text(packed.env),
    successes: packed.s || null,
    moves: packed.m || packed.r.map(() => 1),
    settings: packed.g
      ? { gamma: packed.g[0], lambda: packed.g[1], lambdaToken: packed.g[2], gammaToken: packed.g[0] }
      : null,
    observations: packed.o.map(text),
    admissible: packed.l.map(list),
    actions: packed.a.map(text),
    rewards: packed.r,
    finalObservation: text(packed.f),
    invalid: packed.i || packed.r.map(() => 0),
    notes: (packed.n || packed.r.map(() => null)).map(text),
    tokens: packed.t ? packed.t.map(list) : null,
    logProbs: thousandth(packed.k),
    values: packed.v ? packed.v.map((one) => one.map((x) => x * packed.q)) : null,
    finalValue: packed.z === undefined ? null : packed.z * packed.q,
    options: packed.w || null,
    entropies: thousandth(packed.e),
    credits: packed.c || {},
    prompts: packed.x ? packed.x.map(list) : null,
    alternatives: packed.alternatives
      ? packed.alternatives.map((step) => step.map((one) => one && one.map(([place, x]) => [text(place), x / 1000])))
      : null,
    shares: thousandth(packed.u),
    code: packed.d ? packed.d.map((one) => codeOf(one, text)) : null,
    pictures: packed.p || null,
    size: packed.size || null,
    noPictures: text(packed.noPictures),
  };
}

function codeOf(packed, text) {
  return { ...packed, status: text(packed.status), error: text(packed.error) };
}

let atlas = null;

/** The picture that holds all tiles. */
export function readTiles() {
  atlas = atlas || createImageBitmap(new Blob([raw("tiles")], { type: "image/webp" }));
  return atlas;
}
