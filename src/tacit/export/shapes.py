"""The prompts that trained weights know, without the texts: what a user of them must send."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tacit.team.prompts import INTRODUCTIONS, PUBLISHED_USER, SILENCE_SENTENCE, build
from tacit.types import Call, ChatMessage, Message


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of prompt of one role."""

    role: str
    messages: tuple[ChatMessage, ...]


def prompt_shapes(calls: Iterable[Call], roles: Mapping[str, str], form: str | None) -> list[Shape]:
    """One shape for each part that the agents of `roles` (name → role) were seen to play.

    `form` is that of `tacit.team.prompts`, or None where a program outside wrote the prompts.
    """
    seen: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        if call.agent in roles:
            seen.setdefault((roles[call.agent], call.part), []).append(call)
    return [Shape(role, _messages(part, some, form)) for (role, part), some in seen.items()]


def _messages(part: str, calls: Sequence[Call], form: str | None) -> tuple[ChatMessage, ...]:
    """Whatever is the same in all of them, word for word; what differs as a name in braces."""
    system = {m.content for call in calls for m in call.messages if m.role == "system"}
    told = tuple(ChatMessage("system", text) for text in system if len(system) == 1)
    if form is None:
        return (*told, ChatMessage("user", "{what the program asks}"))
    asked = " ".join(call.messages[-1].content for call in calls)
    heard = (
        [name for name, line in INTRODUCTIONS.items() if f"\n\n{line}\n<" in asked]
        if form == "tagged"
        else list(PUBLISHED_USER.get(part, ("", {}, ""))[1])
    )
    context = {name: [Message("{agent}", f"{{{name}}}")] for name in heard}
    built = build(
        part,
        "{question}",
        context,
        agent="{agent}",
        instruction="{instruction}",
        form=form,
        may_be_silent=any(SILENCE_SENTENCE in text for text in system),
    )
    return (*(told or built[:-1]), built[-1])
