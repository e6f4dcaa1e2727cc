"use strict";
// Charts: the frontier, and curves that share one cursor. Each is drawn when it comes into view.

const PLOT = { displayModeBar: false, responsive: true };
const DASHES = ["solid", "dot", "dash", "dashdot", "longdash"];

const LINES = [0, 1, 2, 5, 6, 7];
// Colours of plain lines; 3 is for held-out points, 4 for budgets.

const view = { smooth: 0, log: false, hours: false, band: true, cost: "tokens", logCost: false, hidden: new Set(), metric: "" };

function layoutOf(settings = {}) {
  const axis = { gridcolor: css("--line"), zeroline: false, linecolor: css("--line"), tickfont: { size: 11 }, automargin: true, fixedrange: false };
  const { xaxis = {}, yaxis = {}, ...rest } = settings;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: false, dragmode: "zoom",
    font: { family: css("--sans"), size: 12, color: css("--soft") }, margin: { l: 40, r: 10, t: 6, b: 26 },
    hoverlabel: { bgcolor: css("--panel"), bordercolor: css("--line"), font: { color: css("--ink"), size: 12 }, align: "left" },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
  };
}

// Draw now if seen, later when scrolled to, and anyway before printing.
const pending = new Map();
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) drawPending(entry.target);
}, { rootMargin: "300px" });

function drawPending(element) {
  if (!globalThis.Plotly) return;
  const act = pending.get(element);
  watcher.unobserve(element);
  if (act) { pending.delete(element); act(); }
}

// Plotly is large and comes last, so that words and numbers need not wait for it.
addEventListener("load", () => { for (const element of pending.keys()) { watcher.unobserve(element); watcher.observe(element); } });

function whenSeen(element, act) {
  pending.set(element, act);
  watcher.unobserve(element);
  watcher.observe(element);
}

// ---- the frontier

function drawFrontier(runs) {
  const priced = runs.some((run) => run.points.some((p) => p.money != null));
  if (!priced) view.cost = "tokens";
  fill(byId("frontier-controls"),
    priced && choice("Cost", [["tokens", "tokens"], ["money", "money"]], view.cost, (v) => { view.cost = v; drawFrontier(runs); }),
    toggle("Log scale", view.logCost, (on) => { view.logCost = on; drawFrontier(runs); }));
  const chart = byId("frontier-chart");
  const section = byId("frontier");
  section.hidden = !runs.some((run) => run.points.length);
  if (!section.hidden) whenSeen(chart, () => Plotly.react(chart, frontierTraces(runs), frontierLayout(runs), PLOT).then(() => describe(chart, `Accuracy against ${view.cost} of ${plural(runs.reduce((n, run) => n + run.points.length, 0), "team or checkpoint", "teams and checkpoints")}.`)));
}

const toggle = (name, on, act) => h("label", {}, h("input", { type: "checkbox", checked: on, onchange: (e) => act(e.target.checked) }), name);

const costOf = (point) => (view.cost === "money" ? point.money && { mean: point.money } : point.tokens);

function frontierTraces(runs) {
  const all = runs.flatMap((run, n) => run.points.filter(costOf).map((point) => ({ run, point, n })));
  const best = frontierOf(all.map((a) => a.point), (p) => costOf(p)?.mean);
  const traces = [{
    x: best.map((p) => costOf(p).mean), y: best.map((p) => 100 * p.accuracy.mean), mode: "lines", hoverinfo: "skip",
    line: { color: css("--faint"), width: 1.5, shape: "hv" },
  }];
  runs.forEach((run, n) => {
    const path = run.checkpoints.filter(costOf);
    traces.push({ x: path.map((p) => costOf(p).mean), y: path.map((p) => 100 * p.accuracy.mean), mode: "lines", hoverinfo: "skip", line: { color: colour(runColour(runs, run)), width: 1, dash: "dot" } });
    for (const kind of ["checkpoint", "team"]) traces.push(pointsTrace(runs, run, kind, new Set(best), n));
  });
  return traces;
}

