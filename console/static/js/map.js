// SPDX-License-Identifier: Apache-2.0
// Nodes as cells on a canvas. One layout serves both maps; a cell is as large as the room allows,
// from a labelled tile at ten nodes to a few pixels at five thousand. Patterns repeat what colors
// say: a corner for above the ceiling, stripes for unknown, a frame for cordoned, a cross for
// maintenance and not ready.
import { fill, inkOn, lineColor, markColor, sharp } from "./scale.js";
import { visible } from "./dom.js";

const SIZES = [[132, 46], [96, 40], [58, 30], [34, 26], [24, 24], [18, 18], [14, 14], [11, 11], [9, 9], [7, 7], [6, 6], [5, 5], [4, 4]];
const ROOM = 400, TITLE = 20, APART = 10;
const font = (size, weight = 400) => `${weight} ${size}px system-ui, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif`;

export function layout(groups, width) {
  for (const [least, h] of SIZES) {
    // Large tiles grow until they fill the row.
    const gap = 3, fit = Math.max(1, Math.floor((width + gap) / (least + gap)));
    const w = least >= 34 && groups.length === 1 ? Math.min(1.6 * least, (width + gap) / Math.min(fit, groups[0].members.length) - gap) : least;
    const made = place(groups, width, w, h);
    if (made.height <= ROOM || least === 4) return made;
  }
  throw new Error("no layout");
}

function place(groups, width, w, h) {
  const gap = w >= 24 ? 3 : w >= 9 ? 2 : 1, spots = [], titles = [];
  // Few cells in many groups: groups stand beside each other instead of taking a line each.
  const titled = groups.length > 1;
  let left = 0, top = 0, tallest = 0;
  for (const group of groups) {
    const full = Math.max(1, Math.floor((width + gap) / (w + gap)));
    const titleWidth = titled ? Math.min(width, 16 + 6.6 * (group.title.length + 8)) : 0;
    const columns = Math.min(full, Math.max(group.members.length, Math.ceil(titleWidth / (w + gap))));
    const wide = Math.min(width, columns * (w + gap) - gap);
    if (left > 0 && left + wide > width) { left = 0; top += tallest + APART; tallest = 0; }
    const fitting = Math.max(1, Math.floor((Math.min(width - left, wide) + gap) / (w + gap)));
    if (titled) titles.push({ x: left, y: top, text: group.title, count: group.members.length, room: wide });
    const from = top + (titled ? TITLE : 0);
    group.members.forEach((index, i) => spots.push({ index, x: left + (i % fitting) * (w + gap), y: from + Math.floor(i / fitting) * (h + gap) }));
    const rows = Math.ceil(group.members.length / fitting);
    tallest = Math.max(tallest, (titled ? TITLE : 0) + rows * (h + gap) - gap);
    left += wide + 18;
  }
  return { w, h, gap, spots, titles, height: top + tallest };
}

export class NodeMap {
  constructor(canvas, { describe, open, announce }) {
    Object.assign(this, { canvas, describe, open, announce, plan: null, chosen: -1 });
    this.tip = document.body.appendChild(Object.assign(document.createElement("div"), { className: "tip", hidden: true }));
    canvas.addEventListener("pointermove", (event) => this.#over(event));
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("click", (event) => { const spot = this.#at(event); if (spot) open(spot.index); });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => { this.chosen = -1; this.tip.hidden = true; this.draw(); });
    canvas.addEventListener("focus", () => { if (this.plan?.spots.length && canvas.matches(":focus-visible")) this.#choose(0); });
  }

  set(plan, cells, value, ceiling) { Object.assign(this, { plan, cells, value, ceiling }); this.draw(); }

  draw() {
    if (!this.plan) return;
    const { w, h, spots, titles, height } = this.plan, width = this.canvas.clientWidth;
    this.canvas.style.height = `${Math.max(24, height)}px`;
    const g = sharp(this.canvas, width, Math.max(24, height));
    g.textBaseline = "middle";
    for (const title of titles) this.#title(g, title);
    this.#fill(g, spots, w, h);
    for (const { index, x, y } of spots) mark(g, this.cells[index], this.value(this.cells[index]), this.ceiling(this.cells[index]), x, y, w, h);
    const spot = spots[this.chosen];
    if (spot) { g.strokeStyle = markColor(); g.lineWidth = 2; g.strokeRect(spot.x - 1, spot.y - 1, w + 2, h + 2); }
  }

  /* One color after the other: setting it is dearer than filling a cell. */
  #fill(g, spots, w, h) {
    const alike = new Map();
    for (const spot of spots) {
      const color = fill(this.value(this.cells[spot.index]), this.ceiling(this.cells[spot.index])), found = alike.get(color);
      if (found) found.push(spot); else alike.set(color, [spot]);
    }
    for (const [color, found] of alike) {
      g.fillStyle = color;
      for (const { x, y } of found) g.fillRect(x, y, w, h);
    }
  }

  #title(g, { x, y, text, count, room }) {
    g.font = font(12, 600);
    g.fillStyle = markColor();
    g.fillText(visible(text), x, y + 8, Math.max(20, room - 40));
    const wide = Math.min(g.measureText(visible(text)).width, Math.max(20, room - 40));
    g.font = font(12);
    g.globalAlpha = 0.65;
    g.fillText(` ${count.toLocaleString("en")}`, x + wide + 3, y + 8);
    g.globalAlpha = 1;
  }

  #at(event) {
    if (!this.plan) return null;
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, { w, h, gap } = this.plan;
    return this.plan.spots.find((s) => x >= s.x && x < s.x + w + gap && y >= s.y && y < s.y + h + gap) ?? null;
  }

  #over(event) {
    const spot = this.#at(event);
    if (!spot) { this.tip.hidden = true; return; }
    this.#tipFor(spot, event.clientX, event.clientY);
  }

  #tipFor(spot, x, y) {
    const [title, ...lines] = this.describe(spot.index).map(visible);
    const head = Object.assign(document.createElement("strong"), { textContent: title });
    this.tip.replaceChildren(head, ...lines.flatMap((line, i) => (i ? [document.createElement("br"), line] : [line])));
    this.tip.hidden = false;
    const { offsetWidth: wide, offsetHeight: high } = this.tip;
    this.tip.style.left = `${Math.max(4, Math.min(innerWidth - wide - 4, x + 14))}px`;
    this.tip.style.top = `${y + 18 + high > innerHeight ? y - high - 10 : y + 18}px`;
  }

