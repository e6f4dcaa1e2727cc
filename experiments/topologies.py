"""Teams of the experiments alone.

Two test a trained hinter's honesty: its hint reworded, or a wrong teammate heard first. Each is the
shipped topology with one thing changed, so that a difference has one cause. The third is a team of
its own: a second opinion, whose silence saves all that would have followed.
"""

from tacit import Message, Role, Task, Team, Topology

_ACTOR = {"actor": Role(part="solver")}


async def _reworded(message: Message, team: Team) -> Message:
    """What a frozen model makes of a message; silence stays silence."""
    if message.silent or not message.text.strip():
        return message
    again = await team.paraphraser.ask(message.text)
    return Message(message.agent, again.text)


async def _hint_reworded(task: Task, team: Team) -> Message:
    hint = await _reworded(await team.hinter.ask(task.question), team)
    return await team.actor.ask(task.question, hint=hint, round=1)


async def _hint_disputed(task: Task, team: Team) -> Message:
    """The Actor hears a wrong teammate first, and then the hinter where there is one."""
    hints = [await team.saboteur.ask(task.question)]
    if team.has("hinter"):
        hints.append(await team.hinter.ask(task.question))
    return await team.actor.ask(task.question, hint=hints, round=1)


async def _second_opinion(task: Task, team: Team) -> Message:
    """One agent solves the question. A second may contradict it; then a third weighs both."""
    first = await team.actor.ask(task.question)
    other = await team.second.ask(task.question, draft=first, round=1)
    if other.silent:
        return first
    return await team.arbiter.ask(task.question, solutions=[first, other], round=2)


hint_reworded = Topology(
    play=_hint_reworded,
    roles={
        "hinter": Role(part="hinter", may_be_silent=True),
        "paraphraser": Role(part="speaker"),
        **_ACTOR,
    },
    summary="hint-actor, the hint reworded by a frozen model",
)
hint_disputed = Topology(
    play=_hint_disputed,
    roles={
        "saboteur": Role(part="hinter"),
        "hinter": Role(part="hinter", may_be_silent=True, optional=True),
        **_ACTOR,
    },
    summary="hint-actor with a second teammate who is wrong",
)
second_opinion = Topology(
    play=_second_opinion,
    roles={
        **_ACTOR,
        "second": Role(part="critic", may_be_silent=True),
        "arbiter": Role(part="selector"),
    },
    summary="one solution, a second where that is not trusted, and then a third who decides",
)
