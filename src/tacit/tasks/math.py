"""Mathematics: GSM8K, MATH, MATH500, AIME24, AMC23, Minerva and OlympiadBench rows as tasks.

Answers are taken from the files as they stand; whether two answers are equal is the grader's work.
"""

from collections.abc import Callable

from tacit.tasks.benchmark import Benchmark, Split
from tacit.tasks.source import Row
from tacit.types import Task

INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."


def last_boxed(text: str) -> str:
    r"""What the last \boxed holds. Example: last_boxed(r"so \boxed{x_{1}}.") is x_{1}."""
    start = text.rfind(r"\boxed")
    if start < 0:
        raise ValueError(r"no \boxed answer in the solution")
    rest = text[start + len(r"\boxed") :].lstrip()
    if not rest.startswith("{"):
        return rest[:1]
    depth = 0
    for position, character in enumerate(rest):
        escaped = position > 0 and rest[position - 1] == "\\"
        depth += 0 if escaped else (character == "{") - (character == "}")
        if depth == 0:
            return rest[1:position].strip()
    raise ValueError(r"the last \boxed of the solution is not closed")


def _task(id: str, question: str, answer: str, level: object = "", subject: str = "") -> Task:
    return Task(
        id=id,
        question=question,
        answer=answer,
        grader="math",
        instruction=INSTRUCTION,
        level=str(level).removeprefix("Level "),
        subject=subject,
    )


def _number(value: object) -> str:
    """Exam answers are whole numbers: "025" is 25 and 27.0 is 27."""
    return str(int(float(str(value))))


def _gsm8k(row: Row, id: str) -> Task:
    _, mark, answer = row["answer"].rpartition("####")
    if not mark:
        raise ValueError("the answer does not end with #### and a number")
    return _task(id, row["question"], answer.strip().replace(",", ""))


def _math(row: Row, id: str) -> Task:
    # Two training solutions end in an empty box; the answer to both is option (A), 0.
    answer = last_boxed(row["solution"]) or "0"
    return _task(id, row["problem"], answer, row["level"], row["type"])


def _math500(row: Row, id: str) -> Task:
    return _task(id, row["problem"], row["answer"], row["level"], row["subject"])


def _exam(row: Row, id: str) -> Task:
    return _task(id, row.get("problem") or row["question"], _number(row["answer"]))


def _minerva(row: Row, id: str) -> Task:
    if "answer" in row:  # the Hub copy has the answer taken out already, and no solution
        return _task(id, row["question"], row["answer"])
    return _task(id, row["problem"], last_boxed(row["solution"]), subject=row["type"])


def _olympiad(row: Row, id: str) -> Task:
    if not isinstance(row["final_answer"], list):
        raise ValueError("`final_answer` must be a list")
    question = "\n\n".join(part for part in (row.get("context"), row["question"]) if part)
    return _task(id, question, ", ".join(row["final_answer"]), subject=row["subfield"])


GSM8K = Benchmark(
    name="gsm8k",
    family="math",
    description="school word problems, whole-number answers",
    licence="MIT",
    splits={
        "train": Split(file="gsm8k/train.jsonl", rows=7473),
        "test": Split(file="gsm8k/test.jsonl", rows=1319),
    },
    parse=_gsm8k,
)
MATH = Benchmark(
    name="math",
    family="math",
    description="competition problems, levels 1 to 5, seven subjects; math500 is part of test",
    licence="MIT",
    splits={
        "train": Split(file="math/train.jsonl", rows=7500),
        "test": Split(file="math/test.jsonl", rows=5000),
    },
    parse=_math,
    key="unique_id",
)


def _test_only(
    name: str, description: str, licence: str, rows: int, parse: Callable[[Row, str], Task]
) -> Benchmark:
    return Benchmark(
        name=name,
        family="math",
        description=description,
        licence=licence,
        splits={"test": Split(file=f"{name}/test.jsonl", rows=rows)},
        parse=parse,
        key="unique_id",
    )


_MAA = "problems © MAA: evaluation use"
MATH500 = _test_only("math500", "the part of MATH test that PRM800K keeps", "MIT", 500, _math500)
AIME24 = _test_only("aime24", "AIME I and II of 2024, answers 0 to 999", _MAA, 30, _exam)
AMC23 = _test_only("amc23", "AMC 12 of 2023, whole-number answers", _MAA, 40, _exam)
MINERVA = _test_only(
    "minerva_math", "undergraduate science and mathematics", "CC BY-NC-SA 4.0", 272, _minerva
)
OLYMPIADBENCH = _test_only(
    "olympiadbench", "olympiad problems, English, text only", "MIT", 675, _olympiad
)
