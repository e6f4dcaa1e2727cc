"use strict";
// Where the page's data comes from: the file itself, pieces beside it, or the server of `tacit watch`.

const PIECES_KEPT = 48;

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// Conversations stand at the end of the page: they are there once all of it is.
const wholePage = new Promise((resolve) => {
  document.readyState === "loading" ? addEventListener("DOMContentLoaded", resolve) : resolve();
});

// A report on disk: everything is in the page, or in scripts beside it, since a page opened from
// disk may not fetch.
class FileData {
  constructor() {
    this.live = false;
    this.settings = JSON.parse(byId("overview").textContent);
    this.waiting = new Map();
    globalThis.tacitPiece = (key, base64) => {
      this.waiting.get(key)?.(base64);
      this.waiting.delete(key);
    };
  }

  async overviews() {
    return this.settings.runs;
  }

  async rows(run, source) {
    return inflate(byId(`rows-${run}-${source}`).textContent);
  }

  async piece(run, source, piece) {
    const key = `${run}-${source}-${piece}`;
    await wholePage;
    const inside = byId(`piece-${key}`);
    return inflate(inside ? inside.textContent : await this.beside(key));
  }

  beside(key) {
    return new Promise((resolve, reject) => {
      this.waiting.set(key, resolve);
      const script = h("script", { src: `${encodeURIComponent(this.settings.pieces)}/${key}.js` });
      script.onload = () => script.remove();
      script.onerror = () =>
        reject(
          new Error(
            `${this.settings.pieces}/${key}.js is missing: keep that folder beside this page`,
          ),
        );
      document.head.append(script);
    });
  }
}

// `tacit watch`: the same data from its server, which tells when there is more.
class LiveData {
  constructor() {
    this.live = true;
    this.settings = { piece: 200 };
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (given) {
      sessionStorage.setItem("tacit-token", given);
      history.replaceState(null, "", location.pathname);
    }
    this.token = given || sessionStorage.getItem("tacit-token") || "";
  }

  async ask(path, settings = {}) {
    const answer = await fetch(path, { ...settings, headers: { "X-Tacit-Token": this.token } });
    if (!answer.ok) throw new Error((await answer.text()) || answer.statusText);
    return answer.json();
  }

  // Of the runs not shown the server need not read the conversations.
  async overviews(shown) {
    const found = await this.ask(shown ? `data/runs?shown=${shown.join(",")}` : "data/runs");
    this.settings.piece = found.piece;
    return found.runs;
  }

  rows(run, source, from) {
    return this.ask(`data/rows/${run}/${source}?from=${from}`);
  }

  piece(run, source, piece) {
    return this.ask(`data/piece/${run}/${source}/${piece}`);
  }

  act(run, what) {
    return this.ask(`act/${what}/${run}`, { method: "POST" });
  }

  follow(onChange, onState) {
    const events = new EventSource(`events?token=${encodeURIComponent(this.token)}`);
    events.onopen = () => onState(true);
    events.onerror = () => onState(false);
    events.onmessage = () => onChange();
  }
}

// One run: its overview, and the rows of its episodes once they are wanted.
class RunView {
  constructor(overview, number) {
    this.number = number;
    this.rows = new Map();
    this.update(overview);
  }

  update(overview) {
    Object.assign(this, { overview, id: overview.id ?? this.number });
    for (const name of [
      "label",
      "state",
      "points",
      "metrics",
      "timing",
      "sources",
      "agents",
      "budget",
    ])
      this[name] = overview[name];
  }

  source(name) {
    return this.sources.find((one) => one.name === name);
  }

  get checkpoints() {
    return this.points.filter((p) => p.kind === "checkpoint").sort((a, b) => a.step - b.step);
  }

  get untrained() {
    return this.checkpoints.find((p) => p.step === 0);
  }

  // The checkpoint that a trained run is known by: the best one, or the newest until there is one.
  get trained() {
    const later = this.checkpoints.filter((p) => p.step > 0);
    return later.find((p) => p.step === this.state.best_step) ?? later.at(-1);
  }

  // What a source is called in words.
  title(name) {
    if (name === "train") return "training";
    const [, checkpoint, play] = name.match(/^(eval-\d+)( .+)$/) ?? [];
    if (play) return `${this.title(checkpoint)}${play}`; // made to speak, and the like
    const point = this.points.find((p) => p.name === name) ?? this.source(name);
    if (point?.audits) return name.replace(/ [0-9a-f]{8}$/, ""); // of the program that was run
    if (!point || point.kind !== "checkpoint") return name;
    if (point.step === 0) return "untrained";
    return point.name === this.trained?.name && this.state.best_step === point.step
      ? `trained (best, step ${point.step})`
      : `step ${point.step}`;
  }

  // Rows of a source, brought up to date.
  async load(data, source) {
    let held = this.rows.get(source.name);
    if (held && held.epoch === source.epoch && held.count >= source.count) return held;
    if (held && held.epoch !== source.epoch) held = undefined;
    const got = await data.rows(this.id, source.number, held ? held.count : 0);
    if (!held || got.epoch !== held.epoch || got.from !== held.count)
      held = got.from === 0 ? { columns: {} } : undefined;
    if (!held) return this.load(data, { ...source, epoch: -1 });
    for (const [name, column] of Object.entries(got.columns))
      held.columns[name] = (held.columns[name] ?? []).concat(column);
    for (const name of ["epoch", "tasks", "questions", "levels"]) held[name] = got[name];
    held.count = held.columns.task.length;
    this.rows.set(source.name, held);
    return held;
  }
}

// Pieces of whole episodes, the last used ones kept.
class Pieces {
  constructor(data) {
    this.data = data;
    this.kept = new Map();
  }

  async get(run, sourceName, row) {
    const source = run.source(sourceName);
    const number = Math.floor(row / this.data.settings.piece);
    const key = `${run.id}/${sourceName}/${source.epoch}/${number}`;
    const within = row % this.data.settings.piece;
    let piece = this.kept.get(key);
    if (!piece || (await piece).episodes.length <= within) {
      piece = this.data.piece(run.id, source.number, number);
      piece.catch(() => this.kept.delete(key));
    }
    this.kept.delete(key);
    this.kept.set(key, piece);
    if (this.kept.size > PIECES_KEPT) this.kept.delete(this.kept.keys().next().value);
    return piece;
  }

  async episode(run, sourceName, row) {
    const piece = await this.get(run, sourceName, row);
    return { ...piece.episodes[row % this.data.settings.piece], texts: piece.texts };
  }
}
