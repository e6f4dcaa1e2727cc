"use strict";
// One episode, or two of the same task side by side. What models said is drawn as text, cut where it
// is very long, and odd characters are shown by their number.

const MOST_CHARACTERS = 20000;
const MOST_TOKENS = 4000;

class Reader {
  constructor(data) {
    this.pieces = new Pieces(data);
    this.colour = true;
    this.against = "";
    this.root = h("div", {
      class: "panel reader",
      role: "region",
      "aria-label": "Conversation",
      tabindex: -1,
    });
    fill(this.root, h("p", { class: "empty" }, "Choose an episode to read it."));
    this.root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  close() {
    this.root.classList.remove("open");
    byId("talks").querySelector(".list").focus();
  }

  async show(run, source, i, flat, enter) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.now = { run, source, i, flat };
    const task = taskOf(run, source, i),
      others = this.others(flat, run, source, task);
    if (enter) this.root.classList.add("open");
    const other =
      others.find((o) => o[0] === this.against) ??
      (this.against === "before" &&
        others.find((o) => o[2].run === run && o[2].source === run.untrained?.name)) ??
      null;
    const wanted = [
      other ? this.side(other[2].run, other[2].source, other[2].i, true) : null,
      this.side(run, source, i, Boolean(other)),
    ];
    let sides;
    try {
      sides = (await Promise.all(wanted)).filter(Boolean);
    } catch (error) {
      sides = [h("p", { class: "empty" }, `This conversation cannot be read: ${error.message}`)];
    }
    if (turn !== this.turn) return;
    this.root.classList.toggle("both", Boolean(other));
    fill(
      this.root,
      button("← Back to the list", () => this.close(), { class: "plain back" }),
      this.controls(others, other),
      h("div", { class: "sides" }, sides),
    );
    this.root.scrollTop = 0;
    if (enter) this.root.focus({ preventScroll: true });
  }

  again() {
    const { run, source, i, flat } = this.now;
    this.show(run, source, i, flat, false);
  }

  // Other plays of the same task, as choices.
  others(flat, run, source, task) {
    const found = [];
    for (const one of flat) {
      if (one.run === run && one.source === source) continue;
      const n = one.rows.tasks.indexOf(task),
        i = n < 0 ? -1 : one.rows.columns.task.indexOf(n);
      if (i >= 0)
        found.push([
          `${one.run.id}/${one.source}`,
          (one.run === run ? "" : `${one.run.label} · `) + one.run.title(one.source),
          { run: one.run, source: one.source, i },
        ]);
    }
    return found;
  }

  controls(others, other) {
    const { run, source } = this.now,
      point = run.source(source);
    const options = [["", "nothing"], ...others];
    return h(
      "div",
      { class: "controls", style: { marginBottom: ".9rem" } },
      others.length
        ? choice("Compare with", options, other ? other[0] : "", (key) => {
            this.against = key && key === `${run.id}/${run.untrained?.name}` ? "before" : key;
            this.again();
          })
        : null,
      run.untrained && point.step > 0 && !other && others.length
        ? button("Before and after training", () => {
            this.against = "before";
            this.again();
          })
        : null,
      toggle("Colour by surprise", this.colour, (on) => {
        this.colour = on;
        this.again();
      }),
      this.colour
        ? h(
            "span",
            { class: "scale", "aria-hidden": "true" },
            "sure ",
            [1, 2, 3, 4, 5].map((n) => h("i", { class: `t${n}` })),
            " surprised",
          )
        : null,
    );
  }

  async side(run, source, i, named) {
    const episode = await this.pieces.episode(run, source, i),
      rows = run.rows.get(source).columns;
    return h(
      "article",
      { class: "side" },
      named
        ? h(
            "div",
            { class: "side-name" },
            h("b", {}, oneLine(run.title(source))),
            this.now.run === run ? null : h("span", {}, oneLine(run.label)),
          )
        : null,
      h("div", { class: "question" }, shown(questionOf(episode).slice(0, MOST_CHARACTERS))),
      this.facts(run, source, episode, rows, i),
      this.known(run, source, episode, i),
      episode.calls.map((call) => this.message(run, episode, call)),
    );
  }

