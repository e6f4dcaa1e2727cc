"use strict";
// A search: accuracy against cost of every candidate, how far each got, and why it was dropped.

function drawSearch(runs) {
  const run = runs.find((one) => one.overview.search);
  byId("search").hidden = !run;
  if (!run) return;
  const search = run.overview.search,
    played = search.entries.filter((one) => one.accuracy);
  byId("search-lead").textContent = searchWords(search);
  fill(byId("search-table"), searchTable(search, played, sureIn(run)));
  const chart = byId("search-chart");
  whenSeen(chart, () =>
    Plotly.react(chart, searchTraces(search, played), searchLayout(search), PLOT).then(() =>
      describe(
        chart,
        `Accuracy against ${search.unit} an episode of ${plural(played.length, "candidate")}.`,
      ),
    ),
  );
}

function searchWords(search) {
  const { spend } = search,
    spent =
      spend.search == null
        ? ""
        : ` It took ${whole(Math.round(spend.search))} of ${whole(search.budget)} ${search.unit}; the first pool on all tasks would have taken ${whole(Math.round(spend.first_pool))}.`;
  const ended = search.winner
    ? `Winner: ${oneLine(search.winner)}; ${oneLine(search.stopped)}.`
    : "The search has not ended.";
  return `${plural(search.entries.length, "candidate")} on the same tasks, fewer from rung to rung. ${ended}${spent} These are the tasks that it chose by; the results above are on others.`;
}

const lastRung = (search) => Math.max(1, ...search.entries.map((one) => one.rung ?? 0));

// One trace for each rung, so that colours say how far a candidate got.
function searchTraces(search, played) {
  const rungs = [...Array(lastRung(search) + 1).keys()];
  return rungs.map((rung) => {
    const some = played.filter((one) => one.rung === rung),
      hue = rung === rungs.at(-1) ? colour(0) : css("--soft");
    return accuracyPoints(some, {
      cost: (one) => one.cost,
      hue,
      filled: (one) => one.name === search.winner,
      size: 6 + 2 * rung,
      symbol: "diamond",
      whiskers: { thickness: 1, width: 4 },
      words: (one) =>
        `<b>${label(one.name)}</b><br>${spread(one.accuracy, " %")} on ${plural(one.tasks, "task")}<br>${short(one.cost)} ${label(search.unit)}<br>${label(fateOf(search, one))}`,
    });
  });
}

const searchLayout = (search) =>
  layoutOf({
    hovermode: "closest",
    margin: { l: 52, r: 18, t: 18, b: 46 },
    xaxis: {
      title: { text: `${label(search.unit)} an episode`, standoff: 8 },
      type: "log",
    },
    yaxis: { title: { text: "accuracy, %", standoff: 8 }, range: [-4, 106] },
  });

function fateOf(search, one) {
  if (one.name === search.winner) return "winner";
  return one.dropped ? `rung ${one.rung}: ${oneLine(one.dropped)}` : `rung ${one.rung}`;
}

function searchTable(search, played, sure) {
  const order = [...played].sort(
    (a, b) =>
      (b.name === search.winner) - (a.name === search.winner) ||
      b.tasks - a.tasks ||
      b.accuracy.mean - a.accuracy.mean,
  );
  const columns = [
    [
      "candidate",
      (one) =>
        h(
          "td",
          { title: one.edit ? `${oneLine(one.parent)}: ${oneLine(one.edit)}` : null },
          oneLine(one.name),
        ),
    ],
    ["tasks", (one) => whole(one.tasks)],
    [`accuracy, ${sure} interval`, (one) => spread(one.accuracy)],
    ["said", (one) => fixed(one.generated)],
    ["read", (one) => fixed(one.read, 0)],
    [`cost, ${oneLine(search.unit)}`, (one) => short(one.cost)],
    ["out", (one) => fateOf(search, one)],
  ];
  return table("Candidates", columns, order, {
    legend:
      "Per episode. Out: the last rung it played and why it left: in the worse half; beaten, its paired interval against the leader lay below 0; no better, a changed team that did not outdo those that were there. The winner was chosen on these tasks, which flatters it.",
  });
}
