"""Episodes for a page: one short row each, to list and filter, and the whole in pieces on demand.

Rows are columns of numbers (texts stand in a table once), since a page holds tens of thousands.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.report.flow import Flow, messages_of
from tacit.report.reading import Tail, number, parse, tree_at
from tacit.report.tokens import Cutters

PIECE = 200
"""Episodes that are loaded together."""
_QUESTION = 240
"""Characters of a question that a list shows and a search finds at once."""
_MOST_AGENTS = 30
"""Agents whose silence has a bit of its own; browsers count in 32."""

COLUMNS = (
    "step", "task", "level", "right", "tokens", "read", "turns", "spoke", "silent", "reward",
    "advantage", "without",
)  # fmt: skip


class Table:
    """Texts by number, each kept once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]


@dataclass(slots=True, eq=False)
class Source:
    """One file of episodes: `train`, `eval-000020`, or a team's name."""

    name: str
    number: int
    """Its place among the sources of its run, in the order they were first seen."""
    tail: Tail
    agents: Table
    columns: dict[str, list[float | None]] = field(init=False)
    places: list[tuple[int, int]] = field(init=False)
    tasks: Table = field(init=False)
    levels: Table = field(init=False)
    questions: list[str] = field(init=False)
    """One for each task of the table."""
    flow: Flow = field(init=False)
    _epoch: int = -1

    def __post_init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._epoch = self.tail.epoch
        self.columns = {name: [] for name in COLUMNS}
        self.places = []
        self.tasks, self.levels = Table(), Table()
        self.questions = []
        self.flow = Flow()

    def __len__(self) -> int:
        return len(self.places)

    @property
    def epoch(self) -> int:
        return self._epoch

    def refresh(self, on_episode: Callable[[dict[str, Any]], None] | None = None) -> bool:
        """Take in what was appended; say whether anything changed."""
        before = (self._epoch, len(self))
        for place, length, tree in self.tail.new():
            if self.tail.epoch != self._epoch:
                self._reset()
            self._add(tree)
            self.places.append((place, length))
            if on_episode:
                on_episode(tree)
        if self.tail.epoch != self._epoch:
            self._reset()
        return before != (self._epoch, len(self))

    def _add(self, tree: dict[str, Any]) -> None:
        row = self._row(tree)
        for name, column in self.columns.items():
            column.append(row[name])

    def _row(self, tree: dict[str, Any]) -> dict[str, float | None]:
        calls = calls_of(tree)
        self.flow.add(calls)
        grade = tree_at(tree, "grade")
        task = self.tasks.place(str(tree.get("task_id", "?")))
        if task == len(self.questions):
            self.questions.append(_question(calls)[:_QUESTION])
        advantages = [number(value) or 0.0 for value in tree_at(tree, "advantages").values()]
        return {
            "step": number(tree.get("step")),
            "task": task,
            "level": self.levels.place(str(tree.get("level", ""))),
            "right": int(bool(grade.get("right"))) if grade else None,
            "tokens": _tokens(calls, "generated"),
            "read": _tokens(calls, "prompt"),
            "turns": sum(not call.get("silent") for call in calls),
            "spoke": self._mask(call for call in calls if not call.get("silent")),
            "silent": self._mask(call for call in calls if call.get("silent")),
            "reward": _short(tree_at(tree, "reward").get("total")),
            "advantage": _short(max(advantages, key=abs, default=None)),
            "without": _short(tree.get("task_if_silent")),
        }

    def _mask(self, calls: Iterator[dict[str, Any]]) -> int:
        places = {self.agents.place(str(call.get("agent", "?"))) for call in calls}
        return sum(1 << place for place in places if place < _MOST_AGENTS)

    def rows(self, start: int = 0) -> dict[str, Any]:
        """The rows from a number on, with the tables whole."""
        return {
            "epoch": self._epoch,
            "from": start,
            "columns": {name: column[start:] for name, column in self.columns.items()},
            "tasks": self.tasks.texts,
            "questions": self.questions,
            "levels": self.levels.texts,
        }

    def piece(self, piece: int, cutters: Cutters) -> bytes:
        """The whole of PIECE episodes, read again from the file."""
        builder = PieceBuilder(cutters)
        with self.tail.path.open("rb") as file:
            for place, length in self.places[piece * PIECE : (piece + 1) * PIECE]:
                file.seek(place)
                builder.add(parse(file.read(length)))
        return builder.take()


class PieceBuilder:
    """Collects whole episodes, prompts' texts once each."""

    def __init__(self, cutters: Cutters) -> None:
        self._cutters = cutters
        self._start()

    def _start(self) -> None:
        self._texts = Table()
        self._episodes: deque[dict[str, Any]] = deque()

    def __len__(self) -> int:
        return len(self._episodes)

    def add(self, tree: dict[str, Any]) -> None:
        kept = ("task_id", "answer", "grade", "error", "reward", "advantages", "seconds")
        self._episodes.append(
            {
                **{name: tree[name] for name in kept if tree.get(name) is not None},
                "calls": [self._call(call) for call in calls_of(tree)],
            }
        )

    def take(self) -> bytes:
        tree = {"texts": self._texts.texts, "episodes": list(self._episodes)}
        self._start()
        return to_json(tree)

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        kept = (
            "agent", "model", "text", "stop", "usage", "policy", "version", "silent", "choice",
            "silence_logprob", "part", "round", "seconds",
        )  # fmt: skip
        prompt = [
            [str(message.get("role", "")), self._texts.place(str(message.get("content", "")))]
            for message in messages_of(call)
        ]
        return {
            **{name: call[name] for name in kept if call.get(name) not in (None, "", False)},
            "prompt": prompt,
            **self._tokens(call),
        }

    def _tokens(self, call: dict[str, Any]) -> dict[str, Any]:
        """Surprise of each token in hundredths of a nat, and where each ends in the text."""
        logprobs, ids, text = call.get("logprobs"), call.get("output_ids"), call.get("text")
        if not (logprobs and ids and isinstance(logprobs, list) and isinstance(text, str)):
            return {}
        cutter = self._cutters.of(str(call.get("model", "")))
        lengths = cutter.cut(text, ids) if cutter else None
        try:
            surprise = [round(-100 * value) for value in logprobs]
        except (TypeError, ValueError, OverflowError):  # no number among them
            return {}
        return {"surprise": surprise, **({"lengths": lengths} if lengths else {})}


def calls_of(tree: dict[str, Any]) -> list[dict[str, Any]]:
    calls = tree.get("calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def to_json(value: Any) -> bytes:
    """Compact JSON; half a character stays the escape it was, and what is no number is null."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return to_json(_finite(value))
    return text.encode("utf-8", "backslashreplace")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return number(value) if isinstance(value, float) else value


def episode_files(folder: Path) -> list[Path]:
    return sorted((folder / "episodes").glob("*.jsonl"))


def _question(calls: list[dict[str, Any]]) -> str:
    """What the first agent was asked, which is the task's question in every shipped topology."""
    asked = messages_of(calls[0]) if calls else []
    return " ".join(str(asked[-1].get("content", "")).split()) if asked else ""


def _tokens(calls: list[dict[str, Any]], which: str) -> float:
    return sum(number(tree_at(call, "usage").get(which)) or 0 for call in calls)


def _short(value: Any) -> float | None:
    kept = number(value)
    return None if kept is None else round(kept, 3)
