"""Telling texts while their tokens are drawn.

A piece is told once no later token can change it: half a character waits for its other half.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from tacit.engine.chat import Chat
from tacit.engine.request_state import RequestState

HALF = "\N{REPLACEMENT CHARACTER}"
"""What the bytes of an unfinished character decode to."""


class Listeners:
    """Those who listen to one engine, told together: a step wakes their event loop once."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._all: dict[RequestState, _Place] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._called = False

    @contextlib.contextmanager
    def listening(self, state: RequestState) -> Iterator[None]:
        """While inside, and where its request has a listener, the request's text is told."""
        if state.request.on_text is None:
            yield
            return
        self._loop = state.answered.get_loop()
        self._all[state] = _Place()
        try:
            yield
        finally:
            del self._all[state]

    def call(self) -> None:
        """Have everyone told what is new, from the worker's thread."""
        if self._all and self._loop and not self._called:
            self._called = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._called = False
        for state, place in list(self._all.items()):
            if state.request.on_text and (piece := place.advance(state.ids, self._chat)):
                state.request.on_text(piece)


class _Place:
    """How far a text was told."""

    def __init__(self) -> None:
        self._context = 0
        self._told = 0

    def advance(self, ids: list[int], chat: Chat) -> str:
        """The text that came since. What an id spells can depend on the ids just before it, so
        those are decoded once more beside it."""
        end = len(ids)
        if end == self._told:
            return ""
        before = chat.decode(ids[self._context : self._told])
        now = chat.decode(ids[self._context : end])
        if now.endswith(HALF) or not now.startswith(before):
            return ""
        self._context, self._told = self._told, end
        return now[len(before) :]
