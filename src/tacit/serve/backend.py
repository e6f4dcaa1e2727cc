"""The seam to whoever answers a chat completion."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tacit.serve.schema import Chat, Json
from tacit.types import Call

Emit = Callable[[Json], None]
"""Takes the next chunk of a stream."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, and the calls that it took."""

    body: Json
    """The completion, where no stream was asked for; else every chunk was emitted before."""
    calls: Sequence[Call]
    unhelped: bool = False
    """Whether the Actor was asked without help, because the Collaborator failed."""


class Backend(Protocol):
    async def models(self, headers: Mapping[str, str]) -> Json:
        """What `/v1/models` lists."""
        ...

    def check(self, chat: Chat) -> list[str]:
        """Refuse, with a Problem, what cannot be answered: before the request waits for a place.

        Returns the fields that will be left alone though they ask for something.
        """
        ...

    async def answer(self, chat: Chat, emit: Emit) -> Answer:
        """Answer, emitting chunks where a stream was asked for. Runs in an asyncio task of its own,
        which is cancelled when the client goes away."""
        ...

    async def close(self) -> None: ...
