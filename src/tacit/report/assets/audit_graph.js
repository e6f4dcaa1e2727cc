"use strict";
// Who is shown whose messages, as arrows between the agents of an audit.
// Colours are set as style, so that a change of theme needs no new drawing.

const MOST_ARROWS = 80;

// 1 if it helps, -1 if it harms, 0 if neither is shown. The verdict knows of an interval that is
// wider than the part's own, since the audit looked several times.
const sureOf = (part) => ({ helps: 1, harms: -1 })[part?.verdict] ?? 0;
const mostOf = (parts) => Math.max(1e-9, ...parts.map((part) => Math.abs(part.value.mean)));

// Blue helps and orange harms, paler the less; grey where neither is shown.
function toneOf(part, most) {
  const sure = sureOf(part);
  if (!sure) return "var(--faint)";
  const strength = 50 + (50 * Math.abs(part.value.mean)) / most;
  return `color-mix(in srgb, var(${sure > 0 ? "--c0" : "--c1"}) ${strength.toFixed(0)}%, var(--panel))`;
}

function auditGraph({ agents, edges, parts }) {
  const radius = agents.length < 3 ? 115 : Math.max(105, 17 * agents.length),
    places = placesOf(agents, radius),
    ys = [...places.values()].map(({ y }) => y),
    top = Math.min(...ys) - 60,
    width = 2 * (radius + 120),
    height = Math.max(...ys) + 65 - top,
    scale = { most: mostOf(parts), measured: parts.length > 0 };
  const drawn = edges
      .filter((edge) => edge.sender !== edge.reader)
      .filter((edge) => places.has(edge.sender) && places.has(edge.reader))
      .slice(0, MOST_ARROWS),
    widest = Math.max(1e-9, ...drawn.map((edge) => edge.tokens));
  return s(
    "svg",
    {
      viewBox: `${-width / 2} ${top} ${width} ${height}`,
      role: "img",
      "aria-label": `${plural(agents.length, "agent")}, and ${plural(drawn.length, "arrow")} from who speaks to who reads; the tables have the same numbers`,
      style: { maxWidth: `${1.15 * width}px`, minWidth: `${0.7 * width}px` },
    },
    drawn.map((edge) => arrow(edge, places, Math.max(1.5, (9 * edge.tokens) / widest), scale)),
    agents.map((agent) => dot(agent, places.get(agent.name), agents.length > 2, scale)),
  );
}

const brief = (value) =>
  value?.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 }) ?? "–";

// On a circle from the top on; two stand side by side, and one stands alone.
function placesOf(agents, radius) {
  const count = agents.length,
    start = count === 2 ? Math.PI : -Math.PI / 2,
    far = count === 1 ? 0 : radius;
  return new Map(
    agents.map((agent, n) => {
      const angle = start + (2 * Math.PI * n) / count;
      return [agent.name, { x: far * Math.cos(angle), y: far * Math.sin(angle) }];
    }),
  );
}

// Bent to one side, so that the way back is another arrow.
function arrow(edge, places, wide, { most, measured }) {
  const from = places.get(edge.sender),
    to = places.get(edge.reader),
    bend = {
      x: (from.x + to.x) / 2 - 0.16 * (to.y - from.y),
      y: (from.y + to.y) / 2 + 0.16 * (to.x - from.x),
    };
  const off = (place, far) => {
    const share = far / Math.hypot(bend.x - place.x, bend.y - place.y);
    return [place.x + (bend.x - place.x) * share, place.y + (bend.y - place.y) * share];
  };
  const head = 7 + wide,
    half = (4 + 0.7 * wide) / head,
    tip = off(to, 19),
    neck = off(to, 19 + head),
    [dx, dy] = [(tip[1] - neck[1]) * half, (neck[0] - tip[0]) * half],
    line = `M${off(from, 18)} Q${bend.x},${bend.y} ${neck}`;
  return s(
    "g",
    { class: "arrow", style: { color: toneOf(edge.worth, most) } },
    s("title", {}, edgeInWords(edge)),
    s("path", { class: "near", d: line }),
    s("path", {
      d: line,
      "stroke-width": wide,
      "stroke-dasharray": edge.worth || !measured ? null : `${2 * wide + 2} ${wide + 2}`,
    }),
    s("polygon", {
      points: `${tip} ${neck[0] + dx},${neck[1] + dy} ${neck[0] - dx},${neck[1] - dy}`,
    }),
  );
}

// An agent, its name away from the middle, where the arrows are.
function dot(agent, { x, y }, aside, { most, measured }) {
  const side = aside ? Math.sign(Math.round(x / 60)) : 0,
    below = y < -30 ? -37 : aside ? 32 : 42,
    place = { x: x - 18 * side, "text-anchor": ["end", "middle", "start"][side + 1] },
    name = oneLine(agent.name),
    room = aside ? 17 : 26;
  return s(
    "g",
    {},
    s("title", {}, `${name}: ${tokensInWords(agent)} tokens an episode; ${worthInWords(agent.worth)}`),
    s("circle", {
      cx: x,
      cy: y,
      r: 15,
      "stroke-dasharray": agent.worth || !measured ? null : "7 4.78",
      style: { stroke: toneOf(agent.worth, most) },
    }),
    s(
      "text",
      { class: "who", ...place, y: y + below },
      name.length > room ? `${name.slice(0, room - 1)}…` : name,
    ),
    s("text", { class: "how", ...place, y: y + below + 14 }, tokensInWords(agent, brief)),
  );
}

function graphLegend({ edges, parts }) {
  const key = (text, colour, line = "solid") =>
    h("span", {}, h("i", { style: { borderTop: `4px ${line} var(${colour})` } }), text);
  return h(
    "p",
    { class: "quiet tones" },
    parts.length > 0 && [
      key("helps", "--c0"),
      key("harms", "--c1"),
      key("neither is shown", "--faint"),
      key("not measured", "--faint", "dashed"),
    ],
    h(
      "span",
      {},
      edges.some(({ sender, reader }) => sender !== reader)
        ? "Width: tokens read. What agents read of their own is in the table only."
        : "No prompt of one agent was found to hold a message of another.",
    ),
    edges.length > MOST_ARROWS && h("span", {}, `The ${MOST_ARROWS} widest are drawn.`),
  );
}
