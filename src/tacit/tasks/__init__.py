"""What is asked: benchmarks, JSONL files, made-up sums and sources of the user's own, as tasks.

`load_tasks` is the way in. Nothing here grades an answer or talks to a model.
"""

import hashlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, DataError
from tacit.registry import check_name, lookup
from tacit.tasks import chess, choice, code, jsonl, math
from tacit.tasks import hub as hub_copy
from tacit.tasks.benchmark import Benchmark, drop_leaks
from tacit.tasks.source import PlacedRow, locate, read_rows
from tacit.types import Task

__all__ = [
    "BENCHMARKS",
    "GENERATED",
    "Summary",
    "answer_form",
    "check_trainable",
    "describe",
    "drop_leaks",
    "load_tasks",
]

BENCHMARKS: dict[str, Benchmark] = {
    "gsm8k": math.GSM8K,
    "math": math.MATH,
    "math500": math.MATH500,
    "aime24": math.AIME24,
    "amc23": math.AMC23,
    "minerva_math": math.MINERVA,
    "olympiadbench": math.OLYMPIADBENCH,
    "humaneval": code.HUMANEVAL,
    "mbpp": code.MBPP,
    "mbpp_sanitized": code.MBPP_SANITIZED,
    "strategyqa": choice.STRATEGYQA,
    "sports_understanding": choice.SPORTS_UNDERSTANDING,
    "checkmate_in_one": chess.CHECKMATE_IN_ONE,
}
GENERATED: dict[str, str] = {"arithmetic": "tacit.tasks.arithmetic:load"}
"""Tasks made by a rule: a function that takes `split`, `count` and options of its own."""


def load_tasks(
    name: str,
    *,
    split: str,
    folder: str | Path | None = None,
    hub: bool = False,
    limit: int | None = None,
    offset: int = 0,
    shuffle_seed: int | None = None,
    level: Sequence[str | int] | None = None,
    subject: Sequence[str] | None = None,
    allow_canaried: bool = False,
    **options: Any,
) -> list[Task]:
    """The tasks of a benchmark, a `.jsonl` file, or the `module:function` that makes them.

    Example: load_tasks("math", split="train", level=[4, 5], shuffle_seed=0, limit=500).
    Filters come first, then the shuffle, then offset and limit. Splits are joined with `+`.
    """
    if (limit is not None and limit < 1) or offset < 0:
        raise ConfigError(
            f"{name}: limit must be 1 or more and offset 0 or more, not {limit} and {offset}"
        )
    is_file = name.endswith((".jsonl", ".jsonl.gz"))
    if options and (is_file or name in BENCHMARKS):
        raise ConfigError(f"{name} has no options of its own, but got {', '.join(options)}")
    if is_file:
        tasks = jsonl.load(Path(folder or "") / name)
    elif name in BENCHMARKS:
        if "train" in split.split("+"):
            check_trainable(name, split, allow_canaried=allow_canaried)
        tasks = BENCHMARKS[name].load(split, _reader(name, folder, hub))
    else:
        if name in GENERATED and limit is not None:
            options = {"count": offset + limit, **options}
        tasks = _call(name, split, options)
    tasks = _filter(f"{name}/{split}", tasks, level, subject)
    if shuffle_seed is not None:
        tasks = _shuffle(tasks, shuffle_seed)
    if not tasks:
        raise DataError(f"{name}: it holds no tasks: add some, or name another")
    if len(tasks) <= offset:
        raise DataError(
            f"{name}/{split}: {len(tasks)} tasks, none left after offset {offset}: lower `offset`"
        )
    return tasks[offset:][:limit]


def answer_form(name: str) -> tuple[str, str] | None:
    """A benchmark's grader and how its questions are to be answered; None where each task says it.

    Needs no file: whoever only asks such questions has none.
    """
    if name not in BENCHMARKS:
        return None
    grader = BENCHMARKS[name].family
    by_grader = jsonl.INSTRUCTIONS | {"choice": choice.instruction(choice.YES_NO)}
    return grader, by_grader[grader]


