"use strict";
// An audit: who is shown whose messages, what each part is worth, and the messages that say why.

const KINDS = { agent: "Agents", round: "Rounds", edge: "Who reads whom" };

// A live page draws itself again and again: what is the same stays, open and scrolled as it was.
let auditsDrawn = "";

function drawAudits(runs) {
  const some = runs.filter((run) => run.overview.audit),
    now = JSON.stringify(some.map(({ label, overview }) => [label, overview.audit, overview.prune]));
  byId("audit").hidden = !some.length;
  if (now === auditsDrawn) return;
  const drawn = some.flatMap((run) => [
    runs.length > 1 && h("h3", { class: "audit-of" }, oneLine(run.label)),
    h("p", { class: "quiet" }, auditInWords(run.overview.audit, run.overview.trains)),
    ...[graphPanels, rankingPanel].map((panel) => panel(run.overview.audit)),
    prunePanel(run.overview.prune),
    ...[messagesPanel, findingsPanel, promptsPanel].map((panel) => panel(run.overview.audit)),
  ]);
  fill(byId("audits"), drawn);
  auditsDrawn = now;
}

// ---- in words

const inPoints = ({ mean, low, high }) =>
  `${signed(100 * mean)} [${signed(100 * low)}, ${signed(100 * high)}]`;
const worthInWords = (part) =>
  part ? `${inPoints(part.value)} points, ${oneLine(part.verdict)}` : "worth not measured";
const tokensInWords = ({ said, read }, show = (value) => fixed(value, 0)) =>
  `said ${show(said)} · read ${show(read)}`;
const edgeName = ({ sender, reader }) =>
  oneLine(`${sender} → ${sender === reader ? "itself" : reader}`);

function edgeInWords(edge) {
  const whose = edge.worth && edge.whole ? `, of ${oneLine(edge.sender)} as a whole` : "";
  return `${edgeName(edge)}: ${fixed(edge.tokens)} tokens an episode, ${plural(edge.messages, "message")} read ${plural(edge.readings, "time")}; ${worthInWords(edge.worth)}${whose}`;
}

// The first line of the page where nothing was trained.
function auditClaim({ parts, team }) {
  const agents = parts.filter((part) => part.kind === "agent"),
    helps = agents.find((part) => sureOf(part) > 0),
    harms = agents.findLast((part) => sureOf(part) < 0),
    claim = (part, verb) =>
      part && `${oneLine(part.name)} ${verb} most: ${inPoints(part.value)} points`;
  if (!agents.length)
    return `${fixed(team.read, 0)} tokens read and ${fixed(team.said, 0)} said an episode`;
  const claims = [claim(helps, "helps"), claim(harms, "harms")].filter(Boolean);
  return claims.join("; ") || "No agent is shown to help or harm";
}

function auditInWords(audit, trains) {
  const said = [`${plural(audit.episodes, "episode")}, each: ${tokensInWords(audit.team)} tokens.`];
  if (audit.reward == null)
    return `${said} Nothing was played without a part, so nothing here has a worth.`;
  said.push(`Reward with all parts ${points(audit.reward)}, on ${plural(audit.tasks, "task")}.`);
  said.push(`The audit took ${plural(audit.spent, "token")}: ${oneLine(audit.ended)}.`);
  if (audit.weights) said.push(`It played with the weights of ${oneLine(audit.weights)}.`);
  else if (trains) said.push("It played the team untrained.");
  if (audit.failed) said.push(`${plural(audit.failed, "play")} failed.`);
  return said.join(" ");
}

// ---- tables

const auditTable = (title, columns, rows, legend) =>
  table(title, columns, rows, { heading: true, legend });

