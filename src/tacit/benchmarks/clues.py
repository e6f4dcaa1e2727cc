"""Puzzles of Reasoning Gym whose clues are dealt to holders (extra `reasoning-gym`).

All see the question. Each holder has as many clues as any other, and most clues do not matter. Only
`data["speak"]` tells who holds a needed clue, and no model is shown it. A puzzle is kept if each of
its needed clues is necessary: without one of them more than one answer is possible.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations, permutations, product
from random import Random
from typing import Any

from tacit.benchmarks.benchmark import listed
from tacit.errors import ConfigError, DataError
from tacit.registry import check_name
from tacit.tasks.instructions import instruction
from tacit.types import Task

SPLITS = ("train", "validation", "test")
PEOPLE = 3
"""Who speaks on an island of knights and knaves, one needed clue each."""
_REGION = 10**9
"""Seeds of one split and seed. An item's seed is the sum of its dataset's seed and its index."""
_POOL, _POOL_SIZE = _REGION // 2, 200
"""Where in the region the puzzles are whose clues do not matter, and how many there are."""
_SENTENCE_END = re.compile(r"(?<=\.)\s|(?<=\.\")\s")
Item = dict[str, Any]
"""What the generator gives: question, answer and metadata."""
World = tuple[bool, ...]
"""Says of each inhabitant of an island whether it is honest."""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A question and the clues that it was cut off from."""

    question: str
    answer: str
    grader: str
    needed: Sequence[str]
    others: Sequence[str]
    """Clues that do not matter."""
    choices: Sequence[str] = ()


def load(
    *,
    split: str = "train",
    count: int = 200,
    seed: int = 0,
    puzzle: str = "knights_knaves",
    holders: int = 5,
    hand: int = 2,
) -> list[Task]:
    """Distinct tasks for so many holders, each with `hand` clues.

    Example: load(split="test", count=10, puzzle="needle_haystack", holders=3).
    A smaller `count` gives a prefix of a larger one. The splits share neither a generator's seed
    nor a puzzle. The tasks are those of one release of Reasoning Gym; another may make others.
    """
    _check(split, count, puzzle, holders, hand)
    first = (seed * len(SPLITS) + SPLITS.index(split)) * _REGION
    tasks: dict[tuple[str, ...], Task] = {}
    for number, one in PUZZLES[puzzle](split, first, holders * hand):
        task = _task(f"clues/{split}/{puzzle}/{seed}/{number}", one, holders)
        tasks.setdefault((one.question, *sorted(one.needed)), task)
        if len(tasks) == count:
            break
    return list(tasks.values())


def split_of(puzzle: str) -> str:
    """The split of a puzzle by what it says, whichever seed made it."""
    digest = blake2b(puzzle.encode(), digest_size=4).digest()
    return SPLITS[int.from_bytes(digest, "big") % len(SPLITS)]


def _task(name: str, puzzle: Puzzle, holders: int) -> Task:
    hands = deal([*puzzle.needed, *puzzle.others], holders, Random(name))
    speak = {holder: any(clue in puzzle.needed for clue in hand) for holder, hand in hands.items()}
    choices = {"choices": [*puzzle.choices]} if puzzle.choices else {}
    return Task(
        id=name,
        question=puzzle.question,
        answer=puzzle.answer,
        grader=puzzle.grader,
        instruction=instruction(puzzle.grader),
        level=str(sum(speak.values())),
        views={holder: listed(hand) for holder, hand in hands.items()},
        data={"speak": speak, "needed": [*puzzle.needed], **choices},
    )


def deal(clues: Sequence[str], holders: int, dice: Random) -> dict[str, list[str]]:
    """All clues, in hands of equal size."""
    mixed = dice.sample(clues, len(clues))
    return {f"holder {number + 1}": mixed[number::holders] for number in range(holders)}


def _knights(split: str, first: int, clues: int) -> Iterator[tuple[int, Puzzle]]:
    """Who of an island tells the truth? Sayings of other islands' people do not matter."""
    items = _generator("knights_knaves", seed=first, n_people=PEOPLE)
    pool = [items[_POOL + number] for number in range(_POOL_SIZE)]
    for number in range(_POOL):
        item = items[number]
        agreeing = _agreeing(item["metadata"]["statements"])
        necessary = all(
            len(set.intersection(*agreeing[:one], *agreeing[one + 1 :])) > 1
            for one in range(PEOPLE)
        )
        if necessary and split_of(_unnamed(agreeing)) == split:
            islands = Random(f"{first}/{number}").sample(pool, len(pool))
            yield number, _island(item, _sayings_of_others(item, islands, clues - PEOPLE))


