"""From a client's chat messages to the one question that a team was trained to answer.

A lone user message is the question as it stands. Earlier messages are quoted above it, as agents'
messages are, so that nothing in them can pass for the question.
"""

from collections.abc import Sequence

from tacit.serve.problem import Problem
from tacit.serve.schema import WireMessage
from tacit.team.prompts import INTRODUCTIONS, quote
from tacit.types import Message

SYSTEM = ("system", "developer")


def question_of(messages: Sequence[WireMessage], *, with_system: bool = True) -> str:
    """What the last user message asks, below the messages before it."""
    last = last_user(messages)
    if last is None:
        raise Problem(400, "`messages` holds no message of role `user`", param="messages")
    asked = messages[last].text
    if not asked.strip():
        raise Problem(400, "the last user message holds no text", param=f"messages.{last}.content")
    earlier = [
        quote("message", Message(message.role, said))
        for message in messages[:last]
        if (with_system or message.role not in SYSTEM) and (said := message.text)
    ]
    if not earlier:
        return asked
    return "\n\n".join(["\n".join([INTRODUCTIONS["messages"], *earlier]), asked])


def last_user(messages: Sequence[WireMessage]) -> int | None:
    """The place of the last user message; tools' results may follow it."""
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else None


def check_messages(messages: Sequence[WireMessage]) -> None:
    """Refuse anything but text, and a conversation in which the user is not the last to speak."""
    for place, message in enumerate(messages):
        if (odd := message.odd_part) is not None:
            param = f"messages.{place}.content.{odd}.type"
            raise Problem(400, "a team reads text only", param=param)
    question_of(messages)
    if messages[-1].role != "user":
        told = f"a team answers the user, and the last message is of role `{messages[-1].role}`"
        raise Problem(400, told, param=f"messages.{len(messages) - 1}.role")