const runColour = (runs, run) => (runs.length > 1 ? run.number : 0);

function pointsTrace(runs, run, kind, best) {
  const some = run.points.filter((p) => p.kind === kind && costOf(p));
  const team = kind === "team", hue = colour(team && runs.length === 1 ? 1 : runColour(runs, run));
  const named = (p) => (team && innerWidth >= 760) || p === run.untrained || p === run.trained || run.overview.solo.includes(p.name);
  const prefix = runs.length > 1 ? `${run.label} · ` : "";
  return {
    x: some.map((p) => costOf(p).mean), y: some.map((p) => 100 * p.accuracy.mean), mode: "markers+text",
    text: some.map((p) => (named(p) ? `&nbsp; ${label(nameOf(runs, run, p))} &nbsp;` : "")), textposition: some.map((p) => sideOf(p, runs)), textfont: { size: 11, color: css("--soft") }, cliponaxis: false,
    error_y: { type: "data", symmetric: false, array: some.map((p) => 100 * (p.accuracy.high - p.accuracy.mean)), arrayminus: some.map((p) => 100 * (p.accuracy.mean - p.accuracy.low)), color: hue, thickness: 1, width: 0 },
    marker: { color: some.map((p) => (best.has(p) || p === run.trained ? hue : css("--panel"))), line: { color: hue, width: 2 }, size: some.map((p) => (p === run.trained ? 15 : 10)), symbol: team ? "diamond" : "circle" },
    hovertemplate: some.map((p) => `<b>${label(prefix + titleOf(run, p))}</b><br>${points(p.accuracy.mean)} % [${points(p.accuracy.low)}, ${points(p.accuracy.high)}]<br>${view.cost === "money" ? `${p.money} a task` : `${fixed(p.tokens?.mean)} tokens said, ${fixed(p.read, 0)} read`}${best.has(p) ? "<br>on the frontier" : ""}<extra></extra>`),
  };
}

// Of several runs the trained teams go by the run's name, and what they share is named once.
function nameOf(runs, run, point) {
  if (runs.length === 1) return titleOf(run, point);
  return point === run.trained ? oneLine(run.label) : run === runs[0] ? titleOf(run, point) : "";
}

// Names stand to the right of their point, or to the left where another point is in the way.
function sideOf(point, runs) {
  const all = runs.flatMap((run) => run.points).filter(costOf), width = Math.max(...all.map((p) => costOf(p).mean)) || 1;
  const near = all.some((p) => p !== point && costOf(p).mean > costOf(point).mean && (costOf(p).mean - costOf(point).mean) / width < 0.12 && Math.abs(p.accuracy.mean - point.accuracy.mean) < 0.05);
  return near ? "middle left" : "middle right";
}

function frontierLayout(runs) {
  const budgets = [...new Set(runs.map((run) => run.budget[view.cost]).filter(Boolean))];
  return layoutOf({
    hovermode: "closest", margin: { l: 52, r: innerWidth < 760 ? 18 : 100, t: 18, b: 46 },
    xaxis: { title: { text: view.cost === "money" ? "money a task" : "tokens said an episode", standoff: 8 }, type: view.logCost ? "log" : "linear", rangemode: view.logCost ? "normal" : "tozero" },
    yaxis: { title: { text: "accuracy, %", standoff: 8 }, range: [-4, 106] },
    shapes: budgets.map((b) => ({ type: "line", x0: b, x1: b, yref: "paper", y0: 0, y1: 1, line: { color: css("--c4"), width: 1.5, dash: "dash" } })),
    annotations: budgets.map((b) => ({ x: view.logCost ? Math.log10(b) : b, yref: "paper", y: 1, yanchor: "bottom", xanchor: "left", text: `budget ${whole(b)}`, showarrow: false, font: { size: 11, color: css("--c4") } })),
  });
}

