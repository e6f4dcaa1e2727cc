"""Looking graders up, and what becomes of graders that break."""

import subprocess
import sys

import pytest

from tacit.errors import ConfigError, GradingError, SandboxError
from tacit.grading import GRADERS, _reader, find_grader, grade, read_answer
from tacit.types import Grade, Task


def task(grader: str, answer: str = "2") -> Task:
    return Task(id="mine/1", question="?", answer=answer, grader=grader)


async def own(task: Task, text: str) -> Grade:
    return Grade(reward=0.5, right=False, answer=text)


async def broken(task: Task, text: str) -> Grade:
    raise KeyError("tests")


async def without_sandbox(task: Task, text: str) -> Grade:
    raise SandboxError("no isolation")


async def careless(task: Task, text: str) -> str:
    return "0.0"


def plain(task: Task, text: str) -> float:
    return float(text)


async def yes(task: Task, text: str) -> bool:
    return text == task.answer


async def test_a_task_is_graded_by_its_own_grader() -> None:
    assert (await grade(task("math"), r"\boxed{2}")).right
    assert (await grade(task("choice", "yes"), "Yes")).right
    assert await grade(task(f"{__name__}:own"), "x") == Grade(reward=0.5, right=False, answer="x")


async def test_a_grader_of_ones_own_may_be_plain_and_return_a_number() -> None:
    assert await grade(task(f"{__name__}:plain"), "1") == Grade(reward=1.0, right=True)
    assert await grade(task(f"{__name__}:plain"), "0.5") == Grade(reward=0.5, right=False)
    assert (await grade(task(f"{__name__}:yes"), "2")).right
    assert await grade(task(f"{__name__}:yes"), "3") == Grade(reward=0.0, right=False)
    with pytest.raises(GradingError, match=r"must lie in \[0, 1\], got 2.0"):
        await grade(task(f"{__name__}:plain"), "2")


def test_every_registered_grader_exists_and_has_a_reader() -> None:
    assert all(callable(find_grader(name)) for name in GRADERS)
    assert all(callable(_reader(name)) for name in GRADERS)


@pytest.mark.parametrize(
    ("grader", "text", "read"),
    [
        ("math", r"So \boxed{0.50}", "1/2"),
        ("choice", "The answer is (B).", "B"),
        ("chess", r"\boxed{Qxf7#}", "h5f7"),
        ("code", "Look:\n```python\nx = 1\n```", "x = 1"),
        ("mine:grade", r"So \boxed{1/2}", "1/2"),
    ],
)
def test_an_answer_is_read_as_its_grader_reads_it(grader: str, text: str, read: str) -> None:
    data = {"moves": "1. e4 e5 2. Bc4 Nc6 3. Qh5 Nf6 4."}
    asked = Task(id="mine/1", question="?", answer="A", grader=grader, data=data)
    assert read_answer(asked, text) == read


def test_an_unknown_grader_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean `math`"):
        find_grader("maths")
    with pytest.raises(ConfigError, match="cannot import grader"):
        find_grader("no_such_module:grade")


async def test_whatever_breaks_in_a_grader_is_a_grading_error_naming_the_task() -> None:
    with pytest.raises(GradingError, match=r"mine/1: grader .* failed: KeyError"):
        await grade(task(f"{__name__}:broken"), "x")
    with pytest.raises(GradingError, match=r"mine/1: .* must return a Grade or a number, not str"):
        await grade(task(f"{__name__}:careless"), "x")
    with pytest.raises(SandboxError, match="mine/1: no isolation"):
        await grade(task(f"{__name__}:without_sandbox"), "x")
    with pytest.raises(GradingError, match="mine/1: the reference"):
        await grade(task("math", ""), "2")


def test_graders_are_imported_only_when_used() -> None:
    code = (
        "import sys, tacit.grading\n"
        "print([m for m in ('torch', 'sympy', 'math_verify', 'chess') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
