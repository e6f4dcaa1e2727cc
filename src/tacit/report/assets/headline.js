"use strict";
// The first screen: what was learned and what it costs, in a sentence, in tiles, in a table, in words.

function drawHeadline(runs) {
  fill(byId("headline"), runs.length === 1 ? oneRun(runs[0]) : severalRuns(runs));
  fill(byId("teams"), teamsTable(runs), talkTable(runs), choosingTable(runs));
  fill(
    byId("tests"),
    runs.flatMap((run) => testsInWords(run, runs.length > 1)),
  );
  fill(
    byId("notes"),
    runs.map((run) => missing(run, runs.length > 1)),
  );
}

const STATUS = {
  running: "running",
  finished: "finished",
  stopped: "stopped early",
  unfinished: "not finished",
  waiting: "waiting to start",
};

function eyebrow(run) {
  const { state, overview } = run;
  const steps =
    state.step == null
      ? ""
      : state.steps
        ? `step ${state.step} of ${state.steps}`
        : `step ${state.step}`;
  const reason = overview.stopped ? `: ${oneLine(String(overview.stopped))}` : "";
  return h(
    "p",
    { class: "eyebrow" },
    h(
      "span",
      { class: `status ${state.status}` },
      (STATUS[state.status] ?? state.status) +
        (state.status === "running" && !data.live ? " when this page was made" : "") +
        reason,
    ),
    h("span", {}, oneLine(overview.name)),
    overview.seed != null && h("span", {}, `seed ${overview.seed}`),
    steps && h("span", {}, steps),
  );
}

function oneRun(run) {
  const { trained, untrained } = run;
  const [claim, lead] = claimOf(run);
  const parts = [
    eyebrow(run),
    h("h1", { class: "claim" }, claim),
    lead != null && h("p", { class: "lead" }, lead),
  ];
  if (
    run.state.steps &&
    run.state.step != null &&
    !["finished", "stopped"].includes(run.state.status)
  )
    parts.push(
      h(
        "div",
        {
          class: "progress",
          role: "progressbar",
          "aria-label": "steps",
          "aria-valuemax": run.state.steps,
          "aria-valuenow": run.state.step,
        },
        h("i", { style: { width: `${(100 * run.state.step) / run.state.steps}%` } }),
      ),
    );
  const tiles = (trained || untrained) && runTiles(run);
  return [...parts, tiles && h("div", { class: "tiles" }, tiles)];
}

// What the page says first, and below it.
function claimOf(run) {
  const { trained, untrained } = run;
  const numbers = ({ accuracy, tokens }) =>
    `${percent(accuracy.mean)} solved, ${fixed(tokens?.mean)} tokens each`;
  if (trained) return [numbers(trained), comparison(run)];
  if (untrained)
    return [
      `Starts from ${numbers(untrained)}`,
      "Held-out numbers of the trained team follow with its first evaluation.",
    ];
  if (run.overview.audit) return [auditClaim(run.overview.audit)];
  if (run.points.length) return [bestClaim(run)];
  return [
    "No evaluation yet",
    "This page shows what is in the run folder; held-out numbers appear with the first evaluation.",
  ];
}

// "Untrained it solved …; solo solves …": the other teams of the run, in one sentence each.
function comparison(run) {
  const said = [];
  if (run.untrained)
    said.push(
      `Untrained, the same team solved ${percent(run.untrained.accuracy.mean)} with ${fixed(run.untrained.tokens?.mean)} tokens.`,
    );
  for (const name of run.overview.solo) {
    const solo = run.points.find((p) => p.name === name);
    if (solo)
      said.push(
        `Alone, the answering agent solves ${percent(solo.accuracy.mean)} with ${fixed(solo.tokens?.mean)}.`,
      );
  }
  const tasks = run.trained?.tasks;
  if (tasks) said.push(`Measured on ${whole(tasks)} held-out tasks.`);
  return said.join(" ");
}

function bestClaim(run) {
  const best = frontierOf(run.points).at(-1);
  return `${oneLine(best.name)} solves most: ${percent(best.accuracy.mean)}, ${fixed(best.tokens?.mean)} tokens each`;
}

function tile(name, value, unit, note) {
  return h(
    "div",
    { class: "panel tile" },
    h("div", { class: "label" }, name),
    h("div", { class: "value" }, value, unit && h("small", {}, ` ${unit}`)),
    h("div", { class: "note" }, note || "\u00a0"),
  );
}

