"""HiddenBench: group decisions in which what all know points to a wrong choice.

Each agent alone holds one more fact, and the facts together show which choice is right.
"""

from tacit.benchmarks.benchmark import Benchmark, Fields, Split, listed
from tacit.tasks.source import Row


def _row(row: Row) -> Fields:
    known, choices = listed(row["shared_information"]), row["possible_answers"]
    hidden = enumerate(row["hidden_information"], 1)
    return {
        "question": f"{row['description'].strip()}\n\nAll of you know:\n{known}\n\n"
        f"Choose one of these:\n{listed(choices)}",
        "answer": row["correct_answer"],
        "views": {f"holder {number}": fact for number, fact in hidden},
        "data": {"choices": choices},
    }


HIDDENBENCH = Benchmark(
    name="hiddenbench",
    grader="choice",
    description="a choice where three or four agents each hold one deciding fact",
    licence="none stated",
    splits={"test": Split(file="hiddenbench/benchmark_all_clean.json", rows=65, canaried=True)},
    parse=_row,
    key="id",
    reserved="states no licence, so it is for evaluation only",
)