// ---- curves

// What each chart shows: columns by name or pattern, in words.
const CURVES = [
  { id: "accuracy", title: "Accuracy", scale: 100, unit: "%", range: [0, 1], of: [["eval/accuracy", "held-out", "points"], ["accuracy/policy", "in training"], ["accuracy/sampled", "as sampled", "minor"], ["accuracy/silent_arm", "if silent", "minor"]] },
  { id: "reward", title: "Reward, part by part", of: [["reward/total", "total", "total"], ["reward/task", "task"], [/^reward\/(.+)$/, "$1", "minor"]] },
  { id: "tokens", title: "Tokens an episode", of: [["cost/tokens", "all, expected", "total"], [/^tokens\/(.+)$/, "$1", "agent"], ["eval/tokens", "held-out", "points"], ["budget/tokens", "budget", "limit"]] },
  { id: "turns", title: "Messages an episode", of: [["cost/turns", "expected of the policy", "total"], ["budget/turns", "budget", "limit"]] },
  { id: "lambda", title: "Price of talk, λ", of: [[/^lambda\/(.+)$/, "λ of $1"]] },
  { id: "silence", title: "Silence by agent", scale: 100, unit: "%", range: [0, 1], of: [[/^silence\/(?!warming$|gain$)([^/]+)$/, "$1", "agent"]] },
  { id: "gain", title: "What silence would gain", of: [["silence/gain", "R silent − R spoken"]] },
  { id: "groups", title: "Groups without a signal", scale: 100, unit: "%", stacked: true, range: [0, 1], of: [["groups/too_hard", "too hard"], ["groups/too_easy", "too easy"]] },
  { id: "clip", title: "Clip fraction", scale: 100, unit: "%", of: [[/^train\/(?:(.+)\/)?clip_fraction$/, "all $1"], [/^train\/(?:.+\/)?clip_fraction\/(.+)$/, "$1 tokens", "minor"]] },
  { id: "kl", title: "KL", of: [[/^train\/(?:(.+)\/)?approx_kl$/, "to the last policy $1"], [/^train\/(?:(.+)\/)?kl$/, "to the base $1"]] },
  { id: "entropy", title: "Entropy, nats a token", of: [[/^train\/(?:(.+)\/)?entropy$/, "entropy $1"]] },
  { id: "mismatch", title: "Engine against trainer", of: [[/^train\/(?:(.+)\/)?engine_gap$/, "log-probability gap $1"], [/^train\/(?:(.+)\/)?mismatch_ratio$/, "ratio $1"]] },
  { id: "time", title: "Seconds a step", stacked: true, timing: true, of: [["rollout_s", "playing"], ["update_s", "learning"], ["evaluate_s", "evaluating"]] },
  { id: "gradient", title: "Gradient norm", of: [[/^train\/(?:(.+)\/)?gradient_norm$/, "norm $1"]] },
  { id: "base", title: "Loss of messages under the base", of: [[/^train\/(?:(.+)\/)?base_loss$/, "nats a token $1"]] },
];

// The columns a chart takes from one run, each once.
function pick(run, chart) {
  const columns = (chart.timing ? run.timing : run.metrics).columns;
  const found = new Map();
  for (const [pattern, words, style] of chart.of)
    for (const name of Object.keys(columns)) {
      const match = typeof pattern === "string" ? name === pattern && [name] : name.match(pattern);
      if (match && !found.has(name) && columns[name].some((v) => v != null)) found.set(name, { name, words: words.replace("$1", match[1] ?? "").trim(), style: style ?? "line" });
    }
  return [...found.values()];
}

// One line of a chart: x and y without gaps.
function series(run, chart, name) {
  const { steps, columns } = chart.timing ? run.timing : run.metrics;
  const clock = view.hours ? hoursOf(run) : null;
  const x = [], y = [];
  steps.forEach((step, i) => {
    const value = columns[name]?.[i];
    if (value == null) return;
    x.push(clock ? clock.get(step) ?? null : step);
    y.push(value * (chart.scale ?? 1));
  });
  return { x, y };
}

