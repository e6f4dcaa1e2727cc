"""Tasks from a JSONL file of the user's own: one object a line, with `question` and `answer`.

Optional fields: id, level, subject, instruction, grader (math when absent), data (for the grader).
Other fields are left alone unless they look like a slip of the pen.
"""

import difflib
from math import isfinite
from pathlib import Path
from typing import Any

from tacit.errors import DataError
from tacit.tasks.instructions import INSTRUCTIONS, choose_from
from tacit.tasks.source import Row, read_rows
from tacit.types import Task

FIELDS = ("question", "answer", "id", "level", "subject", "instruction", "grader", "data")
NEEDED = {"code": ("tests",), "chess": ("moves", "fen")}
"""What `data` must hold one of, so that the grader can work."""


def load(path: Path) -> list[Task]:
    """Every task of the file, ids made from the file's name and the line where none is given."""
    places: dict[str, str] = {}
    tasks = []
    for index, (place, row) in enumerate(read_rows(path)):
        task = _task(place, row, f"{path.name.removesuffix('.gz').removesuffix('.jsonl')}/{index}")
        if task.id in places:
            raise DataError(
                f"{place}: the id `{task.id}` is that of {places[task.id]} too: ids must differ"
            )
        places[task.id] = place
        tasks.append(task)
    return tasks


def _task(place: str, row: Row, id: str) -> Task:
    for field in sorted(row.keys() - set(FIELDS)):
        if close := difflib.get_close_matches(field, FIELDS, n=1, cutoff=0.8):
            raise DataError(f"{place}: unknown field `{field}`: did you mean `{close[0]}`?")
    grader = _text(place, row, "grader", "math")
    data = row.get("data", {})
    if not isinstance(data, dict):
        raise DataError(f"{place}: `data` must be a JSON object, not {type(data).__name__}")
    if grader in NEEDED and not any(data.get(field) for field in NEEDED[grader]):
        needed = " or ".join(f"`{field}`" for field in NEEDED[grader])
        raise DataError(f"{place}: the grader {grader} needs {needed} in `data`: add it")
    return Task(
        id=_text(place, row, "id", id),
        question=_text(place, row, "question"),
        answer=_text(place, row, "answer"),
        grader=grader,
        instruction=_text(place, row, "instruction", _instruction(grader, data)),
        level=_text(place, row, "level", ""),
        subject=_text(place, row, "subject", ""),
        data=data,
    )


def _instruction(grader: str, data: dict[str, Any]) -> str:
    if grader == "choice" and data.get("choices"):
        return choose_from(data["choices"])
    return INSTRUCTIONS.get(grader, "")


def _text(place: str, row: Row, field: str, default: str | None = None) -> str:
    value = row.get(field, default)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole or (isinstance(value, float) and isfinite(value)):
        value = str(value)
    if not isinstance(value, str):
        said = "is missing" if field not in row else f"is {value!r}"
        raise DataError(f"{place}: `{field}` {said}: give it as a string or a finite number")
    if default is None and not value.strip():
        raise DataError(f"{place}: `{field}` is empty: write it, or delete the line")
    return value
