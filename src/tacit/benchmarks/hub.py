"""Rows of a benchmark's Hugging Face Hub copy, in the shape of the original file (extra `hub`).

Copies differ a little from the originals: StrategyQA there has another cut into train (1603) and
test (687), OlympiadBench 674 rows and checkmate 3498, and MATH has no `unique_id`.
"""

import re
from typing import Any

from tacit.errors import ConfigError, DataError
from tacit.tasks.source import PlacedRow, Row

_BIG_BENCH, _MBPP = "hails/bigbench", "google-research-datasets/mbpp"
_MATH = "EleutherAI/hendrycks_math"
_SUBJECTS = (
    "algebra+counting_and_probability+geometry+intermediate_algebra"
    "+number_theory+prealgebra+precalculus"
)
_ALL = "prompt+test+validation+train"
_SPORTS, _PROMPTS = "sports_understanding_zero_shot", "turingmachine/meta-prompting"
COPIES: dict[str, tuple[str, str, str]] = {
    "gsm8k/train.jsonl": ("openai/gsm8k", "main", "train"),
    "gsm8k/test.jsonl": ("openai/gsm8k", "main", "test"),
    "math/train.jsonl": (_MATH, _SUBJECTS, "train"),
    "math/test.jsonl": (_MATH, _SUBJECTS, "test"),
    "math500/test.jsonl": ("HuggingFaceH4/MATH-500", "", "test"),
    "aime24/test.jsonl": ("HuggingFaceH4/aime_2024", "", "train"),
    "amc23/test.jsonl": ("math-ai/amc23", "", "test"),
    "minerva_math/test.jsonl": ("math-ai/minervamath", "", "test"),
    "olympiadbench/test.jsonl": ("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train"),
    "humaneval/test.jsonl": ("openai/openai_humaneval", "", "test"),
    "mbpp/mbpp.jsonl": (_MBPP, "full", _ALL),
    "mbpp/sanitized-mbpp.json": (_MBPP, "sanitized", _ALL),
    "strategyqa/train.json": ("ChilleD/StrategyQA", "", "train"),
    "strategyqa/dev.json": ("ChilleD/StrategyQA", "", "test"),
    "strategyqa/bigbench_task.json": (_BIG_BENCH, "strategyqa_zero_shot", "default"),
    "sports_understanding/bbh.json": ("SaylorTwift/bbh", "sports_understanding", "test"),
    "sports_understanding/bigbench_task.json": (_BIG_BENCH, _SPORTS, "default"),
    "checkmate_in_one/task.json": (_BIG_BENCH, "checkmate_in_one_zero_shot", "default"),
    "checkmate_in_one/meta_prompting_250.jsonl": (_PROMPTS, "", "CheckmateInOne"),
}
"""The Hub copy of each original file: repository, configurations joined with `+`, and split."""
_AROUND = re.compile(
    r"^\s*(?:In the following chess position, find a checkmate-in-one move\.\s*"
    r"|Determine whether the following statement or statements are plausible or implausible:\s*)?"
    r"(?:Statement: |Q: )?"
    r"|\s*(?:Plausible/implausible\?|\bA:)?\s*$"
)


def read_rows(file: str) -> list[PlacedRow]:
    """Every row of the file's Hub copy, downloaded or from the local Hub cache."""
    if file not in COPIES:
        raise DataError(f"{file} has no copy on the Hub: give the file with `folder`")
    repo, configs, split = COPIES[file]
    rows = [row for config in configs.split("+") for row in _download(repo, config, split)]
    try:
        return [
            (f"{repo} row {index}", _unwrapped(row) if file.endswith("task.json") else row)
            for index, row in enumerate(rows)
        ]
    except KeyError as error:
        raise DataError(
            f"{repo} has no column {error} any more: give the original files with `folder`"
        ) from error


def _unwrapped(row: Row) -> Row:
    """A row of BIG-bench's task.json; the Hub has the whole prompt, and the scores as two lists."""
    scores = zip(row["multiple_choice_targets"], row["multiple_choice_scores"], strict=True)
    question = _AROUND.sub("", row["inputs"])
    return {"input": question, "target": row["targets"][0], "target_scores": dict(scores)}


def _download(repo: str, config: str, split: str) -> Any:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ConfigError(
            "the Hub needs the package `datasets`: pip install 'tacit[hub]'"
        ) from error
    try:
        return load_dataset(repo, config or None, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"cannot load {repo} ({config or 'default'}, {split}) from the Hub ({reason}): "
            "check the network, or give the original files with `folder`"
        ) from error
