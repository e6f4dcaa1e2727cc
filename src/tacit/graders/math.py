r"""Grades mathematics: the final answer of a text against a reference, as values, not as strings.

Plain numbers, and text that differs only in its LaTeX, are compared here; the rest goes to
math-verify in worker processes. Units are ignored. Lists are sets, tuples are ordered, and a set in
braces is no tuple. x = 5 equals 5 but not y = 5; `1012_3` equals 1012 and 1012_3 but no other base.
Numbers must be equal, not near: only a fraction that never ends may be given as six or more digits.
An answer that math-verify cannot decide within its deadline is wrong, and its note says so. An
empty reference is an error.
"""

import os
import re
from functools import cache, lru_cache

from tacit.errors import GradingError
from tacit.graders.final_answer import final_answer
from tacit.graders.latex import flat, parts
from tacit.graders.number import read_number, same_number
from tacit.graders.workers import DeadlineExceeded, Workers
from tacit.types import Grade, Task

DEADLINE_S = 5.0
"""CPU seconds one comparison may take."""
MAX_ANSWER = 1000
"""Characters of an answer worth reading; the longest reference of the benchmarks has under 300."""
WORKERS = 4

_BASE = re.compile(r"(-?\d[\dA-Z.]*)_\{?(\d+)\}?")


async def grade(task: Task, text: str) -> Grade:
    """Right iff the text's final answer equals `task.answer`."""
    answer = final_answer(text, several=len(_keys(task.answer)) > 1)
    if len(answer) > MAX_ANSWER:
        note = f"the answer is longer than {MAX_ANSWER} characters"
        return Grade(reward=0.0, right=False, answer=answer[:MAX_ANSWER], note=note)
    right, note = decide(task.answer, answer), ""
    if right is None:
        right, note = await _compare(task.answer, answer)
    return Grade(reward=float(right), right=right, answer=answer, note=note)


def number_in(text: str) -> float | None:
    """The number that a text gives as its answer."""
    number = read_number(final_answer(text))
    return None if number is None else float(number.value)


def read(task: Task, text: str) -> str:
    """The final answer, numbers as fractions and formulas without their spacing."""
    answer = final_answer(text)
    number = read_number(answer)
    return str(number.value) if number else flat(answer)


def decide(reference: str, answer: str) -> bool | None:
    """The verdict if numbers or text settle it, else None."""
    if not answer:
        return False
    wanted, given = read_number(reference), read_number(answer)
    if wanted and given:
        return same_number(wanted, given)
    keys = _keys(reference)
    if not any(keys):
        raise GradingError(f"the reference answer {reference!r} is empty: mend the task")
    given_keys = [flat(part) for part in parts(answer)]
    if sorted(given_keys) == sorted(keys):
        return True
    return _same_digits(keys[0], given_keys[0]) if len(keys) == len(given_keys) == 1 else None


def _same_digits(reference: str, answer: str) -> bool | None:
    """For numbers with a subscript base: one side may leave it out, neither may change it."""
    wanted, given = _BASE.fullmatch(reference), _BASE.fullmatch(answer)
    if wanted and given:
        return wanted.groups() == given.groups()
    if wanted:
        return wanted[1] == answer
    if given:
        return given[1] == reference
    return None


async def _compare(reference: str, answer: str) -> tuple[bool, str]:
    try:
        equal, note = await _workers().ask([reference, answer], DEADLINE_S)
    except DeadlineExceeded:
        return False, f"undecided within {DEADLINE_S:g} s"
    return bool(equal), str(note)


@cache
def _workers() -> Workers:
    return Workers("tacit.graders.symbolic:compare", min(WORKERS, os.cpu_count() or 1))


@lru_cache(maxsize=8192)
def _keys(reference: str) -> tuple[str, ...]:
    """What the members of the reference are compared by; one member unless it is a list."""
    if read_number(reference):
        return (reference,)
    return tuple(flat(part) for part in parts(reference))
