"""GSM8K with private notes: a helper may hold a sentence that the Actor lacks.

Half of the tasks ("needed") lose one sentence with a number, which stands among the helper's four
notes; on the other half ("free") the question is whole and every note is of another problem. So
speaking is worth much on one half and nothing on the other, and what to say is one note of four.
"""

import re
from dataclasses import replace
from random import Random

from tacit import Message, Role, Task, Team, Topology, load_tasks

NOTES = 4
_NUMBER = re.compile(
    r"\d|\b(two|three|four|five|six|seven|eight|nine|ten|twice|half|third|quarter|dozen|double"
    r"|triple)\b",
    re.I,
)
_ROLES = {"hinter": Role(part="hinter", may_be_silent=True), "actor": Role(part="solver")}


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.?!])\s+(?=[A-Z$\d])", text.strip()) if part]


def tasks(split: str = "test", seed: int = 7) -> list[Task]:
    """Every problem that can be cut, in the order of the file."""
    problems = load_tasks("gsm8k", split=split)
    facts = [_facts(task.question) for task in problems]
    pool = [fact for some in facts for fact in some]
    dice = Random(f"{seed}{split}")
    return [
        _cut(task, own, pool, dice)
        for task, own in zip(problems, facts, strict=True)
        if own and len(sentences(task.question)) > 2
    ]


def _facts(question: str) -> list[str]:
    """Sentences that may be taken out: with a number, and before the last one, which asks."""
    return [s for s in sentences(question)[:-1] if _NUMBER.search(s) and 15 < len(s) < 160]


def _cut(task: Task, facts: list[str], pool: list[str], dice: Random) -> Task:
    needed = dice.random() < 0.5
    others = [fact for fact in dice.sample(pool, NOTES + 2) if fact not in facts]
    question, fact, notes = task.question, "", others[:NOTES]
    if needed:
        fact = dice.choice(facts)
        question = question.replace(fact, "", 1).replace("  ", " ").strip()
        notes = [*others[: NOTES - 1], fact]
        dice.shuffle(notes)
    return replace(
        task,
        id=task.id.replace("gsm8k", "jigsaw"),  # the shuffle goes by ids: these were recorded
        question=question,
        level="needed" if needed else "free",
        data={"notes": tuple(notes), "fact": fact},
    )


def _listed(task: Task) -> str:
    return "Your private notes:\n" + "\n".join(f"- {note}" for note in task.data["notes"])


async def _seeing(task: Task, team: Team) -> Message:
    shown = f"The question that your teammate sees:\n{task.question}\n\n{_listed(task)}"
    hint = await team.hinter.ask(shown)
    return await team.actor.ask(task.question, hint=hint, final=True)


async def _blind(task: Task, team: Team) -> Message:
    """The helper cannot solve the question: it sees what is asked, and its notes."""
    shown = f"Your teammate is asked: {sentences(task.question)[-1]}\n\n{_listed(task)}"
    hint = await team.hinter.ask(shown)
    return await team.actor.ask(task.question, hint=hint, final=True)


async def _told(task: Task, team: Team) -> Message:
    return await team.actor.ask(task.question, hint=task.data["fact"] or None, final=True)


seeing = Topology(play=_seeing, roles=_ROLES, summary="a helper with private notes")
blind = Topology(
    play=_blind, roles=_ROLES, summary="a helper with private notes who does not see the question"
)
oracle = Topology(
    play=_told,
    roles={"actor": Role(part="solver")},
    summary="the Actor is told what it lacks, for nothing",
)
