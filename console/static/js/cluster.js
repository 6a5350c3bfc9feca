// SPDX-License-Identifier: Apache-2.0
// The cluster page: maps now and after the plan, history, and the table that says the same.
import { Chart } from "./chart.js";
import { Table, chip, el, figures, find, nodeLink, order } from "./dom.js";
import { ago, clock, count, duration, percent, points } from "./format.js";
import { NodeMap, layout, swatch } from "./map.js";
import { follow, pauseBanner, problem, read, state } from "./page.js";
import { fill, markColor, meter, onTheme, sharp } from "./scale.js";

// The order of NodeCell in console/data.py.
const FIELDS = ["name", "pool", "zone", "state", "role", "cpu", "memory", "cpuRequests", "memoryRequests", "cpuAfter", "memoryAfter", "pods", "note", "cpuCeiling", "memoryCeiling"];
const FIXED = 3;
const STATES = { ready: "", unknown: "load unknown", cordoned: "cordoned", maintenance: "maintenance", notReady: "not ready" };
const ROLES = { source: "gives pods", target: "takes pods", both: "gives and takes pods" };

let number = -1, head = null, cells = [], plan = null, groupsKey = "";
// Read once for each change: every cell asks, and looking them up again was most of an update.
let picked = null;
const choice = (name) => (picked ??= Object.fromEntries([...document.querySelectorAll(".controls input:checked")].map((input) => [input.name, input.value])))[name];
const resource = () => choice("resource");
const ceiling = () => head.ceilings[resource()];
// A node of a pool may have ceilings of its own.
const ceilingOf = (cell, field = resource()) => cell[`${field}Ceiling`] ?? head.ceilings[field];
const basis = () => choice("basis");
const nowOf = (cell) => (basis() === "use" ? cell[resource()] : cell[`${resource()}Requests`]);
const afterOf = (cell) => (basis() === "use" ? cell[`${resource()}After`] : cell[`${resource()}Requests`]);

const asCell = (array) => Object.fromEntries(FIELDS.map((field, i) => [field, array[i]]));

function describe(index) {
  const cell = cells[index];
  const lines = [cell.name, [cell.pool && `pool ${cell.pool}`, cell.zone && `zone ${cell.zone}`, count(cell.pods, "pod")].filter(Boolean).join(", ")];
  lines.push(cell.cpu === null ? `load unknown: ${cell.note || "no sample"}` : `CPU ${percent(cell.cpu)}, after the plan ${percent(cell.cpuAfter)}`);
  if (cell.memory !== null) lines.push(`memory ${percent(cell.memory)}, after the plan ${percent(cell.memoryAfter)}`);
  if (cell.cpu !== null && cell.note) lines.push(cell.note);
  lines.push(`requests ${percent(cell.cpuRequests)} CPU, ${percent(cell.memoryRequests)} memory`);
  const more = [STATES[cell.state], ROLES[cell.role]].filter(Boolean).join(", ");
  return more ? [...lines, more] : lines;
}

const open = (index) => { location.href = `/node?name=${encodeURIComponent(cells[index].name)}`; };
const announce = (text) => { find("announce").textContent = text; };
const nowMap = new NodeMap(find("now"), { describe, open, announce });
const afterMap = new NodeMap(find("after"), { describe, open, announce });
const chart = new Chart(find("history"), [
  { label: "Highest", color: "--curve-high" }, { label: "Mean", color: "--curve-mean", width: 2.2 }, { label: "Lowest", color: "--curve-low" },
], { ceiling: () => (head ? ceiling() : null) });

const bar = (field) => (cell) => el("span", { class: "meter" }, meter(cell[field], cell[`${field}After`], ceilingOf(cell, field)), el("span", { class: "figure" }, percent(cell[field])));
const after = (field) => (cell) => (cell[`${field}After`] !== null && cell[field] !== null && Math.abs(cell[`${field}After`] - cell[field]) >= 0.5 ? percent(cell[`${field}After`]) : "=");
const table = new Table(find("nodes"), [
  { title: "Node", class: "name", value: (c) => c.name, cell: (c) => nodeLink(c.name) },
  { title: "Pool", value: (c) => c.pool, cell: (c) => c.pool || "–" },
  { title: "Zone", value: (c) => c.zone, cell: (c) => c.zone || "–" },
  { title: "CPU", class: "num", value: (c) => c.cpu, cell: bar("cpu") },
  { title: "after", class: "num", value: (c) => c.cpuAfter, cell: after("cpu") },
  { title: "requested", class: "num", value: (c) => c.cpuRequests, cell: (c) => percent(c.cpuRequests) },
  { title: "Memory", class: "num", value: (c) => c.memory, cell: bar("memory") },
  { title: "after", class: "num", value: (c) => c.memoryAfter, cell: after("memory") },
  { title: "requested", class: "num", value: (c) => c.memoryRequests, cell: (c) => percent(c.memoryRequests) },
  { title: "Pods", class: "num", value: (c) => c.pods, cell: (c) => String(c.pods) },
  { title: "State", value: (c) => c.state + c.role, cell: stateOf },
], { pager: find("pager"), sort: 3, down: true, size: 25, empty: "No node matches." });

