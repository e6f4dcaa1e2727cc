"""Mathematics: GSM8K, MATH, MATH500, AIME24, AMC23, Minerva and OlympiadBench.

Answers are taken from the files as they are; the grader decides whether two answers are equal.
"""

from collections.abc import Callable

from tacit.benchmarks.benchmark import Benchmark, Fields, Split
from tacit.graders.final_answer import last_boxed
from tacit.tasks.source import Row


def _gsm8k(row: Row) -> Fields:
    _, mark, answer = row["answer"].rpartition("####")
    if not mark:
        raise ValueError("the answer does not end with #### and a number")
    return {"question": row["question"], "answer": answer.strip().replace(",", "")}


def _math(row: Row) -> Fields:
    return {
        "question": row["problem"],
        "answer": row["answer"] if "answer" in row else _solved(row["solution"]),
        "level": str(row["level"]).removeprefix("Level "),
        "subject": row["subject"] if "subject" in row else row["type"],
    }


def _solved(solution: str) -> str:
    answer = last_boxed(solution)
    if not answer and r"\boxed{}" not in solution:
        raise ValueError(r"no \boxed answer in the solution")
    return answer or "0"  # two training solutions end in an empty box; both answers are 0


def _exam(row: Row) -> Fields:
    number = int(float(row["answer"]))  # "025" is 25 and 27.0 is 27
    return {"question": row.get("problem") or row["question"], "answer": str(number)}


def _minerva(row: Row) -> Fields:
    if "answer" in row:  # the Hub copy has the bare answer, and no solution
        return {"question": row["question"], "answer": row["answer"]}
    answer = _solved(row["solution"])
    return {"question": row["problem"], "answer": answer, "subject": row["type"]}


def _olympiad(row: Row) -> Fields:
    if not isinstance(row["final_answer"], list):
        raise ValueError("`final_answer` must be a list")
    question = "\n\n".join(part for part in (row.get("context"), row["question"]) if part)
    answer = ", ".join(row["final_answer"])
    return {"question": question, "answer": answer, "subject": row["subfield"]}


def _maths(
    name: str, description: str, licence: str, parse: Callable[[Row], Fields], **rows: int
) -> Benchmark:
    """`rows` gives the splits and how many rows the file of each has."""
    return Benchmark(
        name=name,
        grader="math",
        description=description,
        licence=licence,
        splits={s: Split(file=f"{name}/{s}.jsonl", rows=count) for s, count in rows.items()},
        parse=parse,
        key="unique_id",
    )


_MAA = "problems © MAA: evaluation use"
_MATH_IS = "competition problems, levels 1 to 5, seven subjects; math500 is part of test"
GSM8K = _maths(
    "gsm8k", "school word problems, whole-number answers", "MIT", _gsm8k, train=7473, test=1319
)
MATH = _maths("math", _MATH_IS, "MIT", _math, train=7500, test=5000)
MATH500 = _maths("math500", "the part of MATH test that PRM800K keeps", "MIT", _math, test=500)
AIME24 = _maths("aime24", "AIME I and II of 2024, answers 0 to 999", _MAA, _exam, test=30)
AMC23 = _maths("amc23", "AMC 12 of 2023, whole-number answers", _MAA, _exam, test=40)
MINERVA = _maths(
    "minerva_math", "undergraduate science and maths", "CC BY-NC-SA 4.0", _minerva, test=272
)
OLYMPIADBENCH = _maths(
    "olympiadbench", "olympiad problems, English, text only", "MIT", _olympiad, test=675
)
