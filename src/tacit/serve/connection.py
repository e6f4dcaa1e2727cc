"""One connection under uvicorn: it sends and reads in time, and too many make room."""

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit.serve.app import Limits

SPARE = 64
"""Connections beyond those with a request under way or waiting: idle ones, probes, newcomers."""


class Connection(H11Protocol):
    """Closes itself where no request is under way and none comes whole in time.

    That also bounds how long the rest of a refused body is read, so that its sender can hear why.
    It closes itself too where its client does not read what it was sent.
    """

    limits: ClassVar[Limits]
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # writing is paused while anything is unsent
        self._since = self.loop.time()
        self._watch()
        if len(self.connections) > most_connections(self.limits):
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.limits.deadline, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()
        if self._unread is not None:
            self._unread.cancel()

    @property
    def idle(self) -> bool:
        return self.cycle is None or (self.cycle.response_complete and not self.flow.write_paused)

    def _watch(self) -> None:
        """Let time run from the first byte of a request, or from connecting, to its last header."""
        if not self.idle:
            self._forget()
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(self.limits.headers, self.transport.abort)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _make_room(self) -> None:
        """Close another, idle connection: one that never asked before others, the oldest first."""
        idle = [
            other
            for other in self.connections
            if isinstance(other, Connection)
            and other is not self
            and other.idle
            and not other.transport.is_closing()
        ]
        min(idle or [self], key=lambda one: (one.cycle is not None, one._since)).transport.abort()


def most_connections(limits: Limits) -> int:
    """What all requests need, within half the files that this process may have open."""
    wanted = limits.places + limits.waiting + SPARE
    try:
        import resource
    except ImportError:  # not on Windows
        return wanted
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        wanted if files == resource.RLIM_INFINITY else min(wanted, max(SPARE, files // 2 - SPARE))
    )
