"use strict";
// Small helpers. Text from runs enters the page as text nodes only: nothing here reads it as HTML.

const byId = (id) => document.getElementById(id);

// h("p", {class: "quiet"}, "text", node): an element; `on…` are listeners, null children are left out.
function h(tag, settings = {}, ...children) {
  const element = document.createElement(tag);
  set(element, settings);
  for (const child of children.flat()) if (child != null && child !== false) element.append(child);
  return element;
}

// The same for SVG.
function s(tag, settings = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, settings);
  for (const child of children.flat()) if (child != null && child !== false) element.append(child);
  return element;
}

function set(element, settings) {
  for (const [name, value] of Object.entries(settings)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
}

// New children for an element; whoever stood on one of the old, by keyboard, stands on its successor.
function fill(element, ...children) {
  const reach = () => [
    ...element.querySelectorAll("a, button, input, select, summary, [tabindex]"),
  ];
  const held = document.activeElement,
    place = element.contains(held) ? reach().indexOf(held) : -1;
  element.replaceChildren(...children.flat().filter((c) => c != null && c !== false));
  if (place < 0) return;
  const all = reach(),
    same = held.dataset.act && all.find((one) => one.dataset.act === held.dataset.act);
  (same || all[place])?.focus({ preventScroll: true });
}

// Numbers as people read them.
const percent = (value, digits = 1) => (value == null ? "–" : `${(100 * value).toFixed(digits)} %`);
const points = (value) => (value == null ? "–" : (100 * value).toFixed(1));
const fixed = (value, digits = 1) =>
  value == null
    ? "–"
    : value.toLocaleString("en", {
        minimumFractionDigits: digits,
        maximumFractionDigits: digits,
        signDisplay: "negative", // no minus before a zero
      });
// An interval: "61.0 [58.2, 63.7]".
const spread = ({ mean, low, high }, unit = "") =>
  `${points(mean)}${unit} [${points(low)}, ${points(high)}]`;
const whole = (value) => (value == null ? "–" : value.toLocaleString("en"));
const money = (value) => (value == null ? "–" : value.toPrecision(3));
const sureIn = ({ overview }) => `${+(100 * overview.confidence).toFixed(2)} %`;
const plural = (n, one, many = `${one}s`) => `${whole(n)} ${n === 1 ? one : many}`;
function short(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e5))
    return value.toExponential(1).replace("e-", "e−");
  return size >= 100
    ? value.toFixed(0)
    : size >= 10
      ? value.toFixed(1)
      : size >= 1
        ? value.toFixed(2)
        : value.toFixed(3);
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const COLOURS = 8;
const colour = (n) => css(`--c${n % COLOURS}`);
const translucent = (hex, alpha) =>
  `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${alpha})`;

// Plotly reads a little HTML in labels; names of runs and agents must not be read so.
const label = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").slice(0, 120);

// Characters that would not be seen, or would turn the text around, shown by their number.
const ODD =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]/u;
function shown(text) {
  if (!ODD.test(text)) return [document.createTextNode(text)];
  const nodes = [];
  let plain = "";
  for (const character of text) {
    if (!ODD.test(character)) {
      plain += character;
      continue;
    }
    if (plain) nodes.push(document.createTextNode(plain));
    plain = "";
    nodes.push(
      h(
        "span",
        { class: "odd" },
        `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`,
      ),
    );
  }
  if (plain) nodes.push(document.createTextNode(plain));
  return nodes;
}

// The same as one line of plain text, for lists and labels.
const oneLine = (text) =>
  [...text]
    .map((c) => (ODD.test(c) ? "�" : c))
    .join("")
    .replace(/\s+/g, " ");

function toast(text) {
  document.querySelector(".toast")?.remove();
  const note = h("div", { class: "toast", role: "status" }, text);
  document.body.append(note);
  setTimeout(() => note.remove(), 4000);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { style: { position: "fixed", opacity: 0 } });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast("Copied");
}

function debounce(wait, act) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...args), wait);
  };
}

function choice(name, options, value, act) {
  return h("label", {}, name, select(options, value, act, { "aria-label": name }));
}

// An option is [value, words], or a value that is its own words.
function select(options, value, act, settings = {}) {
  const box = h(
    "select",
    { ...settings, onchange: () => act(box.value) },
    options.map((option) => {
      const [key, words = key] = [option].flat();
      return h("option", { value: key, selected: key === value }, oneLine(words));
    }),
  );
  box.value = value;
  return box;
}

function groupBy(list, key) {
  const groups = new Map();
  for (const one of list) groups.set(key(one), [...(groups.get(key(one)) ?? []), one]);
  return groups;
}

const button = (words, act, settings = {}) =>
  h("button", { class: "plain", type: "button", ...settings, onclick: act }, words);

// A table in a panel of its own. A column is [title, what a row shows there, settings of its head];
// a row that is a text is a heading. What is shown may be a cell already.
function table(title, columns, rows, { heading, legend, lead = () => false, ...settings } = {}) {
  const some = columns.filter(Boolean);
  const cell = (shows, n) =>
    shows instanceof HTMLTableCellElement ? shows : h("td", { class: n ? null : "name" }, shows);
  const line = (row) =>
    typeof row === "string"
      ? h("th", { colspan: some.length, scope: "colgroup" }, row)
      : some.map(([, show], n) => cell(show(row), n));
  const head = some.map(([name, , more]) => h("th", { scope: "col", ...more }, name));
  const body = rows.map((row) => h("tr", { class: lead(row) ? "lead-row" : null }, line(row)));
  return h(
    "div",
    { class: "panel scroll", tabindex: 0, role: "region", "aria-label": title, ...settings },
    heading && h("h3", {}, title),
    h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)),
    legend && h("p", { class: "quiet", style: { marginTop: ".5rem" } }, legend),
  );
}

const toggle = (name, on, act) =>
  h(
    "label",
    {},
    h("input", { type: "checkbox", checked: on, onchange: (e) => act(e.target.checked) }),
    name,
  );