  facts(run, source, episode, rows, i) {
    const { grade, error, reward, seconds } = episode,
      tags = [];
    const tag = (text, kind) =>
      tags.push(h("span", { class: `tag ${kind ?? ""}` }, shown(String(text).slice(0, 600))));
    if (error) tag(`failed: ${error}`, "wrong");
    else if (grade)
      tag(
        `${grade.right ? "✓ right" : "✗ wrong"}${grade.answer ? `: read “${grade.answer}”` : ": no answer found"}`,
        grade.right ? "right" : "wrong",
      );
    if (grade?.note) tag(grade.note);
    if (rows.step[i] != null) tag(`step ${rows.step[i]}`);
    tag(`${whole(rows.tokens[i])} tokens said, ${whole(rows.read[i])} read`);
    if (reward) tag(rewardInWords(reward));
    for (const [role, value] of Object.entries(episode.advantages ?? {}))
      tag(`advantage of ${role} ${signed(value, 2)}`);
    if (seconds) tag(`${fixed(seconds)} s`);
    tag(episode.task_id);
    return h("div", { class: "facts-line" }, tags);
  }

  // Who alone knew what, whether it was needed and said, and what that changed.
  known(run, source, episode, i) {
    const { views = {}, needed = {}, grade } = episode,
      agents = [...new Set([...Object.keys(views), ...Object.keys(needed)])];
    if (!agents.length) return null;
    const rows = agents.map((agent) => {
      const calls = episode.calls.filter(({ agent: one }) => one === agent || roleOf(one) === agent),
        spoke = calls.some((call) => !call.silent && !call.unheard),
        said = spoke ? "spoke" : calls.length ? "said nothing" : "was not asked";
      const right = needed[agent] == null ? "" : spoke === needed[agent] ? "right" : "wrong";
      return [
        h(
          "dt",
          { style: { borderLeftColor: agentColour(run, agent) } },
          h("b", {}, oneLine(agent).slice(0, 80)),
          needed[agent] == null
            ? null
            : h("span", { class: "quiet" }, needed[agent] ? "needed" : "not needed"),
          h("span", { class: `tag ${right}` }, said),
        ),
        views[agent] == null ? null : h("dd", { dir: "ltr" }, longView(String(views[agent]))),
      ];
    });
    const without = this.now.flat.find((one) => one.run === run && one.source === source)
      ?.without?.[i];
    return h(
      "div",
      { class: "known" },
      h("div", { class: "quiet" }, "Who alone knew what"),
      h("dl", {}, rows.flat()),
      without == null || !grade
        ? null
        : h(
            "p",
            { class: "quiet" },
            "Without help ",
            verdict(without),
            " · as played ",
            verdict(Number(grade.right)),
          ),
    );
  }

  message(run, episode, call) {
    const usage = call.usage ?? {},
      facts = [
        call.part && call.part !== call.agent ? call.part : null,
        `round ${call.round ?? 0}`,
        plural(usage.generated ?? 0, "token"),
        `${whole(usage.prompt ?? 0)} read`,
        usage.observed ? `${whole(usage.observed)} from tools` : null,
        toolsOf(call).length ? `calls ${toolsOf(call).map(({ name }) => name).join(", ")}` : null,
      ];
    if (call.silence_logprob != null)
      facts.push(`p(silence) ${percent(Math.exp(call.silence_logprob), 0)}`);
    if (call.choice && call.choice !== "free")
      facts.push(
        { speak: "made to speak", silent: "made silent", floor: "sampled with a floor" }[
          call.choice
        ] ?? call.choice,
      );
    if (call.surprise?.length)
      facts.push(`log-prob ${(-call.surprise.reduce((a, b) => a + b, 0) / 100).toFixed(2)}`);
    if (call.policy) facts.push(`weights ${call.policy}, version ${call.version ?? 0}`);
    if (call.stop === "length") facts.push("cut off at its limit");
    return h(
      "div",
      {
        class: `said ${call.silent ? "hush" : ""}`,
        style: { borderLeftColor: agentColour(run, call.agent) },
      },
      h(
        "div",
        { class: "by" },
        h("b", {}, oneLine(call.agent ?? "?").slice(0, 80)),
        facts.filter(Boolean).map((fact) => h("span", {}, oneLine(String(fact)))),
      ),
      observationsOf(call, episode.texts),
      call.silent ? h("div", { class: "text" }, "says nothing") : this.text(call),
      promptOf(call, episode.texts),
    );
  }

