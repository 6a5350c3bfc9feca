// SPDX-License-Identifier: Apache-2.0
// One color scale for load, everywhere: blue up to the ceiling, orange above it. Colors come from
// the style sheet, so that both themes have their own.

const STOPS = ["--load-0", "--load-1", "--load-2", "--load-3"];
const OVER = ["--over-0", "--over-1"];
let colors = null;

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function parse(hex) { return [1, 3, 5].map((i) => Number.parseInt(hex.slice(i, i + 2), 16)); }

function palette() {
  colors ??= { below: STOPS.map((n) => parse(color(n))), above: OVER.map((n) => parse(color(n))), unknown: color("--unknown"), mark: color("--mark"), line: color("--cell-line"), faint: color("--faint"), ceiling: color("--curve-ceiling") };
  return colors;
}

export function onTheme(redraw) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colors = null; cache.clear(); redraw(); });
}

function mix(list, at) {
  const place = Math.max(0, Math.min(0.9999, at)) * (list.length - 1), i = Math.floor(place), part = place - i;
  return list[i].map((from, k) => Math.round(from + (list[i + 1][k] - from) * part));
}

const cache = new Map();

function rgb(value, ceiling) {
  const key = Math.round(value * 2) * 1000 + Math.round(ceiling);
  let found = cache.get(key);
  if (!found) {
    const mixed = value <= ceiling ? mix(palette().below, value / ceiling) : mix(palette().above, (value - ceiling) / Math.max(5, 100 - ceiling));
    found = { mixed, text: `rgb(${mixed[0]} ${mixed[1]} ${mixed[2]})` };
    cache.set(key, found);
  }
  return found;
}

export function fill(value, ceiling) {
  if (value === null) return palette().unknown;
  return rgb(value, ceiling).text;
}

export function inkOn(value, ceiling) {
  const [r, g, b] = value === null ? parse(palette().unknown) : rgb(value, ceiling).mixed;
  return 0.299 * r + 0.587 * g + 0.114 * b > 135 ? "#0c1620" : "#ffffff";
}

export const markColor = () => palette().mark;
export const lineColor = () => palette().line;

export function sharp(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/* A bar of one element: at every update a page of rows gets new ones. */
export function meter(value, after, ceiling) {
  const bar = document.createElement("span"), { faint, mark, ceiling: line } = palette();
  const at = (percent) => `${((Math.min(100, percent) / 100) * 64).toFixed(1)}px`;
  const tick = (color, percent, wide) => `linear-gradient(${color} 0 0) calc(${at(percent)} - ${wide}px) 0 / ${wide}px 100% no-repeat`;
  const layers = [tick(line, ceiling, 1)];
  if (after !== null && value !== null && Math.abs(after - value) >= 0.5) layers.push(tick(mark, Math.max(after, 4), 2));
  if (value !== null) layers.push(`linear-gradient(${fill(value, ceiling)} 0 0) 0 0 / ${at(value)} 100% no-repeat`);
  bar.className = "bar";
  bar.style.background = `${layers.join(", ")}, ${faint}`;
  return bar;
}
