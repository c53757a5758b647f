/** Colours of tokens and lines. Orange is negative and blue positive: both stay apart for colour-blind readers. */

const DIVERGING = {
  light: ["#c2570c", "#e98a3c", "#f8c9a0", "#f7f7f7", "#b5d3ec", "#6fa8d6", "#2f74b5"],
  dark: ["#f59e4c", "#b8691f", "#6b4219", "#2a2d33", "#1f4a70", "#2c74b3", "#63b0f0"],
};
const LINES = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5200", "#5b3a8e", "#000000", "#6e6e6e"],
  dark: ["#56b4e9", "#f0812e", "#2fbf96", "#d993bc", "#e8c547", "#a78bda", "#ffffff", "#a7adb8"],
};
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 2", "6 2 1 2 1 2"];

/** The theme in use: that of the reader, or of the system. */
export function theme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

/** Colour of a line, and its dash pattern; where colours come again, each has another pattern. */
export function lineStyle(place) {
  const colours = LINES[theme()];
  const round = Math.floor(place / colours.length);
  return { colour: colours[place % colours.length], dash: DASHES[(place + round) % DASHES.length] };
}

function channels(colour) {
  return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
}

/**
 * Colour of a number between -1 and 1; numbers beyond are drawn as the ends.
 * @returns {{background: string, ink: string}}
 */
export function diverging(position, name = theme()) {
  const stops = DIVERGING[name];
  const clipped = Math.min(1, Math.max(-1, Number.isFinite(position) ? position : 0));
  const place = ((clipped + 1) / 2) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  const [from, to] = [channels(stops[low]), channels(stops[low + 1])];
  const mixed = from.map((one, i) => Math.round(one + (to[i] - one) * (place - low)));
  return { background: `rgb(${mixed.join(", ")})`, ink: luminance(mixed) > 0.179 ? "#000000" : "#ffffff" };
}

/** Relative luminance of WCAG 2; black ink has the better contrast above 0.179. */
function luminance(rgb) {
  const linear = rgb.map((one) => (one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}
