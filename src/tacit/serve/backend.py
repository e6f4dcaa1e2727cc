"""The seam to whoever answers a chat completion."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tacit.serve.budgets import Allowance
from tacit.serve.schema import ChatRequest, Json, account, chunk_head
from tacit.types import Call

Emit = Callable[[Json], None]
"""Takes the next chunk of a stream."""
Heard = Callable[[Call], None]
"""Is told of every call of a model once it is over, also where no answer comes of it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, and the calls that it took."""

    body: Json
    """The whole completion. A client that asked for a stream has been sent all of its chunks."""
    calls: Sequence[Call]
    unhelped: bool = False
    """True if the Actor was asked without help because the Collaborator failed."""
    allowance: Allowance | None = None
    """What the request was allowed, and what was not asked for."""


class Backend(Protocol):
    async def models(self, headers: Mapping[str, str]) -> Json:
        """The list at `/v1/models`."""
        ...

    def check(self, chat: ChatRequest) -> list[str]:
        """Refuse with an HttpError what cannot be answered, before the request waits for a place.

        Returns the fields that ask for something and will have no effect.
        """
        ...

    async def answer(self, chat: ChatRequest, emit: Emit, heard: Heard) -> Answer:
        """Answer, emitting chunks if a stream was asked for.

        Runs in an asyncio task of its own, which is cancelled when the client goes away.
        """
        ...


def finished(
    chat: ChatRequest,
    body: Json,
    calls: Sequence[Call],
    emit: Emit,
    *,
    unhelped: bool = False,
    allowance: Allowance | None = None,
) -> Answer:
    """Add what was cut and what `tacit: true` asks for, and end a stream with the totals' chunk."""
    cut = {name: rows for name, rows in allowance.cut().items() if rows} if allowance else {}
    if cut and body.get("usage"):
        body = body | {"usage": body["usage"] | {"tacit_cut": cut}}
    if chat.wish.account:
        body = body | {"tacit": account(calls) | (allowance.json() if allowance else {})}
    options = chat.fields.stream_options
    asked = {"usage": options and options.include_usage, "tacit": chat.wish.account}
    totals = {name: body[name] for name, want in asked.items() if want and body.get(name)}
    if chat.streams and totals:
        emit(chunk_head(body) | {"choices": []} | totals)
    return Answer(body, calls, unhelped, allowance)