function graphPanels(audit) {
  const { agents, edges, parts } = audit;
  if (!agents.length) return null;
  const columns = [
    ["sender → reader", edgeName],
    parts.length > 0 && [
      "worth",
      ({ worth, whole }) => (worth ? inPoints(worth.value) + (whole ? " *" : "") : "–"),
    ],
    ["tokens", (edge) => fixed(edge.tokens)],
    ["messages", (edge) => whole(edge.messages)],
    ["readings", (edge) => whole(edge.readings)],
  ];
  const lone = edges.some((edge) => edge.worth && edge.whole),
    legend = `Tokens are per episode, estimated by characters. Messages: found whole in prompts of the reader; readings: once for each prompt.${lone ? " *: of the sender as a whole, whom nobody else reads." : ""}`;
  return h(
    "div",
    { class: "pair audit-graph" },
    h(
      "div",
      { class: "panel scroll", tabindex: 0, role: "region", "aria-label": "Graph" },
      h("h3", {}, "Who is shown whose messages"),
      auditGraph(audit),
      graphLegend(audit),
    ),
    auditTable("The same in numbers", columns, edges, legend),
  );
}

function rankingPanel({ parts, confidence, currency }) {
  if (!parts.length) return null;
  const low = Math.min(0, ...parts.map((part) => part.value.low)),
    high = Math.max(0, ...parts.map((part) => part.value.high)),
    wide = (value) => `${((100 * value) / (high - low || 1)).toFixed(2)}%`,
    at = (value) => ({ left: wide(value - low) }),
    sure = `${Math.round(100 * (confidence ?? 0.95))} %`;
  const forest = (part) =>
    h(
      "span",
      { class: "forest", "aria-hidden": "true", style: { color: toneOf(part, mostOf(parts)) } },
      h("u", { style: at(0) }),
      h("i", { style: { ...at(part.value.low), width: wide(part.value.high - part.value.low) } }),
      h("b", { style: at(part.value.mean) }),
    );
  const columns = [
    ["part", (part) => oneLine(part.name)],
    [
      `worth in points, ${sure} interval`,
      (part) => h("span", {}, inPoints(part.value), forest(part)),
    ],
    ["verdict", (part) => oneLine(part.verdict)],
    ["helped", (part) => whole(part.helped)],
    ["harmed", (part) => whole(part.harmed)],
    ["costs said", (part) => fixed(part.generated)],
    ["costs read", (part) => fixed(part.read)],
    currency && [`costs ${oneLine(currency)}`, (part) => money(part.money)],
    ["tasks", (part) => whole(part.tasks)],
    parts.some((part) => part.failed) && ["failed", (part) => whole(part.failed ?? 0)],
  ];
  const rows = [...groupBy(parts, (part) => part.kind)].flatMap(([kind, some]) => [
    KINDS[kind] ?? oneLine(kind),
    ...some,
  ]);
  return auditTable(
    "What each part is worth",
    columns,
    rows,
    `Helped, harmed: plays that were right only with it, only without it. Costs: what an episode takes more with it. Every interval is ${sure} by itself: among ${plural(parts.length, "part")}, some may miss. Verdict and colour go by a wider one, since the audit may end at any of several looks.`,
  );
}

// What `tacit prune` checked on tasks that the audit did not use, cheapest first.
function prunePanel(prune) {
  if (!prune) return null;
  const plain = (name) => oneLine(name.replaceAll("`", ""));
  const columns = [
    ["smaller team", ({ name }) => h(name === prune.chosen ? "b" : "span", {}, plain(name))],
    ["tokens %", (one) => points(one.share)],
    ["reward − whole team's", (one) => inPoints(one.difference)],
    ["check", (one) => (one.passed ? "passed" : "–")],
    ["reward", (one) => points(one.reward)],
    ["said", (one) => fixed(one.generated)],
    ["read", (one) => fixed(one.read)],
    ["tasks", (one) => whole(one.tasks)],
    prune.proposals.some((one) => one.failed) && ["failed", (one) => whole(one.failed ?? 0)],
  ];
  let end = "No smaller team is shown to be as good; more tasks would narrow the intervals.";
  if (prune.chosen) end = `Written to ${oneLine(prune.config)}: ${plain(prune.chosen)}.`;
  else if (prune.proposals.some((one) => one.passed))
    end = "What passed takes no fewer tokens than the whole team.";
  return auditTable(
    "Smaller teams on tasks that the audit did not use",
    columns,
    prune.proposals,
    `Tokens: said and read, of the whole team's. Passed: the interval, widened for the number of proposals and looks, lies above −1 point. ${end}`,
  );
}

