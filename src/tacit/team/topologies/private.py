"""Topologies in which agents know different things: documents of their own, or test results."""

import re
from collections.abc import Sequence
from typing import Any

from tacit.config import TeamConfig
from tacit.errors import ConfigError
from tacit.registry import lookup
from tacit.team.seat import Seat
from tacit.team.team import Team
from tacit.types import Message, Task

RUN_TESTS = "tacit.tools.run_tests:run_visible"
"""Runs the tests that a code task shows; found by name, since it lies outside the core."""
_SENTENCE_END = re.compile(
    r"(?<=[a-z0-9%)\]\"”][.!?])(?<!\bSt\.)(?<!\bMr\.)(?<!\bDr\.)(?<!\bJr\.)\s+(?=[A-Z\"“(])"
)
_NUMBER = re.compile(r"\[(\d{1,4})\]|^\s*(\d{1,4})\W*$")
NO_QUOTE = "(names no sentence)"
"""Shown to others if a quoter names no sentence."""


async def holders(task: Task, team: Team, quotes: bool = False) -> Message:
    """Each holder has a view of its own and may tell the asker something, who answers.

    An `inquirer`, if the team has one, may put one question to the holders before that; give it the
    asker's model to let the asker ask. With `quotes` a holder names a sentence of its view by its
    number, and the asker reads the sentence: what is said is cheap and cannot be made up.
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
    """A holder's message. With `quotes` it is the sentence whose number the holder gave first."""
    how: dict[str, Any] = {"messages": heard, "round": int(heard is not None)}
    if not quotes:
        return await holder.ask(task.question, **how)
    known = sentences(holder.view, task.data.get("titles", {}).get(holder.name, ()))
    numbered = "\n".join(f"[{number}] {one}" for number, one in enumerate(known, start=1))

    def quoted(text: str) -> str:
        found = _NUMBER.search(text)
        place = int(found[1] or found[2]) if found else 0
        return known[place - 1] if 1 <= place <= len(known) else NO_QUOTE

    return await holder.ask(
        task.question, part="quoter", view=numbered or None, heard_as=quoted, **how
    )


def sentences(view: str, titles: Sequence[str] = ()) -> list[str]:
    """The sentences of a text; where a paragraph begins with a title and `: `, each gets it."""
    found = []
    for paragraph in filter(None, map(str.strip, view.splitlines())):
        begun = [f"{title}: " for title in titles if paragraph.startswith(f"{title}: ")]
        title = max(begun, key=len, default="")
        found += [title + one for one in _SENTENCE_END.split(paragraph.removeprefix(title))]
    return found


def no_search(team: TeamConfig) -> None:
    """Refuse quotes by holders that search their view: it has no numbered sentences."""
    if team.options.get("quotes") and "lookup" in team.agents["holder"].tools:
        raise ConfigError("team.options.quotes: holders that quote cannot have the tool `lookup`")


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
