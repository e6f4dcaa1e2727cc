"""One run folder as a page needs it: numbers, evaluations, settings, and what is missing."""

import hashlib
import json
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.config import parse_config
from tacit.console import paired_lines
from tacit.errors import ConfigError
from tacit.evaluate import WITHOUT
from tacit.report.episodes import Source, Table, episode_files
from tacit.report.reading import Tail, number, read_json, tree_at
from tacit.report.tokens import Cutters
from tacit.statistics import Estimate, Paired, wilson

CHECKPOINT = re.compile(r"eval-(\d+)")


class Run:
    """Reads a run folder, and what is new in it each time it is asked to."""

    def __init__(self, folder: Path, label: str | None = None) -> None:
        self.folder = folder
        self.label = label or folder.resolve().name
        self.metrics = Columns(folder / "metrics.jsonl")
        self.timing = Columns(folder / "timing.jsonl")
        self.agents = Table()
        self.sources: dict[str, Source] = {}
        self._stamp: Any = None
        self._read_whole_files()

    @property
    def cutters(self) -> Cutters:
        return Cutters(self.config)

    def refresh(
        self,
        on_episode: Callable[[Source, dict[str, Any]], None] | None = None,
        *,
        episodes: bool = True,
    ) -> bool:
        """Take in what is new; say whether anything is."""
        changed = self._refresh_whole_files()
        for role, agent in tree_at(self.config, "team", "agents").items():
            if tree_at(agent).get("count", 1) == 1:
                self.agents.place(role)  # the run's own agents come first, with the first colours
        changed |= self.metrics.refresh()
        changed |= self.timing.refresh()
        for path in episode_files(self.folder) if episodes else ():
            if path.stem not in self.sources:
                number = len(self.sources)
                self.sources[path.stem] = Source(path.stem, number, Tail(path), self.agents)
            source = self.sources[path.stem]
            each = (lambda tree, s=source: on_episode(s, tree)) if on_episode else None
            changed |= source.refresh(each)
        return changed

    def _refresh_whole_files(self) -> bool:
        files = [
            self.folder / name
            for name in ("config.json", "summary.json", "started.jsonl", "checkpoints/best.json")
        ]
        stamp = [self.is_running(), *(_stamp(path) for path in (*files, *self._eval_files()))]
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        self._read_whole_files()
        return True

    def _eval_files(self) -> list[Path]:
        return sorted((self.folder / "evals").glob("*.json"))

    def _read_whole_files(self) -> None:
        self._notes: list[str] = []
        config = read_json(self.folder / "config.json", self._notes)
        self.config: dict[str, Any] = config if isinstance(config, dict) else {}
        summary = read_json(self.folder / "summary.json", self._notes)
        self.summary: dict[str, Any] = summary if isinstance(summary, dict) else {}
        best = read_json(self.folder / "checkpoints" / "best.json", self._notes)
        self.best_step = number(tree_at(best).get("step"))
        self.starts = [tree for _, _, tree in Tail(self.folder / "started.jsonl").new()]
        read = {path.stem: read_json(path, self._notes) for path in self._eval_files()}
        self.evals = {name: tree for name, tree in read.items() if isinstance(tree, dict)}

    @property
    def trains(self) -> bool:
        there = (self.folder / "metrics.jsonl").exists() or "train" in self.sources
        return there or any(map(CHECKPOINT.fullmatch, self.evals))

    def overview(self) -> dict[str, Any]:
        """Everything but the episodes, as plain JSON values."""
        return {
            "label": self.label,
            "name": str(self.config.get("name", self.label)),
            "seed": self.config.get("seed"),
            "repeats": self._repeats(),
            "trains": self.trains,
            "state": self._state(),
            "agents": self.agents.texts,
            "budget": {
                name: value
                for name in ("tokens", "turns", "money")
                if (value := number(tree_at(self.config, "budget").get(name)))
            },
            "solo": self._solo_teams(),
            "metrics": self.metrics.to_json(),
            "timing": self.timing.to_json(),
            "points": self._points(),
            "tests": self._tests(),
            "stopped": self.summary.get("stopped"),
            "sources": [self._source(source) for source in self._ordered_sources()],
            "config": self.config,
            "starts": [
                {name: start[name] for name in ("time", "command", "versions") if name in start}
                for start in self.starts
            ],
            "notes": self.notes(),
        }

    def _repeats(self) -> str:
        """The same for runs that differ in seed and name only, settings added since included."""
        try:
            config = parse_config(self.config).model_dump(mode="json")
        except ConfigError:
            config = self.config
        rest = {key: value for key, value in config.items() if key not in ("seed", "name")}
        rest = rest if self.config else {}
        whole = json.dumps(rest or self.label, sort_keys=True)
        return hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=6).hexdigest()

    def _state(self) -> dict[str, Any]:
        steps = number(tree_at(self.config, "train").get("steps")) if self.trains else None
        if self.summary:
            status = "stopped" if self.summary.get("stopped") else "finished"
        elif self.is_running():
            status = "running"
        else:
            status = "unfinished" if self.folder.exists() else "waiting"
        return {
            "status": status,
            "step": max(self.metrics.steps, default=None),
            "steps": steps,
            "best_step": number(self.summary.get("best_step")) if self.summary else self.best_step,
        }

    def is_running(self) -> bool:
        """Whether a process of this machine is at it."""
        return not self.summary and bool(self.starts) and _is_running(self.starts[-1])

    def _solo_teams(self) -> list[str]:
        """Teams in which nobody helps."""
        teams = tree_at(self.config, "teams")
        return [name for name in teams if tree_at(teams, name).get("topology") == "solo"]

    def _alone(self, source: Source) -> str | None:
        """Where the same tasks were played without help, to say what help changed."""
        own = "team" if CHECKPOINT.fullmatch(source.name) else source.name
        names = (f"{own}{WITHOUT}", *self._solo_teams())
        return next((n for n in names if n in self.sources and n != source.name), None)

    def _ordered_sources(self) -> list[Source]:
        """Teams first, then checkpoints by step, then training."""
        return sorted(
            self.sources.values(),
            key=lambda s: (s.name == "train", bool(CHECKPOINT.fullmatch(s.name)), s.name),
        )

    def _source(self, source: Source) -> dict[str, Any]:
        match = CHECKPOINT.fullmatch(source.name)
        return {
            "name": source.name,
            "number": source.number,
            "kind": "train" if source.name == "train" else "checkpoint" if match else "team",
            "step": int(match[1]) if match else None,
            "count": len(source),
            "epoch": source.epoch,
            "alone": self._alone(source),
            "flow": source.flow.to_json(),
        }

    def _points(self) -> list[dict[str, Any]]:
        """Every evaluated team and checkpoint, with where the numbers come from."""
        points: dict[str, dict[str, Any]] = {}
        for name, tree in tree_at(self.summary, "teams").items():
            if isinstance(tree, dict) and (not self.trains or name not in ("trained", "untrained")):
                points[name] = _point(name, "team", None, tree)
        for name, tree in self.evals.items():
            match = CHECKPOINT.fullmatch(name)
            step = int(match[1]) if match else None
            points[name] = _point(name, "checkpoint" if match else "team", step, tree)
        for source in self._ordered_sources():
            played = source.name != "train" and not source.name.endswith(WITHOUT)
            if played and source.name not in points and len(source):
                points[source.name] = _counted(source) | {"partial": not self.summary}
        return [point for point in points.values() if point["accuracy"]]

    def _tests(self) -> list[dict[str, Any]]:
        """The paired tests as sentences, the trained team's first."""
        sentences: list[dict[str, Any]] = []
        for name, tree in tree_at(self.summary, "trained_compared_with").items():
            sentences += _in_words(name, "trained", tree)
        first = str(self.summary.get("compared_with", ""))
        for name, tree in tree_at(self.summary, "paired").items():
            sentences += _in_words(first, name, tree)
        return sentences

    def notes(self) -> list[str]:
        """What is missing or damaged, a sentence each."""
        notes = list(self._notes)
        if not (self.folder / "config.json").exists():
            notes.append("There is no config.json: settings and budgets are not known.")
        if self.trains and not self.metrics.steps:
            notes.append("There is no metrics.jsonl with whole lines yet: no curves.")
        if self.trains and not self.timing.steps:
            notes.append("There is no timing.jsonl: how long each phase took is not known.")
        files = {path.stem for path in episode_files(self.folder)}
        if not files:
            notes.append("There is no episodes folder: no conversations and no flow.")
        elif self.trains and "train" not in files:
            notes.append("Training episodes were not kept: only held-out conversations are here.")
        if not self.summary:
            notes.append("There is no summary.json: the run has not ended, so no paired tests.")
        if not self.starts:
            notes.append("There is no started.jsonl: command lines and versions are not known.")
        for tail in (self.metrics.tail, self.timing.tail, *(s.tail for s in self.sources.values())):
            notes += tail.notes()
        return notes