// Hours since the start, as far as the phases were timed.
function hoursOf(run) {
  const { steps, columns } = run.timing;
  let total = 0;
  return new Map(steps.map((step, i) => [step, (total += ["rollout_s", "update_s", "evaluate_s"].reduce((sum, name) => sum + (columns[name]?.[i] ?? 0), 0) / 3600)]));
}

function smoothed(values) {
  if (!view.smooth) return values;
  let held = 0, weight = 0;
  return values.map((value) => { held = view.smooth * held + (1 - view.smooth) * value; weight = view.smooth * weight + (1 - view.smooth); return held / weight; });
}

// What to draw: [{label, colour, dash, style, x, y, low, high}] for all shown runs.
function linesOf(runs, chart) {
  const several = runs.length > 1;
  const names = [...new Map(runs.flatMap((run) => pick(run, chart)).map((one) => [one.name, one])).values()];
  const lines = [];
  names.forEach((one, n) => {
    const groups = view.band && several ? [...groupBy(runs, (run) => run.overview.repeats).values()] : runs.map((run) => [run]);
    for (const group of groups) {
      const own = group.map((run) => series(run, chart, one.name)).filter((l) => l.x.length);
      if (!own.length) continue;
      const who = !several ? "" : group.length > 1 ? `${oneLine(group[0].overview.name)} ×${group.length}` : oneLine(group[0].label);
      startHidden(several && one.style === "minor", `${chart.id}/${one.name}/${who}`);
      lines.push({
        label: [one.words || chart.title, who].filter(Boolean).join(" · "), key: `${chart.id}/${one.name}/${who}`, style: one.style,
        colour: lineColour(one, group[0], several, n), dash: one.style === "limit" ? "dash" : several ? DASHES[n % DASHES.length] : "solid",
        ...(own.length > 1 ? banded(own) : own[0]),
      });
    }
  });
  return lines;
}

// With several runs the lesser lines wait until they are asked for.
const started = new Set();
function startHidden(minor, key) {
  if (minor && !started.has(key)) view.hidden.add(key);
  started.add(key);
}

// Several runs are told apart by colour; in one run agents keep theirs everywhere, and totals are ink.
function lineColour(one, run, several, n) {
  if (one.style === "limit") return css("--c4");
  if (several) return colour(run.number);
  if (one.style === "agent") return agentColour(run, one.words);
  return one.style === "total" ? css("--ink") : one.style === "points" ? css("--c3") : colour(LINES[n % LINES.length]);
}

// Several repeats as a mean with the band from the lowest to the highest.
function banded(own) {
  const at = new Map();
  for (const { x, y } of own) smoothed(y).forEach((value, i) => at.set(x[i], [...(at.get(x[i]) ?? []), value]));
  const x = [...at.keys()].sort((a, b) => a - b), values = x.map((one) => at.get(one));
  return { x, y: values.map(mean), low: values.map((v) => Math.min(...v)), high: values.map((v) => Math.max(...v)), smooth: true };
}

function tracesOf(chart, lines) {
  const traces = [];
  for (const line of lines) {
    if (view.hidden.has(line.key)) continue;
    const plain = ["points", "limit"].includes(line.style), y = line.smooth || plain ? line.y : smoothed(line.y);
    if (line.low) {
      traces.push({ x: line.x, y: line.low, mode: "lines", line: { width: 0 } });
      traces.push({ x: line.x, y: line.high, mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: translucent(line.colour, 0.16) });
    } else if (view.smooth && !plain && !chart.stacked) traces.push({ x: line.x, y: line.y, mode: "lines", line: { width: 1, color: translucent(line.colour, 0.25) } });
    traces.push({
      x: line.x, y, mode: line.style === "points" ? "lines+markers" : line.x.length === 1 ? "markers" : "lines",
      line: { color: line.colour, width: line.style === "points" ? 1 : 1.8, dash: line.dash }, marker: { color: line.colour, size: 8, symbol: "diamond" },
      ...(chart.stacked && lines.length < 7 ? { stackgroup: line.label.split(" · ")[1] ?? "all", fillcolor: translucent(line.colour, 0.3), line: { color: line.colour, width: 1 } } : {}),
    });
  }
  return traces;
}

