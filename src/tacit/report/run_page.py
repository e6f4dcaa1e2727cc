"""One run folder as a page needs it: numbers, evaluations, settings, and what is missing."""

import hashlib
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.cli.tables import paired_tests
from tacit.config.file import parse_config
from tacit.errors import ConfigError
from tacit.report.columns import Columns
from tacit.report.episodes import Source, Table, episode_files
from tacit.report.reading import Tail, number, read_json, tree_at
from tacit.report.results import CHECKPOINT, counted, point_of
from tacit.report.tokens import Cutters
from tacit.run.folder import WITHOUT


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
                place = len(self.sources)
                self.sources[path.stem] = Source(path.stem, place, Tail(path), self.agents)
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
        started = Tail(self.folder / "started.jsonl")
        self.starts = [tree for _, _, tree in started.new()]
        self._notes += started.notes()
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
        if self.is_running():
            status = "running"
        elif self.summary:
            status = "stopped" if self.summary.get("stopped") else "finished"
        else:
            status = "unfinished" if any(self.folder.glob("*")) else "waiting"
        return {
            "status": status,
            "step": max(self.metrics.steps, default=None),
            "steps": steps,
            "best_step": number(self.summary.get("best_step")) if self.summary else self.best_step,
        }

    def is_running(self) -> bool:
        """Whether a process of this machine is at it; a run that ended may have been taken up."""
        ended = _written(self.folder / "summary.json") >= _written(self.folder / "started.jsonl")
        return bool(self.starts) and not ended and _is_running(self.starts[-1])

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
        teams = tree_at(self.summary, "teams")
        own = {0: "untrained", self.summary.get("best_step"): "trained"} if self.trains else {}
        for name in teams:
            if not (self.trains and name in ("untrained", "trained")):
                points[name] = point_of(name, "team", None, tree_at(teams, name))
        for name, tree in self.evals.items():
            match = CHECKPOINT.fullmatch(name)
            step = int(match[1]) if match else None
            # what helpers changed is counted at the end, under the checkpoint's other name
            changed = tree_at(teams, own.get(step, ""), "changed") or tree.get("changed")
            kind = "checkpoint" if match else "team"
            points[name] = point_of(name, kind, step, tree | {"changed": changed})
        for source in self._ordered_sources():
            played = source.name != "train" and not source.name.endswith(WITHOUT)
            if played and source.name not in points and len(source):
                points[source.name] = counted(source) | {"partial": not self.summary}
        return [point for point in points.values() if point["accuracy"]]

    def _tests(self) -> list[dict[str, Any]]:
        """The paired tests as sentences, the trained team's first."""
        return [{"text": str(test), "sure": test.sure} for test in paired_tests(self.summary)]

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
        if not (self.folder / "summary.json").exists():
            notes.append("There is no summary.json: the run has not ended, so no paired tests.")
        elif not self.evals:
            notes.append("There is no evals folder: held-out numbers come from the episodes.")
        if not (self.folder / "started.jsonl").exists():
            notes.append("There is no started.jsonl: command lines and versions are not known.")
        for tail in (self.metrics.tail, self.timing.tail, *(s.tail for s in self.sources.values())):
            notes += tail.notes()
        return notes


def _stamp(path: Path) -> tuple[str, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return path.name, status.st_mtime_ns, status.st_size


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return -1.0


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
