"""Computes equal requests once, such as a draft that all episodes of a group ask for.

For training, where a group plays one task many times. Not covered: API answers, which are cached on
disk (`api/cache.py`).
"""

import asyncio
from collections.abc import Hashable
from weakref import WeakValueDictionary

from tacit.engine.base import Completion, Engine, Request
from tacit.types import Ids, Prompt, ToolSpec


class KeyedLock:
    """One lock per key, which exists only while somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    def alone(self, key: Hashable) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())


class DedupedEngine:
    """Wraps an engine, and answers equal requests from memory until `forget`.

    Requests are equal if they have the same prompt and sampling, and the same seed unless greedy.
    Call `forget` whenever the weights change. Every caller gets the full usage, as if its answer
    had been generated for it: a deployed team pays for it each time.
    """

    def __init__(self, engine: Engine) -> None:
        self.model, self.policy = engine.model, engine.policy
        self.engine = engine
        self._kept: dict[Hashable, Completion] = {}
        self._turns = KeyedLock()

    def __reduce__(self) -> tuple[type["DedupedEngine"], tuple[Engine]]:
        """Sent to another process, it remembers nothing."""
        return DedupedEngine, (self.engine,)

    def encode(self, messages: Prompt, tools: tuple[ToolSpec, ...] = ()) -> Ids:
        return self.engine.encode(messages, tools)

    def encode_more(self, observations: Prompt, tools: tuple[ToolSpec, ...]) -> Ids:
        return self.engine.encode_more(observations, tools)

    def silence_ids(self) -> Ids:
        return self.engine.silence_ids()

    async def generate(self, request: Request) -> Completion:
        if not request.prompt_ids:
            return await self.engine.generate(request)
        seed = request.seed if request.sampling.temperature or request.silence else None
        key = request.prompt_ids, request.sampling, seed, request.silence, bool(request.tools)
        async with self._turns.alone(key):
            if key not in self._kept:
                self._kept[key] = await self.engine.generate(request)
            return self._kept[key]

    async def close(self) -> None:
        await self.engine.close()

    def forget(self) -> None:
        self._kept.clear()
