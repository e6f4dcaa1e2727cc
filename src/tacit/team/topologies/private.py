"""Topologies in which agents know different things: documents of their own, or test results."""

import re
from collections.abc import Sequence
from typing import Any

from tacit.registry import lookup
from tacit.team.seat import Seat
from tacit.team.team import Team
from tacit.types import Message, Task

RUN_TESTS = "tacit.tools.run_tests:run_visible"
"""Runs the tests that a code task shows; found by name, since it lies outside the core."""
_SENTENCE_END = re.compile(
    r"(?<=[a-z0-9%)\]\"”][.!?])(?<!\bSt\.)(?<!\bMr\.)(?<!\bDr\.)(?<!\bJr\.)\s+(?=[A-Z\"“(])"
)
TITLE = 80
"""Longest title of a paragraph, in characters."""


async def holders(task: Task, team: Team, quotes: bool = False) -> Message:
    """Each holder has a view of its own and may tell the asker something, who answers.

    An `inquirer`, if the team has one, may put one question to the holders before that; give it the
    asker's model to let the asker ask. With `quotes` a holder names sentences of its view by their
    numbers, and the asker reads the sentences: what is said is cheap and cannot be made up.
    """
    told = await team.together(*(_told(one, task, quotes) for one in team.all("holder")))
    if team.has("inquirer"):
        asked = await team.inquirer.ask(task.question, messages=told, round=1)
        if not asked.silent:
            heard = [*told, asked]
            more = (_told(one, task, quotes, heard) for one in team.all("holder"))
            told = [*told, *await team.together(*more)]
    return await team.asker.ask(task.question, messages=told, round=2, final=True)


async def _told(
    holder: Seat, task: Task, quotes: bool, heard: Sequence[Message] | None = None
) -> Message:
    """What a holder says. One that is to quote and names no sentence has spoken to nobody."""
    how: dict[str, Any] = {"messages": heard, "round": int(heard is not None)}
    if not quotes:
        return await holder.ask(task.question, **how)
    known = sentences(holder.view)
    numbered = "\n".join(f"[{number}] {one}" for number, one in enumerate(known, start=1))
    said = await holder.ask(task.question, part="quoter", view=numbered or None, **how)
    places = dict.fromkeys(int(number) - 1 for number in re.findall(r"\d{1,4}", said.text))
    named = [known[place] for place in places if 0 <= place < len(known)]
    return Message(said.agent, "\n".join(named), silent=said.silent or not named)


def sentences(view: str) -> list[str]:
    """The sentences of a text, each with the title of a paragraph that begins with `Title: `."""
    found = []
    for paragraph in filter(None, map(str.strip, view.splitlines())):
        title, colon, text = paragraph.partition(": ")
        if not colon or len(title) > TITLE or _SENTENCE_END.search(title):
            title, text = "", paragraph
        found += [f"{title}: {one}" if title else one for one in _SENTENCE_END.split(text)]
    return found


async def tester(task: Task, team: Team, rounds: int = 1) -> Message:
    """The Actor writes code; a tester alone sees how the visible tests end, and may report it.

    Silence accepts the draft. A tester that the task gives no tests has only the draft to read.
    """
    run_visible = lookup("tool", RUN_TESTS, {})
    draft = await team.actor.ask(task.question)
    for number in range(1, rounds + 1):
        failed = await run_visible(task, draft.text)
        results = failed or ("All visible tests pass." if task.data.get("visible") else None)
        team.needed[team.tester.name] = team.needed.get(team.tester.name, False) or bool(failed)
        report = await team.tester.ask(
            task.question, draft=draft, test_results=results, round=number
        )
        if report.silent:
            break
        draft = await team.actor.ask(
            task.question,
            part="reviser",
            draft=draft,
            comment=report,
            round=number,
            final=number == rounds,
        )
    return draft
