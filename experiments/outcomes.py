"""Episodes as columns: what every table is recomputed from, without a word of any benchmark.

One evaluation becomes one dict of equally long columns, a position for each task. A column whose
values are all equal is kept as that one value.

    {"tasks": "gsm8k/test", "ids": ["0", "1"], "right": "10", "leak": "-1", "path": [310, 402],
     "answer": ["9f02c1d4", "03b7aa51"],
     "calls": {"hinter/hinter": {"generated": [41, 60], "read": 88, "calls": 1, "silent": 0,
                                 "logprob": [-12.41, -30.02]}}}

`answer` is a hash of the answer as its grader read it, so that teams can be asked later where they
agree; `logprob` is of all that was said, where the engine knows it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.evaluation.measure import holds_answer
from tacit.team.prompts import HELPING_PARTS
from tacit.types import Call, Episode, Stop, Task

Columns = dict[str, Any]
BY_TASK = (
    "ids", "right", "answer", "leak", "path", "level", "right_calls", "base_nats", "base_tokens",
)  # fmt: skip


def columns(episodes: Sequence[Episode], tasks: Sequence[Task]) -> Columns:
    """The columns of one evaluation, in the order of the tasks; one episode of each task."""
    by_task = {episode.task_id: episode for episode in episodes}
    mine = [by_task[task.id] for task in tasks]
    name, ids = _ids([task.id for task in tasks])
    made: Columns = {
        "tasks": name,
        "ids": ids,
        "right": "".join(_mark(e.grade.right if e.grade else None) for e in mine),
        "answer": [_answer(e) for e in mine],
        "leak": "".join(_leak(e, task) for e, task in zip(mine, tasks, strict=True)),
        "path": _column([e.path_tokens for e in mine]),
        "calls": _calls(mine),
    }
    if any(task.level for task in tasks):
        made["level"] = [task.level for task in tasks]
    return made


def spread(column: Any, length: int) -> list[Any]:
    """A column as a list, whichever way it is kept."""
    return list(column) if isinstance(column, list | str) else [column] * length


def chosen(tree: Mapping[str, Any], ids: Sequence[str]) -> Columns:
    """The columns of some of the tasks, in the order given."""
    place = {task: i for i, task in enumerate(tree["ids"])}
    places = [place[task] for task in ids]

    def pick(column: Any) -> Any:
        if isinstance(column, str):
            return "".join(column[i] for i in places)
        return [column[i] for i in places] if isinstance(column, list) else column

    calls = {
        kind: {name: pick(column) for name, column in columns.items()}
        for kind, columns in tree["calls"].items()
    }
    kept = {name: pick(tree[name]) for name in BY_TASK if name in tree}
    return {**tree, **kept, "calls": calls}


def _ids(ids: Sequence[str]) -> tuple[str, list[str]]:
    """`gsm8k/test/7` → (`gsm8k/test`, `7`): what all ids begin with is said once."""
    shared = ""
    for parts in zip(*(task_id.split("/")[:-1] for task_id in ids), strict=False):
        if len({*parts}) > 1:
            break
        shared += f"{parts[0]}/"
    return shared.rstrip("/"), [task_id.removeprefix(shared) for task_id in ids]


def _mark(value: bool | None) -> str:
    """`-` where there is nothing to say: a failed episode, or nobody who spoke."""
    return "-" if value is None else "01"[value]


def _answer(episode: Episode) -> str:
    """Empty where nothing was read; of another task the same answer has another hash."""
    read = episode.grade.answer if episode.grade else ""
    whole = f"{episode.task_id}\n{read}".encode()
    return hashlib.blake2b(whole, digest_size=4).hexdigest() if read else ""


def _leak(episode: Episode, task: Task) -> str:
    said = [c.text for c in episode.calls if c.part in HELPING_PARTS and not c.silent]
    return _mark(any(holds_answer(text, task.answer) for text in said) if said else None)


def _calls(episodes: Sequence[Episode]) -> dict[str, dict[str, Any]]:
    """Tokens and silences by agent and by what it was asked to be."""
    kinds = dict.fromkeys(_kind(call) for episode in episodes for call in episode.calls)
    found: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        mine = [[call for call in e.calls if _kind(call) == kind] for e in episodes]
        found[kind] = {
            "generated": _column([sum(c.usage.generated for c in some) for some in mine]),
            "read": _column([sum(c.usage.prompt for c in some) for some in mine]),
            "calls": _column([len(some) for some in mine]),
            "silent": _column([sum(c.silent for c in some) for some in mine]),
            "cut": _column([sum(c.stop is Stop.LENGTH for c in some) for some in mine]),
        }
        if any(call.logprob is not None for some in mine for call in some):
            found[kind]["logprob"] = _column([_logprob(some) for some in mine])
    return found


def _logprob(calls: Sequence[Call]) -> float | None:
    known = [call.logprob for call in calls if call.logprob is not None]
    return round(sum(known), 2) if len(known) == len(calls) else None


def _kind(call: Call) -> str:
    return f"{call.agent}/{call.part}"


def _column(values: list[Any]) -> Any:
    return values[0] if values and all(value == values[0] for value in values) else values


def right_calls(rights: Mapping[str, Sequence[bool]], tasks: Sequence[Task]) -> Any:
    """Task id → which of its sampled answers were right, as a column of counts."""
    return _column([sum(rights[task.id]) for task in tasks])


def base_loss(by_task: Mapping[str, tuple[float, int]], tasks: Sequence[Task]) -> Columns:
    """How surprising the trained messages of each task are to the frozen base: nats and tokens."""
    found = [by_task.get(task.id, (0.0, 0)) for task in tasks]
    return {
        "base_nats": _column([round(nats, 2) for nats, _ in found]),
        "base_tokens": _column([tokens for _, tokens in found]),
    }
