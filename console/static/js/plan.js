// SPDX-License-Identifier: Apache-2.0
// The plan page: moves as a list and as a picture, the bound, and what stays.
import { Table, chip, el, figures, find, name, nodeLink, show, svg, whyLink } from "./dom.js";
import { ago, bytes, clock, count, cpu, percent } from "./format.js";
import { keep, read } from "./page.js";

const CELL = ["name", "pool", "zone", "state", "role", "cpu", "memory", "cpuRequests", "memoryRequests", "cpuAfter", "memoryAfter", "pods", "note", "cpuCeiling", "memoryCeiling"];
const MOST = 24;

const table = new Table(find("moves"), [
  { title: "Pod", class: "name", value: (m) => m.pod, cell: (m) => whyLink("pod", m.pod) },
  { title: "Workload", class: "name", value: (m) => m.owner, cell: (m) => (m.owner ? name(m.owner) : "none") },
  { title: "From", class: "name", value: (m) => m.source, cell: (m) => nodeLink(m.source) },
  { title: "To", class: "name", value: (m) => m.target, cell: target },
  { title: "CPU", class: "num", value: (m) => m.cpuMilli, cell: (m) => cpu(m.cpuMilli) },
  { title: "Memory", class: "num", value: (m) => m.memoryBytes, cell: (m) => bytes(m.memoryBytes) },
  { title: "Why", class: "wide", cell: (m) => el("span", {}, m.words, el("span", { class: "sub" }, ` (${m.strategy})`)) },
  { title: "When", class: "keep", cell: (m) => (m.thisCycle ? chip("this cycle", "good") : el("span", {}, chip("later"), m.deferredBy ? el("span", { class: "sub" }, ` ${m.deferredBy}`) : null)) },
], { pager: find("move-pager"), size: 50, empty: "No evictions are planned." });

function target(move) {
  const others = move.alternatives.length ? el("span", { class: "sub" }, ` or ${move.alternatives.slice(0, 3).join(", ")}`) : null;
  return el("span", {}, nodeLink(move.target), others);
}

