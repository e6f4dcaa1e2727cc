"""Equal requests computed once: what episodes of a group ask alike, such as a draft.

For training, where a group plays one task many times. Not covered: answers of APIs, which have a
cache of their own on disk (`api/cache.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from tacit.engine.base import Completion, Engine, Request
from tacit.types import ChatMessage


class KeyedLock:
    """Lets one in at a time for the same key."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def alone(self, key: Hashable) -> AsyncIterator[None]:
        lock, waiting = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            waiting = self._locks[key][1] - 1
            self._locks[key] = lock, waiting
            if not waiting:
                del self._locks[key]


class Once:
    """Another engine, asked no more than once for the same until it is told to `forget`.

    The same: greedy, or drawn with the same seed; and while it is kept, from the same weights.
    Every asker is told the whole usage, as if the answer had been generated for it: a team that is
    deployed pays for it each time.
    """

    def __init__(self, engine: Engine) -> None:
        self.model, self.policy = engine.model, engine.policy
        self.engine = engine
        self._kept: dict[Hashable, Completion] = {}
        self._turns = KeyedLock()

    def encode(self, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        return self.engine.encode(messages)

    def silence_ids(self) -> tuple[int, ...]:
        return self.engine.silence_ids()

    async def generate(self, request: Request) -> Completion:
        if request.silence or not request.prompt_ids:
            return await self.engine.generate(request)
        seed = request.seed if request.sampling.temperature else None
        key = request.prompt_ids, request.sampling, seed
        async with self._turns.alone(key):
            if key not in self._kept:
                self._kept[key] = await self.engine.generate(request)
            return self._kept[key]

    async def close(self) -> None:
        await self.engine.close()

    def forget(self) -> None:
        self._kept.clear()
