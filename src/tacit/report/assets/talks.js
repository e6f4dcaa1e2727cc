"use strict";
// Conversations: filters over rows of numbers, a list that draws only what is seen, search that
// reads pieces as it goes.

const ROW = 62;
const FILTERS =
  "where verdict effect talk role level change fewest most first last text order".split(" ");

class Talks {
  constructor(root, data, reader) {
    Object.assign(this, {
      data,
      reader,
      pieces: reader.pieces,
      runs: [],
      flat: [],
      found: [],
      selected: -1,
      searching: 0,
    });
    this.filters = Object.fromEntries(FILTERS.map((name) => [name, ""]));
    this.bar = h("div", { class: "filters", role: "search" });
    this.count = h("p", { class: "count", role: "status" });
    this.spacer = h("div", { class: "spacer" });
    this.list = h(
      "div",
      {
        class: "panel list",
        tabindex: 0,
        role: "listbox",
        "aria-label": "Episodes; arrow keys move, Enter opens",
      },
      this.spacer,
    );
    this.list.addEventListener("scroll", () => this.draw());
    this.list.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.list);
    root.append(this.bar, this.count, h("div", { class: "browser" }, this.list, reader.root));
  }

  // Bring rows up to date with the runs shown, keep filters and selection.
  async show(runs) {
    this.runs = runs;
    const held = this.selectedRow();
    const loads = runs.flatMap((run) =>
      run.sources.map((source) =>
        run.load(this.data, source).then((rows) => ({ run, source: source.name, rows })),
      ),
    );
    const loaded = await Promise.all(loads);
    if (this.runs !== runs) return;
    this.flat = loaded.filter((one) => one.rows.count).sort((a, b) => weight(a) - weight(b));
    for (const one of this.flat) this.derive(one);
    byId("conversations").hidden = !this.flat.length;
    if (!this.bar.contains(document.activeElement)) this.drawFilters(); // nobody is typing there
    this.apply(held, false);
  }

  // What is known from other plays of the same task: did help help, did training mend it?
  derive(one) {
    const { run, rows, source } = one,
      point = run.source(source);
    const alone = run.rows.get(point.alone)?.count && share(run.rows.get(point.alone)),
      before =
        point.kind === "checkpoint" &&
        point.step > 0 &&
        run.untrained &&
        run.rows.get(run.untrained.name)?.count &&
        share(run.rows.get(run.untrained.name));
    const { columns, tasks } = rows;
    one.without = columns.right.map(
      (_, i) => columns.without[i] ?? (alone || undefined)?.get(tasks[columns.task[i]]) ?? null,
    );
    one.effect = columns.right.map((right, i) => {
      const without = one.without[i];
      if (right == null || without == null) return null;
      if (right !== without) return right > without ? "helped" : "harmed";
      return columns.turns[i] > 1 ? "same" : null; // nobody helped where only one spoke
    });
    one.change = columns.right.map((right, i) => {
      const was = before ? before.get(tasks[columns.task[i]]) : null;
      if (right == null || was == null) return null;
      return right > was ? "mended" : right < was ? "broken" : "same";
    });
  }

  drawFilters() {
    const f = this.filters,
      change = (name) => (value) => {
        f[name] = value;
        this.apply();
      };
    const choose = (words, name, options, title, { any = "any", ...settings } = {}) =>
      h(
        "label",
        { title },
        words,
        select([["", any], ...options], f[name], change(name), { "aria-label": words, ...settings }),
      );
    const many = this.runs.length > 1;
    const where = this.flat.map((one) => [
      this.keyOf(one),
      `${many ? `${one.run.label} · ` : ""}${one.run.title(one.source)} (${whole(one.rows.count)})`,
    ]);
    const kinds = [
      ["kind:train", "all training"],
      ["kind:checkpoint", "all held-out checkpoints"],
      ["kind:team", "all other teams"],
    ].filter(([kind]) =>
      this.flat.some((one) => `kind:${one.run.source(one.source).kind}` === kind),
    );
    const effects = this.flat.some((one) => one.effect.some(Boolean)),
      changes = this.flat.some((one) => one.change.some(Boolean));
    const why = "Needs a play without help: a solo team in the run, or the silent arm of training.";
    const levels = [...new Set(this.flat.flatMap((one) => one.rows.levels))].filter(Boolean),
      roles = [...new Set(this.runs.flatMap((run) => run.agents))];
    const box = (name, words, wide) =>
      h("input", {
        type: wide ? "search" : "number",
        min: 0,
        placeholder: words,
        "aria-label": words,
        value: f[name],
        oninput: debounce(200, (e) => change(name)(e.target.value)),
      });
    const between = (words, from, to) =>
      h(
        "label",
        {},
        words,
        h("span", { class: "range" }, box(from, "from"), "–", box(to, "to")),
      );
    fill(
      this.bar,
      h(
        "label",
        { class: "find" },
        "Search",
        Object.assign(box("text", "in questions, messages and answers", true), {
          id: "talk-search",
        }),
      ),
      choose("Where", "where", [...kinds, ...where]),
      choose("Answer", "verdict", ["right", "wrong", "failed"]),
      choose(
        "Help",
        "effect",
        ["helped", "harmed", ["same", "no difference"]],
        effects ? null : why,
        { any: effects ? "any" : "not known", disabled: !effects },
      ),
      changes &&
        choose("Training", "change", [
          ["mended", "mended it"],
          ["broken", "broke it"],
          ["same", "no difference"],
        ]),
      choose("Talk", "talk", [
        ["silent", "somebody silent"],
        ["spoken", "everybody spoke"],
      ]),
      roles.length > 1 &&
        choose("Role", "role", roles, "With Talk: silent or spoken is about this role"),
      levels.length > 1 && choose("Difficulty", "level", levels),
      between("Tokens", "fewest", "most"),
      this.flat.some((one) => one.source === "train") && between("Step", "first", "last"),
      choose(
        "Order",
        "order",
        [
          ["tokens", "most tokens"],
          ["fewest", "fewest tokens"],
          ["reward", "highest reward"],
          ["advantage", "largest advantage"],
          ["latest", "latest first"],
        ],
        null,
        { any: "as played" },
      ),
      button("Clear", () => {
        for (const name in f) f[name] = "";
        this.drawFilters();
        this.apply();
      }),
    );
  }

  keyOf(one) {
    return `${one.run.id}/${one.source}`;
  }

  // Numbers first, at once; then the text, piece by piece. What was asked for begins at the top;
  // what came by itself leaves the list where it is.
  async apply(held = null, top = true) {
    if (top) this.list.scrollTop = 0;
    const turn = ++this.searching,
      f = this.filters;
    const sources = this.flat.filter(
      (one) =>
        !f.where ||
        this.keyOf(one) === f.where ||
        `kind:${one.run.source(one.source).kind}` === f.where,
    );
    const rows = sources.flatMap((one) => this.passing(one).map((i) => ({ one, i })));
    const text = f.text.trim().toLowerCase();
    if (!text) return this.settle(this.ordered(rows), held);
    const found = [];
    let at = performance.now();
    for (let n = 0; n < rows.length; n++) {
      const { one, i } = rows[n];
      if (await this.mentions(one, i, text)) found.push(rows[n]);
      if (turn !== this.searching) return;
      if (performance.now() - at > 120) {
        this.settle(found.slice(), held, `searched ${whole(n + 1)} of ${whole(rows.length)} …`);
        await new Promise((resolve) => setTimeout(resolve));
        if (turn !== this.searching) return;
        at = performance.now();
      }
    }
    this.settle(this.ordered(found), held);
  }

  passing({ run, source, rows, effect, change }) {
    const f = this.filters,
      c = rows.columns,
      out = [];
    const level = f.level === "" ? -1 : rows.levels.indexOf(f.level),
      bit = f.role === "" ? 0 : 1 << run.agents.indexOf(f.role);
    const low = f.fewest === "" ? -Infinity : Number(f.fewest),
      high = f.most === "" ? Infinity : Number(f.most);
    const first = f.first === "" ? -Infinity : Number(f.first),
      last = f.last === "" ? Infinity : Number(f.last),
      stepped = f.first !== "" || f.last !== "";
    const own = run.source(source).step;
    for (let i = 0; i < rows.count; i++) {
      const right = c.right[i];
      if (
        f.verdict &&
        (f.verdict === "failed" ? right != null : right !== (f.verdict === "right" ? 1 : 0))
      )
        continue;
      if (f.effect && effect[i] !== f.effect) continue;
      if (f.change && change[i] !== f.change) continue;
      if (f.level !== "" && c.level[i] !== level) continue;
      if (bit && !((c.spoke[i] | c.silent[i]) & bit)) continue;
      if (f.talk === "silent" && !(bit ? c.silent[i] & bit : c.silent[i])) continue;
      if (f.talk === "spoken" && (bit ? !(c.spoke[i] & bit) : c.silent[i])) continue;
      if (c.tokens[i] < low || c.tokens[i] > high) continue;
      if (stepped) {
        const at = c.step[i] ?? own;
        if (at == null || at < first || at > last) continue;
      }
      out.push(i);
    }
    return out;
  }

  async mentions({ run, source, rows }, i, text) {
    const task = rows.columns.task[i];
    if (
      rows.tasks[task].toLowerCase().includes(text) ||
      rows.questions[task].toLowerCase().includes(text)
    )
      return true;
    if (this.data.live && this.filters.text.length < 2) return false;
    const piece = await this.pieces.get(run, source, i),
      episode = piece.episodes[i % this.data.settings.piece];
    return (
      episode.calls.some((call) => call.text?.toLowerCase().includes(text)) ||
      Boolean(episode.answer?.toLowerCase().includes(text))
    );
  }

  ordered(rows) {
    const by = {
      tokens: (c, i) => -c.tokens[i],
      fewest: (c, i) => c.tokens[i],
      reward: (c, i) => -(c.reward[i] ?? -9e9),
      advantage: (c, i) => -Math.abs(c.advantage[i] ?? 0),
      latest: (c, i) => -(c.step[i] ?? 0),
    }[this.filters.order];
    if (!by) return rows;
    const keys = new Map(rows.map((row) => [row, by(row.one.rows.columns, row.i)]));
    return rows.sort((a, b) => keys.get(a) - keys.get(b));
  }

  settle(found, held, progress = "") {
    this.found = found;
    const total = this.flat.reduce((sum, one) => sum + one.rows.count, 0);
    this.count.textContent = `${plural(found.length, "episode")}${found.length === total ? "" : ` of ${whole(total)}`}${this.summary(found)}${progress ? ` · ${progress}` : ""}`;
    this.spacer.style.height = `${found.length * ROW}px`;
    this.selected = held
      ? found.findIndex(
          (row) => row.one.run === held.run && row.one.source === held.source && row.i === held.i,
        )
      : -1;
    this.draw();
    if (!this.reader.now && found.length && innerWidth > 760) this.open(0, false);
  }

  summary(found) {
    let right = 0,
      graded = 0,
      tokens = 0;
    for (const { one, i } of found) {
      const r = one.rows.columns.right[i];
      if (r != null) {
        graded++;
        right += r;
      }
      tokens += one.rows.columns.tokens[i];
    }
    return graded
      ? ` · ${percent(right / graded)} right · ${fixed(tokens / found.length)} tokens on average`
      : "";
  }

  selectedRow() {
    const row = this.found[this.selected];
    return row && { run: row.one.run, source: row.one.source, i: row.i };
  }

  draw() {
    const top = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 4),
      count = Math.ceil(this.list.clientHeight / ROW) + 8;
    fill(
      this.spacer,
      this.found.slice(top, top + count).map((row, n) => this.row(row, top + n)),
    );
    this.list.setAttribute(
      "aria-activedescendant",
      this.selected >= 0 ? `row-${this.selected}` : "",
    );
  }

  row({ one, i }, place) {
    const c = one.rows.columns,
      right = c.right[i],
      step = c.step[i];
    const kind = right == null ? "failed" : right ? "right" : "wrong";
    const facts = [
      one.source === "train" ? `step ${step}` : one.run.title(one.source),
      `${whole(c.tokens[i])} tokens`,
      c.silent[i] ? `silent: ${this.names(one.run, c.silent[i])}` : null,
      one.rows.levels[c.level[i]],
      one.effect[i] && one.effect[i] !== "same" ? one.effect[i] : null,
      this.runs.length > 1 ? one.run.label : null,
    ];
    return h(
      "div",
      {
        class: "row",
        id: `row-${place}`,
        role: "option",
        "aria-selected": String(place === this.selected),
        "aria-setsize": this.found.length,
        "aria-posinset": place + 1,
        style: { top: `${place * ROW}px` },
        onclick: () => this.open(place, true),
      },
      h(
        "span",
        { class: `mark ${kind}`, role: "img", "aria-label": kind },
        { right: "✓", wrong: "✗", failed: "–" }[kind],
      ),
      h(
        "span",
        { class: "ask" },
        oneLine(one.rows.questions[c.task[i]] || one.rows.tasks[c.task[i]]),
      ),
      h("span", { class: "facts" }, oneLine(facts.filter(Boolean).join(" · "))),
    );
  }

  names(run, mask) {
    return run.agents.filter((_, n) => mask & (1 << n)).join(", ");
  }

  key(event) {
    const page = Math.floor(this.list.clientHeight / ROW) - 1;
    const to = {
      ArrowDown: this.selected + 1,
      ArrowUp: this.selected - 1,
      PageDown: this.selected + page,
      PageUp: this.selected - page,
      Home: 0,
      End: this.found.length - 1,
    }[event.key];
    if (event.key === "Enter" && this.selected >= 0) return this.open(this.selected, true);
    if (to == null || !this.found.length) return;
    event.preventDefault();
    this.open(Math.max(0, Math.min(this.found.length - 1, to)), false);
    const top = this.selected * ROW;
    if (top < this.list.scrollTop) this.list.scrollTop = top;
    else if (top + ROW > this.list.scrollTop + this.list.clientHeight)
      this.list.scrollTop = top + ROW - this.list.clientHeight;
  }

  open(place, enter) {
    this.selected = place;
    this.draw();
    const { one, i } = this.found[place];
    this.reader.show(one.run, one.source, i, this.flat, enter);
  }
}

// The trained team's episodes come first, then the untrained one's, other teams', training.
function weight({ run, source }) {
  const { kind, step } = run.source(source);
  if (source === run.trained?.name) return 0;
  return kind === "checkpoint" ? (step === 0 ? 1 : 1e9 - step) : kind === "team" ? 2 : 2e9;
}

// Task → share of its graded plays that were right.
function share(rows) {
  const sums = new Map();
  rows.columns.right.forEach((right, i) => {
    if (right == null) return;
    const task = rows.tasks[rows.columns.task[i]],
      [a, n] = sums.get(task) ?? [0, 0];
    sums.set(task, [a + right, n + 1]);
  });
  return new Map([...sums].map(([task, [a, n]]) => [task, a / n]));
}
