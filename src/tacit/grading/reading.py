"""What a text gives as its answer, in a form in which equal answers are equal strings.

For votes: it looks at how the task wants its answer, never at whether the answer is right.
"""

import re
import textwrap
from collections.abc import Callable

from tacit.types import Task

FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.M | re.S)


def read_answer(task: Task, text: str) -> str:
    """The answer as its grader would read it; empty when there is none."""
    return READERS.get(task.grader, _mathematics)(task, text)


def _mathematics(task: Task, text: str) -> str:
    from tacit.grading.answer import final_answer
    from tacit.grading.latex import flat
    from tacit.grading.number import read_number

    answer = final_answer(text)
    number = read_number(answer)
    return str(number.value) if number else flat(answer)


def _choice(task: Task, text: str) -> str:
    from tacit.grading.choice import choices_of, read_choice

    return read_choice(text, choices_of(task))


def _chess(task: Task, text: str) -> str:
    from tacit.grading.chess import last_move, position

    move = last_move(position(task), text)
    return move.uci() if move else ""


def _code(task: Task, text: str) -> str:
    return extract(text, task.data.get("entry_point", "")).strip()


def extract(text: str, entry_point: str = "") -> str:
    """The code of an answer: the last fenced block that defines the function, else the last
    Python block, else the last block of any kind, else the whole text."""
    blocks = [(kind.lower(), textwrap.dedent(body)) for kind, body in FENCE.findall(text)]
    python = [body for kind, body in blocks if kind in ("python", "py", "python3")]
    bodies = python or [body for _, body in blocks]
    name = re.escape(entry_point)
    definition = re.compile(rf"^\s*(?:(?:async\s+def|def|class)\s+{name}\b|{name}\s*=)", re.M)
    defining = [body for body in bodies if entry_point and definition.search(body)]
    return (defining or bodies or [text])[-1]


READERS: dict[str, Callable[[Task, str], str]] = {
    "math": _mathematics,
    "choice": _choice,
    "chess": _chess,
    "code": _code,
}
