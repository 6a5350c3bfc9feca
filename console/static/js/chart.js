// SPDX-License-Identifier: Apache-2.0
// Curves over time, drawn by uPlot.
import uPlot from "../vendor/uPlot.esm.js";
import { el } from "./dom.js";
import { color, onTheme } from "./scale.js";

/* Series: {label, color (a CSS variable), dash, fill}; data: [times, ...values]. */
export class Chart {
  constructor(box, series, { height = 170, ceiling = () => null } = {}) {
    Object.assign(this, { box, series, height, ceiling, data: null, plot: null });
    new ResizeObserver(() => this.#fit()).observe(box);
    onTheme(() => { this.plot?.destroy(); this.plot = null; if (this.data) this.set(this.data); });
  }

  set(data, words = null) {
    this.data = data;
    if (words !== null) { this.box.setAttribute("role", "img"); this.box.setAttribute("aria-label", words); }
    if (data[0].length < 2) { this.plot?.destroy(); this.plot = null; this.box.replaceChildren(el("p", { class: "empty" }, "The curve begins with the second sample.")); return; }
    if (this.plot) this.plot.setData(data);
    else { this.box.replaceChildren(); this.plot = new uPlot(this.#options(), data, this.box); }
  }

  #fit() { if (this.plot && this.box.clientWidth > 50) this.plot.setSize({ width: this.box.clientWidth, height: this.height }); }

  #options() {
    const grid = { stroke: color("--line"), width: 1 }, ink = color("--muted");
    const axis = { stroke: ink, grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    return {
      width: Math.max(200, this.box.clientWidth), height: this.height,
      padding: [null, 30, null, null], // half of the last time, which would be cut at the edge
      cursor: { y: false, points: { size: 6 } },
      scales: { y: { range: (_, low, high) => [0, Math.max(100, Math.ceil((high ?? 0) / 10) * 10)] } },
      axes: [
        { ...axis, space: 70, size: 30, values: (_, ticks, i, space, step) => ticks.map((t) => new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}), hourCycle: "h23" }).format(new Date(t * 1000))) },
        { ...axis, size: 48, splits: [0, 20, 40, 60, 80, 100], values: (_, ticks) => ticks.map((t) => `${t} %`) },
      ],
      series: [
        { label: "Time", value: (_, t) => (t === null ? "–" : new Date(t * 1000).toLocaleTimeString(undefined, { hourCycle: "h23" })) },
        ...this.series.map((s) => ({ label: s.label, stroke: color(s.color), width: s.width ?? 1.6, dash: s.dash, fill: s.fill ? `${color(s.color)}22` : undefined, points: { show: false }, spanGaps: false, value: (_, v) => (v === null || v === undefined ? "–" : `${v.toFixed(1)} %`) })),
      ],
      hooks: { draw: [(plot) => this.#ceilings(plot)] },
    };
  }

  #ceilings(plot) {
    for (const level of [this.ceiling()].flat().filter((each) => each !== null && each !== undefined)) {
      const y = plot.valToPos(level, "y", true), { left, width } = plot.bbox, g = plot.ctx;
      g.save();
      g.strokeStyle = color("--curve-ceiling"); g.lineWidth = devicePixelRatio * 1.2; g.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
      g.beginPath(); g.moveTo(left, y); g.lineTo(left + width, y); g.stroke();
      g.restore();
    }
  }
}