function picture(plan) {
  const cells = new Map(plan.touched.map((array) => [array[0], Object.fromEntries(CELL.map((field, i) => [field, array[i]]))]));
  const moves = plan.moves.slice(0, 200), memory = moves.length > 0 && resourceOf(plan, cells) === "memory";
  const side = (end) => [...new Set(moves.map((move) => move[end]))].slice(0, MOST);
  const sources = side("source"), targets = side("target");
  const shown = moves.filter((move) => sources.includes(move.source) && targets.includes(move.target));
  const rows = Math.max(sources.length, targets.length), high = 34, width = 1000, bar = 250;
  const y = (list, node) => 34 + (list.indexOf(node) + (rows - list.length) / 2) * high;
  const top = memory ? plan.ceilings.memory : plan.ceilings.cpu, what = memory ? "memory" : "CPU";
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${rows * high + 40}`, role: "img", "aria-label": `${count(shown.length, "move")} from ${count(sources.length, "node")} to ${count(targets.length, "node")}; the table below lists them` });
  for (const [text, x] of [[`gives pods (${what})`, 0], [`takes pods (${what})`, width - bar]]) drawing.append(svg("text", { x, y: 12, class: "quiet" }, text));
  const heaviest = Math.max(1, ...shown.map((move) => move.cpuMilli));
  for (const move of shown) {
    const [a, b] = [y(sources, move.source) + 10, y(targets, move.target) + 10];
    const path = svg("path", { class: move.thisCycle ? "link" : "link later", d: `M${bar + 8} ${a} C${width / 2} ${a} ${width / 2} ${b} ${width - bar - 8} ${b}`, "stroke-width": 1.2 + 4 * Math.sqrt(move.cpuMilli / heaviest) });
    path.append(svg("title", {}, `${move.pod}: ${move.source} → ${move.target}`));
    drawing.append(path);
  }
  const box = (node, x, at) => {
    const cell = cells.get(node), before = cell ? cell[memory ? "memory" : "cpu"] : null, after = cell ? cell[memory ? "memoryAfter" : "cpuAfter"] : null;
    const own = cell?.[memory ? "memoryCeiling" : "cpuCeiling"] ?? top;
    const part = (value) => (Math.min(100, value) / 100) * bar;
    drawing.append(svg("rect", { class: "track", x, y: at + 6, width: bar, height: 9, rx: 3 }));
    if (after !== null) drawing.append(svg("rect", { class: after > own ? "after over" : "after", x, y: at + 6, width: part(after), height: 9, rx: 3 }));
    if (before !== null) drawing.append(svg("rect", { class: "before", x, y: at + 4, width: part(before), height: 13, rx: 3 }));
    drawing.append(svg("line", { class: "ceiling", x1: x + part(own), x2: x + part(own), y1: at + 2, y2: at + 19 }));
    const label = node.length > 26 ? `…${node.slice(-25)}` : node;
    drawing.append(svg("text", { x, y: at }, label), svg("text", { x: x + bar, y: at, "text-anchor": "end", class: "quiet" }, `${percent(before)} → ${percent(after)}`));
  };
  for (const node of sources) box(node, 0, y(sources, node));
  for (const node of targets) box(node, width - bar, y(targets, node));
  find("picture").replaceChildren(drawing);
  const left = plan.moves.length - shown.length;
  find("picture-words").textContent = `Dotted outline: before. Filled: after. Line: the ceiling of ${top} %. Wider curves move more CPU; dashed ones wait for a later cycle.${left > 0 ? ` ${left} further moves are in the table only.` : ""}`;
}

function resourceOf(plan, cells) {
  const over = (field) => [...cells.values()].filter((cell) => cell.role !== "target" && cell[field] !== null && cell[field] > (cell[`${field}Ceiling`] ?? plan.ceilings[field])).length;
  return over("memory") > over("cpu") ? "memory" : "cpu";
}

function staying(plan) {
  const made = plan.staying.map((group) => el("details", {},
    el("summary", {}, chip(group.reason.name), " ", group.reason.words, el("span", { class: "count" }, ` · ${count(group.count, "pod")}`), group.reason.forGood ? null : el("span", {}, " ", chip("for now", "warn"))),
    el("ul", { class: "plain" }, group.pods.map((pod) => el("li", {}, whyLink("pod", pod))), group.count > group.pods.length ? el("li", {}, `and ${group.count - group.pods.length} more`) : null)));
  find("staying").replaceChildren(...(made.length ? made : [el("p", { class: "empty" }, "No pod on a node with a goal has to stay.")]));
}

async function load() {
  const { plan, whyNone } = await read("/api/plan");
  show(find("absent"), plan === null);
  show(find("content"), plan !== null);
  if (plan === null) { find("absent").textContent = whyNone || "There is no plan yet. The first one follows the first samples."; find("lead").textContent = ""; return; }
  const evictions = plan.evictions;
  find("lead").textContent = `${evictions ? count(evictions, "eviction") : "Nothing to do"}, made ${ago(plan.madeS)} (${clock(plan.madeS)}), ${plan.strategies.join(", ")}`.replace(/, $/, "");
  const best = evictions && evictions === plan.lowerBound;
  figures([
    ["Evictions", String(evictions), evictions ? (best ? "the proven minimum" : `at least ${plan.lowerBound} are needed`) : "no possible move would help", best ? "good" : ""],
    ["Lower bound", String(plan.lowerBound), plan.boundWords || null],
    ["This cycle", String(plan.thisCycle), plan.deferred ? `${plan.deferred} later` : null],
    ["Goals", String(plan.goals.length), plan.goals.slice(0, 2).join("; ") || "none is broken"],
    ["Not met", String(plan.unmet.length), null, plan.unmet.length ? "bad" : "good"],
  ]);
  show(find("notes"), plan.notes.length > 0);
  find("note-list").replaceChildren(...plan.notes.map((note) => el("li", {}, note)));
  show(find("unmet"), plan.unmet.length > 0);
  find("unmet-list").replaceChildren(el("ul", { class: "reasons" }, plan.unmet.slice(0, 100).map((each) => el("li", {}, el("strong", {}, each.goal), " ", chip(each.reason.name, "warn"), " ", el("span", { class: "sub" }, each.reason.words)))));
  show(find("picture-panel"), plan.moves.length > 0);
  if (plan.moves.length) picture(plan);
  find("move-count").textContent = plan.moves.length ? `${count(plan.moves.length, "move")} in ${count(new Set(plan.moves.map((m) => m.chain)).size, "chain")}` : "";
  table.set(plan.moves);
  staying(plan);
}

keep(load, ["plan"]);
