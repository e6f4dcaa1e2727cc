"""Sums made by a rule: one step (easy) or two to three (hard), deterministic by seed.

A hash of the expression puts it into train or test, whatever the seed. Only + and - of two-digit
numbers, from left to right; every result lies in 10..89, so that a slip of ten stays in 0..99.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tacit.errors import ConfigError
from tacit.types import Task

INSTRUCTION = r"Put the answer within \boxed{}."
SPLITS = ("train", "test")
LOWEST, HIGHEST = 10, 89
CARRY_SHARE = 0.75
"""Most steps carry or borrow: a careless helper gets those wrong."""
_TEST_ONE_IN = 5


@dataclass(frozen=True, slots=True)
class Step:
    """One sum with a claimed result, right or wrong."""

    left: int
    sign: str
    right: int
    result: int

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right} = {self.result}"


@dataclass(frozen=True, slots=True)
class Problem:
    """A chain of sums. Example: Problem(37, (("+", 48), ("-", 15))) is 37 + 48 - 15."""

    first: int
    terms: tuple[tuple[str, int], ...]

    @property
    def expression(self) -> str:
        return " ".join([str(self.first), *(f"{sign} {number}" for sign, number in self.terms)])

    @property
    def question(self) -> str:
        return f"What is {self.expression}?"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The sums one after another, each starting from the result before."""
        steps: list[Step] = []
        left = self.first
        for sign, right in self.terms:
            steps.append(Step(left, sign, right, add(left, sign, right)))
            left = steps[-1].result
        return tuple(steps)

    @property
    def answer(self) -> int:
        return self.steps[-1].result

    @property
    def held_out(self) -> bool:
        """True if the expression belongs to the test split."""
        digest = hashlib.blake2b(self.expression.encode(), digest_size=4).digest()
        return int.from_bytes(digest, "big") % _TEST_ONE_IN == 0


def add(left: int, sign: str, right: int) -> int:
    return left + right if sign == "+" else left - right


def carries(left: int, sign: str, right: int) -> bool:
    """True if the units carry into the tens, or borrow from them."""
    return not 0 <= add(left % 10, sign, right % 10) <= 9


def draw(rng: random.Random, steps: int) -> Problem:
    """A random problem with this many steps, of either split."""
    left = first = rng.randrange(10, 100)
    terms: list[tuple[str, int]] = []
    for _ in range(steps):
        sign, right = _draw_term(rng, left)
        terms.append((sign, right))
        left = add(left, sign, right)
    return Problem(first, tuple(terms))


def _draw_term(rng: random.Random, left: int) -> tuple[str, int]:
    wanted = rng.random() < CARRY_SHARE
    tries = 0
    while True:
        sign, right = rng.choice("+-"), rng.randrange(10, 100)
        fits = LOWEST <= add(left, sign, right) <= HIGHEST
        # For some numbers (10, 20) no term carries, so any will do after a while.
        if fits and (tries > 20 or carries(left, sign, right) == wanted):
            return sign, right
        tries += 1


def load(
    *,
    split: str = "train",
    count: int = 200,
    seed: int = 0,
    hard: float = 0.5,
    steps: Sequence[int] = (2, 3),
) -> list[Task]:
    """Distinct tasks; `hard` is the share of those with several steps, as many as `steps` says.

    Example: load(split="test", count=4) asks one, two, one and two or three steps.
    A smaller `count` gives a prefix of a larger one.
    """
    _check(split, count, hard, steps)
    rng = random.Random(f"arithmetic/{split}/{seed}")
    problems: dict[Problem, None] = {}
    for index in range(count):
        is_hard = int((index + 1) * hard + 1e-9) > int(index * hard + 1e-9)
        drawn = _drawn(rng, steps if is_hard else (1,), split)
        problem = next((one for one in drawn if one not in problems), None)
        if problem is None:
            raise ConfigError(
                f"arithmetic {split}: with hard={hard} there are about {index} distinct tasks and "
                f"not {count}; lower `limit` and `offset`"
            )
        problems[problem] = None
    return [_task(problem, split) for problem in problems]


def load_notes(
    *, split: str = "train", count: int = 200, seed: int = 0, holders: int = 0
) -> list[Task]:
    """Sums of one step, of which every other one stands on a note that only the hinter sees.

    On the rest the question holds the sum, and the note has one that does not matter. So speaking
    is worth everything on one half of the tasks, and on the other it can only mislead. With
    `holders`, one of so many agents called holder has that note, and the others' are empty.
    """
    _check(split, count, hard=0.0, steps=(2,))
    rng = random.Random(f"arithmetic_notes/{split}/{seed}")
    agents = [f"holder {n + 1}" for n in range(holders)] if holders > 1 else ["hinter"]
    tasks: list[Task] = []
    for index, task in enumerate(load(split=split, count=count, seed=seed, hard=0.0)):
        needed = index % 2 == 1
        on_note = task.question if needed else draw(rng, 1).question
        has_it = rng.choice(agents) if holders > 1 else agents[0]
        note = on_note.removeprefix("What is ").removesuffix("?")
        tasks.append(
            replace(
                task,
                id=task.id.replace("arithmetic", "arithmetic_notes", 1),
                question="What is the sum on the note?" if needed else task.question,
                level="needed" if needed else "free",
                views={agent: note if agent == has_it else "nothing" for agent in agents},
                data={**task.data, "speak": {a: needed and a == has_it for a in agents}},
            )
        )
    return tasks


def _drawn(rng: random.Random, steps: Sequence[int], split: str) -> Iterator[Problem]:
    for _ in range(5000):
        problem = draw(rng, rng.choice(steps))
        if problem.held_out == (split == "test"):
            yield problem


def _task(problem: Problem, split: str) -> Task:
    return Task(
        id=f"arithmetic/{split}/{problem.expression.replace(' ', '')}",
        question=problem.question,
        answer=str(problem.answer),
        grader="math",
        instruction=INSTRUCTION,
        level="easy" if len(problem.terms) == 1 else "hard",
        subject=str(len(problem.terms)),
        data={"steps": [str(step) for step in problem.steps]},
    )


def _check(split: str, count: int, hard: float, steps: Sequence[int]) -> None:
    if split not in SPLITS:
        raise ConfigError(f"arithmetic: unknown split `{split}`; use train or test")
    if count < 1:
        raise ConfigError(f"arithmetic: count must be at least 1, not {count}")
    if not 0.0 <= hard <= 1.0:
        raise ConfigError(f"arithmetic: hard is a share between 0 and 1, not {hard}")
    if not steps or min(steps) < 2:
        raise ConfigError(f"arithmetic: steps of hard tasks must be 2 or more, not {list(steps)}")
