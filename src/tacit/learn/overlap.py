"""Plays the groups of each step, under `cluster.staleness` while earlier steps are being learned.

Nothing is played across a checkpoint: a resumed run then finds the weights that an undisturbed one
plays with.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from tacit.config import TrainConfig
from tacit.economy.group import Group
from tacit.learn.credit import teaches
from tacit.learn.journal import Meter
from tacit.learn.task_sampler import TaskSampler
from tacit.rollout.groups import Player
from tacit.types import Episode


@dataclass(frozen=True, slots=True)
class Played:
    """The episodes of one step."""

    groups: list[Group]
    failed: tuple[Episode, ...]
    position: int
    """Position of the task sampler after this step."""


@dataclass(slots=True, eq=False)
class Rollouts:
    player: Player
    sampler: TaskSampler
    meter: Meter
    train: TrainConfig
    staleness: int
    """How many updates old the weights that play a step may be."""
    playing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a step is played: the weights that are served change only between steps."""
    _begun: deque[asyncio.Task[Played]] = field(default_factory=deque)

    async def take(self, step: int) -> Played:
        """The episodes of the step after the last one taken."""
        return await (self._begun.popleft() if self._begun else self._play(step))

    def begin(self, learning: int) -> None:
        """Begin to play the steps that may be played while step `learning` is learned."""
        for step in range(learning + 1, learning + self.staleness + 1):
            if saved_after(step - 1, self.train):
                break
            if step > learning + len(self._begun):
                before = self._begun[-1] if self._begun else None
                task = asyncio.create_task(self._play(step, before))
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                self._begun.append(task)

    def drop(self) -> None:
        """Cancel the steps begun in advance; a resumed run plays them again."""
        while self._begun:
            self._begun.pop().cancel()

    async def _play(self, step: int, before: asyncio.Task[Played] | None = None) -> Played:
        """The groups of a step; dynamic sampling replaces those without a signal."""
        if before:
            await asyncio.wait([before])
        async with self.playing:
            self.meter.failed.clear()
            tasks = self.sampler.take(self.train.tasks_per_step)
            played, seen = await self.player.play(tasks, step), {task.id for task in tasks}
            for _ in range(self.train.dynamic_sampling):
                alive = [group for group in played if teaches(group)]
                # not a task of this step again: it would draw the same episodes
                others = self.sampler.take(len(played) - len(alive), besides=seen)
                if not others:
                    break
                played = alive + await self.player.play(others, step)
                seen |= {task.id for task in others}
            return Played(played, tuple(self.meter.failed), self.sampler.position)


def saved_after(step: int, train: TrainConfig) -> bool:
    """True if a checkpoint is due after this step; every evaluation is followed by one."""
    return step % train.checkpoint_every == 0 or evaluated_after(step, train)


def evaluated_after(step: int, train: TrainConfig) -> bool:
    due = train.evaluate_every and step % train.evaluate_every == 0
    return bool(due) or step == train.steps
