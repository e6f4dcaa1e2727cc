"""GSM8K cut apart: a helper holds four notes, and may hold a sentence that the Actor lacks.

Half of the tasks ("needed") lose one sentence with a number, which is one of the notes. The others
("free") are whole, and every note is of another problem. So speaking is worth much on one half and
nothing on the other. In `split_gsm8k_blind` the helper is shown only what is asked, the last
sentence, and cannot solve the task itself.
"""

import re
from dataclasses import replace
from functools import partial
from random import Random

from tacit.benchmarks.benchmark import Split, listed
from tacit.benchmarks.maths import GSM8K
from tacit.types import Task

NOTES = 4
SEED = 7
"""Of the random draws; another seed would make other tasks."""
_NUMBER = re.compile(
    r"\d|\b(two|three|four|five|six|seven|eight|nine|ten|twice|half|third|quarter|dozen|double"
    r"|triple)\b",
    re.I,
)


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.?!])\s+(?=[A-Z$\d])", text.strip()) if part]


def _cut_all(split: str, problems: list[Task], *, blind: bool) -> list[Task]:
    """Every problem that can be cut, in the order of the file."""
    facts = [_facts(task.question) for task in problems]
    pool = [fact for some in facts for fact in some]
    dice = Random(f"{SEED}{split}")
    return [
        _cut(task, own, pool, dice, blind)
        for task, own in zip(problems, facts, strict=True)
        if own and len(sentences(task.question)) > 2
    ]


def _facts(question: str) -> list[str]:
    """Sentences that may be taken out: with a number, and before the last one, which asks."""
    return [s for s in sentences(question)[:-1] if _NUMBER.search(s) and 15 < len(s) < 160]


def _cut(task: Task, facts: list[str], pool: list[str], dice: Random, blind: bool) -> Task:
    needed = dice.random() < 0.5
    notes = [fact for fact in dice.sample(pool, NOTES + 2) if fact not in facts][:NOTES]
    question, fact = task.question, ""
    if needed:
        fact = dice.choice(facts)
        question = question.replace(fact, "", 1)
        notes = [*notes[: NOTES - 1], fact]
        dice.shuffle(notes)
    question = " ".join(question.split())  # of whole ones too: their blanks would tell them apart
    views = {"hinter": listed(notes)}
    if blind:
        asked = sentences(question)[-1]
        views["actor"] = question.removesuffix(asked).strip()
        question = asked
    return replace(
        task,
        question=question,
        level="needed" if needed else "free",
        views=views,
        data={"speak": {"hinter": needed}, "fact": fact},
    )


_SPLITS = {
    "train": Split(file="gsm8k/train.jsonl", rows=5830),
    "test": Split(file="gsm8k/test.jsonl", rows=1056),
}
SPLIT_GSM8K = replace(
    GSM8K,
    name="split_gsm8k",
    description="GSM8K; a helper's notes hold a missing sentence, or nothing useful",
    splits=_SPLITS,
    remake=partial(_cut_all, blind=False),
)
SPLIT_GSM8K_BLIND = replace(
    SPLIT_GSM8K,
    name="split_gsm8k_blind",
    description="the same, but the helper sees only the final question",
    remake=partial(_cut_all, blind=True),
)
