// SPDX-License-Identifier: Apache-2.0
// One Migration as a card: where from and to, its steps with the time each took, and what came of it.
import { chip, el, nodeLink, whyLink } from "./dom.js";
import { clock, duration, now, percent } from "./format.js";

const STEPS = ["BudgetChecked", "Marked", "Acknowledged", "Protected", "Evicted", "Replaced", "Ready", "CleanedUp"];
const TITLES = { BudgetChecked: "PDB", Marked: "marked", Acknowledged: "extenders know", Protected: "protected", Evicted: "evicted", Replaced: "replaced", Ready: "ready", CleanedUp: "cleaned up" };
const GOOD = new Set(["AsPlanned", "NotReplaced"]);
const OUTCOMES = { AsPlanned: "landed as planned", Alternative: "landed on an alternative", Elsewhere: "landed elsewhere", BackOnSource: "came back", Unguided: "not guided", NotReplaced: "needs no replacement" };

export const isOpen = (move) => move.phase !== "Completed" && move.phase !== "Failed";
export const outcome = (move) => OUTCOMES[move.outcome] ?? move.outcome;

export function moveState(move) {
  if (move.phase === "Failed") return chip("failed", "bad");
  if (move.phase === "Completed") return chip(outcome(move) || "completed", GOOD.has(move.outcome) ? "good" : "warn");
  return chip(move.phase === "InProgress" ? "moving" : "waiting", "warn");
}

function steps(move) {
  const byName = new Map(move.steps.map((step) => [step.name, step]));
  let from = move.startedS ?? move.createdS, current = false;
  return STEPS.map((step) => {
    const found = byName.get(step);
    const done = found?.status === "True", failed = found?.status === "False" && move.phase === "Failed";
    const here = !done && !current && isOpen(move);
    if (here) current = true;
    const took = done ? Math.max(0, found.atS - from) : here ? Math.max(0, now() - from) : null;
    if (done) from = Math.max(from, found.atS);
    return el("li", { class: done ? "done" : failed ? "failed" : here ? "now" : "", title: found?.words || null },
      TITLES[step], took === null ? null : el("span", { class: "took" }, duration(took)),
      el("span", { class: "visually-hidden" }, done ? " done" : here ? " under way" : failed ? " failed" : " not reached"));
  });
}

function compare(move) {
  if (!move.predicted && !move.actual) return null;
  const pair = (field) => `${percent(move.predicted?.[field])} / ${percent(move.actual?.[field])}`;
  const side = (title, which) => [`${title} CPU `, el("b", {}, pair(`${which}Cpu`)), ", memory ", el("b", {}, pair(`${which}Memory`))];
  return el("p", { class: "compare" }, "predicted / actual: ", side("source", "source"), "; ", side("target", "target"));
}

export function moveCard(move) {
  const end = move.finishedS ?? now(), landed = move.landedOn && move.landedOn !== move.target ? el("span", {}, " (landed on ", nodeLink(move.landedOn), ")") : null;
  const plain = move.outcome === "AsPlanned" || !move.words;
  return el("article", { class: "move" },
    el("div", { class: "move-head" }, whyLink("pod", move.pod), el("span", { class: "way" }, nodeLink(move.source), " → ", nodeLink(move.target), landed), moveState(move),
      el("span", { class: "when" }, `${move.strategy}, ${clock(move.createdS)}, ${isOpen(move) ? "for" : "took"} ${duration(end - move.createdS)}${move.attempts ? `, ${move.attempts} failed tries` : ""}`)),
    el("ol", { class: "steps", "aria-label": "Steps" }, steps(move)),
    plain ? null : el("p", { class: "sub" }, move.words), compare(move));
}
