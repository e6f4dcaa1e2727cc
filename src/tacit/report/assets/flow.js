"use strict";
// Who talks: the flow of messages before and after, and silence by difficulty over training.

// Sides are those somebody chose; else they follow the run.
const talkView = { unit: "tokens", sides: [null, null] };

// All sources that can be drawn, as [key, words]. An audit's plays without a part are no teams.
function flowChoices(runs) {
  return runs.flatMap((run) =>
    run.sources
      .filter(({ flow, audits, name }) => flow.episodes && (!audits || name === "audited"))
      .map((source) => [
        `${run.id}/${source.name}`,
        (runs.length > 1 ? `${run.label} · ` : "") + run.title(source.name),
        { run, source },
      ]),
  );
}

function drawTalk(runs) {
  const choices = flowChoices(runs);
  byId("talk").hidden = !choices.length;
  if (!choices.length) return;
  fill(
    byId("talk-controls"),
    choice("Size by", ["tokens", "messages"], talkView.unit, (unit) => {
      talkView.unit = unit;
      drawTalk(runs);
    }),
  );
  const run = runs[0],
    has = (key) => choices.some((c) => c[0] === key);
  const winner = run.overview.search && { name: run.overview.search.winner };
  const wanted = [
    winner ?? run.untrained ?? mostTalk(run),
    run.trained ?? frontierOf(run.points).at(-1),
  ].map((point) => `${run.id}/${point?.name}`);
  const sides = talkView.sides.map((side, n) =>
    has(side) ? side : has(wanted[n]) ? wanted[n] : choices[n % choices.length][0],
  );
  const shownSides = choices.length === 1 ? [0] : [0, 1];
  const flows = shownSides.map((n) => choices.find((c) => c[0] === sides[n])[2]);
  const most = Math.max(...flows.map(({ source }) => tallest(source.flow)), 1e-9);
  const rows = Math.max(
    ...flows.map(({ source }) =>
      Math.max(...columnsOf(source.flow).map((column) => column.length)),
    ),
  );
  fill(
    byId("flows"),
    shownSides.map((n) => flowPanel(runs, choices, n, flows[n], most, rows)),
  );
  drawSilence(runs);
}

const mostTalk = (run) =>
  run.points.reduce(
    (most, p) => ((p.tokens?.mean ?? 0) > (most?.tokens?.mean ?? -1) ? p : most),
    null,
  );

function flowPanel(runs, choices, n, { run, source }, most, rows) {
  const flow = source.flow,
    per = (value) => value / flow.episodes;
  const total = per(flow.nodes.reduce((sum, node) => sum + node[talkView.unit], 0));
  return h(
    "div",
    { class: "panel flow" },
    h(
      "div",
      { class: "swap" },
      select(
        choices,
        `${run.id}/${source.name}`,
        (key) => {
          talkView.sides[n] = key;
          drawTalk(runs);
        },
        { "aria-label": n ? "Flow on the right" : "Flow on the left" },
      ),
      h(
        "span",
        { class: "quiet" },
        `${fixed(total)} ${talkView.unit} an episode, ${plural(flow.episodes, "episode")}`,
      ),
    ),
    flowDrawing(run, flow, most, rows),
  );
}

// Of the calls that could have been silent; null where there is none.
const silenceIn = (node) => (node.choices ? node.silent / node.choices : null);
const spokenOf = (node) => node.messages - node.silent;
const sizeOf = (node) => node[talkView.unit];

// Columns by depth: whoever reads a message stands to the right of it.
function columnsOf(flow) {
  const depths = [...new Set(flow.nodes.map((node) => node.depth))].sort((a, b) => a - b);
  return depths.map((depth) => flow.nodes.filter((node) => node.depth === depth));
}

// Tokens or messages that a node reads and says, an episode.
const readBy = (flow, node) =>
  flow.links.reduce(
    (sum, link) => sum + (flow.nodes[link.to] === node ? link[talkView.unit] : 0),
    0,
  ) / flow.episodes;
const heightOf = (flow, node) => Math.max(readBy(flow, node), sizeOf(node) / flow.episodes);

function tallest(flow) {
  return Math.max(
    ...columnsOf(flow).map((column) => column.reduce((sum, node) => sum + heightOf(flow, node), 0)),
  );
}

function flowDrawing(run, flow, most, rows) {
  const columns = columnsOf(flow),
    width = innerWidth < 760 ? 340 : 560,
    room = 170,
    gap = 42,
    height = room + gap * rows;
  const across = columns.length > 1 ? (width - 96) / (columns.length - 1) : 0,
    thick = columns.length > 5 ? 10 : 16,
    scale = room / most;
  const places = new Map();
  columns.forEach((column, c) => {
    let y = 34;
    for (const node of column) {
      const tall = Math.max(3, (sizeOf(node) / flow.episodes) * scale);
      places.set(node, { x: 10 + c * across, y, tall, heard: 0 });
      y += Math.max(tall, readBy(flow, node) * scale) + gap;
    }
  });
  const id = `hatch-${Math.random().toString(36).slice(2)}`;
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": flowInWords(flow) },
    s(
      "defs",
      {},
      s(
        "pattern",
        { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        s("rect", { width: 2.5, height: 6, fill: css("--faint") }),
      ),
    ),
    flow.links.map((link) => ribbon(run, flow, link, places, thick, scale)),
    flow.nodes.map((node, n) =>
      block(run, flow, node, places.get(node), thick, id, columns.length > 5),
    ),
  );
}

