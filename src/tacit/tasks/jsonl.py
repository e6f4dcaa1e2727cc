"""Tasks from the user's own JSONL file: one object a line, with `question` and `answer`.

Optional fields: id, level, subject, instruction, grader (math if absent), views (agent → private
text), data (for the grader). Other fields are ignored unless they look like a misspelt one.
"""

import difflib
from math import isfinite
from pathlib import Path

from tacit.errors import DataError
from tacit.tasks.instructions import instruction
from tacit.tasks.source import Row, read_rows
from tacit.types import Task

FIELDS = ("question", "answer", "id", "level", "subject", "instruction", "grader", "views", "data")
NEEDED = {"code": ("tests",), "chess": ("moves", "fen")}
"""The grader needs one of these in `data`."""


def load(path: Path) -> list[Task]:
    """Every task of the file; those without an id are numbered under the file's name."""
    places: dict[str, str] = {}
    tasks = []
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    for index, (place, row) in enumerate(read_rows(path)):
        task = _task(place, row, f"{name}/{index}")
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
    if "speak" in row:
        raise DataError(f'{place}: `speak` belongs in `data`: write {{"data": {{"speak": …}}}}')
    grader = _text(place, row, "grader", "math")
    data = row.get("data", {})
    if not isinstance(data, dict):
        raise DataError(f"{place}: `data` must be a JSON object, not {type(data).__name__}")
    if grader in NEEDED and not any(data.get(field) for field in NEEDED[grader]):
        needed = " or ".join(f"`{field}`" for field in NEEDED[grader])
        raise DataError(f"{place}: the grader {grader} needs {needed} in `data`: add it")
    speak = data.get("speak", {})
    if not (isinstance(speak, dict) and all(isinstance(one, bool) for one in speak.values())):
        said = '`data.speak` must say true or false of each agent, as in {"hinter": true}'
        raise DataError(f"{place}: {said}")
    return Task(
        id=_text(place, row, "id", id),
        question=_text(place, row, "question"),
        answer=_text(place, row, "answer"),
        grader=grader,
        instruction=_text(place, row, "instruction", instruction(grader, data.get("choices"))),
        level=_text(place, row, "level", ""),
        subject=_text(place, row, "subject", ""),
        views=_views(place, row.get("views", {})),
        data=data,
    )


def _views(place: str, views: object) -> dict[str, str]:
    if not isinstance(views, dict):
        raise DataError(f"{place}: `views` must be a JSON object, not {type(views).__name__}")
    return {agent: _text(f"{place}: views", views, agent) for agent in views}


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
