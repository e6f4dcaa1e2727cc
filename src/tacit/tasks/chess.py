"""Chess: checkmate-in-one rows as tasks. The files' scored move lists name the answer: unused."""

from tacit.tasks.benchmark import Benchmark, Split
from tacit.tasks.source import Row
from tacit.types import Task

INSTRUCTION = r"Reason briefly, and put the move, in standard algebraic notation, within \boxed{}."


def _checkmate(row: Row, id: str) -> Task:
    moves = row["input"].strip()
    return Task(
        id=id,
        question=f"After these moves of a chess game, find the move that gives mate:\n\n{moves}",
        answer=row["target"],
        grader="chess",
        instruction=INSTRUCTION,
        data={"moves": moves},
    )


_FILE = "checkmate_in_one/task.json"
_FIRST_250 = "checkmate_in_one/meta_prompting_250.jsonl"
CHECKMATE_IN_ONE = Benchmark(
    name="checkmate_in_one",
    family="chess",
    description="find the one mating move; test250 is the first 250 of test, train the others",
    licence="Apache-2.0",
    splits={
        "train": Split(file=_FILE, rows=3250, without="test250", canaried=True),
        "test": Split(file=_FILE, rows=3500, canaried=True),
        "test250": Split(file=_FIRST_250, rows=250, canaried=True),
    },
    parse=_checkmate,
)
