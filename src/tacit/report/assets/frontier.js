"use strict";
// The frontier: accuracy against cost, every team and checkpoint a point.

function drawFrontier(runs) {
  const priced = runs.some((run) => run.points.some((p) => p.money != null));
  if (!priced) view.cost = "tokens";
  fill(
    byId("frontier-controls"),
    priced &&
      choice("Cost", ["tokens", "money"], view.cost, (cost) => {
        view.cost = cost;
        drawFrontier(runs);
      }),
    viewToggle("Log scale", "logCost", () => drawFrontier(runs)),
  );
  const chart = byId("frontier-chart");
  const section = byId("frontier");
  section.hidden = !runs.some((run) => run.points.length);
  if (!section.hidden)
    whenSeen(chart, () =>
      Plotly.react(chart, frontierTraces(runs), frontierLayout(runs), PLOT).then(() =>
        describe(
          chart,
          `Accuracy against ${view.cost} of ${plural(
            runs.reduce((n, run) => n + run.points.length, 0),
            "team or checkpoint",
            "teams and checkpoints",
          )}.`,
        ),
      ),
    );
}

const costOf = (point) =>
  view.cost === "money" ? point.money && { mean: point.money } : point.tokens;

function frontierTraces(runs) {
  const all = runs.flatMap((run, n) =>
    run.points.filter(costOf).map((point) => ({ run, point, n })),
  );
  const best = frontierOf(
    all.map((a) => a.point),
    (p) => costOf(p)?.mean,
  );
  const traces = [
    {
      x: best.map((p) => costOf(p).mean),
      y: best.map((p) => 100 * p.accuracy.mean),
      mode: "lines",
      hoverinfo: "skip",
      line: { color: css("--faint"), width: 1.5, shape: "hv" },
    },
  ];
  runs.forEach((run, n) => {
    const path = run.checkpoints.filter(costOf);
    traces.push({
      x: path.map((p) => costOf(p).mean),
      y: path.map((p) => 100 * p.accuracy.mean),
      mode: "lines",
      hoverinfo: "skip",
      line: { color: colour(runColour(runs, run)), width: 1, dash: "dot" },
    });
    for (const kind of ["checkpoint", "team"])
      traces.push(pointsTrace(runs, run, kind, new Set(best), n));
  });
  return traces;
}

const runColour = (runs, run) => (runs.length > 1 ? run.number : 0);

function pointsTrace(runs, run, kind, best) {
  const some = run.points.filter((p) => p.kind === kind && costOf(p));
  const team = kind === "team",
    hue = colour(team && runs.length === 1 ? 1 : runColour(runs, run));
  const prefix = runs.length > 1 ? `${run.label} · ` : "";
  const cost = (p) =>
    view.cost === "money"
      ? `${p.money} a task`
      : `${fixed(p.tokens?.mean)} tokens said, ${fixed(p.read, 0)} read`;
  return accuracyPoints(some, {
    cost: (p) => costOf(p).mean,
    hue,
    filled: (p) => best.has(p) || p === run.trained,
    size: some.map((p) => (p === run.trained ? 10 : 7)),
    symbol: team ? "diamond" : "circle",
    whiskers: { thickness: 1.5, width: 9 }, // with caps, seen where the interval is hardly longer
    words: (p) =>
      `<b>${label(prefix + titleOf(run, p))}</b><br>${spread(p.accuracy, " %")}<br>${cost(p)}${best.has(p) ? "<br>on the frontier" : ""}`,
  });
}

// Names stand on the chart's own ground, so that no line goes through them.
function frontierNames(runs) {
  const named = (run, p) =>
    (p.kind === "team" && innerWidth >= 760) ||
    p === run.untrained ||
    p === run.trained ||
    run.overview.solo.includes(p.name);
  return runs.flatMap((run) =>
    run.points
      .filter((p) => costOf(p) && named(run, p) && nameOf(runs, run, p))
      .map((p) => {
        const [above, beside] = sideOf(p, runs).split(" ");
        return {
          x: view.logCost ? Math.log10(costOf(p).mean) : costOf(p).mean,
          y: 100 * p.accuracy.mean,
          text: label(nameOf(runs, run, p)),
          showarrow: false,
          xanchor: { right: "left", left: "right", center: "center" }[beside],
          yanchor: { middle: "middle", bottom: "top", top: "bottom" }[above],
          xshift: { right: 10, left: -10, center: 0 }[beside],
          yshift: { middle: 0, bottom: -12, top: 12 }[above],
          bgcolor: css("--panel"),
          borderpad: 1,
          font: { size: 11, color: css("--soft") },
        };
      }),
  );
}

// Of several runs the trained teams go by the run's name, and what they share is named once.
function nameOf(runs, run, point) {
  if (runs.length === 1) return titleOf(run, point);
  return point === run.trained ? oneLine(run.label) : run === runs[0] ? titleOf(run, point) : "";
}

// Names stand to the right of their point, or to the left where another point is in the way. Between
// two others, or where on a narrow screen the axis is, they stand below or above.
function sideOf(point, runs) {
  const all = runs.flatMap((run) => run.points).filter(costOf),
    width = Math.max(...all.map((p) => costOf(p).mean)) || 1,
    narrow = innerWidth < 760;
  const crowded = (direction) =>
    all.some((p) => {
      const away = (direction * (costOf(p).mean - costOf(point).mean)) / width;
      return away > 0.005 && away < 0.12 && Math.abs(p.accuracy.mean - point.accuracy.mean) < 0.05;
    });
  if (!crowded(1)) return "middle right";
  if (crowded(-1)) return narrow ? "top right" : "bottom center";
  return narrow && costOf(point).mean < 0.3 * width ? "bottom right" : "middle left";
}

function frontierLayout(runs) {
  const budgets = [...new Set(runs.map((run) => run.budget[view.cost]).filter(Boolean))];
  return layoutOf({
    hovermode: "closest",
    margin: { l: 52, r: innerWidth < 760 ? 18 : 100, t: 18, b: 46 },
    xaxis: {
      title: {
        text: view.cost === "money" ? "money a task" : "tokens said an episode",
        standoff: 8,
      },
      type: view.logCost ? "log" : "linear",
      rangemode: view.logCost ? "normal" : "tozero",
    },
    yaxis: { title: { text: "accuracy, %", standoff: 8 }, range: [-4, 106] },
    shapes: budgets.map((b) => ({
      type: "line",
      x0: b,
      x1: b,
      yref: "paper",
      y0: 0,
      y1: 1,
      line: { color: css("--c4"), width: 1.5, dash: "dash" },
    })),
    annotations: frontierNames(runs).concat(budgets.map((b) => ({
      x: view.logCost ? Math.log10(b) : b,
      yref: "paper",
      y: 1,
      yanchor: "bottom",
      xanchor: "left",
      text: `budget ${whole(b)}`,
      showarrow: false,
      font: { size: 11, color: css("--c4") },
    }))),
  });
}
