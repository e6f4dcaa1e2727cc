"""Rows of a benchmark's Hugging Face Hub copy, in the shape of the original file (extra `hub`).

Copies differ a little from the originals: StrategyQA there has another cut into train (1603) and
test (687), OlympiadBench 674 rows and checkmate 3498, and MATH has no `unique_id`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tacit.errors import ConfigError, DataError
from tacit.tasks.source import PlacedRow, Row


@dataclass(frozen=True, slots=True)
class HubCopy:
    """Where a file's rows are on the Hub, and how one is brought into the file's shape."""

    repo: str
    configs: tuple[str | None, ...]
    split: str
    convert: Callable[[Row], Row] = lambda row: row


_MATH_SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
_MBPP_SPLITS = "prompt+test+validation+train"
_AROUND = re.compile(
    r"^\s*(?:In the following chess position, find a checkmate-in-one move\.\s*"
    r"|Determine whether the following statement or statements are plausible or implausible:\s*)?"
    r"(?:Statement: |Q: )?"
    r"|\s*(?:Plausible/implausible\?|\bA:)?\s*$"
)


def _big_bench(row: Row) -> Row:
    """The Hub has the prompt as shown, and the scores as two lists."""
    scores = zip(row["multiple_choice_targets"], row["multiple_choice_scores"], strict=True)
    return {
        "input": _AROUND.sub("", row["inputs"]),
        "target": row["targets"][0],
        "target_scores": dict(scores),
    }


def _big_bench_copy(task: str) -> HubCopy:
    return HubCopy("hails/bigbench", (f"{task}_zero_shot",), "default", _big_bench)


COPIES: dict[str, HubCopy] = {
    "gsm8k/train.jsonl": HubCopy("openai/gsm8k", ("main",), "train"),
    "gsm8k/test.jsonl": HubCopy("openai/gsm8k", ("main",), "test"),
    "math/train.jsonl": HubCopy("EleutherAI/hendrycks_math", _MATH_SUBJECTS, "train"),
    "math/test.jsonl": HubCopy("EleutherAI/hendrycks_math", _MATH_SUBJECTS, "test"),
    "math500/test.jsonl": HubCopy("HuggingFaceH4/MATH-500", (None,), "test"),
    "aime24/test.jsonl": HubCopy("HuggingFaceH4/aime_2024", (None,), "train"),
    "amc23/test.jsonl": HubCopy("math-ai/amc23", (None,), "test"),
    "minerva_math/test.jsonl": HubCopy("math-ai/minervamath", (None,), "test"),
    "olympiadbench/test.jsonl": HubCopy("Hothan/OlympiadBench", ("OE_TO_maths_en_COMP",), "train"),
    "humaneval/test.jsonl": HubCopy("openai/openai_humaneval", (None,), "test"),
    "mbpp/mbpp.jsonl": HubCopy("google-research-datasets/mbpp", ("full",), _MBPP_SPLITS),
    "mbpp/sanitized-mbpp.json": HubCopy(
        "google-research-datasets/mbpp", ("sanitized",), _MBPP_SPLITS
    ),
    "strategyqa/train.json": HubCopy("ChilleD/StrategyQA", (None,), "train"),
    "strategyqa/dev.json": HubCopy("ChilleD/StrategyQA", (None,), "test"),
    "strategyqa/bigbench_task.json": _big_bench_copy("strategyqa"),
    "sports_understanding/bbh.json": HubCopy("SaylorTwift/bbh", ("sports_understanding",), "test"),
    "sports_understanding/bigbench_task.json": _big_bench_copy("sports_understanding"),
    "checkmate_in_one/task.json": _big_bench_copy("checkmate_in_one"),
    "checkmate_in_one/meta_prompting_250.jsonl": HubCopy(
        "turingmachine/meta-prompting", (None,), "CheckmateInOne"
    ),
}
"""The Hub copy of each original file."""


def read_rows(file: str) -> list[PlacedRow]:
    """Every row of the file's Hub copy, downloaded or from the local Hub cache."""
    copy = COPIES[file]
    rows = [row for config in copy.configs for row in _download(copy.repo, config, copy.split)]
    try:
        return [(f"{copy.repo} row {index}", copy.convert(row)) for index, row in enumerate(rows)]
    except KeyError as error:
        raise DataError(
            f"{copy.repo} has no column {error} any more: give the original files with `folder`"
        ) from error


def _download(repo: str, config: str | None, split: str) -> Any:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ConfigError(
            "the Hub needs the package `datasets`: pip install 'tacit[hub]'"
        ) from error
    try:
        return load_dataset(repo, config, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"cannot load {repo} ({config or 'default'}, {split}) from the Hub ({reason}): "
            "check the network, or give the original files with `folder`"
        ) from error
