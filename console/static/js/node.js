// SPDX-License-Identifier: Apache-2.0
// The node page: load over time, pods by size, who may move, and moves in and out.
import { Chart } from "./chart.js";
import { Table, chip, el, figures, find, name, nodeLink, show, whyLink } from "./dom.js";
import { ago, bytes, clock, count, cpu, duration, percent } from "./format.js";
import { moveCard } from "./moves.js";
import { keep, read } from "./page.js";

const CELL = ["name", "pool", "zone", "state", "role", "cpu", "memory", "cpuRequests", "memoryRequests", "cpuAfter", "memoryAfter", "pods", "note"];
const STATES = { ready: "Ready", unknown: "load unknown", cordoned: "cordoned", maintenance: "under maintenance", notReady: "not ready" };
const node = new URLSearchParams(location.search).get("name") ?? "";
let found = null;

const chart = new Chart(find("history"), [{ label: "CPU", color: "--curve-mean", width: 2 }, { label: "Memory", color: "--curve-high" }], { ceiling: () => (found ? [found.ceilings.cpu, found.ceilings.memory] : null) });

const table = new Table(find("pods"), [
  { title: "Pod", class: "name", value: (p) => p.pod, cell: (p) => whyLink("pod", p.pod) },
  { title: "Workload", class: "name", value: (p) => p.owner, cell: (p) => (p.owner ? name(p.owner) : "none") },
  { title: "CPU", class: "num", value: (p) => p.cpuMilli, cell: (p) => cpu(p.cpuMilli) },
  { title: "of node", class: "num", value: (p) => p.cpu, cell: (p) => percent(p.cpu, 1) },
  { title: "Memory", class: "num", value: (p) => p.memoryBytes, cell: (p) => bytes(p.memoryBytes) },
  { title: "of node", class: "num", value: (p) => p.memory, cell: (p) => percent(p.memory, 1) },
  { title: "Known from", value: (p) => p.basis, cell: (p) => p.basis },
  { title: "May it move?", class: "wide", value: (p) => p.reasons.length, cell: mayMove },
], { pager: find("pod-pager"), sort: 2, down: true, size: 50, empty: "No pods." });

function mayMove(pod) {
  if (pod.target) return el("span", {}, chip("planned", "warn"), " to ", nodeLink(pod.target));
  if (!pod.reasons.length) return chip("may move", "good");
  return el("ul", { class: "reasons" }, pod.reasons.map((reason) => el("li", {}, chip(reason.name, reason.forGood ? "" : "warn"), " ", el("span", { class: "sub" }, reason.words))));
}

function pods() {
  const which = document.querySelector('input[name="which"]:checked').value;
  const list = found.pods.filter((p) => which === "all" || (p.reasons.length === 0) === (which === "may"));
  const may = found.pods.filter((p) => !p.reasons.length).length;
  find("pod-count").textContent = `${may} of ${count(found.pods.length, "pod")} may move for load${found.podsLeftOut ? `; ${found.podsLeftOut} smaller ones are not listed` : ""}`;
  table.set(list);
}

function refusals() {
  show(find("refusals"), found.notASource.length + found.notATarget.length > 0);
  find("refusal-list").replaceChildren(titled("Gives pods for load", found.notASource), titled("Takes pods", found.notATarget));
}

function titled(title, list) {
  return el("div", {}, el("h3", {}, title), list.length ? el("ul", { class: "reasons" }, list.map((r) => el("li", {}, chip(r.name, "warn"), " ", el("span", { class: "sub" }, r.words)))) : el("p", {}, chip("yes", "good")));
}

async function load() {
  const [answer, past] = await Promise.all([read(`/api/node?name=${encodeURIComponent(node)}`), read(`/api/history?node=${encodeURIComponent(node)}`)]);
  found = answer;
  show(find("absent"), found === null);
  show(find("content"), found !== null);
  if (found === null) { find("lead").textContent = ""; return; }
  const cell = Object.fromEntries(CELL.map((field, i) => [field, found.cell[i]]));
  find("lead").textContent = [STATES[cell.state], cell.pool && `pool ${cell.pool}`, cell.zone && `zone ${cell.zone}`, `${duration(Date.now() / 1000 - found.createdS)} old`, `sample from ${ago(found.atS)}`, cell.cpu !== null && cell.note].filter(Boolean).join(" · ");
  const level = (title, now, then, top) => [title, percent(now), now === null ? cell.note || "unknown" : Math.abs((then ?? now) - now) >= 0.5 ? `after the plan ${percent(then)}` : `ceiling ${top} %`, now > top ? "bad" : ""];
  figures([
    level("CPU", cell.cpu, cell.cpuAfter, found.ceilings.cpu), level("Memory", cell.memory, cell.memoryAfter, found.ceilings.memory),
    ["CPU requested", percent(cell.cpuRequests), `of ${cpu(found.cpuMilli)}`], ["Memory requested", percent(cell.memoryRequests), `of ${bytes(found.memoryBytes)}`],
    ["Pods", String(cell.pods)], ["Why", whyLink("node", node, "ask about it"), "what it takes part in"],
  ]);
  find("history-words").textContent = past.sinceS === null ? "Nothing is known yet." : `Known since ${clock(past.times[0] ?? past.sinceS)}; at most ${duration(past.keptS)} are kept. Dashed: the ceilings.`;
  chart.set([past.times, past.cpu, past.memory], `Load of the node over time: now ${percent(cell.cpu)} CPU and ${percent(cell.memory)} memory`);
  refusals();
  pods();
  const moves = found.moves.map((move) => moveCard(move));
  find("moves").replaceChildren(...(moves.length ? moves : [el("p", { class: "empty" }, "No pod has moved from or to this node.")]));
  find("about").replaceChildren(
    el("div", { class: "labels" }, found.taints.length ? found.taints.map((taint) => el("span", {}, `taint ${taint}`)) : null, Object.entries(found.labels).sort().map(([key, value]) => el("span", {}, `${key}${value ? `=${value}` : ""}`))),
    found.taints.length + Object.keys(found.labels).length ? "" : el("p", { class: "empty" }, "None."));
}

for (const input of document.querySelectorAll('input[name="which"]')) input.addEventListener("change", () => found && pods());
keep(load, ["cluster", "plan", "migrations"]);
