// SPDX-License-Identifier: Apache-2.0
// The Migrations page: what moves now, and what has moved.
import { el, figures, find } from "./dom.js";
import { count, duration, percent } from "./format.js";
import { isOpen, moveCard, outcome } from "./moves.js";
import { keep, read } from "./page.js";

const SIZE = 30;
let rows = [], shown = SIZE, leftOut = 0;

const mean = (list) => (list.length ? list.reduce((sum, each) => sum + each, 0) / list.length : null);

function draw() {
  const open = rows.filter((move) => isOpen(move)), done = rows.filter((move) => !isOpen(move));
  const wanted = find("filter").value.trim().toLowerCase();
  const text = (m) => `${m.pod} ${m.source} ${m.target} ${m.landedOn} ${m.strategy} ${m.phase} ${outcome(m)}`.toLowerCase();
  const found = wanted ? done.filter((move) => text(move).includes(wanted)) : done;
  find("open").replaceChildren(...(open.length ? open.map(moveCard) : [el("p", { class: "empty" }, "No pod is moving.")]));
  find("done").replaceChildren(...(found.length ? found.slice(0, shown).map(moveCard) : [el("p", { class: "empty" }, wanted ? "No Migration matches." : "No pod has moved yet.")]));
  find("count").textContent = wanted ? `${found.length} of ${done.length}` : done.length ? `newest first${leftOut ? `; ${leftOut} older ones are not listed` : ""}` : "";
  find("pager").replaceChildren(...(found.length > shown ? [el("button", { type: "button", on: { click: () => { shown += SIZE; draw(); } } }, "Show more"), el("span", {}, `${shown} of ${found.length}`)] : []));
  summary(open, done);
}

function summary(open, done) {
  const landed = done.filter((m) => m.outcome && m.outcome !== "NotReplaced"), planned = landed.filter((m) => m.outcome === "AsPlanned");
  const failed = done.filter((m) => m.phase === "Failed").length;
  const errors = done.filter((m) => m.actual && m.predicted && m.actual.targetCpu !== null && m.predicted.targetCpu !== null).map((m) => Math.abs(m.actual.targetCpu - m.predicted.targetCpu));
  figures([
    ["Under way", String(open.length)], ["Finished", String(done.length), leftOut ? `${leftOut} more not listed` : null],
    ["Landed as planned", landed.length ? percent((100 * planned.length) / landed.length) : "–", landed.length ? `${planned.length} of ${landed.length}` : null, landed.length && planned.length === landed.length ? "good" : ""],
    ["Failed", String(failed), null, failed ? "bad" : ""],
    ["Time for a move", duration(mean(done.filter((m) => m.finishedS !== null).map((m) => m.finishedS - m.createdS))), "mean"],
    ["Predicted against actual", errors.length ? `${mean(errors).toFixed(1)} points` : "–", "CPU of targets, mean difference"],
  ]);
}

async function load() {
  const found = await read("/api/migrations");
  rows = found.rows;
  leftOut = found.leftOut;
  const moving = rows.filter(isOpen).length;
  find("lead").textContent = found.whyNone || (rows.length ? `${count(moving, "pod")} ${moving === 1 ? "moves" : "move"} now` : "No pod has moved yet.");
  draw();
}

find("filter").addEventListener("input", () => { shown = SIZE; draw(); });
setInterval(() => { if (!document.hidden && rows.some(isOpen)) draw(); }, 1000);
keep(load, ["migrations"]);