class Columns:
    """A metrics file as columns; of a step that was replayed the last numbers count."""

    def __init__(self, path: Path) -> None:
        self.tail = Tail(path)
        self._epoch = 0
        self._rows: dict[float, dict[str, float]] = {}

    @property
    def steps(self) -> list[float]:
        return list(self._rows)

    def refresh(self) -> bool:
        changed = False
        for _, _, tree in self.tail.new():
            self._begin_anew_if_cut()
            step = number(tree.pop("step", None))
            if step is not None:
                kept = {
                    name: one for name, value in tree.items() if (one := number(value)) is not None
                }
                self._rows.setdefault(step, {}).update(kept)
            changed = True
        return self._begin_anew_if_cut() or changed

    def _begin_anew_if_cut(self) -> bool:
        cut = self.tail.epoch != self._epoch
        if cut:
            self._epoch = self.tail.epoch
            self._rows.clear()
        return cut

    def to_json(self) -> dict[str, Any]:
        steps = sorted(self._rows)
        names = dict.fromkeys(name for step in steps for name in self._rows[step])
        return {
            "steps": steps,
            "columns": {
                name: [_rounded(self._rows[step].get(name)) for step in steps] for name in names
            },
        }


def _in_words(baseline: str, name: str, tree: Any) -> list[dict[str, Any]]:
    try:
        test = Paired(**{**tree, "difference": Estimate(**tree["difference"])})
        lines = list(paired_lines(baseline, {name: test}))
    except (TypeError, KeyError, ValueError):  # an older layout, or no task in common
        return []
    sure = max(test.p_mcnemar, test.p_bootstrap) < 0.05
    return [{"text": line, "sure": sure} for line in lines]


