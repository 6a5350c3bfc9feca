// SPDX-License-Identifier: Apache-2.0
// The health page: is the loop well, and is anything stopping it.
import { Table, chip, el, find, name, show } from "./dom.js";
import { ago, clock, count, duration, now, percent } from "./format.js";
import { keep, read } from "./page.js";

let health = null;
const table = new Table(find("extenders"), [
  { title: "Extender", class: "name", value: (e) => e.name, cell: (e) => name(e.name) },
  { title: "State", value: (e) => String(e.alive), cell: (e) => chip(e.alive ? "alive" : "silent", e.alive ? "good" : "bad") },
  { title: "Not acknowledged", class: "num", value: (e) => e.behind, cell: (e) => (e.behind === null ? "says nothing" : e.behind ? count(e.behind, "Migration") : "none") },
  { title: "Last report", value: (e) => -e.reportedS, cell: (e) => ago(e.reportedS) },
  { title: "Called by", cell: (e) => e.schedulers.join(", ") || "no scheduler yet" },
  { title: "", class: "wide", cell: (e) => e.words },
], { empty: "No extender is alive: replacements would not be steered, so nothing is moved for load." });

function card(title, big, more = [], mood = "", word = "") {
  return el("section", { class: "panel card" }, el("h2", {}, title, mood ? chip(word, mood) : null), el("p", { class: "big" }, big), more.filter(Boolean).map((line) => el("p", { class: "sub" }, line)));
}

const ok = (good, yes = "fine", no = "look here") => (good ? ["good", yes] : ["bad", no]);

function draw() {
  if (!health) return;
  const h = health, age = h.metricsAgeS === null ? null : h.metricsAgeS + (now() - h.atS);
  const breakers = h.breakers.map((b) => card(`Breaker for ${b.purpose}`, b.state[0].toUpperCase() + b.state.slice(1), [b.cause, b.untilS ? `one move may try at ${clock(b.untilS)}` : null], ...ok(b.state === "closed", "closed", b.state)));
  find("cards").replaceChildren(
    card("Leader", h.leader[0].toUpperCase() + h.leader.slice(1), [h.lastPlanS === null ? "no plan yet" : `last plan ${ago(h.lastPlanS)}`]),
    card("Mode", h.acts ? "Acting" : h.mode.startsWith("act") ? "Acting is stopped" : "Observing", [h.strategies.join(", ") || "no strategy enabled", h.acts ? null : "plans are shown and nothing is evicted"], h.acts ? "good" : "warn", h.mode),
    card("Switch", h.pause ? "Paused" : h.pauseUnknown ? "Unknown" : "Not paused", h.pauseUnknown && !h.pause ? [h.pauseUnknown] : h.pause ? [`by ${h.pause.by || "the configuration"}${h.pause.untilS ? ` until ${clock(h.pause.untilS)}` : ""}`, h.pause.why] : ["evictions may go on"], ...ok(!h.pause && !h.pauseUnknown, "running", h.pause ? "paused" : "unknown")),
    card("Metrics", h.source, [age === null ? "no sample yet" : `newest sample ${duration(age)} old`, h.trouble, h.nodesUnknown ? `${count(h.nodesUnknown, "node")} of ${h.nodes} unknown` : `all ${count(h.nodes, "node")} known`], ...ok(!h.trouble && !h.nodesUnknown, "fresh")),
    ...breakers,
    card("Landed as planned", h.replaced ? percent((100 * h.asPlanned) / h.replaced, h.asPlanned === h.replaced ? 0 : 1) : "–", [h.replaced ? `${h.asPlanned} of ${count(h.replaced, "replacement")}` : "no move has finished", `${h.openMoves} under way`], ...(h.replaced ? ok(h.asPlanned / h.replaced >= 0.95, "on target", "missing targets") : [])),
    card("Acknowledgment", h.ackLagS === null ? "–" : duration(h.ackLagS), ["until all extenders knew the newest Migration"]));
  find("lead").textContent = `${count(h.nodes, "node")}, ${count(h.pods, "pod")}, version ${h.version}${h.installed ? "" : "; Evenkeel is not installed in this cluster"}`;
  find("guided").textContent = h.guided;
  table.set(h.extenders);
  show(find("notes"), h.notes.length > 0);
  find("note-list").replaceChildren(...h.notes.map((note) => el("li", {}, note)));
  const resume = find("resume");
  if (resume) show(resume, Boolean(h.pause || h.pauseUnknown));
}

async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const said = await answer.json().catch(() => ({ error: `the program answers ${answer.status}` }));
  find("pause-words").textContent = said.error ? `Not done: ${said.error}` : "Done.";
  await load();
}

find("pause-form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  post("/api/pause", { why: form.get("why"), for_s: form.get("for") ? Number(form.get("for")) : null });
});
find("resume")?.addEventListener("click", () => post("/api/resume", {}));

async function load() { health = await read("/api/health"); draw(); }

setInterval(() => { if (!document.hidden) draw(); }, 2000);
keep(load, ["health", "cluster", "migrations", "plan"]);
