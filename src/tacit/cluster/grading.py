"""Grading by processes of their own, so that sympy and sandboxes never hold up a rollout worker."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tacit.cluster.faults import outcome
from tacit.cluster.messages import Recovery
from tacit.errors import ConfigError, GradingError, SandboxError, TacitError
from tacit.grading import grade
from tacit.types import Grade, Task

AT_ONCE = 16
"""Answers that one grading worker has in hand."""
PAUSE_S = 0.5
"""Before the next try, in which Ray starts a lost grading worker again."""


KINDS: dict[str, type[TacitError]] = {
    "sandbox": SandboxError,
    "grading": GradingError,
    "config": ConfigError,
}
"""What a grader may raise; Ray would wrap it."""


class GradingWorker:
    """A Ray actor, started again by Ray whenever it dies."""

    async def grade(self, task: Task, text: str) -> Grade | tuple[str, str]:
        """The grade; or, if there is none, which kind of error and what it said."""
        try:
            return await grade(task, text)
        except tuple(KINDS.values()) as error:
            kind = next(name for name, kind in KINDS.items() if isinstance(error, kind))
            return kind, str(error)

    async def pid(self) -> int:
        return os.getpid()


class Graders:
    """A grader for `play_episode` that asks the least busy grading worker, again if it is lost."""

    def __init__(
        self,
        actors: Sequence[Any],
        retries: int,
        deadline: float,
        on_recovery: Callable[[Recovery], None],
    ) -> None:
        self._actors = actors
        self._busy: Counter[int] = Counter()
        self._retries, self._deadline, self._on_recovery = retries, deadline, on_recovery

    async def __call__(self, task: Task, text: str) -> Grade:
        for left in range(self._retries, -1, -1):
            which = min(range(len(self._actors)), key=lambda n: self._busy[n])
            began = time.monotonic()
            self._busy[which] += 1
            try:
                return _graded(await self._ask(self._actors[which], task, text))
            except tuple(KINDS.values()):
                raise
            except Exception as error:  # Ray's errors have no common base that means "lost"
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            finally:
                self._busy[which] -= 1
            what = f"grading worker {which} was lost with an answer to {task.id} ({reason})"
            if left:
                self._on_recovery(Recovery(what, time.monotonic() - began))
                await asyncio.sleep(PAUSE_S)
        raise GradingError(f"{task.id}: {what}, and so were those before it")

    async def _ask(self, actor: Any, task: Task, text: str) -> Any:
        try:
            return await outcome(actor.grade.remote(task, text), self._deadline)
        except TimeoutError:
            import ray

            ray.kill(actor, no_restart=False)
            raise TimeoutError(f"no grade within {self._deadline:g} s") from None


def _graded(said: Grade | tuple[str, str]) -> Grade:
    if isinstance(said, Grade):
        return said
    kind, sentence = said
    raise KINDS[kind](sentence)
