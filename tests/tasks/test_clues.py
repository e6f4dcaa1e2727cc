"""Generated puzzles whose clues are dealt: who holds a needed one, and that it is needed."""

import re
import sys
from collections import Counter
from hashlib import blake2b
from importlib.util import find_spec
from itertools import permutations, product
from random import Random

import pytest

from tacit.benchmarks.clues import PUZZLES, SPLITS, deal
from tacit.config.file import load_config
from tacit.errors import ConfigError
from tacit.grading import grade
from tacit.tasks import load_tasks
from tacit.types import Task
from tests.helpers.scripted_teams import SILENT, play, scripted, user

generated = pytest.mark.skipif(
    find_spec("reasoning_gym") is None,
    reason="reasoning-gym is not installed (extra `reasoning-gym`)",
)
every_puzzle = pytest.mark.parametrize("puzzle", PUZZLES)


def load(puzzle: str, split: str = "test", limit: int = 40, **options: int) -> list[Task]:
    return load_tasks("clues", split=split, limit=limit, puzzle=puzzle, **options)


def clues(view: str) -> list[str]:
    return [line.removeprefix("- ") for line in view.splitlines()]


# --- without the package


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ConfigError, match=r"pip install 'tacit\[reasoning-gym\]'"):
        load("needle_haystack")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"split": "tset"}, "unknown split of clues `tset`: did you mean `test`"),
        ({"puzzle": "knight_knaves"}, "did you mean `knights_knaves`"),
        ({"count": 0}, "count must be at least 1, not 0"),
        ({"holders": 1, "hand": 9}, "not 1 holders with 9 each"),
        ({"holders": 3, "hand": 1}, "4 to 100 clues in all, not 3 holders with 1 each"),
        ({"holders": 60, "hand": 2}, "not 60 holders with 2 each"),
        ({"holder": 3}, "cannot be called with these options.*holder"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_tasks("clues", **{"split": "test", **options})  # type: ignore[arg-type]


def test_every_holder_is_as_likely_to_have_a_clue() -> None:
    held = Counter[str]()
    for seed in range(3000):
        hands = deal([*"abcdefghij"], 5, Random(seed))
        assert sorted(clue for hand in hands.values() for clue in hand) == [*"abcdefghij"]
        assert {len(hand) for hand in hands.values()} == {2}
        held.update(name for name, hand in hands.items() if "a" in hand)
    assert [*hands] == [f"holder {number}" for number in range(1, 6)]
    assert all(abs(count / 3000 - 0.2) < 0.03 for count in held.values())


# --- all puzzles


@generated
@every_puzzle
def test_only_data_tells_who_should_speak(puzzle: str) -> None:
    for task in load(puzzle, holders=4, hand=3):
        shown = {name: clues(view) for name, view in task.views.items()}
        dealt = [clue for hand in shown.values() for clue in hand]
        assert [*shown] == [*task.data["speak"]] == [f"holder {n}" for n in range(1, 5)]
        assert {len(hand) for hand in shown.values()} == {3} and len({*dealt}) == 12
        assert {*task.data["needed"]} <= {*dealt}
        for name, hand in shown.items():
            assert task.data["speak"][name] == bool({*hand} & {*task.data["needed"]})
        assert task.level == str(sum(task.data["speak"].values()))
        assert not any(clue in task.question for clue in dealt)


@generated
@every_puzzle
def test_the_same_seed_gives_the_same_tasks_and_a_smaller_limit_a_beginning(puzzle: str) -> None:
    tasks = load(puzzle, limit=30)
    assert load(puzzle, limit=12) == tasks[:12]
    assert tasks[0].id.startswith(f"clues/test/{puzzle}/0/")
    others = load(puzzle, limit=30, seed=1)
    assert not {task.id for task in tasks} & {task.id for task in others}
    assert not {task.question for task in tasks} & {task.question for task in others}


@generated
@every_puzzle
async def test_the_answer_is_graded_right_and_others_wrong(puzzle: str) -> None:
    for task, other in zip(load(puzzle), load(puzzle, split="train"), strict=True):
        wrong = next((c for c in task.data.get("choices", ()) if c != task.answer), other.answer)
        for text, right in ((task.answer, True), (wrong, False), ("I cannot tell.", False)):
            end = rf"\boxed{{{text}}}" if task.grader == "choice" else f"Answer: {text}"
            assert (await grade(task, f"One moment.\n{end}")).right is right


@generated
@every_puzzle
async def test_the_asker_is_told_the_needed_clues_and_no_other(puzzle: str) -> None:
    (task,) = load(puzzle, limit=1)
    told = [view if task.data["speak"][name] else SILENT for name, view in task.views.items()]
    said = {"holder": told, "asker": [rf"Answer: \boxed{{{task.answer}}}"]}
    episode = await play(scripted("holders", said, holder={"count": 5}), task)
    asked = user(episode.calls[-1])
    assert episode.grade and episode.grade.right
    for name, view in task.views.items():
        assert all((clue in asked) == task.data["speak"][name] for clue in clues(view))


@generated
def test_the_recipe_loads_the_tasks_of_its_holders() -> None:
    config = load_config("split-clues")
    for part in (config.train_tasks, config.tasks):
        assert part
        (task,) = load_tasks(part.name, split=part.split, limit=1, **part.options)
        assert len(task.views) == config.team.agents["holder"].count


# --- knights and knaves

_SAID = re.compile(r"(\w+) is an? (\w+)")
_RULES = {
    "": lambda a, b: a,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "if": lambda a, b: not a or b,
    "if and only if": lambda a, b: a == b,
}


def parsed(saying: str, names: list[str]) -> tuple[str, list[tuple[str, str]], str]:
    """Speaker, what is said of whom, and how the two are joined. Reads the text alone."""
    said = _SAID.findall(saying)
    (speaker,) = {*re.findall(r"\w+", _SAID.sub("", saying))} & {*names}
    joined = re.search(r"\bif and only if\b|\bif\b|\band\b|\bor\b", saying)
    assert bool(joined) == (len(said) == 2)
    return speaker, said, joined[0] if joined else ""


def worlds(task: Task, sayings: list[str]) -> list[str]:
    """Every answer that what was said allows, found by trying all."""
    names = task.data["choices"][-1].replace(" and ", ", ").split(", ")
    kind = re.findall(r"Which of them are (\w+)s\?", task.question)[0]
    left = []
    for honest in product([True, False], repeat=len(names)):
        true = dict(zip(names, honest, strict=True))
        for speaker, said, rule in (parsed(saying, names) for saying in sayings):
            first, *rest = [true[name] == (word == kind) for name, word in said]
            if _RULES[rule](first, *(rest or [first])) != true[speaker]:
                break
        else:
            left.append(", ".join(name for name in names if true[name]) or "nobody")
    return left


@generated
@pytest.mark.parametrize("split", SPLITS)
def test_all_the_sayings_together_and_no_fewer_give_the_answer(split: str) -> None:
    for task in load("knights_knaves", split):
        needed = task.data["needed"]
        assert worlds(task, needed) == [task.answer.replace(" and ", ", ")]
        for saying in needed:
            assert len(worlds(task, [other for other in needed if other != saying])) > 1


@generated
def test_sayings_of_other_islands_name_nobody_of_this_one() -> None:
    for task in load("knights_knaves", limit=60):
        names = {*task.data["choices"][-1].replace(" and ", ", ").split(", ")}
        inhabitants, liars = re.findall(r"only by (\w+)s and (\w+)s\.", task.question)[0]
        for view in task.views.values():
            for saying in {*clues(view)} - {*task.data["needed"]}:
                assert not names & {*re.findall(r"\w+", saying)}
                assert {word for _, word in _SAID.findall(saying)} <= {inhabitants, liars}


def logic(task: Task) -> list[list[list[bool]]]:
    """The puzzle without names and words: who would be honest if each had said it, in any order."""
    names = task.data["choices"][-1].replace(" and ", ", ").split(", ")
    allowed = [worlds(task, [saying]) for saying in task.data["needed"]]
    return min(
        [sorted([name in world for name in order] for world in allowed[names.index(one)])
         for one in order]
        for order in permutations(names)
    )  # fmt: skip


@generated
def test_no_two_splits_share_a_puzzle_whatever_its_words() -> None:
    kinds = [{repr(logic(t)) for t in load("knights_knaves", split, limit=200)} for split in SPLITS]
    assert all(len(kind) > 100 for kind in kinds)
    assert len(set.union(*kinds)) == sum(map(len, kinds))


# --- needles


@generated
def test_one_clue_answers_and_no_two_splits_share_a_question() -> None:
    splits = [load("needle_haystack", split, limit=500) for split in SPLITS]
    for task in (task for tasks in splits for task in tasks):
        (needed,) = task.data["needed"]
        told = task.question.removeprefix("Who ").removesuffix("?")
        assert needed == f"{task.answer} {told}."
        every = [clue for view in task.views.values() for clue in clues(view)]
        assert [clue for clue in every if clue.endswith(f" {told}.")] == [needed]
    questions = [{task.question for task in tasks} for tasks in splits]
    assert all(len(some) > 450 for some in questions)
    assert len(set.union(*questions)) == sum(map(len, questions))


@generated
def test_the_tasks_are_those_of_the_pinned_release() -> None:
    tasks = [task for puzzle in PUZZLES for task in load(puzzle, limit=20)]
    whole = repr([(task.id, task.question, task.answer, task.views) for task in tasks])
    assert blake2b(whole.encode(), digest_size=8).hexdigest() == "e61885a983f2d2a1"
