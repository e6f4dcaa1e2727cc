"""Episodes for a page: one short row each, to list and filter, and the whole in pieces on demand.

Rows are columns of numbers (each text stands in a table once), since a page holds tens of
thousands.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit.errors import RunError
from tacit.report.flow import Flow
from tacit.report.tokens import cutter_of
from tacit.report.tolerant import Tail, number, parse, tree_at, trees_at

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
_OF_EPISODE = (
    "task_id", "views", "needed", "answer", "grade", "error", "reward", "advantages", "seconds",
)  # fmt: skip
_OF_CALL = (
    "agent", "model", "text", "stop", "usage", "policy", "version", "silent", "unheard", "choice",
    "silence_logprob", "part", "round", "seconds", "tool_calls",
)  # fmt: skip
"""What the page shows of an episode and of a call, as the run folder holds it."""


Table = dict[str, int]
"""Texts by number, each kept once."""


def place_of(text: str, table: Table) -> int:
    return table.setdefault(text, len(table))


class Source(Tail):
    """One file of episodes: `train`, `eval-000020`, or a team's name."""

    def __init__(self, path: Path, place: int, agents: Table) -> None:
        """`place`: among the sources of its run, in the order they were first seen."""
        self.name = path.stem
        self.place = place
        self._agents = agents
        super().__init__(path)

    def forget(self) -> None:
        self.columns: dict[str, list[float | None]] = {name: [] for name in COLUMNS}
        self._lines: list[tuple[int, int]] = []
        self._tasks: Table = {}
        self._levels: Table = {}
        self._questions: list[str] = []
        """One for each task of the table."""
        self.flow = Flow()

    def __len__(self) -> int:
        return len(self._lines)

    def refresh(self) -> bool:
        """Take in what is new; True if anything changed."""
        before = self.epoch, len(self)
        for place, length, tree in self.new():
            for name, value in self._row(tree).items():
                self.columns[name].append(value)
            self._lines.append((place, length))
        return before != (self.epoch, len(self))

    def _row(self, tree: dict[str, Any]) -> dict[str, float | None]:
        calls, grade = trees_at(tree, "calls"), tree_at(tree, "grade")
        self.flow.add(calls)
        task = place_of(str(tree.get("task_id", "?")), self._tasks)
        if task == len(self._questions):  # the first agent is asked the task's question
            asked = trees_at(calls[0], "messages")[-1:] if calls else []
            text = "".join(str(message.get("content", "")) for message in asked)
            self._questions.append(" ".join(text.split())[:_QUESTION])
        advantages = [number(value) or 0.0 for value in tree_at(tree, "advantages").values()]
        return {
            "step": number(tree.get("step")),
            "task": task,
            "level": place_of(str(tree.get("level", "")), self._levels),
            "right": int(bool(grade.get("right"))) if grade else None,
            "tokens": _tokens(calls, "generated"),
            "read": _tokens(calls, "prompt"),
            "turns": sum(not (call.get("silent") or call.get("tool_calls")) for call in calls),
            "spoke": self._mask(call for call in calls if not call.get("silent")),
            "silent": self._mask(call for call in calls if call.get("silent")),
            "reward": _short(tree_at(tree, "reward").get("total")),
            "advantage": _short(max(advantages, key=abs, default=None)),
            "without": _short(tree.get("task_if_silent")),
        }

    def _mask(self, calls: Iterator[dict[str, Any]]) -> int:
        places = {place_of(str(call.get("agent", "?")), self._agents) for call in calls}
        return sum(1 << place for place in places if place < _MOST_AGENTS)

    def rows(self, start: int = 0) -> dict[str, Any]:
        """The rows from a number on, with the tables whole."""
        return {
            "epoch": self.epoch,
            "from": start,
            "columns": {name: column[start:] for name, column in self.columns.items()},
            "tasks": list(self._tasks),
            "questions": self._questions,
            "levels": list(self._levels),
        }

    @property
    def pieces(self) -> int:
        return -(-len(self) // PIECE)

    def piece(self, piece: int, config: dict[str, Any]) -> bytes:
        """The whole of PIECE episodes, read again from the file; each prompt's text once.

        `config` is the run's, and says whose tokenizers cut the messages.
        """
        texts: Table = {}
        episodes = []
        with self.path.open("rb") as file:
            for place, length in self._lines[piece * PIECE : (piece + 1) * PIECE]:
                file.seek(place)
                try:
                    tree = tree_at(parse(file.read(length)))
                except ValueError:
                    raise RunError(f"{self.path} has changed since it was read") from None
                kept = {name: tree[name] for name in _OF_EPISODE if tree.get(name) is not None}
                calls = [_call(call, texts, config) for call in trees_at(tree, "calls")]
                episodes.append(kept | {"calls": calls})
        return to_json({"texts": list(texts), "episodes": episodes})


def _call(call: dict[str, Any], texts: Table, config: dict[str, Any]) -> dict[str, Any]:
    prompt = [
        [str(message.get("role", "")), place_of(str(message.get("content", "")), texts)]
        + [str(tool.get("name", "?")) for tool in trees_at(message, "tool_calls")]
        for message in trees_at(call, "messages")
    ]
    kept = {name: call[name] for name in _OF_CALL if call.get(name) not in (None, "", False, [])}
    return {**kept, "prompt": prompt, **_surprise(call, config)}


def _surprise(call: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Surprise of each token in hundredths of a nat, and where each ends in the text."""
    logprobs, ids, text = call.get("logprobs"), call.get("output_ids"), call.get("text")
    if not (logprobs and ids and isinstance(logprobs, list) and isinstance(text, str)):
        return {}
    cutter = cutter_of(config, str(call.get("model", "")))
    lengths = cutter.cut(text, ids) if cutter else None
    try:
        surprise = [round(-100 * value) for value in logprobs]
    except (TypeError, ValueError, OverflowError):  # no number among them
        return {}
    return {"surprise": surprise, **({"lengths": lengths} if lengths else {})}


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


def _tokens(calls: list[dict[str, Any]], which: str) -> float:
    return sum(number(tree_at(call, "usage").get(which)) or 0 for call in calls)


def _short(value: Any) -> float | None:
    kept = number(value)
    return None if kept is None else round(kept, 3)