const bounds = (e, show) => `${show(e.low)} to ${show(e.high)}`;

function runTiles(run) {
  const now = run.trained ?? run.untrained,
    before = run.trained && run.untrained;
  const gain = before && 100 * (now.accuracy.mean - before.accuracy.mean);
  const cut =
    before?.tokens?.mean && now.tokens ? 100 * (now.tokens?.mean / before.tokens?.mean - 1) : null;
  const tiles = [
    tile(
      "Solved",
      points(now.accuracy.mean),
      "%",
      `${sureIn(run)}: ${bounds(now.accuracy, points)}${before ? ` · ${signed(gain)} points` : ""}`,
    ),
    tile(
      "Tokens said",
      fixed(now.tokens?.mean),
      "an episode",
      `${now.tokens ? bounds(now.tokens, fixed) : ""}${cut != null ? ` · ${signed(cut, 0)} %` : ""}`,
    ),
  ];
  if (now.silence != null)
    tiles.push(tile("Silent", points(now.silence), "% where allowed", silenceNote(now)));
  if (run.budget.tokens && now.tokens) {
    const lambda = run.metrics.columns["lambda/tokens"]?.findLast((v) => v != null);
    tiles.push(
      tile(
        "Token budget",
        fixed((now.tokens?.mean / run.budget.tokens) * 100, 0),
        "% used",
        `${whole(run.budget.tokens)} tokens an episode${lambda != null ? ` · λ ${lambda.toFixed(3)}` : ""}`,
      ),
    );
  } else if (now.generated_per_solved)
    tiles.push(tile("Tokens per solved task", fixed(now.generated_per_solved, 0), "", ""));
  if (now.money != null) tiles.push(tile("Money", now.money.toPrecision(3), "a task", ""));
  return tiles;
}

const signed = (value, digits = 1) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;

// Who may be silent and how often each is; one agent alone by difficulty.
function silenceNote(point) {
  const free = point.agents.filter((a) => a.choices ?? a.silence > 0),
    share = ([name, value]) => `${oneLine(name)} ${points(value)}`,
    levels = Object.entries(free[0]?.silence_by_level ?? {});
  if (free.length > 1) return free.map((a) => share([a.agent, a.silence])).join(", ");
  const some = levels.length > 1 && levels.length <= 3 ? ` · ${levels.map(share).join(", ")}` : "";
  return `${oneLine(free[0]?.agent ?? "")}${some}`;
}

function severalRuns(runs) {
  const trained = runs.filter((run) => run.trained);
  const title = `${plural(runs.length, "run")} side by side`;
  if (!trained.length) return [h("h1", { class: "claim" }, title)];
  const groups = groupBy(trained, (run) => run.overview.repeats);
  const lines = [...groups.values()].map((group) => {
    const accuracy = group.map((run) => run.trained.accuracy.mean),
      tokens = group.map((run) => run.trained.tokens?.mean);
    const name = oneLine(group[0].overview.name);
    return h(
      "li",
      { class: "sure" },
      group.length === 1
        ? `${oneLine(group[0].label)}: ${percent(accuracy[0])} solved, ${fixed(tokens[0])} tokens.`
        : `${name}, ${group.length} repeats: ${percent(mean(accuracy))} solved on average (${range(accuracy, points)}), ${fixed(mean(tokens))} tokens (${range(tokens, fixed)}).`,
    );
  });
  return [
    h("h1", { class: "claim" }, title),
    h("ul", { class: "words", style: { marginBottom: "1.2rem" } }, lines),
  ];
}

const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
const range = (values, show) => `${show(Math.min(...values))} to ${show(Math.max(...values))}`;

// Those no other beats in both accuracy and cost, cheapest first.
function frontierOf(list, cost = (p) => p.tokens?.mean) {
  let best = -1;
  return list
    .filter((p) => cost(p) != null)
    .sort((a, b) => cost(a) - cost(b) || b.accuracy.mean - a.accuracy.mean)
    .filter((p) => p.accuracy.mean > best && ((best = p.accuracy.mean), true));
}

// The rows that matter: untrained, the other teams, the trained one last and bold.
function headlinePoints(run) {
  const teams = run.points.filter((p) => p.kind === "team");
  return [run.untrained, ...teams, run.trained].filter(Boolean);
}

