"""Procedural sums: right, graded, deterministic, and apart by split."""

import random

import pytest

from tacit.benchmarks import arithmetic
from tacit.benchmarks.arithmetic import Problem, Step
from tacit.errors import ConfigError


def test_a_problem_is_worked_from_left_to_right() -> None:
    problem = Problem(37, (("+", 48), ("-", 15), ("+", 26)))
    assert problem.question == "What is 37 + 48 - 15 + 26?"
    assert [str(step) for step in problem.steps] == ["37 + 48 = 85", "85 - 15 = 70", "70 + 26 = 96"]
    assert problem.answer == 96


@pytest.mark.parametrize(
    ("step", "carried"),
    [
        (Step(37, "+", 48, 85), True),
        (Step(31, "+", 48, 79), False),
        (Step(85, "-", 17, 68), True),
        (Step(87, "-", 17, 70), False),
        (Step(67, "+", 52, 119), False),
    ],
)
def test_carries_looks_at_the_units(step: Step, carried: bool) -> None:
    assert arithmetic.carries(step.left, step.sign, step.right) is carried


def test_drawn_problems_stay_in_bounds_and_mostly_carry() -> None:
    rng = random.Random(0)
    steps = [step for _ in range(2000) for step in arithmetic.draw(rng, 3).steps]
    lowest, highest = arithmetic.LOWEST, arithmetic.HIGHEST
    assert all(lowest <= step.result <= highest and 10 <= step.right <= 99 for step in steps)
    share = sum(arithmetic.carries(s.left, s.sign, s.right) for s in steps) / len(steps)
    assert 0.65 < share < 0.78  # a fair draw carries in about 0.45


def test_the_task_says_what_its_expression_says() -> None:
    for task in arithmetic.load(split="test", count=60):
        expression = task.question.removeprefix("What is ").removesuffix("?")
        assert task.answer == str(eval(expression))
        assert task.subject == str(expression.count("+") + expression.count("-"))
        assert task.level == ("easy" if task.subject == "1" else "hard")
        assert len(task.data["steps"]) == int(task.subject)
        assert task.data["steps"][-1].endswith(f"= {task.answer}")
        assert (task.grader, task.instruction) == ("math", r"Put the answer within \boxed{}.")


def test_same_seed_same_tasks_and_a_smaller_count_is_a_beginning() -> None:
    tasks = arithmetic.load(count=50, seed=3)
    assert arithmetic.load(count=20, seed=3) == tasks[:20]
    assert arithmetic.load(count=50, seed=4) != tasks


def test_tasks_are_distinct_and_splits_share_none() -> None:
    train = {task.id.split("/")[-1] for seed in range(3) for task in _load("train", seed)}
    test = {task.id.split("/")[-1] for seed in range(3) for task in _load("test", seed)}
    assert len(_load("test", 0)) == len({task.id for task in _load("test", 0)}) == 500
    assert not train & test


def _load(split: str, seed: int) -> list[arithmetic.Task]:
    return arithmetic.load(split=split, count=500, seed=seed)


@pytest.mark.parametrize(("hard", "expected"), [(0.0, 0), (0.3, 30), (0.5, 50), (1.0, 100)])
def test_the_share_of_hard_tasks_is_exact(hard: float, expected: int) -> None:
    tasks = arithmetic.load(count=100, hard=hard)
    assert sum(task.level == "hard" for task in tasks) == expected


def test_steps_of_hard_tasks_can_be_chosen() -> None:
    assert {task.subject for task in arithmetic.load(count=40, hard=1.0, steps=(4,))} == {"4"}


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"split": "dev"}, "train or test"),
        ({"count": 0}, "count"),
        ({"hard": 1.5}, "hard"),
        ({"steps": (1, 2)}, "steps"),
        ({"split": "test", "count": 4000, "hard": 0.0}, "lower `limit`"),
    ],
)
def test_bad_input_names_the_fix(bad: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        arithmetic.load(**bad)  # type: ignore[arg-type]


def test_notes_hold_the_sum_on_every_other_task_and_else_one_that_does_not_matter() -> None:
    tasks = arithmetic.load_notes(split="test", count=40)
    assert tasks[:10] == arithmetic.load_notes(split="test", count=10)
    free, needed = tasks[::2], tasks[1::2]
    for task in free:
        assert task.level == "free" and task.data["speak"] == {"hinter": False}
        assert f"What is {task.views['hinter']}?" != task.question
        assert _solved(task.question) == task.answer
    for task in needed:
        assert task.level == "needed" and task.data["speak"] == {"hinter": True}
        assert not any(letter.isdigit() for letter in task.question)
        assert _solved(task.views["hinter"]) == task.answer
    assert not {t.id for t in tasks} & {t.id for t in arithmetic.load_notes(split="train")}


def test_one_of_several_holders_has_the_note() -> None:
    for task in arithmetic.load_notes(count=30, holders=3):
        assert list(task.views) == ["holder 1", "holder 2", "holder 3"]
        (note,) = [text for text in task.views.values() if text != "nothing"]
        told = [task.views[agent] for agent, needed in task.data["speak"].items() if needed]
        assert told == ([note] if task.level == "needed" else [])


def _solved(text: str) -> str:
    left, sign, right = text.removeprefix("What is ").removesuffix("?").split()
    return str(arithmetic.add(int(left), sign, int(right)))
