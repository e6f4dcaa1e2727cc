"""What counts as right: one grader per family of tasks, looked up by the task's `grader`.

A grader that breaks raises GradingError; a wrong or unreadable answer is a Grade with reward 0.
"""

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

from tacit.errors import GradingError
from tacit.registry import check_name, lookup
from tacit.types import Grade, Task

__all__ = ["GRADERS", "Grader", "find_grader", "grade", "read_answer"]

GRADERS: dict[str, str] = {
    "math": "tacit.grading.math:grade",
    "code": "tacit.sandbox.grader:grade",
    "choice": "tacit.grading.choice:grade",
    "chess": "tacit.benchmarks.checkmate:grade",
}
"""Where each grader is; imported when first used."""
READERS: dict[str, str] = {
    "math": "tacit.grading.math:read",
    "code": "tacit.sandbox.grader:read",
    "choice": "tacit.grading.choice:read",
    "chess": "tacit.benchmarks.checkmate:read",
}
"""What reads an answer as each grader does; other graders' answers are read as mathematics."""


Grader = Callable[[Task, str], Awaitable[Grade]]
"""`await grader(task, text)` gives the grade of a model's final text."""


async def grade(task: Task, text: str) -> Grade:
    """Grade a text with the task's own grader. Any failure becomes a GradingError."""
    grader = find_grader(task.grader)
    try:
        result: Any = await grader(task, text)
    except GradingError as error:
        if task.id in str(error):
            raise
        raise type(error)(f"{task.id}: {error}") from error
    except Exception as error:
        raise GradingError(
            f"{task.id}: grader `{task.grader}` failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(result, Grade):
        raise GradingError(
            f"{task.id}: grader `{task.grader}` must return a Grade, got {type(result).__name__}"
        )
    return result


@lru_cache(maxsize=64)
def find_grader(name: str) -> Grader:
    """The grader of a registered name or of `module:name`; ConfigError if there is none."""
    check_name("grader", name, GRADERS, outside=True)
    grader: Grader = lookup("grader", GRADERS.get(name, name), {})
    return grader


def read_answer(task: Task, text: str) -> str:
    """The answer in a text, written so that equal answers are equal strings; "" if there is none.

    For votes: depends on how the task wants its answer, never on whether the answer is right.
    """
    return str(_reader(task.grader)(task, text))


@lru_cache(maxsize=64)
def _reader(grader: str) -> Any:
    return lookup("reader", READERS.get(grader, READERS["math"]), {})