const agentColour = (run, agent) => colour(Math.max(0, run.agents.indexOf(agent)));

// As wide as what is read, from who says it to who reads it; ribbons into a reader are stacked.
function ribbon(run, flow, link, places, thick, scale) {
  const sender = flow.nodes[link.from],
    reader = flow.nodes[link.to],
    from = places.get(sender),
    to = places.get(reader);
  const wide = Math.max(1, (link[talkView.unit] / flow.episodes) * scale),
    x0 = from.x + thick,
    x1 = to.x - 2,
    y0 = from.y,
    y1 = to.y + to.heard,
    middle = (x0 + x1) / 2;
  to.heard += wide;
  const words = `${sender.agent} to ${reader.agent}: ${fixed(link.messages / flow.episodes, 2)} messages, ${fixed(link.tokens / flow.episodes)} tokens an episode`;
  return s(
    "path",
    {
      class: "ribbon",
      fill: agentColour(run, sender.agent),
      d: `M${x0},${y0} C${middle},${y0} ${middle},${y1} ${x1},${y1} L${x1},${y1 + wide} C${middle},${y1 + wide} ${middle},${y0 + wide} ${x0},${y0 + wide} Z`,
    },
    s("title", {}, oneLine(words)),
  );
}

function block(run, flow, node, place, thick, hatch, terse) {
  const hush = silenceIn(node),
    hushed = sizeOf(node)
      ? (place.tall * (talkView.unit === "messages" ? node.silent : node.hushed)) / sizeOf(node)
      : 0;
  const words = `${oneLine(node.agent)}: ${fixed(node.tokens / flow.episodes)} tokens, ${fixed(spokenOf(node) / flow.episodes, 2)} messages${hush == null ? "" : `, silent ${percent(hush)}`}`;
  // The lower part of the block, of this height.
  const part = (height, settings) =>
    s("rect", { x: place.x, y: place.y + place.tall - height, width: thick, height, ...settings });
  const how = `${fixed(sizeOf(node) / flow.episodes)}${hush ? ` · silent ${percent(hush)}` : ""}`;
  return s(
    "g",
    {},
    s("title", {}, words),
    part(place.tall, { rx: 2, fill: agentColour(run, node.agent) }),
    hushed > 0 && [
      part(hushed, { fill: css("--panel") }),
      part(hushed, { fill: `url(#${hatch})`, stroke: css("--faint") }),
    ],
    s(
      "text",
      { class: "who", x: place.x, y: place.y - 17 },
      oneLine(node.agent).slice(0, terse ? 8 : 18),
    ),
    s(
      "text",
      { class: "how", x: place.x, y: place.y - 5 },
      terse ? fixed(sizeOf(node) / flow.episodes, 0) : how,
    ),
  );
}

const flowInWords = (flow) =>
  flow.nodes
    .map(
      (node) =>
        `${oneLine(node.agent)} in round ${node.round}: ${fixed(node.tokens / flow.episodes)} tokens${silenceIn(node) == null ? "" : `, silent ${percent(silenceIn(node))}`}`,
    )
    .join("; ");

// ---- silence by difficulty

const SILENCE = {
  ...SHARE,
  id: "silence-levels",
  title: "Silence by difficulty, in training",
  of: [[/^silence\/([^/]+\/[^/]+)$/, "$1"]],
};
const HELD_OUT = {
  ...SHARE,
  id: "silence-held-out",
  title: "Silence by difficulty, held-out",
  of: [],
};

function drawSilence(runs) {
  const grid = byId("silence-grid");
  const sampled = linesOf(
      runs.filter((run) => run.overview.trains),
      SILENCE,
    ),
    held = heldOutSilence(runs);
  for (const [chart, lines] of [
    [SILENCE, sampled],
    [HELD_OUT, held],
  ]) {
    const card = cardFor(grid, chart);
    card.root.hidden = !lines.length;
    if (lines.length) drawCard(card, chart, lines);
  }
}

// From the evaluations, where the policy chooses alone.
function heldOutSilence(runs) {
  const lines = [];
  for (const run of runs) {
    const names = new Map();
    for (const point of run.checkpoints)
      for (const agent of point.agents)
        for (const [level, share] of Object.entries(agent.silence_by_level ?? {})) {
          const name = `${agent.agent}/${level}`;
          if (!names.has(name)) names.set(name, { x: [], y: [] });
          names.get(name).x.push(point.step);
          names.get(name).y.push(100 * share);
        }
    const quiet = [...names].filter(([, line]) => line.x.length > 1 && line.y.some((v) => v > 0));
    const agents = new Set(quiet.map(([name]) => name.split("/")[0]));
    [...names]
      .filter(([name, line]) => line.x.length > 1 && agents.has(name.split("/")[0]))
      .forEach(([name, line], n) =>
        lines.push({
          label: oneLine(runs.length > 1 ? `${name} · ${run.label}` : name),
          key: `held/${run.id}/${name}`,
          style: "points",
          dash: runs.length > 1 ? DASHES[n % DASHES.length] : "solid",
          colour: colour(runs.length > 1 ? run.number : n),
          ...line,
        }),
      );
  }
  return lines;
}
