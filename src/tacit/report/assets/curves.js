"use strict";
// Curves: what each shows, from which columns, as lines or as a band over repeats.

// How shares are drawn.
const SHARE = { scale: 100, unit: "%", range: [0, 1] };

// What each chart shows: columns by name or pattern, in words.
const CURVES = [
  {
    ...SHARE,
    id: "accuracy",
    title: "Accuracy",
    of: [
      ["eval/accuracy", "held-out", "points"],
      ["accuracy/policy", "in training"],
      ["accuracy/sampled", "as sampled", "minor"],
      ["accuracy/silent_arm", "if silent", "minor"],
    ],
  },
  {
    id: "reward",
    title: "Reward, part by part",
    of: [
      ["reward/total", "total", "total"],
      ["reward/task", "task"],
      [/^reward\/(.+)$/, "$1", "minor"],
    ],
  },
  {
    id: "tokens",
    title: "Tokens an episode",
    of: [
      ["cost/tokens", "all, expected", "total"],
      [/^tokens\/(.+)$/, "$1", "agent"],
      ["eval/tokens", "held-out", "points"],
      ["budget/tokens", "budget", "limit"],
    ],
  },
  {
    id: "turns",
    title: "Messages an episode",
    of: [
      ["cost/turns", "expected of the policy", "total"],
      ["budget/turns", "budget", "limit"],
    ],
  },
  { id: "lambda", title: "Price of talk, λ", of: [[/^lambda\/(.+)$/, "λ of $1"]] },
  {
    ...SHARE,
    id: "silence",
    title: "Silence by agent",
    of: [[/^silence\/(?!warming$|gain$)([^/]+)$/, "$1", "agent"]],
  },
  { id: "gain", title: "What silence would gain", of: [["silence/gain", "R silent − R spoken"]] },
  {
    ...SHARE,
    id: "groups",
    title: "Groups without a signal",
    stacked: true,
    of: [
      ["groups/too_hard", "too hard"],
      ["groups/too_easy", "too easy"],
    ],
  },
  {
    id: "clip",
    title: "Clip fraction",
    scale: 100,
    unit: "%",
    of: [
      [/^train\/(?:(.+)\/)?clip_fraction$/, "all $1"],
      [/^train\/(?:.+\/)?clip_fraction\/(.+)$/, "$1 tokens", "minor"],
    ],
  },
  {
    id: "kl",
    title: "KL",
    of: [
      [/^train\/(?:(.+)\/)?approx_kl$/, "to the last policy $1"],
      [/^train\/(?:(.+)\/)?kl$/, "to the base $1"],
    ],
  },
  {
    id: "entropy",
    title: "Entropy, nats a token",
    of: [[/^train\/(?:(.+)\/)?entropy$/, "entropy $1"]],
  },
  {
    id: "mismatch",
    title: "Engine against trainer",
    of: [
      [/^train\/(?:(.+)\/)?engine_gap$/, "log-probability gap $1"],
      [/^train\/(?:(.+)\/)?mismatch_ratio$/, "ratio $1"],
    ],
  },
  {
    id: "time",
    title: "Seconds a step",
    stacked: true,
    timing: true,
    of: [
      ["rollout_s", "playing"],
      ["update_s", "learning"],
      ["evaluate_s", "evaluating"],
    ],
  },
  {
    id: "gradient",
    title: "Gradient norm",
    of: [[/^train\/(?:(.+)\/)?gradient_norm$/, "norm $1"]],
  },
  {
    id: "base",
    title: "Loss of messages under the base",
    of: [[/^train\/(?:(.+)\/)?base_loss$/, "nats a token $1"]],
  },
];

// The columns a chart takes from one run, each once.
function pick(run, chart) {
  const columns = (chart.timing ? run.timing : run.metrics).columns;
  const found = new Map();
  for (const [pattern, words, style] of chart.of)
    for (const name of Object.keys(columns)) {
      const match = typeof pattern === "string" ? name === pattern && [name] : name.match(pattern);
      if (match && !found.has(name) && columns[name].some((v) => v != null))
        found.set(name, {
          name,
          words: words.replace("$1", match[1] ?? "").trim(),
          style: style ?? "line",
        });
    }
  return [...found.values()];
}

// One line of a chart: x and y without gaps.
function series(run, chart, name) {
  const { steps, columns } = chart.timing ? run.timing : run.metrics;
  const clock = view.hours ? hoursOf(run) : null;
  const x = [],
    y = [];
  steps.forEach((step, i) => {
    const value = columns[name]?.[i];
    if (value == null) return;
    x.push(clock ? (clock.get(step) ?? null) : step);
    y.push(value * (chart.scale ?? 1));
  });
  return { x, y };
}

