"use strict";
// What all charts share: colours, layout, and being drawn only when they come into view.

const PLOT = { displayModeBar: false, responsive: true };
const DASHES = ["solid", "dot", "dash", "dashdot", "longdash"];

// Colours of plain lines; 3 is for held-out points, 4 for budgets.
const LINES = [0, 1, 2, 5, 6, 7];

const view = {
  smooth: 0,
  log: false,
  hours: false,
  band: true,
  cost: "tokens",
  logCost: false,
  hidden: new Set(),
  metric: "",
};

const viewToggle = (words, name, redraw) =>
  toggle(words, view[name], (on) => {
    view[name] = on;
    redraw();
  });

// Points with the interval of their accuracy; those that `filled` picks are not hollow.
function accuracyPoints(some, { cost, hue, filled, words, size, symbol, whiskers }) {
  return {
    x: some.map(cost),
    y: some.map((p) => 100 * p.accuracy.mean),
    mode: "markers",
    cliponaxis: false,
    error_y: {
      type: "data",
      symmetric: false,
      array: some.map((p) => 100 * (p.accuracy.high - p.accuracy.mean)),
      arrayminus: some.map((p) => 100 * (p.accuracy.mean - p.accuracy.low)),
      color: hue,
      ...whiskers,
    },
    marker: {
      color: some.map((p) => (filled(p) ? hue : css("--panel"))),
      line: { color: hue, width: 2 },
      size,
      symbol,
    },
    hovertemplate: some.map((p) => `${words(p)}<extra></extra>`),
  };
}

function layoutOf(settings = {}) {
  const axis = {
    gridcolor: css("--line"),
    zeroline: false,
    linecolor: css("--line"),
    tickfont: { size: 11 },
    automargin: true,
    fixedrange: false,
  };
  const { xaxis = {}, yaxis = {}, ...rest } = settings;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    hovermode: false,
    dragmode: innerWidth < 760 ? false : "zoom", // a finger scrolls the page
    font: { family: css("--sans"), size: 12, color: css("--soft") },
    margin: { l: 40, r: 10, t: 6, b: 26 },
    hoverlabel: {
      bgcolor: css("--panel"),
      bordercolor: css("--line"),
      font: { color: css("--ink"), size: 12 },
      align: "left",
    },
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}

// Draw now if seen, later when scrolled to, and anyway before printing.
const pending = new Map();
const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) drawPending(entry.target);
  },
  { rootMargin: "300px" },
);

function drawPending(element) {
  if (!globalThis.Plotly) return;
  const act = pending.get(element);
  watcher.unobserve(element);
  if (act) {
    pending.delete(element);
    act();
  }
}

// Plotly is large: in a file it waits as text until words and numbers are shown.
function loadPlotly() {
  const text = byId("plotly");
  if (text && !globalThis.Plotly) {
    const script = h("script");
    script.nonce = document.querySelector("script[nonce]").nonce;
    script.textContent = text.textContent;
    document.head.append(script);
  }
  for (const element of pending.keys()) {
    watcher.unobserve(element);
    watcher.observe(element);
  }
}

function whenSeen(element, act) {
  pending.set(element, act);
  watcher.unobserve(element);
  watcher.observe(element);
}

// What a chart shows, for those who do not see it.
function describe(element, text) {
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", text);
}