  text(call) {
    const called = toolsOf(call).map((one) => `${one.name}(${one.arguments})`),
      full = call.text || called.join("\n"),
      box = h("div", { class: "text", dir: "ltr" });
    if (!full.trim()) {
      fill(box, h("span", { class: "quiet" }, full ? "(only white space)" : "(empty)"));
      return box;
    }
    const cut = full.length > MOST_CHARACTERS ? MOST_CHARACTERS : full.length;
    fill(
      box,
      this.colour && call.lengths ? coloured(full.slice(0, cut), call) : shown(full.slice(0, cut)),
    );
    const parts = [box];
    if (cut < full.length)
      parts.push(
        button(`Show all ${whole(full.length)} characters`, (e) => {
          fill(box, shown(full));
          e.target.remove();
        }),
      );
    if (this.colour && call.surprise && !call.lengths) parts.push(strip(call.surprise));
    return parts;
  }
}

// `holder 2` has the role `holder`.
const roleOf = (agent) => String(agent ?? "").replace(/ \d+$/, "");

const verdict = (share) =>
  share > 0 && share < 1
    ? h("span", { class: "tag" }, `right in ${percent(share, 0)}`)
    : h("span", { class: `tag ${share ? "right" : "wrong"}` }, share ? "✓ right" : "✗ wrong");

const longView = (text) =>
  shown(text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS)} …` : text);

const taskOf = (run, source, i) => {
  const rows = run.rows.get(source);
  return rows.tasks[rows.columns.task[i]];
};

const questionOf = (episode) => {
  const asked = episode.calls[0]?.prompt.at(-1);
  return asked ? episode.texts[asked[1]] : (episode.task_id ?? "");
};

const rewardInWords = (reward) => {
  const { total, task, ...costs } = reward;
  const parts = Object.entries(costs)
    .filter(([, value]) => Math.abs(value) >= 0.0005)
    .map(([name, value]) => `${value < 0 ? "+" : "−"} ${name} ${Math.abs(value).toFixed(3)}`);
  return `R ${total?.toFixed(3)} = task ${task?.toFixed(2)}${parts.length ? ` ${parts.join(" ")}` : ""}`;
};

const level = (surprise) =>
  surprise < 10
    ? 0
    : surprise < 35
      ? 1
      : surprise < 70
        ? 2
        : surprise < 140
          ? 3
          : surprise < 250
            ? 4
            : 5;

// Tokens the model was sure of run together; the others are marked.
function coloured(text, call) {
  const nodes = [];
  let at = 0,
    plain = 0;
  for (let n = 0; n < Math.min(call.lengths.length, MOST_TOKENS); n++) {
    const end = at + call.lengths[n],
      grade = level(call.surprise[n] ?? 0);
    if (grade && end > at) {
      nodes.push(
        ...shown(text.slice(plain, at)),
        h(
          "span",
          {
            class: `t${grade}`,
            title: `probability ${percent(Math.exp(-call.surprise[n] / 100), 1)}, log ${(-call.surprise[n] / 100).toFixed(2)}`,
          },
          shown(text.slice(at, end)),
        ),
      );
      plain = end;
    }
    at = end;
  }
  return [...nodes, ...shown(text.slice(plain))];
}

// Where the tokenizer was not at hand: one small block a token.
const strip = (surprise) =>
  h(
    "div",
    { class: "strip", title: "one block a token; the tokenizer was not at hand to cut the text" },
    surprise.slice(0, 600).map((one) => h("i", { class: level(one) ? `t${level(one)}` : null })),
  );

const toolsOf = (call) =>
  Array.isArray(call.tool_calls) ? call.tool_calls.filter(Boolean) : [];

// What tools told the agent since its last call, which nobody else read: data, not speech.
function observationsOf(call, texts) {
  const prompt = call.prompt ?? [],
    last = prompt.findLastIndex(([role]) => role !== "tool");
  return prompt
    .slice(last + 1)
    .map(([, place, tool]) =>
      h(
        "div",
        { class: "observed" },
        h("div", { class: "quiet" }, `${oneLine(tool ?? "a tool").slice(0, 80)} told it`),
        longText(texts[place]),
      ),
    );
}

function promptOf(call, texts) {
  if (!call.prompt?.length) return null;
  const box = h("details", {}, h("summary", {}, "Exact prompt"));
  box.addEventListener("toggle", () => {
    if (box.open && box.childElementCount === 1)
      for (const [role, place] of call.prompt)
        box.append(h("div", { class: "prompt-role" }, oneLine(role)), longText(texts[place]));
  });
  return box;
}

function longText(text) {
  const pre = h("pre", { dir: "ltr", tabindex: 0 }, shown(text.slice(0, MOST_CHARACTERS)));
  if (text.length > MOST_CHARACTERS)
    pre.append(
      button(`Show all ${whole(text.length)} characters`, () => fill(pre, shown(text))),
    );
  return pre;
}