def _agreeing(statements: Sequence[Any]) -> list[set[World]]:
    """For each speaker, the worlds in which the statement is true just if the speaker is honest."""
    from reasoning_gym.logic.knights_knaves import KnightsKnavesDataset

    true_in = KnightsKnavesDataset.test_satisfiability
    worlds = list(product([True, False], repeat=len(statements)))
    return [
        {world for world in worlds if bool(true_in(statement, world)) == world[speaker]}
        for speaker, statement in enumerate(statements)
    ]


def _unnamed(agreeing: Sequence[set[World]]) -> str:
    """The same text for islands that differ in names, words and the order of people alone."""
    return min(
        repr([sorted(tuple(world[i] for i in order) for world in agreeing[one]) for one in order])
        for order in permutations(range(len(agreeing)))
    )


def _island(item: Item, others: Sequence[str]) -> Puzzle:
    names, solution = _names(item), item["metadata"]["solution"]
    intro, sayings = _cut(item)
    choices = [_joined(some) for size in range(PEOPLE + 1) for some in combinations(names, size)]
    kind = item["metadata"]["knight_knave_terms"]["knight"]
    return Puzzle(
        question=f"{intro} Each of them has said one thing. Which of them are {kind}s?\n\n"
        f"Choose one of these:\n{listed(choices)}",
        answer=_joined([name for name, honest in zip(names, solution, strict=True) if honest]),
        grader="choice",
        needed=sayings,
        others=others,
        choices=choices,
    )


def _names(item: Item) -> list[str]:
    return [str(name) for name in item["metadata"]["names"]]


def _cut(item: Item) -> tuple[str, list[str]]:
    """The three sentences that describe an island, and what each inhabitant says."""
    parts = _SENTENCE_END.split(item["question"])
    intro, sayings, names = parts[:3], parts[3 : 3 + PEOPLE], _names(item)
    told = len(sayings) == PEOPLE and all(map(str.__contains__, sayings, names))
    if len(parts) != 4 + PEOPLE or not told or not parts[-1].startswith("So who is"):
        raise DataError(
            f"clues: this release of reasoning-gym tells its puzzles otherwise: {item['question']}"
        )
    return " ".join(intro), sayings


def _sayings_of_others(item: Item, islands: Sequence[Item], count: int) -> list[str]:
    """What people of other islands say, in this island's words for who lies and who does not."""
    own, names = item["metadata"]["knight_knave_terms"], {*_names(item)}
    found: dict[str, None] = {}
    for other in islands:
        terms = other["metadata"]["knight_knave_terms"]
        sayings = [] if names & {*_names(other)} else _cut(other)[1]
        for saying in sayings:
            for term in ("a_knight", "a_knave"):
                saying = saying.replace(str(terms[term]), str(own[term]))
            found[saying] = None
        if len(found) >= count:
            break
    return [*found][:count]


def _joined(names: Sequence[str]) -> str:
    *others, last = names or ["nobody"]
    return f"{', '.join(others)} and {last}" if others else last


def _needles(split: str, first: int, clues: int) -> Iterator[tuple[int, Puzzle]]:
    """Who likes or loathes a thing? One clue tells."""
    items = _generator(
        "needle_haystack", seed=first, min_num_statements=clues, max_num_statements=clues
    )
    for number in range(_REGION):
        told, _, asked = items[number]["question"].partition("\n")
        question = asked.removesuffix(" Reply only with a name.")
        sentences = _SENTENCE_END.split(told.strip())
        tail = question.removeprefix("Who").replace("?", ".")
        needed = [sentence for sentence in sentences if sentence.endswith(tail)]
        if len(sentences) != clues or not needed or not tail.endswith("."):
            raise DataError(f"clues: this release of reasoning-gym asks otherwise: {asked}")
        if len(needed) == 1 and split_of(question) == split:
            others = [sentence for sentence in sentences if sentence not in needed]
            answer = items[number]["answer"]
            yield number, Puzzle(question, answer, "span", needed, others)


PUZZLES: dict[str, Callable[[str, int, int], Iterator[tuple[int, Puzzle]]]] = {
    "knights_knaves": _knights,
    "needle_haystack": _needles,
}
"""Numbered puzzles of a split, by the first seed and the number of clues to deal."""


def _generator(name: str, **settings: int) -> Any:
    try:
        import reasoning_gym
    except ImportError as error:
        raise ConfigError(
            "clues needs the package `reasoning-gym`: pip install 'tacit[reasoning-gym]'"
        ) from error
    return reasoning_gym.create_dataset(name, **settings)


def _check(split: str, count: int, puzzle: str, holders: int, hand: int) -> None:
    check_name("split of clues", split, SPLITS)
    check_name("puzzle of clues", puzzle, PUZZLES)
    if count < 1:
        raise ConfigError(f"clues: count must be at least 1, not {count}")
    if holders < 2 or not PEOPLE < holders * hand <= 100:
        raise ConfigError(
            f"clues: give two holders or more, and {PEOPLE + 1} to 100 clues in all, not "
            f"{holders} holders with {hand} each"
        )
