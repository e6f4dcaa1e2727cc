"""Python programming: HumanEval, MBPP and sanitized MBPP, and MBPP for teams with a tester.

A task's `data` is for the code grader: `prompt` (source that stands before the solution), `tests`
(source that is run after it and raises on failure) and `entry_point`. Nothing is run here.
"""

import re
from dataclasses import replace

from tacit.benchmarks.benchmark import Benchmark, Fields, Split
from tacit.tasks.source import Row


def _humaneval(row: Row) -> Fields:
    entry, prompt = row["entry_point"], row["prompt"]
    return {
        "question": f"Complete this Python function:\n\n```python\n{prompt.strip()}\n```",
        "answer": _newlines(prompt + row["canonical_solution"]),
        "data": {
            "prompt": prompt,
            "tests": _newlines(f"{row['test']}\n\ncheck({entry})\n"),
            "entry_point": entry,
        },
    }


def _mbpp(row: Row) -> Fields:
    # The set-up code comes after the solution: it makes objects of classes defined there.
    before = [*row.get("test_imports", ()), row.get("test_setup_code", "")]
    tests = "\n".join([*filter(None, before), *row["test_list"]])
    shown = "\n".join(row["test_list"])
    text = row["text"] if "text" in row else row["prompt"]
    return {
        "question": f"{text}\n\nYour code must pass these tests:\n\n```python\n{shown}\n```",
        "answer": _newlines(row["code"]),
        "data": {
            "prompt": "",
            "tests": _newlines(f"{tests}\n"),
            "entry_point": _tested_function(row["code"], shown),
        },
    }


def _mbpp_tested(row: Row) -> Fields:
    """MBPP, but the question shows the first assert only, and the others decide."""
    first, *others = row["test_list"]
    if not others:
        raise ValueError("no assert is left to grade by")
    shown, graded = _mbpp({**row, "test_list": [first]}), _mbpp({**row, "test_list": others})
    return {**shown, "data": {**graded["data"], "visible": [shown["data"]["tests"].strip()]}}


def _newlines(source: str) -> str:
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _tested_function(code: str, tests: str) -> str:
    """The function of the reference solution that the tests call."""
    for name in re.findall(r"^def\s+(\w+)", code, re.MULTILINE):
        if re.search(rf"\b{name}\s*\(", tests):
            return str(name)
    raise ValueError("the tests call no function of `code`")


_TASK_IDS = {
    "prompt": range(1, 11),
    "test": range(11, 511),
    "validation": range(511, 601),
    "train": range(601, 975),
}
"""The split that the MBPP paper made."""


def _mbpp_splits(file: str, **rows: int) -> dict[str, Split]:
    parts = {part: Split(file=file, rows=rows[part], keys=ids) for part, ids in _TASK_IDS.items()}
    return {**parts, "all": Split(file=file, rows=sum(rows.values()))}


HUMANEVAL = Benchmark(
    name="humaneval",
    grader="code",
    description="complete a function from its signature and docstring",
    licence="MIT",
    splits={"test": Split(file="humaneval/test.jsonl", rows=164)},
    parse=_humaneval,
)
MBPP = Benchmark(
    name="mbpp",
    grader="code",
    description="write a short function from one sentence and its tests",
    licence="CC-BY-4.0",
    splits=_mbpp_splits("mbpp/mbpp.jsonl", prompt=10, test=500, validation=90, train=374),
    parse=_mbpp,
    key="task_id",
)
MBPP_SANITIZED = replace(
    MBPP,
    name="mbpp_sanitized",
    description="the MBPP rows that were checked and corrected by people",
    splits=_mbpp_splits("mbpp/sanitized-mbpp.json", prompt=7, test=257, validation=43, train=120),
)
_UNFIT = {954, 800, 922, 924, 928, 970}
"""The other asserts of the first hold for a function that returns nothing; the rest ask, but for an
article, what tasks of `mbpp_plus` ask."""
MBPP_TESTED = replace(
    MBPP,
    name="mbpp_tested",
    description="MBPP with one visible assert; the others grade. To train for mbpp_plus",
    splits={
        "validation": MBPP.splits["validation"],
        "train": replace(MBPP.splits["train"], rows=368, keys={*_TASK_IDS["train"]} - _UNFIT),
    },
    parse=_mbpp_tested,
)