  #choose(i) {
    const { spots } = this.plan;
    this.chosen = Math.max(0, Math.min(spots.length - 1, i));
    this.draw();
    const spot = spots[this.chosen], box = this.canvas.getBoundingClientRect();
    this.announce(this.describe(spot.index).join(". "));
    this.#tipFor(spot, box.left + spot.x, box.top + spot.y + this.plan.h);
  }

  #key(event) {
    if (!this.plan?.spots.length) return;
    const { spots } = this.plan, here = spots[Math.max(0, this.chosen)];
    const vertical = (sign) => {
      let best = this.chosen, least = Infinity;
      spots.forEach((spot, i) => {
        const down = sign * (spot.y - here.y);
        if (down > 0 && down * 1000 + Math.abs(spot.x - here.x) < least) { least = down * 1000 + Math.abs(spot.x - here.x); best = i; }
      });
      return best;
    };
    const to = { ArrowRight: () => this.chosen + 1, ArrowLeft: () => this.chosen - 1, ArrowDown: () => vertical(1), ArrowUp: () => vertical(-1), Home: () => 0, End: () => spots.length - 1 }[event.key];
    if (to) { event.preventDefault(); this.#choose(to()); } else if (event.key === "Enter" && this.chosen >= 0) this.open(here.index);
    else if (event.key === "Escape") this.tip.hidden = true;
  }
}

function mark(g, cell, value, ceiling, x, y, w, h) {
  if (value === null) stripes(g, x, y, w, h);
  if (value !== null && value > ceiling && w >= 7) {
    const c = Math.min(9, w / 2.6);
    g.fillStyle = markColor();
    g.beginPath(); g.moveTo(x + w - c, y); g.lineTo(x + w, y); g.lineTo(x + w, y + c); g.fill();
  }
  if (w >= 34) label(g, cell, value, ceiling, { x, y, w, h });
  if (w >= 7) frame(g, cell.state, x, y, w, h);
}

function label(g, cell, value, ceiling, { x, y, w, h }) {
  g.fillStyle = inkOn(value, ceiling);
  const text = value === null ? "–" : w >= 58 ? `${value.toFixed(0)} %` : value.toFixed(0);
  if (w >= 96) {
    g.font = font(12);
    g.fillText(shorten(g, visible(cell.name), w - 16), x + 8, y + h / 2 - 9);
    g.font = font(13, 650);
    g.fillText(text, x + 8, y + h / 2 + 9);
  } else { g.font = font(12, 600); g.textAlign = "center"; g.fillText(text, x + w / 2, y + h / 2 + 0.5); g.textAlign = "left"; }
}

function stripes(g, x, y, w, h) {
  g.save();
  g.beginPath(); g.rect(x, y, w, h); g.clip();
  g.strokeStyle = lineColor(); g.lineWidth = 1.5; g.beginPath();
  for (let i = -h; i < w; i += 6) { g.moveTo(x + i, y + h); g.lineTo(x + i + h, y); }
  g.stroke(); g.restore();
}

function frame(g, state, x, y, w, h) {
  if (state === "ready" || state === "unknown") return;
  g.strokeStyle = markColor(); g.lineWidth = w >= 18 ? 2 : 1;
  g.strokeRect(x + 1, y + 1, w - 2, h - 2);
  if (state === "cordoned" || w < 9) return;
  const s = Math.min(8, w / 3), right = x + w - 4 - s, low = y + h - 4 - s;
  g.beginPath(); g.moveTo(right, low); g.lineTo(right + s, low + s);
  if (state === "notReady") { g.moveTo(right + s, low); g.lineTo(right, low + s); }
  g.stroke();
}

/* Draw one cell by itself, for the legend. */
export function swatch(canvas, state, value, ceiling) {
  const g = sharp(canvas, 16, 16);
  g.fillStyle = fill(value, ceiling);
  g.fillRect(0, 0, 16, 16);
  mark(g, { state, name: "" }, value, ceiling, 0, 0, 16, 16);
}

function shorten(g, text, room) {
  if (g.measureText(text).width <= room) return text;
  let keep = text.length;
  while (keep > 3 && g.measureText(`…${text.slice(-keep)}`).width > room) keep -= 1;
  // The end tells names apart: worker-pool-a-000123.
  return `…${text.slice(-keep)}`;
}
