"""Streams texts while their tokens are drawn.

A piece is sent once no later token can change it: half a character waits for its other half.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from tacit.engine.chat import Chat
from tacit.engine.request_state import RequestState

HALF = "\N{REPLACEMENT CHARACTER}"
"""The bytes of an incomplete character decode to this."""


class Listeners:
    """The requests of one engine that stream. Each step wakes their event loop only once."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._all: dict[RequestState, _Decoded] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._called = False

    @contextlib.contextmanager
    def listening(self, state: RequestState) -> Iterator[None]:
        """Streams the request's text inside this block, if the request has a listener."""
        if state.request.on_text is None:
            yield
            return
        self._loop = state.answered.get_loop()
        self._all[state] = _Decoded()
        try:
            yield
        finally:
            del self._all[state]

    def call(self) -> None:
        """Send all listeners what is new; called from the worker's thread."""
        if self._all and self._loop and not self._called:
            self._called = True
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody listens
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._called = False
        for state, decoded in list(self._all.items()):
            if state.request.on_text and (piece := decoded.advance(state.ids, self._chat)):
                state.request.on_text(piece)


class _Decoded:
    """How much of one text has been sent."""

    def __init__(self) -> None:
        self._context = 0
        self._sent = 0

    def advance(self, ids: list[int], chat: Chat) -> str:
        """The new text. An id's spelling can depend on the ids before it, so the last piece is
        decoded again together with the new one."""
        end = len(ids)
        if end == self._sent:
            return ""
        before = chat.decode(ids[self._context : self._sent])
        now = chat.decode(ids[self._context : end])
        if now.endswith(HALF) or not now.startswith(before):
            return ""
        self._context, self._sent = self._sent, end
        return now[len(before) :]
