"""One run folder as a page needs it: numbers, evaluations, settings, and what is missing."""

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import Any

from tacit.cli.paired_tests import paired_tests
from tacit.config.file import parse_config
from tacit.errors import ConfigError
from tacit.report.audit_page import audit_of, is_play, prune_of
from tacit.report.episodes import Source, Table, place_of
from tacit.report.results import counted, kind_of, point_of, search_of, step_of
from tacit.report.tolerant import Columns, Tail, number, read_json, tree_at
from tacit.run.folder import VARIANTS, WITHOUT

ENDS = ("summary.json", "audit.json")
"""Written last, each by its own command."""


class Run:
    """Reads a run folder, and on each `refresh` what is new in it."""

    def __init__(self, folder: Path, label: str | None = None) -> None:
        self.folder = folder
        self.label = label or folder.resolve().name
        self.metrics = Columns(folder / "metrics.jsonl")
        self.timing = Columns(folder / "timing.jsonl")
        self.agents: Table = {}
        self.sources: dict[str, Source] = {}
        self._stamps: Any = None
        self._read_whole_files()

    def refresh(self, *, episodes: bool = True) -> bool:
        """Take in what is new; True if anything changed."""
        changed = self._refresh_whole_files()
        for role, agent in tree_at(self.config, "team", "agents").items():
            if tree_at(agent).get("count", 1) == 1:
                place_of(
                    role, self.agents
                )  # the run's own agents come first, with the first colours
        changed |= self.metrics.refresh()
        changed |= self.timing.refresh()
        for path in self._files("episodes/*.jsonl") if episodes else ():
            if path.stem not in self.sources:
                self.sources[path.stem] = Source(path, len(self.sources), self.agents)
            changed |= self.sources[path.stem].refresh()
        return changed

    def _refresh_whole_files(self) -> bool:
        names = ("config.json", *ENDS, "prune.json", "search.json", "started.jsonl")
        files = [self.folder / name for name in (*names, "checkpoints/best.json")]
        files += self._files("evals/*.json")
        stamps = [self.is_running(), {path: _stamp(path) for path in files}]
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        self._read_whole_files()
        return True

    def _files(self, pattern: str) -> list[Path]:
        return sorted(self.folder.glob(pattern))

    def _read_whole_files(self) -> None:
        self._notes: list[str] = []
        self.config = read_json(self.folder / "config.json", self._notes)
        self.summary = read_json(self.folder / "summary.json", self._notes)
        self.audit = audit_of(read_json(self.folder / "audit.json", self._notes))
        self.prune = prune_of(read_json(self.folder / "prune.json", self._notes))
        self.search = search_of(read_json(self.folder / "search.json", self._notes))
        self._best = read_json(self.folder / "checkpoints" / "best.json", self._notes)
        started = Tail(self.folder / "started.jsonl")
        self.starts = [tree for _, _, tree in started.new()]
        self._notes += started.notes()
        read = {path.stem: read_json(path, self._notes) for path in self._files("evals/*.json")}
        self.evals = {name: tree for name, tree in read.items() if tree}

    def _is_play(self, source: str) -> bool:
        recorded = (self.folder / "recording.json").exists()
        return is_play(source, audited=recorded or "audited" in self.sources)

    @property
    def trains(self) -> bool:
        there = (self.folder / "metrics.jsonl").exists() or "train" in self.sources
        return there or any(step_of(name) is not None for name in self.evals)

    def overview(self) -> dict[str, Any]:
        """Everything but the episodes, as plain JSON values."""
        budget, known = tree_at(self.config, "budget"), ("time", "command", "versions")
        return {
            "label": self.label,
            "name": str(self.config.get("name", self.label)),
            "seed": self.config.get("seed"),
            "confidence": self._confidence(),
            "repeats": self._repeats(),
            "trains": self.trains,
            "state": self._state(),
            "agents": list(self.agents),
            "budget": {
                name: value
                for name in ("tokens", "turns", "money")
                if (value := number(budget.get(name)))
            },
            "solo": self._solo_teams(),
            "metrics": self.metrics.to_json(),
            "timing": self.timing.to_json(),
            "points": self._points(),
            "search": self.search,
            "tests": [{"text": str(t), "sure": t.sure} for t in paired_tests(self.summary)],
            "stopped": self.summary.get("stopped"),
            "audit": self.audit,
            "prune": self.prune,
            "sources": [self._source(source) for source in self._ordered_sources()],
            "config": self.config,
            "starts": [{name: s[name] for name in known if name in s} for s in self.starts],
            "notes": self.notes(),
        }

    def _confidence(self) -> float:
        """Of the intervals, as the config has it or by default."""
        return number(tree_at(self.config, "evaluation").get("confidence")) or 0.95

    def _repeats(self) -> str:
        """A hash that runs share if only seed and name differ. Missing settings have defaults."""
        try:
            config = parse_config(self.config).model_dump(mode="json") if self.config else {}
        except ConfigError:
            config = self.config
        rest = {key: value for key, value in config.items() if key not in ("seed", "name")}
        whole = json.dumps(rest or self.label, sort_keys=True)
        return hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=6).hexdigest()

    def _state(self) -> dict[str, Any]:
        steps = number(tree_at(self.config, "train").get("steps")) if self.trains else None
        if self.is_running():
            status = "running"
        elif self.summary or self.audit:
            status = "stopped" if self.summary.get("stopped") else "finished"
        else:
            status = "unfinished" if any(self.folder.glob("*")) else "waiting"
        best = self.summary.get("best_step") if self.summary else self._best.get("step")
        step = max(self.metrics.steps, default=None)
        return {"status": status, "step": step, "steps": steps, "best_step": number(best)}

    def is_running(self) -> bool:
        """True if a process of this machine is at it; a finished run may have been resumed."""
        *ended, started = (_stamp(self.folder / name)[0] for name in (*ENDS, "started.jsonl"))
        return bool(self.starts) and max(ended) < started and _is_alive(self.starts[-1])

    def _solo_teams(self) -> list[str]:
        """Teams in which nobody helps."""
        teams = tree_at(self.config, "teams")
        return [name for name in teams if tree_at(teams, name).get("topology") == "solo"]

    def _ordered_sources(self) -> list[Source]:
        """Teams first, then checkpoints by step, then training."""
        order = ("team", "checkpoint", "train")
        return sorted(self.sources.values(), key=lambda s: (order.index(kind_of(s.name)), s.name))

    def _source(self, source: Source) -> dict[str, Any]:
        played = next((n for n in map(source.name.removesuffix, VARIANTS) if n != source.name), "")
        own = "team" if kind_of(played or source.name) == "checkpoint" else played or source.name
        unhelped = (f"{own}{WITHOUT}", *self._solo_teams())  # the same tasks played without help
        return {
            "name": source.name,
            "number": source.place,
            "kind": kind_of(source.name),
            "audits": self._is_play(source.name),
            "step": step_of(source.name),
            "count": len(source),
            "epoch": source.epoch,
            "alone": next((n for n in unhelped if n in self.sources and n != source.name), None),
            "flow": source.flow.to_json(),
        }

    def _points(self) -> list[dict[str, Any]]:
        """Every evaluated team and checkpoint."""
        teams = tree_at(self.summary, "teams")
        own = {0: "untrained", self.summary.get("best_step"): "trained"} if self.trains else {}
        own_names = ("untrained", "trained") if self.trains else ()
        points = {n: point_of(n, tree_at(teams, n)) for n in teams if n not in own_names}
        for name, tree in self.evals.items():
            # what helpers and talk change is counted at the end, under the checkpoint's other name
            end = tree_at(teams, own.get(step_of(name), ""))
            later = {key: end[key] for key in ("changed", "talk") if end.get(key)}
            points[name] = point_of(name, tree | later)
        for source in self._ordered_sources() if not self.search else ():  # on other tasks
            played = source.name != "train" and not source.name.endswith(VARIANTS)
            played &= not self._is_play(source.name)
            if played and source.name not in points and len(source):
                points[source.name] = counted(source, self._confidence()) | {
                    "partial": not (self.summary or self.audit)
                }
        return [point for point in points.values() if point["accuracy"]]

    def notes(self) -> list[str]:
        """What is missing or damaged, a sentence each."""
        notes = list(self._notes)
        here = {path.name for path in self._files("*")}
        files = {path.stem for path in self._files("episodes/*.jsonl")}
        if not (here & {"config.json", "recording.json"}):
            notes.append("There is no config.json: settings and budgets are not known.")
        if self.trains and not self.metrics.steps:
            notes.append("There is no metrics.jsonl with whole lines yet: no curves.")
        if self.trains and not self.timing.steps:
            notes.append("There is no timing.jsonl: how long each phase took is not known.")
        if "recording.json" in here:
            if not self.audit:
                notes.append("This recording has not been audited: run `tacit audit` on it first.")
        elif not files:
            notes.append("There is no episodes folder: no conversations and no flow.")
        elif self.trains and "train" not in files:
            notes.append("Training episodes were not kept: only held-out conversations are here.")
        if "summary.json" not in here and not self.audit:
            notes.append("There is no summary.json: the run has not ended, so no paired tests.")
        elif not (self.evals or self.audit or self.search):
            notes.append("There is no evals folder: held-out numbers come from the episodes.")
        if "started.jsonl" not in here:
            notes.append("There is no started.jsonl: command lines and versions are not known.")
        for tail in (self.metrics, self.timing, *self.sources.values()):
            notes += tail.notes()
        return notes


def _stamp(path: Path) -> tuple[int, int]:
    """When a file was written and its size; no time if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return -1, 0
    return status.st_mtime_ns, status.st_size


def _is_alive(start: dict[str, Any]) -> bool:
    """True if the process that logged this start still runs, as far as this machine can tell."""
    pid = number(start.get("pid"))
    if pid is None or start.get("host") != platform.node():
        return False
    try:
        os.kill(int(pid), 0)
    except (OSError, OverflowError):
        return False
    return True
