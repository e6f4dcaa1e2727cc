"""How many requests are under way, how many may wait, and the closing of the door."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from tacit.serve.problem import retry_later


class Gate:
    """Lets so many in at once, has so many wait in order, and turns the rest away at once.

    Whoever waits has been accepted: closing refuses newcomers only.
    """

    def __init__(self, places: int, waiting: int) -> None:
        self.inside = 0
        """Under way or waiting."""
        self.closed = False
        self._places = places
        self._most = places + waiting
        self._free = asyncio.Semaphore(places)
        self._open = 0
        self._empty = asyncio.Event()
        self._seconds = 1.0

    @property
    def waiting(self) -> int:
        return max(0, self.inside - self._places)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        if self.closed:
            raise retry_later(503, "the server is shutting down", 5, "shutting_down")
        if self.inside >= self._most:
            raise retry_later(
                429, "the server has all the work it can take", self._patience(), "queue_full"
            )
        self.inside += 1
        try:
            async with self._free:
                began = asyncio.get_running_loop().time()
                yield
                took = asyncio.get_running_loop().time() - began
                self._seconds += 0.1 * (took - self._seconds)
        finally:
            self.inside -= 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        """A request from its first byte to its reply's last; those after closing do not count."""
        counts = not self.closed
        self._open += counts
        try:
            yield
        finally:
            self._open -= counts
            self._tell()

    def close(self) -> None:
        self.closed = True
        self._tell()

    async def emptied(self) -> None:
        """Returns once it is closed and every request from before has its reply."""
        await self._empty.wait()

    def _tell(self) -> None:
        if self.closed and not self._open:
            self._empty.set()

    def _patience(self) -> int:
        """Seconds until the queue has moved on, as far as the last requests tell."""
        return min(60, math.ceil(self._seconds * (1 + self.waiting / self._places)))