def check_trainable(name: str, split: str, *, allow_canaried: bool = False) -> None:
    """Refuse to train on files whose authors ask for evaluation only, unless the user insists."""
    if name not in BENCHMARKS or allow_canaried:
        return
    for part in split.split("+"):
        if part in BENCHMARKS[name].splits and BENCHMARKS[name].splits[part].canaried:
            raise ConfigError(
                f"{name}/{part} is BIG-bench data, whose authors ask that it stay out of training: "
                "train on something else, or insist with `allow_canaried: true`"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What `tacit tasks` lists of a source."""

    name: str
    family: str
    grader: str
    description: str
    licence: str
    evaluation_only: bool
    splits: Mapping[str, int | None]
    """Rows of each split; None where a rule makes as many as are asked for."""


def describe() -> list[Summary]:
    """Every source that has a name, benchmarks first."""
    made = [
        Summary(
            name=name,
            family=name,
            grader="math",
            description="sums of one, two or three steps, deterministic by seed",
            licence="Apache-2.0",
            evaluation_only=False,
            splits={"train": None, "test": None},
        )
        for name in GENERATED
    ]
    return [*map(_summary, BENCHMARKS.values()), *made]


def _summary(benchmark: Benchmark) -> Summary:
    return Summary(
        name=benchmark.name,
        family=benchmark.family,
        grader=benchmark.family,
        description=benchmark.description,
        licence=benchmark.licence,
        evaluation_only=benchmark.evaluation_only,
        splits={name: split.rows for name, split in benchmark.splits.items()},
    )


def _reader(
    name: str, folder: str | Path | None, use_hub: bool
) -> Callable[[str], list[PlacedRow]]:
    """What reads a benchmark's file: from the data folder, or else its copy on the Hub."""
    named = folder or os.environ.get("TACIT_DATA")
    if not named and use_hub:
        return hub_copy.read_rows
    if not named:
        raise DataError(
            f"{name}: its files are needed: name the folder that holds them with `folder` or "
            "TACIT_DATA, or download them with `hub: true`"
        )
    if not Path(named).is_dir():
        origin = "`folder`" if folder else "TACIT_DATA"
        raise DataError(f"{name}: {named} is not a folder: mend {origin}")
    return lambda file: read_rows(locate(Path(named), file))


def _call(name: str, split: str, options: dict[str, Any]) -> list[Task]:
    """The tasks that a function makes, ours or the user's."""
    check_name("task source", name, [*BENCHMARKS, *GENERATED], outside=True)
    make = lookup("task source", GENERATED.get(name, name), {})
    try:
        inspect.signature(make).bind(split=split, **options)
    except TypeError as error:
        raise ConfigError(f"{name} cannot be called with these options: {error}") from error
    tasks = list(make(split=split, **options))
    ids: set[str] = set()
    for task in tasks:
        if not isinstance(task, Task):
            raise ConfigError(f"{name} must give tacit.types.Task, not {type(task).__name__}")
        if task.id in ids:
            raise DataError(f"{name}/{split}: two tasks have the id `{task.id}`: ids must differ")
        ids.add(task.id)
    return tasks


def _filter(
    name: str,
    tasks: list[Task],
    level: Sequence[str | int] | None,
    subject: Sequence[str] | None,
) -> list[Task]:
    for field, wanted in (("level", level), ("subject", subject)):
        if wanted is None:
            continue
        names = {_name(value) for value in ([wanted] if isinstance(wanted, str) else wanted)}
        present = {_name(getattr(task, field)): getattr(task, field) for task in tasks}
        if unknown := names - present.keys():
            known = ", ".join(sorted(filter(None, present.values()))) or "none"
            raise DataError(f"{name} has no {field} {', '.join(sorted(unknown))}; it has: {known}")
        tasks = [task for task in tasks if _name(getattr(task, field)) in names]
    return tasks


def _name(value: str | int) -> str:
    """Level 5, "5" and 5 are the same, and so are number_theory and Number Theory."""
    return str(value).casefold().replace("_", " ").removeprefix("level ").strip()


def _shuffle(tasks: list[Task], seed: int) -> list[Task]:
    """Order by a hash of seed and id: the same everywhere, and for a subset the same order."""
    return sorted(tasks, key=lambda task: hashlib.sha256(f"{seed}/{task.id}".encode()).digest())
