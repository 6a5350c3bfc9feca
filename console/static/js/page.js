// SPDX-License-Identifier: Apache-2.0
// What every page does: read documents, follow the stream, and say whether it is live.
// A hidden tab closes its stream, so that it costs nothing, and opens it again when it is seen.
import { el, find, show } from "./dom.js";
import { clock } from "./format.js";

const WORDS = { starting: "Connecting", live: "Live", lost: "Connection lost, trying again", hidden: "Resting while hidden" };

export function state(now, words = WORDS[now]) {
  find("live").dataset.state = now;
  find("live-words").textContent = words;
}

export class Failed extends Error {
  constructor(status, words) { super(words); this.status = status; }
}

export async function read(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const found = await answer.json().catch(() => null);
  if (!answer.ok) throw new Failed(answer.status, found?.error ?? `the program answers ${answer.status}`);
  return found;
}

/* Follow the stream: handlers get the data of each event. `number` says which cluster document the
   page has; null where it shows no cells. */
export function follow(handlers, number = () => null) {
  let source = null, again = 0;
  const open = () => {
    if (document.hidden || source) return;
    const from = number();
    source = new EventSource(from === null ? "/api/stream?cells=false" : `/api/stream?number=${from}`);
    source.onopen = () => state("live");
    source.onerror = () => {
      state("lost");
      if (source?.readyState === EventSource.CLOSED) { close(); state("lost"); again = setTimeout(open, 5000); }
    };
    for (const [event, handle] of Object.entries(handlers)) source.addEventListener(event, (message) => handle(JSON.parse(message.data)));
  };
  const close = () => { clearTimeout(again); source?.close(); source = null; };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); state("hidden"); } else open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
}

/* Load a document now and whenever one of its versions changes; never twice at once. */
export function keep(load, versions) {
  let busy = false, wanted = false, seen = "";
  const run = async () => {
    if (busy) { wanted = true; return; }
    busy = true;
    try { await load(); } catch (error) { problem(error); }
    busy = false;
    if (wanted) { wanted = false; setTimeout(run, 250); }
  };
  follow({
    versions: (said) => {
      pauseBanner(said.health);
      const key = versions.map((name) => said[name]).join();
      if (key !== seen) { seen = key; run(); }
    },
  });
}

export function problem(error) {
  const lead = find("lead");
  if (lead) lead.textContent = `This could not be read: ${error.message}. It is tried again.`;
  state("lost");
}

let paused = null;
export async function pauseBanner(version) {
  if (version === paused) return;
  paused = version;
  const health = await read("/api/health").catch(() => null);
  const banner = find("banner");
  if (health === null) return;
  show(banner, Boolean(health.pause));
  if (!health.pause) return;
  const { by, why, untilS } = health.pause;
  banner.replaceChildren(el("span", {}, `Paused${by ? ` by ${by}` : ""}${untilS ? ` until ${clock(untilS)}` : ""}: nothing is evicted.${why ? ` ${why}` : ""}`));
}

for (const time of document.querySelectorAll("time[datetime]")) {
  const at = Date.parse(time.dateTime) / 1000;
  if (!Number.isNaN(at)) time.textContent = clock(at);
}