function stateOf(cell) {
  const parts = [];
  if (STATES[cell.state]) parts.push(chip(STATES[cell.state], cell.state === "notReady" ? "bad" : "warn"));
  if (ROLES[cell.role]) parts.push(chip(ROLES[cell.role]));
  if (cell.note) parts.push(el("span", { class: "sub" }, ` ${cell.note}`));
  return el("span", {}, parts);
}

function groups() {
  const by = choice("group"), found = new Map();
  cells.forEach((cell, i) => {
    const title = by === "none" ? "" : cell[by] || (by === "pool" ? "no pool" : "no zone");
    if (!found.has(title)) found.set(title, []);
    found.get(title).push(i);
  });
  const byLoad = choice("order") === "load";
  const compare = byLoad ? (a, b) => order(nowOf(cells[a]), nowOf(cells[b]), -1) : (a, b) => order(cells[a].name, cells[b].name);
  return [...found].sort(([a], [b]) => order(a, b)).map(([title, members]) => ({ title, members: members.sort(compare) }));
}

/* Offer only groups that exist: without pools, zones; without both, one map. */
function offerGroups() {
  const exists = { pool: cells.some((cell) => cell.pool), zone: cells.some((cell) => cell.zone), none: true };
  for (const input of document.querySelectorAll('input[name="group"]')) {
    input.disabled = !exists[input.value];
    input.parentElement.hidden = !exists[input.value];
  }
  picked = null;
  if (!exists[choice("group")]) document.querySelector(`input[name="group"][value="${exists.pool ? "pool" : exists.zone ? "zone" : "none"}"]`).checked = true;
  picked = null;
}

function place() {
  const width = find("now").clientWidth, key = [width, cells.length, choice("group"), choice("order"), resource(), basis()].join();
  // Cells that jump at every sample cannot be followed: the order is made when it is asked for.
  if (!plan || key !== groupsKey) { plan = layout(groups(), width); groupsKey = key; }
}

function known(values) { return values.filter((value) => value !== null); }

function stats(valueOf) {
  const values = cells.map(valueOf), list = known(values);
  if (!list.length) return { highest: null, lowest: null, mean: null, spread: null, over: 0, unknown: values.length };
  let highest = -Infinity, lowest = Infinity, sum = 0;
  for (const value of list) { if (value > highest) highest = value; if (value < lowest) lowest = value; sum += value; }
  const over = cells.reduce((n, cell, i) => n + (values[i] !== null && values[i] > ceilingOf(cell)), 0);
  return { highest, lowest, mean: sum / list.length, spread: highest - lowest, over, unknown: values.length - list.length };
}

const ownCeilings = () => cells.some((cell) => cell[`${resource()}Ceiling`] !== null);
const words = (s) => (s.highest === null ? "nothing is measured" : `highest ${percent(s.highest)}, lowest ${percent(s.lowest)}, ${s.over} above ${ownCeilings() ? "their ceilings" : `${ceiling()} %`}`);

function draw() {
  if (!head) return;
  const [now, then] = [stats(nowOf), stats(afterOf)];
  const what = `${resource() === "cpu" ? "CPU" : "memory"}${basis() === "use" ? "" : " requests"}`;
  lead();
  figures([
    ["Nodes", String(cells.length.toLocaleString("en")), now.unknown ? `${now.unknown} unknown` : count(cells.reduce((n, c) => n + c.pods, 0), "pod")],
    [`Highest ${what}`, percent(now.highest), ownCeilings() ? "ceilings differ by pool" : `ceiling ${ceiling()} %`, now.over ? "bad" : ""],
    ["Mean", percent(now.mean)], ["Lowest", percent(now.lowest)],
    ["Spread", now.spread === null ? "–" : points(now.spread), `${head.ceilings.imbalance} allowed`, ""],
    ["Above the ceiling", String(now.over), then.over < now.over ? `${then.over} after the plan` : null, now.over ? "bad" : "good"],
    ["Planned evictions", head.evictions === null ? "–" : String(head.evictions), head.evictions === null ? "no plan yet" : then.highest === null ? null : `highest then ${percent(then.highest)}`],
  ]);
  place();
  nowMap.set(plan, cells, nowOf, ceilingOf);
  afterMap.set(plan, cells, afterOf, ceilingOf);
  find("now-words").textContent = words(now);
  find("after-words").textContent = head.evictions === null ? "there is no plan" : head.evictions ? words(then) : "no evictions planned";
  find("now").setAttribute("aria-label", `${count(cells.length, "node")} now, ${what}: ${words(now)}. Arrow keys move between nodes, Enter opens one; the table below has the same figures.`);
  find("after").setAttribute("aria-label", `${count(cells.length, "node")} after the plan, ${what}: ${words(then)}.`);
  rows();
}

