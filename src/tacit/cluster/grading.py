"""Grading by processes of their own, so that sympy and sandboxes never hold up a rollout worker."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from tacit.cluster.envelopes import Recovery
from tacit.cluster.faults import outcome, sendable
from tacit.errors import ConfigError, GradingError, SandboxError, TacitError, one_line
from tacit.grading import grade
from tacit.types import Grade, Task

AT_ONCE = 16
"""Answers that one grading worker has in hand."""
PAUSE_S = 0.5
"""Between two looks at whether Ray has started a lost grading worker again."""


class GradingWorker:
    """A Ray actor, started again by Ray whenever it dies."""

    async def grade(self, task: Task, text: str) -> Grade | TacitError:
        """The grade, or why there is none. An error that was raised Ray would wrap."""
        try:
            return await grade(task, text)
        except (GradingError, ConfigError) as error:
            return sendable(error, SandboxError, GradingError, ConfigError) or error

    async def ready(self) -> None:
        """Answered by one that is there."""


class Graders:
    """A grader for `play_episode` that asks the least busy grading worker, again if it is lost.

    A lost one is left alone until Ray has started it again.
    """

    def __init__(
        self,
        actors: Sequence[Any],
        retries: int,
        deadline: float,
        on_recovery: Callable[[Recovery], None],
    ) -> None:
        self._actors = actors
        self._retries, self._deadline, self._on_recovery = retries, deadline, on_recovery
        self._busy: Counter[int] = Counter()
        self._lives: Counter[int] = Counter()
        """How often each was lost, so that only the first answer that misses it says so."""
        self._down: dict[int, asyncio.Task[None]] = {}

    async def __call__(self, task: Task, text: str) -> Grade:
        for _ in range(self._retries + 1):
            which, began = await self._free(), time.monotonic()
            life = self._lives[which]
            self._busy[which] += 1
            try:
                said = await outcome(self._actors[which].grade.remote(task, text), self._deadline)
            except Exception as error:  # Ray's errors have no common base that means "lost"
                what = f"grading worker {which} was lost with an answer to {task.id} "
                what += f"({self._reason(error)})"
                if self._lives[which] == life:
                    self._lose(which, error)
                    self._on_recovery(Recovery(what, time.monotonic() - began))
            else:
                if isinstance(said, TacitError):
                    raise said
                return cast(Grade, said)
            finally:
                self._busy[which] -= 1
        raise GradingError(f"{task.id}: {what}, and so were those before it")

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no grade within {self._deadline:g} s"
        return f"{type(error).__name__}: {one_line(error)[:300]}"

    async def _free(self) -> int:
        """The least busy of those that are there, or the first to come back."""
        while len(self._down) == len(self._actors):
            await asyncio.wait(self._down.values(), return_when=asyncio.FIRST_COMPLETED)
        there = [n for n in range(len(self._actors)) if n not in self._down]
        return min(there, key=lambda n: self._busy[n])

    def _lose(self, which: int, error: Exception) -> None:
        if isinstance(error, TimeoutError):
            import ray

            ray.kill(self._actors[which], no_restart=False)
        self._lives[which] += 1
        self._down[which] = asyncio.create_task(self._back(which))

    async def _back(self, which: int) -> None:
        """Wait until a lost one answers again."""
        while True:
            with suppress(Exception):  # Ray's errors, while there is none
                await outcome(self._actors[which].ready.remote(), self._deadline)
                break
            await asyncio.sleep(PAUSE_S)
        del self._down[which]
