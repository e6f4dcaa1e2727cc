"""One of a few given answers: StrategyQA and Sports Understanding (yes or no) rows as tasks."""

from collections.abc import Sequence

from tacit.tasks.benchmark import Benchmark, Split
from tacit.tasks.source import Row
from tacit.types import Task

YES_NO = ("yes", "no")


def instruction(choices: Sequence[str]) -> str:
    r"""Example: instruction(["yes", "no"]) asks to put yes or no within \boxed{}."""
    listed = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
    return rf"Reason briefly, and put {listed} within \boxed{{}}."


def _task(id: str, question: str, yes: bool) -> Task:
    return Task(
        id=id,
        question=question,
        answer="yes" if yes else "no",
        grader="choice",
        instruction=instruction(YES_NO),
        data={"choices": YES_NO},
    )


def _strategyqa(row: Row, id: str) -> Task:
    if "target_scores" in row:  # BIG-bench's copy
        return _task(id, row["input"], row["target_scores"]["Yes"] == 1)
    if not isinstance(row["answer"], bool):
        raise ValueError(f"`answer` must be true or false, not {row['answer']!r}")
    return _task(id, row["question"], row["answer"])


def _sports(row: Row, id: str) -> Task:
    if "target_scores" in row:  # BIG-bench: the bare sentence, put as BBH puts it
        sentence = row["input"].strip().rstrip(".")
        question = f'Is the following sentence plausible? "{sentence}."'
        return _task(id, question, row["target_scores"]["plausible"] == 1)
    if row["target"] not in YES_NO:
        raise ValueError(f"`target` must be yes or no, not {row['target']!r}")
    return _task(id, row["input"], row["target"] == "yes")


STRATEGYQA = Benchmark(
    name="strategyqa",
    family="choice",
    description="yes/no questions with hidden reasoning steps; bigbench is train and test together",
    licence="MIT (bigbench: Apache-2.0)",
    splits={
        "train": Split(file="strategyqa/train.json", rows=2061),
        "test": Split(file="strategyqa/dev.json", rows=229),
        "bigbench": Split(file="strategyqa/bigbench_task.json", rows=2290, canaried=True),
    },
    parse=_strategyqa,
)
_SPORTS_FILE = "sports_understanding/bigbench_task.json"
SPORTS_UNDERSTANDING = Benchmark(
    name="sports_understanding",
    family="choice",
    description="is a made-up sentence about sports plausible; test is BIG-Bench Hard's",
    licence="MIT (bigbench: Apache-2.0)",
    splits={
        "train": Split(file=_SPORTS_FILE, rows=744, without="test", canaried=True),
        "test": Split(file="sports_understanding/bbh.json", rows=250, canaried=True),
        "bigbench": Split(file=_SPORTS_FILE, rows=1000, canaried=True),
    },
    parse=_sports,
)
