"""From a client's chat messages to the one question that a team was trained to answer.

A lone user message is the question as it stands. Whatever comes before it is quoted above it, as
agents' messages are, so that nothing in it can pass for the question.
"""

from collections.abc import Sequence

from tacit.serve.problem import Problem
from tacit.serve.schema import WireMessage
from tacit.team.prompts import INTRODUCTIONS, quote
from tacit.types import Message

SYSTEM = ("system", "developer")


def question_of(messages: Sequence[WireMessage], *, with_system: bool = True) -> str:
    """What the last user message asks, below what was said before it."""
    last = last_user(messages)
    if last is None:
        raise Problem(400, "`messages` holds no message of role `user`", param="messages")
    asked = text_of(messages[last])
    if not asked.strip():
        raise Problem(400, "the last user message holds no text", param=f"messages.{last}.content")
    earlier = [
        quote("message", Message(message.role, said))
        for message in messages[:last]
        if (with_system or message.role not in SYSTEM) and (said := text_of(message))
    ]
    if not earlier:
        return asked
    return "\n\n".join(["\n".join([INTRODUCTIONS["messages"], *earlier]), asked])


def last_user(messages: Sequence[WireMessage]) -> int | None:
    """Where the last message of the user stands; tools' results may follow it."""
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else None


def text_of(message: WireMessage) -> str:
    """Its words; images have none, and half a character, which no model can read, becomes `?`."""
    if isinstance(message.content, list):
        texts = [part.get("text") for part in message.content if part.get("type") == "text"]
        text = "\n".join(text for text in texts if isinstance(text, str))
    else:
        text = message.content or ""
    return text.encode(errors="replace").decode()
