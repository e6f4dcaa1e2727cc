"""Topologies in which agents know different things: documents of their own, or test results."""

from tacit.registry import lookup
from tacit.team.team import Team
from tacit.types import Message, Task

RUN_TESTS = "tacit.tools.run_tests:run_visible"
"""Runs the tests that a code task shows; found by name, since it lies outside the core."""


async def holders(task: Task, team: Team) -> Message:
    """Each holder has a view of its own and may tell the asker something, who answers.

    An `inquirer`, if the team has one, may put one question to the holders before that; give it the
    asker's model to let the asker ask.
    """
    told = await team.together(*(holder.ask(task.question) for holder in team.all("holder")))
    if team.has("inquirer"):
        asked = await team.inquirer.ask(task.question, messages=told, round=1)
        if not asked.silent:
            more = (
                holder.ask(task.question, messages=[*told, asked], round=1)
                for holder in team.all("holder")
            )
            told = [*told, *await team.together(*more)]
    return await team.asker.ask(task.question, messages=told, round=2, final=True)


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