const cards = new Map();

function drawCurves(runs) {
  const trained = runs.filter((run) => run.overview.trains);
  byId("curves").hidden = !trained.length;
  if (!trained.length) return;
  drawCurveControls(runs, trained);
  const absent = [];
  for (const chart of [...CURVES, anyMetric(trained)]) {
    const lines = linesOf(trained, chart);
    const card = cardFor(byId("curves-grid"), chart);
    card.root.hidden = !lines.length && chart.id !== "any";
    if (card.root.hidden) absent.push(chart.title);
    else drawCard(card, chart, lines);
  }
  byId("curves-missing").textContent = absent.length ? `Not recorded in these runs: ${absent.join("; ")}.` : "";
}

function drawCurveControls(runs, trained) {
  const redraw = () => { drawCurves(runs); drawSilence(runs); };
  const box = byId("curves-controls");
  const repeats = [...groupBy(trained, (run) => run.overview.repeats).values()].some((group) => group.length > 1);
  if (box.childElementCount && box.dataset.repeats === String(repeats)) return;
  box.dataset.repeats = repeats;
  fill(box,
    h("label", {}, "Smoothing", h("input", { type: "range", min: 0, max: 0.95, step: 0.05, value: view.smooth, oninput: debounce(30, (e) => { view.smooth = Number(e.target.value); redraw(); }) })),
    toggle("Log scale", view.log, (on) => { view.log = on; redraw(); }), toggle("Hours", view.hours, (on) => { view.hours = on; redraw(); }),
    repeats && toggle("Band over repeats", view.band, (on) => { view.band = on; redraw(); }));
}

// A chart of any column one asks for.
function anyMetric(runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.metrics.columns)))].sort();
  if (!names.includes(view.metric)) view.metric = names.find((n) => n.endsWith("learning_rate")) ?? names[0] ?? "";
  return { id: "any", title: "Any metric", names, of: [[view.metric, view.metric]] };
}

function cardFor(grid, chart) {
  if (!cards.has(chart.id)) {
    const title = h("h3", {}, chart.title), legend = h("div", { class: "legend" });
    const plot = h("div", { class: "chart", tabindex: 0, role: "img" });
    const cursor = h("div", { class: "cursor", hidden: true }, h("span"));
    const card = { title, legend, plot, cursor, root: h("div", { class: "panel card", "data-chart": chart.id }, title, legend, plot), lines: [] };
    plot.append(cursor);
    plot.addEventListener("mousemove", (event) => point(card, event));
    plot.addEventListener("mouseleave", () => moveCursor(null));
    plot.addEventListener("blur", () => moveCursor(null));
    plot.addEventListener("keydown", (event) => step(card, event));
    grid.append(card.root);
    cards.set(chart.id, card);
  }
  return cards.get(chart.id);
}

function drawCard(card, chart, lines) {
  card.lines = lines;
  if (chart.id === "any" && card.names !== String(chart.names)) {
    card.names = String(chart.names);
    fill(card.title, select(chart.names.map((n) => [n, n]), view.metric, (name) => { view.metric = name; drawCurves(shownRuns()); }, { "aria-label": "Metric to draw", style: { maxWidth: "100%" } }));
  }
  drawLegend(card, chart);
  whenSeen(card.plot, () => Plotly.react(card.plot, tracesOf(chart, lines), curveLayout(chart, lines), PLOT).then(() => { card.plot.append(card.cursor); describe(card.plot, `${chart.title}. ${lines.map((l) => `${l.label}: ${short(l.y[0])} to ${short(l.y.at(-1))}`).join("; ")}.`); }));
}