function lead() {
  const age = head.trouble ? `usage is not read: ${head.trouble}` : `sample from ${ago(head.atS)}, ${head.source}`;
  find("lead").textContent = cells.length ? `${count(cells.length, "node")}, ${age}` : "This cluster has no nodes.";
}

function rows() {
  const wanted = find("filter").value.trim().toLowerCase();
  const text = (cell) => `${cell.name} ${cell.pool} ${cell.zone} ${STATES[cell.state]} ${ROLES[cell.role] ?? ""}`.toLowerCase();
  const found = wanted ? cells.filter((cell) => text(cell).includes(wanted)) : cells;
  find("count").textContent = wanted ? `${found.length} of ${count(cells.length, "node")}` : "";
  table.set(found);
}

function legend() {
  const box = find("legend"), canvas = el("canvas"), at = ceiling();
  box.replaceChildren(canvas);
  const g = sharp(canvas, 220, 26);
  for (let x = 0; x < 220; x += 1) { g.fillStyle = fill((x / 220) * 110, at); g.fillRect(x, 0, 1, 10); }
  g.fillStyle = markColor(); g.font = "11px system-ui, sans-serif"; g.textBaseline = "bottom";
  for (const value of [0, 50, at, 100]) { const x = (value / 110) * 220; g.fillRect(x, 0, 1, 12); g.textAlign = value ? "center" : "left"; if (value !== 100 || at < 88) g.fillText(value === at ? `${value} %` : String(value), x, 26); }
  for (const [state, title, value] of [["ready", "above the ceiling", at + 6], ["unknown", "unknown", null], ["cordoned", "cordoned", at / 3], ["maintenance", "maintenance", at / 3], ["notReady", "not ready", null]]) {
    const key = el("canvas");
    box.append(el("span", { class: "key" }, key, title));
    swatch(key, state, value, at);
  }
}

async function history() {
  const found = await read("/api/history"), curve = found[resource()];
  const since = found.sinceS === null ? "Nothing is known yet." : `Known since ${clock(found.sinceS)} (${duration(Date.now() / 1000 - found.sinceS)}); at most ${duration(found.keptS)} are kept in memory, and a restart starts empty. Dashed: the ceiling.`;
  find("history-words").textContent = since;
  const last = curve.highest.length - 1;
  chart.set([found.times, curve.highest, curve.mean, curve.lowest], last < 0 ? "No history yet" : `${resource()} over time: now highest ${percent(curve.highest[last])}, mean ${percent(curve.mean[last])}, lowest ${percent(curve.lowest[last])}`);
}

let historyAt = 0;
function historySoon() {
  if (Date.now() - historyAt < 5000) return;
  historyAt = Date.now();
  history().catch(problem);
}

async function load() {
  const found = await read("/api/cluster");
  number = found.number;
  if (!found.cluster) { find("lead").textContent = "The cluster is being read. This page fills by itself."; return; }
  head = found.cluster;
  cells = found.cluster.nodes.map(asCell);
  plan = null;
  offerGroups();
  draw();
  performance.mark("evenkeel-shown");
  legend();
  historySoon();
}

let loading = null;
function reload() { loading ??= load().catch(problem).finally(() => { loading = null; }); return loading; }

function delta(said) {
  if (loading || said.number <= number) return;
  if (said.number !== number + 1 || !head) { reload(); return; }
  const begun = performance.now();
  number = said.number;
  head = said.head;
  for (const [index, ...values] of said.cells) values.forEach((value, i) => { cells[index][FIELDS[FIXED + i]] = value; });
  draw();
  performance.measure("evenkeel-update", { start: begun });
  historySoon();
}

for (const input of document.querySelectorAll(".controls input")) input.addEventListener("change", () => { picked = null; if (!head) return; plan = null; draw(); legend(); history().catch(problem); });
find("filter").addEventListener("input", () => { table.page = 0; if (head) rows(); });
new ResizeObserver(() => { if (head) draw(); }).observe(find("now").parentElement);
onTheme(() => { draw(); if (head) legend(); });
setInterval(() => { if (head && !document.hidden) lead(); }, 1000);

state("starting");
await reload();
follow({ cluster: delta, reset: (said) => { if (said.number !== number) reload(); }, versions: (said) => pauseBanner(said.health) }, () => number);
