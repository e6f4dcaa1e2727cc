"""Yes or no: StrategyQA and Sports Understanding, from their own files and from BIG-bench's."""

from dataclasses import replace

from tacit.benchmarks.benchmark import Benchmark, Fields, Split, listed
from tacit.graders.choice import YES_NO
from tacit.tasks.source import Row


def _fields(question: str, yes: bool) -> Fields:
    answer = "yes" if yes else "no"
    return {"question": question, "answer": answer, "data": {"choices": YES_NO}}


def _strategyqa(row: Row) -> Fields:
    if "target_scores" in row:  # BIG-bench's copy
        return _fields(row["input"], row["target_scores"]["Yes"] == 1)
    if not isinstance(row["answer"], bool):
        raise ValueError(f"`answer` must be true or false, not {row['answer']!r}")
    return _fields(row["question"], row["answer"])


def _strategyqa_facts(row: Row) -> Fields:
    if not isinstance(row["facts"], list):
        raise ValueError("`facts` must be a list")
    return {**_strategyqa(row), "views": {"hinter": listed(row["facts"])}}


def _sports(row: Row) -> Fields:
    if "target_scores" in row:  # BIG-bench has the bare sentence; ask as BIG-Bench Hard does
        sentence = row["input"].strip().rstrip(".")
        question = f'Is the following sentence plausible? "{sentence}."'
        return _fields(question, row["target_scores"]["plausible"] == 1)
    if row["target"] not in YES_NO:
        raise ValueError(f"`target` must be yes or no, not {row['target']!r}")
    return _fields(row["input"], row["target"] == "yes")


STRATEGYQA = Benchmark(
    name="strategyqa",
    grader="choice",
    choices=YES_NO,
    description="yes/no questions with hidden reasoning steps; bigbench is train and test together",
    licence="MIT (bigbench: Apache-2.0)",
    splits={
        "train": Split(file="strategyqa/train.json", rows=2061),
        "test": Split(file="strategyqa/dev.json", rows=229),
        "bigbench": Split(file="strategyqa/bigbench_task.json", rows=2290, canaried=True),
    },
    parse=_strategyqa,
)
STRATEGYQA_FACTS = replace(
    STRATEGYQA,
    name="strategyqa_facts",
    description="StrategyQA; only the helper sees the facts behind the answer",
    licence="MIT",
    splits={
        "train": Split(file="strategyqa/train.json", rows=1861, keys=range(1861)),
        "validation": Split(file="strategyqa/train.json", rows=200, keys=range(1861, 2061)),
        "test": Split(file="strategyqa/dev.json", rows=229),
    },
    parse=_strategyqa_facts,
)
_SPORTS_FILE = "sports_understanding/bigbench_task.json"
SPORTS_UNDERSTANDING = replace(
    STRATEGYQA,
    name="sports_understanding",
    description="is a made-up sentence about sports plausible; test is BIG-Bench Hard's",
    splits={
        "train": Split(file=_SPORTS_FILE, rows=744, without="test", canaried=True),
        "test": Split(file="sports_understanding/bbh.json", rows=250, canaried=True),
        "bigbench": Split(file=_SPORTS_FILE, rows=1000, canaried=True),
    },
    parse=_sports,
)