// Hours since the start, as far as the phases were timed.
function hoursOf(run) {
  const { steps, columns } = run.timing;
  let total = 0;
  return new Map(
    steps.map((step, i) => [
      step,
      (total +=
        ["rollout_s", "update_s", "evaluate_s"].reduce(
          (sum, name) => sum + (columns[name]?.[i] ?? 0),
          0,
        ) / 3600),
    ]),
  );
}

function smoothed(values) {
  if (!view.smooth) return values;
  let held = 0,
    weight = 0;
  return values.map((value) => {
    held = view.smooth * held + (1 - view.smooth) * value;
    weight = view.smooth * weight + (1 - view.smooth);
    return held / weight;
  });
}

// What to draw: [{label, colour, dash, style, x, y, low, high}] for all shown runs.
function linesOf(runs, chart) {
  const several = runs.length > 1;
  const names = [
    ...new Map(runs.flatMap((run) => pick(run, chart)).map((one) => [one.name, one])).values(),
  ];
  const lines = [];
  names.forEach((one, n) => {
    const groups =
      view.band && several && !view.hours // no two runs share their moments
        ? [...groupBy(runs, (run) => run.overview.repeats).values()]
        : runs.map((run) => [run]);
    for (const group of groups) {
      const own = group.map((run) => series(run, chart, one.name)).filter((l) => l.x.length);
      if (!own.length) continue;
      const who = !several
        ? ""
        : group.length > 1
          ? `${oneLine(group[0].overview.name)} ×${group.length}`
          : oneLine(group[0].label);
      startHidden(several && one.style === "minor", `${chart.id}/${one.name}/${who}`);
      lines.push({
        label: [one.words || chart.title, who].filter(Boolean).join(" · "),
        key: `${chart.id}/${one.name}/${who}`,
        style: one.style,
        colour: lineColour(one, group[0], several, n),
        dash: one.style === "limit" ? "dash" : several ? DASHES[n % DASHES.length] : "solid",
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
  return one.style === "total"
    ? css("--ink")
    : one.style === "points"
      ? css("--c3")
      : colour(LINES[n % LINES.length]);
}

// Several repeats as a mean with the band from the lowest to the highest.
function banded(own) {
  const at = new Map();
  for (const { x, y } of own)
    smoothed(y).forEach((value, i) => at.set(x[i], [...(at.get(x[i]) ?? []), value]));
  const x = [...at.keys()].sort((a, b) => a - b),
    values = x.map((one) => at.get(one));
  return {
    x,
    y: values.map(mean),
    low: values.map((v) => Math.min(...v)),
    high: values.map((v) => Math.max(...v)),
    smooth: true,
  };
}

function tracesOf(chart, lines) {
  const traces = [];
  for (const line of lines) {
    if (view.hidden.has(line.key)) continue;
    const plain = ["points", "limit"].includes(line.style),
      y = line.smooth || plain ? line.y : smoothed(line.y);
    if (line.low && !chart.stacked) {
      traces.push({ x: line.x, y: line.low, mode: "lines", line: { width: 0 } });
      traces.push({
        x: line.x,
        y: line.high,
        mode: "lines",
        line: { width: 0 },
        fill: "tonexty",
        fillcolor: translucent(line.colour, 0.16),
      });
    } else if (view.smooth && !plain && !line.low && !chart.stacked)
      traces.push({
        x: line.x,
        y: line.y,
        mode: "lines",
        line: { width: 1, color: translucent(line.colour, 0.25) },
      });
    traces.push({
      x: line.x,
      y,
      mode: line.style === "points" ? "lines+markers" : line.x.length === 1 ? "markers" : "lines",
      line: { color: line.colour, width: line.style === "points" ? 1 : 1.8, dash: line.dash },
      marker: { color: line.colour, size: 8, symbol: "diamond" },
      ...(chart.stacked && lines.length < 7
        ? {
            stackgroup: line.label.split(" · ")[1] ?? "all",
            fillcolor: translucent(line.colour, 0.3),
            line: { color: line.colour, width: 1 },
          }
        : {}),
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
  const absent = [],
    zero = [];
  for (const chart of [...CURVES, anyMetric(trained)]) {
    const lines = linesOf(trained, chart);
    const card = cardFor(byId("curves-grid"), chart);
    const flat = lines.length && lines.every((line) => line.y.every((value) => value === 0));
    card.root.hidden = (!lines.length || flat) && chart.id !== "any";
    if (card.root.hidden) (flat ? zero : absent).push(chart.title);
    else drawCard(card, chart, lines);
  }
  const said = [
    zero.length && `Zero at every step: ${zero.join("; ")}.`,
    absent.length && `Not recorded in these runs: ${absent.join("; ")}.`,
  ];
  byId("curves-missing").textContent = said.filter(Boolean).join(" ");
}

function drawCurveControls(runs, trained) {
  const redraw = () => {
    drawCurves(runs);
    drawSilence(runs);
  };
  const box = byId("curves-controls");
  const repeats = [...groupBy(trained, (run) => run.overview.repeats).values()].some(
    (group) => group.length > 1,
  );
  if (box.childElementCount && box.dataset.repeats === String(repeats)) return;
  box.dataset.repeats = repeats;
  fill(
    box,
    h(
      "label",
      {},
      "Smoothing",
      h("input", {
        type: "range",
        min: 0,
        max: 0.95,
        step: 0.05,
        value: view.smooth,
        oninput: debounce(30, (e) => {
          view.smooth = Number(e.target.value);
          redraw();
        }),
      }),
    ),
    viewToggle("Log scale", "log", redraw),
    viewToggle("Hours", "hours", redraw),
    repeats && viewToggle("Band over repeats", "band", redraw),
  );
}

// A chart of any column one asks for.
function anyMetric(runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.metrics.columns)))].sort();
  if (!names.includes(view.metric))
    view.metric = names.find((n) => n.endsWith("learning_rate")) ?? names[0] ?? "";
  return { id: "any", title: "Any metric", names, of: [[view.metric, view.metric]] };
}

function cardFor(grid, chart) {
  if (!cards.has(chart.id)) {
    const title = h("h3", {}, chart.title),
      legend = h("div", { class: "legend" });
    const plot = h("div", { class: "chart", tabindex: 0, role: "img" });
    const cursor = h("div", { class: "cursor", hidden: true }, h("span"));
    const card = {
      title,
      legend,
      plot,
      cursor,
      root: h("div", { class: "panel card", "data-chart": chart.id }, title, legend, plot),
      lines: [],
    };
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
    fill(
      card.title,
      select(
        chart.names,
        view.metric,
        (name) => {
          view.metric = name;
          drawCurves(shownRuns());
        },
        { "aria-label": "Metric to draw", style: { maxWidth: "100%" } },
      ),
    );
  }
  drawLegend(card, chart);
  whenSeen(card.plot, () =>
    Plotly.react(card.plot, tracesOf(chart, lines), curveLayout(chart, lines), PLOT).then(() => {
      card.plot.append(card.cursor);
      describe(
        card.plot,
        `${chart.title}. ${lines.map((l) => `${l.label}: ${short(l.y[0])} to ${short(l.y.at(-1))}`).join("; ")}.`,
      );
    }),
  );
}

function curveLayout(chart, lines) {
  const positive = lines.some((l) => l.y.some((v) => v > 0));
  const range =
    chart.range && !view.log
      ? chart.range.map(
          (v, i) => v * (chart.scale ?? 1) * (i ? 1.04 : 1) - (i ? 0 : 0.04 * (chart.scale ?? 1)),
        )
      : undefined;
  return layoutOf({
    margin: { l: 40, r: 10, t: 6, b: 38 },
    xaxis: {
      rangemode: "tozero",
      title: { text: view.hours ? "hours" : "step", standoff: 4, font: { size: 11 } },
      nticks: 6,
    },
    yaxis: {
      type: view.log && positive ? "log" : "linear",
      range,
      ticksuffix: chart.unit ? ` ${chart.unit}` : "",
      nticks: 5,
      exponentformat: "power",
    },
    uirevision: `${chart.id}/${view.log}/${view.hours}/${view.metric}`,
  });
}

function drawLegend(card, chart) {
  const keys = card.lines.map((line) => {
    line.output = h("output", {}, short(line.y.at(-1)));
    return h(
      "button",
      {
        class: "key",
        type: "button",
        "aria-pressed": String(!view.hidden.has(line.key)),
        title: `${line.label}: show or hide`,
        onclick: () => hide(line.key),
      },
      s(
        "svg",
        { width: 18, height: 8, "aria-hidden": "true" },
        s("line", {
          x1: 0,
          x2: 18,
          y1: 4,
          y2: 4,
          stroke: line.colour,
          "stroke-width": 2.5,
          "stroke-dasharray":
            { dot: "2 3", dash: "5 3", dashdot: "6 2 2 2", longdash: "9 3" }[line.dash] ?? null,
        }),
      ),
      h("span", { class: "what" }, line.label),
      line.output,
    );
  });
  fill(card.legend, keys);
}

function hide(key) {
  view.hidden.has(key) ? view.hidden.delete(key) : view.hidden.add(key);
  drawCurves(shownRuns());
  drawSilence(shownRuns());
}
