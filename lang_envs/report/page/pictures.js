/** Frames from tiles: each frame lists the tiles that changed since the one before. */

import { report, readTiles } from "./data.js";

const TILE = 16;

/** Tiles of a frame, by place. A list holds pairs of place and tile, each as the difference from the pair before. */
function tilesAt(pictures, frame) {
  const tiles = new Map();
  for (const changes of pictures.slice(0, frame + 1)) {
    let [place, tile] = [0, 0];
    for (let i = 0; i < changes.length; i += 2) {
      place += changes[i];
      tile += changes[i + 1];
      tiles.set(place, tile);
    }
  }
  return tiles;
}

/** Draw a frame of an episode; a later call for the same canvas wins. */
export async function drawFrame(canvas, episode, frame) {
  const [width, height] = episode.size;
  const wanted = String(frame);
  canvas.dataset.frame = wanted;
  const atlas = await readTiles();
  if (canvas.dataset.frame !== wanted) return;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d");
  const [columns, across] = [report.index.tileColumns, Math.ceil(width / TILE)];
  for (const [place, tile] of tilesAt(episode.pictures, frame)) {
    context.drawImage(
      atlas,
      (tile % columns) * TILE,
      Math.floor(tile / columns) * TILE,
      TILE,
      TILE,
      (place % across) * TILE,
      Math.floor(place / across) * TILE,
      TILE,
      TILE,
    );
  }
  canvas.dataset.drawn = wanted;
}