function promptsPanel({ agents, currency }) {
  const names = [...new Set(agents.flatMap((agent) => Object.keys(agent.parts)))],
    all = (show) => (row) => (row.again ? "" : show(row.agent)),
    of = (tokens, { again }) => fixed(again ? tokens?.before ?? 0 : tokens?.tokens ?? 0);
  if (!agents.length) return null;
  const columns = [
    [
      "agent",
      ({ agent, again }) =>
        again ? h("span", { class: "quiet" }, "sent before") : oneLine(agent.name),
    ],
    ["calls", all((agent) => fixed(agent.calls))],
    ["said", all((agent) => fixed(agent.said))],
    currency && [oneLine(currency), all((agent) => money(agent.money))],
    ["read", (row) => (row.again ? fixed(row.agent.before) : fixed(row.agent.read))],
    ...names.map((name) => [oneLine(name), (row) => of(row.agent.parts[name], row)]),
  ];
  return auditTable(
    "What prompts consist of",
    columns,
    agents.flatMap((agent) => [{ agent }, ...(agent.before ? [{ agent, again: true }] : [])]),
    "Tokens per episode; parts of prompts are estimated by characters. Own, others: messages of the agent itself and of others. Sent before: what an earlier prompt of the same agent held, in the same episode.",
  );
}

// ---- messages and findings: quoted, as text

const quote = ([name, ...by], text, ...more) =>
  h(
    "div",
    { class: "said" },
    h("p", { class: "by" }, h("b", {}, oneLine(name)), by.map((one) => h("span", {}, oneLine(one)))),
    h("div", { class: "text" }, shown(text)),
    more,
  );

function messageQuote(one) {
  const plays = one.plays > 1 ? `, mean of ${one.plays} plays` : "",
    worth = `${signed(100 * one.value, 0)} points${plays}`,
    tag = (name, answer) => h("span", { class: "tag" }, name, shown(answer));
  return quote(
    [one.agent, worth, `round ${one.round ?? "?"}`, one.task],
    one.text,
    h("p", { class: "facts-line" }, tag("answer: ", one.answer), tag("without it: ", one.without)),
  );
}

// Of each agent and round; who reads a message was not played for single messages.
function messagesPanel({ parts, messages }) {
  const of = { agent: (one) => one.agent, round: (one) => `round ${one.round}` };
  const folds = parts.flatMap((part) => {
    const mine = messages.filter((one) => of[part.kind]?.(one) === part.name),
      [helped, harmed] = [1, -1].map((sign) => mine.filter((one) => one.value * sign > 0).length),
      counts = [helped && `${helped} that helped`, harmed && `${harmed} that harmed`];
    if (!mine.length) return [];
    return h(
      "details",
      {},
      h(
        "summary",
        {},
        h("b", {}, oneLine(part.name)),
        ` (${oneLine(part.verdict)}): ${counts.filter(Boolean).join(", ")}`,
      ),
      mine.map(messageQuote),
    );
  });
  if (!folds.length) return null;
  folds[0].open = true;
  return h("div", { class: "panel" }, h("h3", {}, "Messages that helped or harmed most"), folds);
}

// Names stand between backticks.
const sentence = (text) =>
  text.split("`").map((part, n) => (n % 2 ? h("b", {}, shown(part)) : oneLine(part)));

function findingsPanel({ findings, notes }) {
  const fold = (examples) =>
    h(
      "details",
      {},
      h("summary", {}, plural(examples.length, "example")),
      examples.map(({ agent, task, episode, call, text }) =>
        quote([agent, task, `episode ${episode}, call ${call}`], text),
      ),
    );
  const said = findings.map((one) =>
    h("li", {}, sentence(one.sentence), one.examples.length > 0 && fold(one.examples)),
  );
  if (!said.length && !notes.length) return null;
  return h(
    "div",
    { class: "panel findings" },
    h("h3", {}, "Where tokens and time go"),
    h("ul", {}, said),
    notes.map((note) => h("p", { class: "quiet" }, sentence(note))),
  );
}
