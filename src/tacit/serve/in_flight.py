"""One in-flight request: the work, the chunks it emits, and the client, who may go away."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tacit.serve.backend import Answer, Emit
from tacit.serve.dialects import Dialect
from tacit.serve.http_error import HttpError, retry_later
from tacit.serve.monitoring import log_failure
from tacit.serve.schema import Json

GONE = 499
"""The status, in logs and metrics, of a request whose client did not wait for the reply."""
LAST_WORDS = 5.0
"""Seconds after its deadline in which a stream can still say that it was late."""


class InFlight:
    def __init__(self, work: Callable[[Emit], Coroutine[Any, Any, Answer]]) -> None:
        self.chunks: asyncio.Queue[Json | None] = asyncio.Queue()
        """What the work emits; None when it is over."""
        self.task = asyncio.create_task(work(self.chunks.put_nowait))
        self.task.add_done_callback(lambda task: self.chunks.put_nowait(None))

    async def first(self, receive: Receive) -> Json | None:
        """The first chunk, or None if the work ends without any.

        If the client goes away the work is cancelled, so that nobody pays for it any longer.
        """
        chunk = asyncio.create_task(self.chunks.get())
        gone = asyncio.create_task(disconnected(receive))
        try:
            await asyncio.wait({chunk, gone}, return_when=asyncio.FIRST_COMPLETED)
            if chunk.done():
                return chunk.result()
            raise HttpError(GONE, "the client went away")
        except BaseException:
            self.task.cancel()
            raise
        finally:
            chunk.cancel()
            gone.cancel()

    def answer(self) -> Answer:
        """The result of the work, which is over."""
        if self.task.cancelled():
            raise retry_later(503, "the server shut down before the answer", 5, "shutting_down")
        return self.task.result()


async def disconnected(receive: Receive) -> None:
    """Returns when the client, whose request is read, goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """The chunks as server-sent events; a failure is the last of them."""

    def __init__(
        self, first: Json, flight: InFlight, until: float, dialect: Dialect, headers: dict[str, str]
    ) -> None:
        super().__init__(
            self._events(first),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no", **headers},
        )
        self._flight = flight
        self._dialect = dialect
        self._until = until + LAST_WORDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout_at(self._until):  # a client that does not read is let go
                await super().__call__(scope, receive, send)
        finally:
            self._flight.task.cancel()

    async def _events(self, first: Json) -> AsyncIterator[bytes]:
        chunks, over = self._flight.chunks, False
        yield self._dialect.piece(first)
        while not over:
            batch = [await chunks.get()]
            while not chunks.empty():
                batch.append(chunks.get_nowait())
            over = batch[-1] is None
            data = b"".join(self._dialect.piece(chunk) for chunk in batch if chunk is not None)
            yield data + (self._last() if over else b"")

    def _last(self) -> bytes:
        try:
            return self._dialect.last(self._flight.answer().body)
        except HttpError as problem:
            return self._dialect.failure(problem.body())
        except Exception as error:
            log_failure(error)
            return self._dialect.failure(HttpError(500, "an internal error").body())
