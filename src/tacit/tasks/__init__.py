"""Loads tasks: of benchmarks, JSONL files, generated sums and the user's own functions.

`load_tasks` is the entry point. Nothing here grades an answer or talks to a model.
"""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, DataError
from tacit.registry import check_name, lookup
from tacit.tasks import jsonl
from tacit.tasks.filters import drop_leaks as drop_leaks, keep_only, shuffle
from tacit.types import Task

BENCHMARKS: dict[str, str] = {
    "gsm8k": "tacit.benchmarks.maths:GSM8K",
    "math": "tacit.benchmarks.maths:MATH",
    "math500": "tacit.benchmarks.maths:MATH500",
    "aime24": "tacit.benchmarks.maths:AIME24",
    "amc23": "tacit.benchmarks.maths:AMC23",
    "minerva_math": "tacit.benchmarks.maths:MINERVA",
    "olympiadbench": "tacit.benchmarks.maths:OLYMPIADBENCH",
    "humaneval": "tacit.benchmarks.programming:HUMANEVAL",
    "mbpp": "tacit.benchmarks.programming:MBPP",
    "mbpp_sanitized": "tacit.benchmarks.programming:MBPP_SANITIZED",
    "strategyqa": "tacit.benchmarks.yes_no:STRATEGYQA",
    "sports_understanding": "tacit.benchmarks.yes_no:SPORTS_UNDERSTANDING",
    "checkmate_in_one": "tacit.benchmarks.checkmate:CHECKMATE_IN_ONE",
    "split_gsm8k": "tacit.benchmarks.split_gsm8k:SPLIT_GSM8K",
    "split_gsm8k_blind": "tacit.benchmarks.split_gsm8k:SPLIT_GSM8K_BLIND",
    "split_hotpotqa": "tacit.benchmarks.multihop:SPLIT_HOTPOTQA",
    "split_2wiki": "tacit.benchmarks.multihop:SPLIT_2WIKI",
    "split_musique": "tacit.benchmarks.multihop:SPLIT_MUSIQUE",
    "strategyqa_facts": "tacit.benchmarks.yes_no:STRATEGYQA_FACTS",
    "hiddenbench": "tacit.benchmarks.hidden_profile:HIDDENBENCH",
    "mbpp_tested": "tacit.benchmarks.programming:MBPP_TESTED",
    "humaneval_plus": "tacit.benchmarks.programming_plus:HUMANEVAL_PLUS",
    "mbpp_plus": "tacit.benchmarks.programming_plus:MBPP_PLUS",
}
"""Where each benchmark is; imported when first used."""
GENERATED: dict[str, str] = {
    "arithmetic": "tacit.benchmarks.arithmetic:load",
    "arithmetic_notes": "tacit.benchmarks.arithmetic:load_notes",
    "clues": "tacit.benchmarks.clues:load",
}
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
        tasks = find_benchmark(name).load(split, folder, hub)
    else:
        if name in GENERATED and limit is not None:
            options = {"count": offset + limit, **options}
        tasks = _call(name, split, options)
    tasks = keep_only(f"{name}/{split}", tasks, level, subject)
    if shuffle_seed is not None:
        tasks = shuffle(tasks, shuffle_seed)
    if not tasks:
        raise DataError(f"{name}: it holds no tasks: add some, or name another")
    if len(tasks) <= offset:
        raise DataError(
            f"{name}/{split}: {len(tasks)} tasks, none left after offset {offset}: lower `offset`"
        )
    return tasks[offset:][:limit]


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


def find_benchmark(name: str) -> Any:
    """The `tacit.benchmarks.benchmark.Benchmark` of that name."""
    check_name("benchmark", name, BENCHMARKS)
    return lookup("benchmark", BENCHMARKS[name], {})


def answer_form(name: str) -> tuple[str, str] | None:
    """A benchmark's grader and its instruction, known without its files; None for other sources."""
    if name not in BENCHMARKS:
        return None
    benchmark = find_benchmark(name)
    return benchmark.grader, benchmark.instruction


def check_trainable(name: str, split: str, *, allow_canaried: bool = False) -> None:
    """Refuse to train on files whose authors ask for evaluation only, unless the user insists."""
    if name in BENCHMARKS and not allow_canaried:
        find_benchmark(name).check_trainable(split)
