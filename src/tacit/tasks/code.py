"""Python programming: HumanEval, MBPP and sanitized MBPP rows as tasks.

A task's `data` is for the code grader: `prompt` (source that stands before the solution), `tests`
(source that is run after it and raises on failure) and `entry_point`. Nothing is run here.
"""

import re
from collections.abc import Callable

from tacit.tasks.benchmark import Benchmark, Split
from tacit.tasks.source import Row
from tacit.types import Task

INSTRUCTION = "Give the whole function, with its imports, in one ```python block."


def _task(id: str, question: str, answer: str, *, prompt: str, tests: str, entry: str) -> Task:
    return Task(
        id=id,
        question=question,
        answer=_newlines(answer),
        grader="code",
        instruction=INSTRUCTION,
        data={"prompt": prompt, "tests": _newlines(tests), "entry_point": entry},
    )


def _newlines(source: str) -> str:
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _humaneval(row: Row, id: str) -> Task:
    entry, prompt = row["entry_point"], row["prompt"]
    return _task(
        id,
        f"Complete this Python function:\n\n```python\n{prompt.strip()}\n```",
        prompt + row["canonical_solution"],
        prompt=prompt,
        tests=f"{row['test']}\n\ncheck({entry})\n",
        entry=entry,
    )


def _mbpp(row: Row, id: str) -> Task:
    # The set-up code comes after the solution: it makes objects of classes defined there.
    before = [*row.get("test_imports", ()), row.get("test_setup_code", "")]
    tests = "\n".join([*(part for part in before if part), *row["test_list"]])
    shown = "\n".join(row["test_list"])
    text = row["text"] if "text" in row else row["prompt"]
    return _task(
        id,
        f"{text}\n\nYour code must pass these tests:\n\n```python\n{shown}\n```",
        row["code"],
        prompt="",
        tests=f"{tests}\n",
        entry=_tested_function(row["code"], shown),
    )


def _tested_function(code: str, tests: str) -> str:
    """The function of the reference solution that the tests call."""
    for name in re.findall(r"^def\s+(\w+)", code, re.MULTILINE):
        if re.search(rf"\b{name}\s*\(", tests):
            return str(name)
    raise ValueError("the tests call no function of `code`")


def _ids(first: int, last: int) -> Callable[[Row], bool]:
    return lambda row: first <= row["task_id"] <= last


def _splits(file: str, prompt: int, test: int, validation: int, train: int) -> dict[str, Split]:
    """The split by task_id that the MBPP paper made, with the rows each has."""
    return {
        "prompt": Split(file=file, rows=prompt, keep=_ids(1, 10)),
        "test": Split(file=file, rows=test, keep=_ids(11, 510)),
        "validation": Split(file=file, rows=validation, keep=_ids(511, 600)),
        "train": Split(file=file, rows=train, keep=_ids(601, 974)),
        "all": Split(file=file, rows=prompt + test + validation + train),
    }


HUMANEVAL = Benchmark(
    name="humaneval",
    family="code",
    description="complete a function from its signature and docstring",
    licence="MIT",
    splits={"test": Split(file="humaneval/test.jsonl", rows=164)},
    parse=_humaneval,
)
MBPP = Benchmark(
    name="mbpp",
    family="code",
    description="write a short function from one sentence and its tests",
    licence="CC-BY-4.0",
    splits=_splits("mbpp/mbpp.jsonl", 10, 500, 90, 374),
    parse=_mbpp,
    key="task_id",
)
MBPP_SANITIZED = Benchmark(
    name="mbpp_sanitized",
    family="code",
    description="the MBPP rows that people checked and mended",
    licence="CC-BY-4.0",
    splits=_splits("mbpp/sanitized-mbpp.json", 7, 257, 43, 120),
    parse=_mbpp,
    key="task_id",
)
