"use strict";
// Puts the page together: which runs are shown, the theme, following a live run, printing.

const data = byId("overview") ? new FileData() : new LiveData();
const page = { runs: [], hidden: new Set(), talks: null, listed: null };

const shownRuns = () => page.runs.filter((run) => !page.hidden.has(run.id));

async function start() {
  page.talks = new Talks(byId("talks"), data, new Reader(data));
  try {
    await refresh();
  } catch (error) {
    fill(
      byId("headline"),
      h("h1", { class: "claim" }, "Nothing to show"),
      h("p", { class: "lead" }, error.message),
    );
    return;
  }
  Promise.all([page.listed, wholePage]).then(() => setTimeout(loadPlotly, 50));
  if (data.live)
    data.follow(refreshSoon, (on) => {
      byId("link-state").textContent = on ? "live" : "not connected";
    });
}

async function refresh() {
  const overviews = await data.overviews(
    page.runs.length ? shownRuns().map((run) => run.id) : null,
  );
  const known = new Map(page.runs.map((run) => [run.id, run]));
  page.runs = overviews.map((overview, n) => {
    const run = known.get(overview.id ?? n);
    if (run) run.update(overview);
    return run ?? new RunView(overview, n);
  });
  const newcomers = page.runs.filter((run) => !known.has(run.id));
  if (data.live) for (const run of newcomers.slice(known.size ? 0 : 1)) page.hidden.add(run.id);
  drawRuns();
  draw();
}

// One refresh at a time, and another after it if more came meanwhile.
let refreshing = null,
  again = false;
function refreshSoon() {
  if (refreshing) {
    again = true;
    return;
  }
  refreshing = refresh()
    .catch(() => {})
    .finally(() => {
      refreshing = null;
      if (again) {
        again = false;
        refreshSoon();
      }
    });
}

function draw() {
  const runs = shownRuns();
  document.title = runs.length === 1 ? `${oneLine(runs[0].label)} · Tacit` : "Tacit";
  for (const [place, part] of [
    ["headline", drawHeadline],
    ["audits", drawAudits],
    ["frontier-chart", drawFrontier],
    ["search-table", drawSearch],
    ["curves-missing", drawCurves],
    ["flows", drawTalk],
    ["settings", drawDetails],
  ])
    try {
      part(runs);
    } catch (error) {
      console.error(error);
      fill(
        byId(place),
        h(
          "p",
          { class: "missing" },
          `This part cannot be drawn from what the run folder holds (${error.message}).`,
        ),
      );
    }
  page.listed = page.talks.show(runs).then(() => {
    for (const link of byId("sections").children)
      link.hidden = document.querySelector(link.hash).hidden;
  });
}

function drawRuns() {
  const bar = byId("runs"),
    many = page.runs.length > 1;
  bar.hidden = !many && !data.live;
  const chips = many
    ? page.runs.map((run) =>
        h(
          "button",
          {
            class: "chip",
            type: "button",
            "data-act": `show-${run.id}`,
            "aria-pressed": String(!page.hidden.has(run.id)),
            title: `${oneLine(run.label)}: show or hide`,
            onclick: () => toggleRun(run),
          },
          h("span", {
            class: "dot",
            style: {
              borderColor: colour(run.number),
              background: page.hidden.has(run.id) ? "transparent" : colour(run.number),
            },
          }),
          h("span", {}, oneLine(run.label)),
          data.live && run.state.status === "running"
            ? h("span", { class: "quiet" }, "running")
            : null,
        ),
      )
    : [];
  fill(bar, chips, data.live ? actions() : null);
}

function toggleRun(run) {
  page.hidden.has(run.id) ? page.hidden.delete(run.id) : page.hidden.add(run.id);
  if (!shownRuns().length) page.hidden.delete(run.id);
  drawRuns();
  draw();
  if (data.live) refreshSoon();
}

// Stop and save act on the one run that is shown.
function actions() {
  const runs = shownRuns(),
    run = runs.length === 1 ? runs[0] : null,
    can = run?.state.status === "running" && run.overview.trains;
  const why = !run
    ? "Show one run to act on it"
    : can
      ? null
      : "This run is not being trained on this machine";
  const act = (what, words, done) =>
    button(
      words,
      () => data.act(run.id, what).then(() => toast(done), (error) => toast(error.message)),
      { "data-act": what, disabled: !can, title: why },
    );
  return h(
    "span",
    { class: "tools" },
    act("save", "Save a checkpoint now", "Asked: a checkpoint is saved after this step"),
    act(
      "stop",
      "Stop after this step",
      "Asked: the run stops after this step, and the same command goes on",
    ),
  );
}

// ---- theme

const THEMES = ["auto", "light", "dark"],
  darkness = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";
try {
  theme = localStorage.getItem("tacit-theme") ?? "auto";
} catch {
  /* a page from disk may have no storage */
}

function dress(name = theme) {
  const dark = name === "dark" || (name === "auto" && darkness.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").setAttribute("aria-label", `Theme: ${name === "auto" ? "as the system" : name}`);
  byId("theme").title = byId("theme").getAttribute("aria-label");
  byId("theme").textContent = { auto: "◐", light: "○", dark: "●" }[name];
}

byId("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  try {
    localStorage.setItem("tacit-theme", theme);
  } catch {
    /* likewise */
  }
  dress();
  drawRuns();
  draw();
});
darkness.addEventListener("change", () => {
  dress();
  draw();
});
dress();

// ---- where we are, and printing

const spy = new IntersectionObserver(
  (entries) => {
    const seen = entries.find((entry) => entry.isIntersecting),
      bar = byId("sections");
    if (!seen) return;
    for (const link of bar.children)
      link.toggleAttribute("aria-current", link.hash === `#${seen.target.id}`);
    const here = bar.querySelector("[aria-current]");
    if (here) bar.scrollLeft = here.offsetLeft - bar.offsetLeft - 40;
  },
  { rootMargin: "-20% 0px -70% 0px" },
);
for (const section of document.querySelectorAll("main > section")) spy.observe(section);

// On paper: light, everything drawn, charts as wide as their column.
addEventListener("beforeprint", () => {
  dress("light");
  draw();
  loadPlotly();
  for (const element of [...pending.keys()]) drawPending(element);
  const paper = 700; // CSS pixels between the margins of A4 and of Letter, about
  for (const chart of document.querySelectorAll(".js-plotly-plot"))
    Plotly.relayout(chart, {
      width: chart.classList.contains("tall") ? paper - 40 : paper / 2 - 40,
      autosize: false,
    });
});
addEventListener("afterprint", () => {
  dress();
  draw();
  for (const chart of document.querySelectorAll(".js-plotly-plot"))
    Plotly.relayout(chart, { width: null, autosize: true });
});

start();
