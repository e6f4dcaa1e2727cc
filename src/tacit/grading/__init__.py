"""Grades answers: one grader per family of tasks, looked up by the task's `grader`.

A grader that breaks raises GradingError; a wrong or unreadable answer is a Grade with reward 0.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import lru_cache
from numbers import Real
from typing import Any

from tacit.errors import GradingError
from tacit.registry import check_name, lookup
from tacit.types import Grade, Task

__all__ = ["GRADERS", "JUDGE", "REWARDS", "Grader", "find_grader", "grade", "read_answer"]

GRADERS: dict[str, str] = {
    "math": "tacit.graders.math",
    "code": "tacit.sandbox.grader",
    "choice": "tacit.graders.choice",
    "span": "tacit.graders.span",
    "chess": "tacit.benchmarks.checkmate",
}
"""The module with each grader's `grade` and `read`; imported when first used."""
JUDGE = "tacit.graders.judge:Judge"
"""Asks a model, so it is made from an engine; grades tasks whose grader is `judge`."""
REWARDS = {"span": "F1", "judge": "mark"}
"""Name of the reward, for graders that give more than right and wrong."""

Grader = Callable[[Task, str], Awaitable[Grade]]
"""`await grader(task, text)` gives the grade of a model's final text."""


async def grade(task: Task, text: str) -> Grade:
    """Grade a text with the task's own grader. Any failure becomes a GradingError.

    A grader from outside may be a plain function, and return a number: right from 1 on.
    """
    grader = find_grader(task.grader)
    try:
        result = grader(task, text)
        result = await result if inspect.isawaitable(result) else result
        if isinstance(result, Real):
            result = Grade(reward=float(result), right=float(result) >= 1)
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
            f"{task.id}: {task.grader} must return a Grade or a number, not {type(result).__name__}"
        )
    return result


@lru_cache(maxsize=64)
def find_grader(name: str) -> Callable[[Task, str], Any]:
    """The grader of a registered name or of `module:name`; ConfigError if there is none."""
    check_name("grader", name, GRADERS, outside=True)
    grader: Callable[[Task, str], Any]
    grader = lookup("grader", f"{GRADERS[name]}:grade" if name in GRADERS else name, {})
    return grader


def read_answer(task: Task, text: str) -> str:
    """The answer in a text, written so that equal answers are equal strings; "" if there is none.

    For votes: depends on how the task wants its answer, never on whether the answer is right.
    Answers to tasks with a grader from outside are read as mathematics.
    """
    return str(_reader(task.grader)(task, text))


@lru_cache(maxsize=64)
def _reader(grader: str) -> Any:
    return lookup("reader", f"{GRADERS.get(grader, GRADERS['math'])}:read", {})
