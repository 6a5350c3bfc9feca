// SPDX-License-Identifier: Apache-2.0
// The search of the why page: suggests names while one types. The answer itself needs no script.
import { el, find } from "./dom.js";
import { follow, pauseBanner, read } from "./page.js";

let timer = 0;
find("q").addEventListener("input", (event) => {
  clearTimeout(timer);
  const text = event.target.value.trim();
  if (text.length < 2) return;
  timer = setTimeout(async () => {
    const found = await read(`/api/search?q=${encodeURIComponent(text)}`).catch(() => []);
    find("found").replaceChildren(...found.map((match) => el("option", { value: match.name, label: match.kind })));
  }, 200);
});
follow({ versions: (said) => pauseBanner(said.health) });
