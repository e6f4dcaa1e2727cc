"""Questions over several paragraphs, dealt to five holders: HotpotQA, 2WikiMultihopQA, MuSiQue.

An answer needs two to four of the paragraphs, and no holder has two of those. The files say which
they are; only `data["speak"]` and `data["named"]` tell, and no model is shown them.
"""

import re
from random import Random

from tacit.benchmarks.benchmark import Benchmark, Fields, Split
from tacit.tasks.source import Row

HOLDERS = tuple(f"holder {number}" for number in range(1, 6))
Hand = list[Row]
"""The paragraphs of one holder."""
_DISAMBIGUATION = re.compile(r"\s*\([^()]*\)$")


def _row(row: Row) -> Fields:
    hands = deal(row["paragraphs"], Random(row["id"]))
    needed = {name: [p for p in hand if p["supporting"]] for name, hand in hands.items()}
    asked = row["question"].casefold()
    return {
        "question": row["question"],
        "answer": row["answer"],
        "level": row["type"],
        "views": {name: _shown(hand) for name, hand in hands.items()},
        "data": {
            "aliases": row["aliases"],
            "titles": {name: [p["title"] for p in hand] for name, hand in hands.items()},
            "speak": {name: bool(some) for name, some in needed.items()},
            "named": {
                name: any(_plain(p["title"]) in asked for p in some)
                for name, some in needed.items()
            },
        },
    }


def deal(paragraphs: list[Row], dice: Random) -> dict[str, Hand]:
    """Hands of equal size, or one apart. How large a hand is says nothing about what is in it."""
    places = (dice.sample(HOLDERS, len(HOLDERS)) * len(paragraphs))[: len(paragraphs)]
    supporting = [p for p in paragraphs if p["supporting"]]
    hands: dict[str, Hand] = {name: [] for name in HOLDERS}
    # One to a holder: sampling raises an error if there are more of them than holders.
    for paragraph, name in zip(
        supporting, dice.sample(sorted(set(places)), len(supporting)), strict=True
    ):
        places.remove(name)
        hands[name].append(paragraph)
    dice.shuffle(places)
    others = (p for p in paragraphs if not p["supporting"])
    for paragraph, name in zip(others, places, strict=True):
        hands[name].append(paragraph)
    for hand in hands.values():
        dice.shuffle(hand)
    return hands


def _shown(hand: Hand) -> str:
    return "\n\n".join(f"{paragraph['title']}: {paragraph['text']}" for paragraph in hand)


def _plain(title: str) -> str:
    return _DISAMBIGUATION.sub("", title).strip().casefold()


def _multihop(name: str, description: str, licence: str, rows: int, test: int) -> Benchmark:
    """`test` is how many of the last rows are the test; the 100 before them are for validation."""
    cuts = {
        "train": range(rows - test - 100),
        "validation": range(rows - test - 100, rows - test),
        "test": range(rows - test, rows),
    }
    file = f"{name}/all.jsonl"
    return Benchmark(
        name=f"split_{name}",
        grader="span",
        description=description,
        licence=licence,
        splits={s: Split(file=file, rows=len(keys), keys=keys) for s, keys in cuts.items()},
        parse=_row,
    )


SPLIT_HOTPOTQA = _multihop(
    "hotpotqa",
    "two of ten paragraphs are needed; five agents hold two each",
    "CC BY-SA 4.0",
    rows=1005,
    test=200,
)
SPLIT_2WIKI = _multihop(
    "2wiki", "2WikiMultihopQA: two to four of ten paragraphs are needed", "Apache-2.0", 664, 200
)
SPLIT_MUSIQUE = _multihop(
    "musique", "two to four of twenty paragraphs are needed; five agents hold four", "CC BY 4.0",
    300, 100,
)  # fmt: skip
