"""Engines on the head that stand for those of the workers.

They are seated like engines. Sent to a worker, each becomes the worker's own engine of that name,
so that any roster can be played anywhere.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tacit.engine.base import Completion, Engine, Request, TextOnly
from tacit.errors import EngineError

HERE: dict[str, Engine] = {}
"""The engines of this process, if it is a worker."""


class RemoteEngine(TextOnly):
    """A frozen model that only the workers have."""

    def __init__(self, key: str, model: str, policy: str = "") -> None:
        self.key, self.model, self.policy = key, model, policy

    def __reduce__(self) -> tuple[Callable[[str], Engine], tuple[str]]:
        return _engine_here, (self.key,)

    async def generate(self, request: Request) -> Completion:
        raise EngineError(f"{self.model}: only the cluster's workers can ask this model")

    async def close(self) -> None: ...


class RemoteTrained(RemoteEngine):
    """A policy that the workers serve; `publish` sends them its current weights."""

    def __init__(self, policy: str, model: str, publish: Callable[[str, int], Awaitable[None]]):
        super().__init__(policy_key(policy), model, policy)
        self.version = 0
        self._publish = publish

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Nothing to wait for: the head's own copy generates nothing."""
        yield

    async def refresh(self, version: int) -> None:
        await self._publish(self.policy, version)
        self.version = version


def model_key(model: str) -> str:
    return f"model {model}"


def policy_key(policy: str) -> str:
    return f"policy {policy}"


def _engine_here(key: str) -> Engine:
    if key not in HERE:
        raise EngineError(f"this worker has no engine for the {key}")
    return HERE[key]