const titleOf = (run, point) =>
  point === run.trained && run.state.best_step === point.step ? "trained" : run.title(point.name);

function teamsTable(runs) {
  const rows = runs.flatMap((run) => headlinePoints(run).map((point) => ({ run, point })));
  if (!rows.length) return [];
  const levels = levelNames(rows.map((r) => r.point)),
    best = new Set(runs.flatMap((run) => frontierOf(headlinePoints(run)))),
    most = Math.max(...rows.map((r) => r.point.tokens?.mean ?? 0)) || 1;
  const of = (show) => (row) => show(row.point);
  const columns = [
    ["team", (row) => teamCell(row, runs.length > 1, best)],
    [
      `accuracy, ${sureIn(runs[0])} interval`,
      of(({ accuracy }) => [spread(accuracy), whisker(accuracy)]),
    ],
    ...levels.map((l) => [`${oneLine(l)} %`, of((point) => points(point.levels[l]?.mean))]),
    ["tokens said", of(({ tokens }) => [fixed(tokens?.mean), meter((tokens?.mean ?? 0) / most)])],
    ["read", of((point) => fixed(point.read, 0))],
    ["per solved", of((point) => fixed(point.generated_per_solved, 0))],
    ["critical path", of((point) => fixed(point.path_tokens, 0))],
    ["silent %", of((point) => points(point.silence))],
    rows.some((r) => r.point.changed) && [
      "helped, harmed",
      of(({ changed }) => (changed ? `${changed.helped}, ${changed.harmed}` : "–")),
      { title: "episodes in which the helpers' messages made the answer right, or wrong" },
    ],
    rows.some((r) => r.point.money != null) && ["money", of((point) => money(point.money))],
  ];
  const legend = [
    h("span", { class: "star" }, "★ "),
    "on the frontier: no other team of its run is both more accurate and cheaper. Tokens are means per episode. Per solved: tokens said for each solved task. Critical path: tokens said one after another, the rest being said at the same time. Silent: of the calls that could have been silent.",
    runs.some((run) => run.trained) &&
      " Trained: the best of the checkpoints evaluated on these same tasks, which flatters it a little.",
  ];
  return table("Teams compared", columns, rows, { legend, lead: isTrained });
}

const isTrained = ({ run, point }) => point === run.trained;

function teamCell({ run, point }, many, best) {
  return h(
    "td",
    { class: "name", title: titleOf(run, point) },
    many && `${oneLine(run.label)} · `,
    oneLine(titleOf(run, point)),
    best?.has(point) && h("span", { class: "star", title: "on the frontier" }, " ★"),
    point.partial && h("span", { class: "quiet" }, " so far"),
  );
}

const at = (share) => `${(100 * share).toFixed(2)}%`;

const whisker = ({ mean, low, high }) =>
  h(
    "span",
    { class: "whisker", "aria-hidden": "true" },
    h("i", { style: { left: at(low), width: at(high - low) } }),
    h("b", { style: { left: at(mean) } }),
  );

const meter = (share) =>
  h("span", { class: "meter", "aria-hidden": "true" }, h("i", { style: { width: at(share) } }));

// What talk is worth: how far each team is above other plays of the same tasks.
const OTHERWISE = [
  ["silent", "all silent", "the helpers left out"],
  ["speaking", "made to speak", "whoever may be silent must speak"],
  ["gate", "random gate", "speaks as often as the team, but by chance"],
  ["alone", "weights alone", "the trained weights in the place of the agent that answers, without help"],
  ["reworded", "reworded", "a frozen model says every message in other words"],
];

const talksOf = (runs) =>
  runs
    .flatMap((run) => headlinePoints(run).map((point) => ({ run, point, talk: point.talk })))
    .filter(({ talk }) => talk);

function talkTable(runs) {
  const rows = talksOf(runs).filter(
    ({ talk }) => Object.keys(talk.plays).length > 1 || whyMissing(talk),
  );
  if (!rows.length) return null;
  const some = OTHERWISE.filter(([name]) => rows.some(({ talk }) => talk.plays[name]?.above)),
    spoken = some.some(([name]) => name === "speaking"),
    kept = rows.some(({ talk }) => talk.kept != null);
  const columns = [
    ["talk, above", (row) => teamCell(row, runs.length > 1)],
    ...some.map(([name, words, title]) => [words, aboveOf(name), { title }]),
    kept && ["kept %", ({ talk }) => points(talk.kept)],
    spoken && ["messages, said, read %", sharesOfSpeaking],
  ];
  const legend = [
    `Accuracy of the team less that of another play of the same tasks, in points with ${sureIn(runs[0])} intervals.`,
    kept && " Kept: of the gain over silence, the share that is left in other words.",
    spoken && " Messages, tokens said and read: shares of those of the team made to speak.",
    ...rows.map(({ run, point, talk }) => {
      const why = whyMissing(talk);
      return why && ` Of ${oneLine(titleOf(run, point))}, not played: ${why}.`;
    }),
  ];
  return table("What talk is worth", columns, rows, {
    legend,
    lead: isTrained,
    class: "panel scroll talk",
  });
}

