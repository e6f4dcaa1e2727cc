"""The prompts that trained weights know, without the texts: what a user of them must send."""

from collections.abc import Iterable, Mapping, Sequence

from tacit.export.formats import PolicyWeights
from tacit.run.folder import RunFolder
from tacit.team.prompts import INTRODUCTIONS, PUBLISHED_USER, SILENCE_SENTENCE, build
from tacit.team.roster import agent_names
from tacit.types import Call, ChatMessage, Message

EXTERNAL = "tacit.external:app"
"""The topology whose prompts a program of the user's own writes."""
Shape = tuple[str, tuple[ChatMessage, ...]]
"""A role, and one kind of prompt that it is given."""


def prompt_shapes(run: RunFolder, weights: PolicyWeights) -> list[Shape]:
    """As seen in the evaluation before training, which every run has."""
    agents = weights.team.agents
    names = {name: role for role in weights.roles for name in agent_names(role, agents[role].count)}
    calls = (call for episode in run.episodes("eval-000000") for call in episode.calls)
    form = None if weights.team.topology == EXTERNAL else weights.team.prompts
    return shapes_of(calls, names, form, {role: agents[role].system for role in weights.roles})


def shapes_of(
    calls: Iterable[Call],
    roles: Mapping[str, str],
    form: str | None,
    systems: Mapping[str, str | None],
) -> list[Shape]:
    """One shape for each part that the agents of `roles` (name → role) were seen to play.

    `form` is that of `tacit.team.prompts`, or None if an external program wrote the prompts.
    `systems`: role texts of the config's own, by role.
    """
    seen: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        if call.agent in roles:
            seen.setdefault((roles[call.agent], call.part), []).append(call)
    return [
        (role, _messages(part, some, form, systems.get(role)))
        for (role, part), some in seen.items()
    ]


def _messages(
    part: str, calls: Sequence[Call], form: str | None, own: str | None
) -> tuple[ChatMessage, ...]:
    """What is the same in all of them, word for word; what differs as a name in braces."""
    texts = ["\n\n".join(m.content for m in c.messages if m.role == "system") for c in calls]
    # with the role last its text cannot be told from the question's: then as the config has it
    told = texts[0] if len({*texts}) == 1 and form != "role_last" else own
    if form is None:
        said = ChatMessage("user", "{what the program asks}")
        return (ChatMessage("system", told), said) if told else (said,)
    asked = " ".join(call.messages[-1].content for call in calls)
    heard = (
        list(PUBLISHED_USER.get(part, ("", {}, ""))[1])
        if form == "published"
        else [name for name, line in INTRODUCTIONS.items() if f"\n\n{line}\n<" in asked]
    )
    return build(
        part,
        "{question}",
        {name: [Message("{agent}", f"{{{name}}}")] for name in heard},
        agent="{agent}",
        instruction="{instruction}",
        form=form,
        system=told,
        may_be_silent=SILENCE_SENTENCE not in (told or "")
        and any(SILENCE_SENTENCE in m.content for call in calls for m in call.messages),
    )
