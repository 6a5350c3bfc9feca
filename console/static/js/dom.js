// SPDX-License-Identifier: Apache-2.0
// Builds page content. Texts come from the cluster and may contain anything, so they only ever
// become text nodes, and characters that cannot be seen are shown as their escapes.

const UNSEEN = /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

export function visible(text) {
  return String(text).replace(UNSEEN, (c) => {
    const code = c.codePointAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : code < 65536 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  });
}

export const find = (id) => document.getElementById(id);

export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, does] of Object.entries(value)) made.addEventListener(event, does);
    else if (name === "text") made.textContent = visible(value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === "string" ? document.createTextNode(visible(child)) : child)));
  return made;
}

const NS = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children.map((child) => (typeof child === "string" ? document.createTextNode(visible(child)) : child)));
  return made;
}

export const name = (text) => el("bdi", {}, text);
export const chip = (text, kind = "") => el("span", { class: `chip ${kind}` }, text);
export const nodeLink = (node) => (node ? el("a", { href: `/node?name=${encodeURIComponent(node)}` }, name(node)) : "–");
export const whyLink = (kind, of, text = of) => el("a", { href: `/why?kind=${kind}&name=${encodeURIComponent(of)}` }, name(text));

export function show(element, on = true) { element.hidden = !on; }

export function figures(list) {
  const made = list.filter(Boolean).map(([label, value, more, kind]) =>
    el("div", { class: kind ?? "" }, el("dt", { text: label }), el("dd", {}, value, more ? el("small", { text: more }) : null)));
  find("figures").replaceChildren(...made);
}

/* Columns: {title, value(row) for sorting, cell(row) → node or text, class}. */
export class Table {
  constructor(table, columns, { pager, size = 50, sort = null, down = false, empty = "Nothing to show." } = {}) {
    Object.assign(this, { table, columns, pager, size, sort, down, empty, page: 0, rows: [] });
    this.table.tHead.replaceChildren(el("tr", {}, columns.map((column, i) => this.#head(column, i))));
  }

  #head(column, i) {
    const sortable = column.value !== undefined;
    const inner = sortable ? el("button", { type: "button", on: { click: () => this.#sortBy(i) } }, column.title) : column.title;
    return el("th", { scope: "col", class: column.class ?? "" }, inner);
  }

  #sortBy(i) {
    this.down = this.sort === i ? !this.down : Boolean(this.columns[i].class?.includes("num"));
    this.sort = i;
    this.page = 0;
    this.draw();
  }

  set(rows) { this.rows = rows; this.draw(); }

  draw() {
    const pages = Math.max(1, Math.ceil(this.rows.length / this.size));
    this.page = Math.min(this.page, pages - 1);
    const shown = this.#sorted().slice(this.page * this.size, (this.page + 1) * this.size);
    [...this.table.tHead.rows[0].cells].forEach((cell, i) => {
      if (i === this.sort) cell.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    const focused = document.activeElement?.closest?.("tbody") === this.table.tBodies[0] ? document.activeElement.getAttribute("href") : null;
    const body = shown.map((row) => el("tr", {}, this.columns.map((column) => el("td", { class: column.class ?? "" }, column.cell(row)))));
    if (!body.length) body.push(el("tr", {}, el("td", { colspan: this.columns.length, class: "empty" }, this.empty)));
    this.table.tBodies[0].replaceChildren(...body);
    // A row that was focused before the update stays focused, so that keyboard users lose nothing.
    if (focused) [...this.table.tBodies[0].querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus({ preventScroll: true });
    if (this.pager) this.#page(pages);
  }

  #sorted() {
    if (this.sort === null) return this.rows;
    const value = this.columns[this.sort].value, sign = this.down ? -1 : 1;
    return [...this.rows].sort((a, b) => order(value(a), value(b), sign));
  }

  #page(pages) {
    if (pages <= 1) { this.pager.replaceChildren(); return; }
    const words = `${this.page * this.size + 1}–${Math.min(this.rows.length, (this.page + 1) * this.size)} of ${this.rows.length.toLocaleString("en")}`;
    if (this.pager.children.length) {
      const [back, label, on] = this.pager.children;
      back.disabled = this.page === 0; on.disabled = this.page === pages - 1; label.textContent = words;
      return;
    }
    const turn = (by) => () => { this.page += by; this.draw(); };
    this.pager.replaceChildren(
      el("button", { type: "button", on: { click: turn(-1) } }, "Previous"), el("span", { text: words }),
      el("button", { type: "button", on: { click: turn(1) } }, "Next"));
    this.#page(pages);
  }
}

const collator = new Intl.Collator("en", { numeric: true });

export function order(a, b, sign = 1) {
  // What is unknown goes last in both directions.
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
  if (b === null || b === undefined) return -1;
  return sign * (typeof a === "number" ? a - b : collator.compare(a, b));
}