function describe(element, text) { element.setAttribute("role", "img"); element.setAttribute("aria-label", text); }

function curveLayout(chart, lines) {
  const positive = lines.some((l) => l.y.some((v) => v > 0));
  const range = chart.range && !view.log ? chart.range.map((v, i) => v * (chart.scale ?? 1) * (i ? 1.04 : 1) - (i ? 0 : 0.04 * (chart.scale ?? 1))) : undefined;
  return layoutOf({
    xaxis: { rangemode: "tozero", ticksuffix: view.hours ? " h" : "", nticks: 6 },
    yaxis: { type: view.log && positive ? "log" : "linear", range, ticksuffix: chart.unit ? ` ${chart.unit}` : "", nticks: 5, exponentformat: "power" },
    uirevision: `${chart.id}/${view.log}/${view.hours}/${view.metric}`,
  });
}

function drawLegend(card, chart) {
  const keys = card.lines.map((line) => {
    line.output = h("output", {}, short(line.y.at(-1)));
    return h("button", { class: "key", type: "button", "aria-pressed": String(!view.hidden.has(line.key)), title: `${line.label}: show or hide`, onclick: () => hide(line.key) },
      s("svg", { width: 18, height: 8, "aria-hidden": "true" }, s("line", { x1: 0, x2: 18, y1: 4, y2: 4, stroke: line.colour, "stroke-width": 2.5, "stroke-dasharray": { dot: "2 3", dash: "5 3", dashdot: "6 2 2 2", longdash: "9 3" }[line.dash] ?? null })),
      h("span", { class: "what" }, line.label), line.output);
  });
  fill(card.legend, keys);
}

function hide(key) {
  view.hidden.has(key) ? view.hidden.delete(key) : view.hidden.add(key);
  drawCurves(shownRuns());
  drawSilence(shownRuns());
}

// ---- the shared cursor

let cursorAt = null, cursorFrame = 0;

function axisOf(card) { return card.plot._fullLayout?.xaxis; }

function stepsOf(card) { return [...new Set(card.lines.flatMap((l) => l.x))].sort((a, b) => a - b); }

function point(card, event) {
  const axis = axisOf(card);
  if (!axis) return;
  const x = axis.p2c(event.clientX - card.plot.getBoundingClientRect().left - axis._offset);
  const near = stepsOf(card).reduce((best, one) => (Math.abs(one - x) < Math.abs(best - x) ? one : best), Infinity);
  moveCursor(Number.isFinite(near) ? near : null);
}

function step(card, event) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === "Escape") return moveCursor(null);
  if (!by) return;
  event.preventDefault();
  const steps = stepsOf(card), here = cursorAt == null ? steps.length : steps.findIndex((one) => one >= cursorAt);
  moveCursor(steps[Math.max(0, Math.min(steps.length - 1, here + by))]);
}

function moveCursor(x) {
  cursorAt = x;
  cancelAnimationFrame(cursorFrame);
  cursorFrame = requestAnimationFrame(() => { for (const card of cards.values()) if (!card.root.hidden) showCursor(card, x); });
}

function showCursor(card, x) {
  const axis = axisOf(card);
  card.cursor.hidden = x == null || !axis;
  if (axis && x != null) {
    const [low, high] = axis.range;
    card.cursor.hidden = x < low || x > high;
    card.cursor.style.left = `${axis._offset + axis.c2p(x)}px`;
    card.cursor.firstChild.textContent = view.hours ? `${x.toFixed(2)} h` : `step ${x}`;
  }
  for (const line of card.lines) line.output.textContent = short(x == null ? line.y.at(-1) : valueAt(line, x));
}

// The value at a place, or the last one before it.
function valueAt(line, x) {
  const place = line.x.findLastIndex((one) => one <= x);
  return place < 0 ? null : line.y[place];
}
