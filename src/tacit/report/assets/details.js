"use strict";
// Settings, versions, command lines, and the results as Markdown.

// A live page draws itself at every step: what is the same stays, open and scrolled as it was.
let detailsDrawn = "";

function drawDetails(runs) {
  const now = JSON.stringify(
    runs.map(({ label, overview }) => [label, overview.config, overview.starts]),
  );
  if (now !== detailsDrawn) drawPanels(runs);
  detailsDrawn = now;
  byId("markdown").textContent = markdownOf(runs);
  byId("markdown").closest(".panel").hidden = !runs.some((run) => run.points.length);
}

function drawPanels(runs) {
  fill(
    byId("settings"),
    h(
      "div",
      { class: "columns" },
      markdownPanel(),
      runs.length > 1 ? differencesPanel(runs) : null,
      runs.map((run) => runPanel(run)),
    ),
  );
}

const cell = (text) => oneLine(String(text)).replace(/\|/g, "\\|");

// A table for papers and issues.
function markdownOf(runs) {
  const rows = runs.flatMap((run) => headlinePoints(run).map((point) => ({ run, point })));
  const levels = levelNames(rows.map((r) => r.point)),
    many = runs.length > 1;
  const head = [
    many && "run",
    "team",
    `accuracy % [${sureIn(runs[0])}]`,
    ...levels.map((l) => `${l} %`),
    "tokens said",
    "tokens read",
    "per solved",
    "silent %",
  ].filter(Boolean);
  const body = rows.map(({ run, point }) =>
    [
      many && run.label,
      titleOf(run, point),
      spread(point.accuracy),
      ...levels.map((l) => points(point.levels[l]?.mean)),
      fixed(point.tokens?.mean),
      fixed(point.read, 0),
      fixed(point.generated_per_solved, 0),
      points(point.silence),
    ].filter((x) => x !== false),
  );
  const line = (cells) => `| ${cells.map(cell).join(" | ")} |`;
  return [
    line(head),
    `|${head.map((_, n) => (n < (many ? 2 : 1) ? "---" : "---:")).join("|")}|`,
    ...body.map(line),
  ].join("\n");
}

function markdownPanel() {
  const text = h("pre", { tabindex: 0, id: "markdown" });
  return h(
    "div",
    { class: "panel", style: { gridColumn: "1 / -1" } },
    h(
      "div",
      { class: "between" },
      h("h3", {}, "Results as Markdown"),
      button("Copy", () => copy(text.textContent), { id: "copy-markdown" }),
    ),
    text,
  );
}

function runPanel(run) {
  const { overview } = run,
    config = JSON.stringify(overview.config, null, 2);
  const starts = overview.starts.map((start) =>
    h(
      "div",
      {},
      h(
        "p",
        { class: "quiet" },
        `${start.time ?? ""} · ${Object.entries(start.versions ?? {})
          .map(([name, v]) => `${name} ${v}`)
          .join(", ")}`,
      ),
      h("pre", { tabindex: 0 }, shown(String(start.command ?? ""))),
    ),
  );
  return h(
    "div",
    { class: "panel" },
    h("h3", {}, oneLine(run.label)),
    starts.length
      ? [h("p", { class: "quiet", style: { marginTop: ".5rem" } }, "Started with"), ...starts]
      : h("p", { class: "quiet" }, "Command lines and versions were not recorded."),
    Object.keys(overview.config).length
      ? h(
          "details",
          { class: "config" },
          h("summary", {}, "Resolved config"),
          button("Copy", () => copy(config)),
          h("pre", { tabindex: 0 }, shown(config)),
        )
      : null,
  );
}

// Settings in which the runs differ.
function differencesPanel(runs) {
  const flat = runs.map((run) => flatten(run.overview.config)),
    names = [...new Set(flat.flatMap((one) => [...one.keys()]))].sort();
  const differing = names
    .filter((name) => new Set(flat.map((one) => one.get(name))).size > 1)
    .slice(0, 200);
  const cellOf = (text) => h("td", { class: "name" }, oneLine(text ?? "–"));
  const columns = [
    ["setting", ({ name }) => oneLine(name)],
    ...runs.map((run, n) => [oneLine(run.label), ({ name }) => cellOf(flat[n].get(name))]),
  ].filter(() => differing.length);
  const rows = differing.map((name) => ({ name }));
  return table("Where the settings differ", columns, rows, {
    heading: true,
    legend: rows.length ? null : "They do not.",
    style: { gridColumn: "1 / -1" },
  });
}

function flatten(value, path = "", out = new Map()) {
  if (value && typeof value === "object" && !Array.isArray(value))
    for (const [key, inner] of Object.entries(value))
      flatten(inner, path ? `${path}.${key}` : key, out);
  else out.set(path, JSON.stringify(value) ?? "–");
  return out;
}