const aboveOf =
  (name) =>
  ({ talk }) => {
    const above = talk.plays[name]?.above,
      end = (value) => (value < 0 ? signed(100 * value) : points(value));
    return above ? `${signed(100 * above.mean)} [${end(above.low)}, ${end(above.high)}]` : "–";
  };

function sharesOfSpeaking({ talk: { plays } }) {
  const most = plays.speaking,
    share = (name) => (most?.[name] ? fixed((100 * plays.free?.[name]) / most[name], 0) : "–");
  return ["messages", "generated", "read"].map(share).join(", ");
}

const whyMissing = ({ missing }) =>
  Object.entries(missing)
    .map(([name, why]) => `${OTHERWISE.find(([one]) => one === name)?.[1] ?? name} (${why})`)
    .map(oneLine)
    .join(", ");

// Whether those speak who know what the others lack: of each team, and of each agent if several choose.
function choosingTable(runs) {
  const rows = talksOf(runs)
    .filter(({ talk }) => talk.choosing.needed || talk.choosing.auc != null)
    .flatMap(({ run, point, talk }) => {
      const team = (runs.length > 1 ? `${run.label} · ` : "") + titleOf(run, point),
        agents = Object.entries(talk.by_agent);
      return [[team, talk.choosing], ...(agents.length > 1 ? agents : [])];
    });
  if (!rows.length) return null;
  const rough = ({ by }) => (by === "spoke" ? "*" : "");
  const columns = [
    ["team, agent", ([name]) => oneLine(name)],
    ["AUC", ([, one]) => (one.auc == null ? "–" : one.auc.toFixed(2) + rough(one))],
    ["silent % where needed", ([, one]) => points(one.silent_needed)],
    ["silent % elsewhere", ([, one]) => points(one.silent_idle)],
    ["precision %", ([, one]) => points(one.precision)],
    ["recall %", ([, one]) => points(one.recall)],
  ];
  return table("Who spoke, and who was needed", columns, rows, {
    heading: true,
    legend:
      "Needed: the agent knew what the others lacked. AUC: the chance that one that was needed was more inclined to speak than one that was not (*: that it spoke, since its model gives no probabilities). Precision: of what was said, what was needed. Recall: of what was needed, what was said.",
  });
}

function levelNames(list) {
  const names = [...new Set(list.flatMap((p) => Object.keys(p.levels ?? {})))];
  return names.length > 1 && names.length <= 5 ? names : [];
}

// The trained team's tests at once, the others on demand.
function testsInWords(run, named) {
  const tests = run.overview.tests;
  if (!tests.length) return null;
  const line = (test) =>
    h(
      "li",
      {
        class: test.sure ? "sure" : null,
        title: test.sure ? "significant at 5 %" : "not significant at 5 %",
      },
      named ? `${oneLine(run.label)}: ` : null,
      oneLine(test.text),
    );
  const first = run.trained ? tests.filter((test) => test.text.startsWith("trained ")) : tests,
    rest = tests.filter((test) => !first.includes(test));
  return [
    h("ul", { class: "words", "aria-label": "Paired tests" }, first.map(line)),
    rest.length
      ? h(
          "details",
          {},
          h("summary", {}, `${plural(rest.length, "more test")} among the others`),
          h("ul", { class: "words" }, rest.map(line)),
        )
      : null,
  ];
}

function missing(run, named) {
  const notes = run.overview.notes;
  if (!notes.length) return null;
  return h(
    "div",
    { class: "missing" },
    h("strong", {}, named ? `Not in ${oneLine(run.label)}` : "Not in this run folder"),
    h(
      "ul",
      {},
      notes.map((note) => h("li", {}, oneLine(note))),
    ),
  );
}