def _point(name: str, kind: str, step: int | None, tree: dict[str, Any]) -> dict[str, Any]:
    kept = (
        "tasks", "samples", "failed", "majority", "any_right", "read", "generated_per_solved",
        "path_tokens", "path_seconds", "silent_accuracy", "spoken_accuracy", "leaks", "money",
        "money_per_solved",
    )  # fmt: skip
    return {
        "name": name,
        "kind": kind,
        "step": step,
        "accuracy": _estimate(tree.get("accuracy")),
        "tokens": _estimate(tree.get("generated")),
        "levels": {lv: _estimate(e) for lv, e in tree_at(tree, "accuracy_by_level").items()},
        "agents": tree.get("agents") if isinstance(tree.get("agents"), list) else [],
        **{name: number(tree.get(name)) for name in kept},
    }


def _counted(source: Source) -> dict[str, Any]:
    """A team still being played: what its episodes say so far."""
    match = CHECKPOINT.fullmatch(source.name)
    graded = [right for right in source.columns["right"] if right is not None]
    tokens = [t or 0 for t in source.columns["tokens"]]
    accuracy = wilson(sum(graded), len(graded)) if graded else None
    mean = sum(tokens) / len(tokens)
    return {
        "name": source.name,
        "kind": "checkpoint" if match else "team",
        "step": int(match[1]) if match else None,
        "accuracy": accuracy
        and {"mean": accuracy.mean, "low": accuracy.low, "high": accuracy.high},
        "tokens": {"mean": mean, "low": mean, "high": mean},
        "levels": {},
        "agents": [],
        "tasks": len(graded),
        "failed": len(source) - len(graded),
    }


def _estimate(value: Any) -> dict[str, float] | None:
    tree = tree_at(value)
    mean = number(tree.get("mean"))
    if mean is None:
        return None
    low, high = number(tree.get("low")), number(tree.get("high"))
    return {"mean": mean, "low": mean if low is None else low, "high": high or mean}


def _rounded(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else float(f"{value:.6g}")


def _stamp(path: Path) -> tuple[str, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return path.name, status.st_mtime_ns, status.st_size


def _is_running(start: dict[str, Any]) -> bool:
    """Whether the process that began it is still there, as far as this machine can tell."""
    pid = number(start.get("pid"))
    if pid is None or start.get("host") != platform.node():
        return False
    try:
        os.kill(int(pid), 0)
    except (OSError, OverflowError):
        return False
    return True
