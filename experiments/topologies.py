"""Teams of the experiments alone.

Two test a trained hinter's honesty: its hint reworded, or a wrong teammate heard first. Each is the
shipped topology with one thing changed, so that a difference has one cause. The third is a team of
its own: a second opinion, whose silence saves all that would have followed. The last has one
Collaborator help in several ways, each task in one of them.
"""

from hashlib import blake2b

from tacit import ConfigError, Message, Role, Task, Team, TeamConfig, Topology

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


async def _hinting(task: Task, team: Team) -> Message:
    hint = await team.collaborator.ask(task.question)
    return await team.actor.ask(task.question, hint=hint, round=1)


async def _criticising(task: Task, team: Team) -> Message:
    draft = await team.actor.ask(task.question)
    comment = await team.collaborator.ask(task.question, part="critic", draft=draft, round=1)
    if comment.silent:
        return draft
    return await team.actor.ask(
        task.question, part="reviser", draft=draft, comment=comment, round=1
    )


async def _advising_an_expert(task: Task, team: Team) -> Message:
    expert = await team.actor.ask(task.question, part="role_picker")
    hint = await team.collaborator.ask(task.question)
    return await team.actor.ask(task.question, part="expert", expert=expert, hint=hint, round=1)


WAYS = {"hint": _hinting, "critic": _criticising, "expert": _advising_an_expert}


async def _several(task: Task, team: Team, ways: list[str]) -> Message:
    """The way of a task goes by its id, so that the episodes of a group are played alike."""
    drawn = int.from_bytes(blake2b(task.id.encode(), digest_size=4).digest())
    return await WAYS[ways[drawn % len(ways)]](task, team)


def _known_ways(team: TeamConfig) -> None:
    for way in team.options.get("ways", []):
        if way not in WAYS:
            raise ConfigError(f"team.options.ways: `{way}` is none of {', '.join(WAYS)}")


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
several = Topology(
    play=_several,
    roles={"collaborator": Role(part="hinter", may_be_silent=True), **_ACTOR},
    summary="one Collaborator that hints, criticises or advises an expert, by the task",
    check=_known_ways,
)
