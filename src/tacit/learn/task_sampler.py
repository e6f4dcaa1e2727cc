"""Which tasks a step plays: every task once an epoch, in an order of its own, from any position."""

import hashlib
from collections.abc import Collection, Sequence

from tacit.types import Task


class TaskSampler:
    def __init__(self, tasks: Sequence[Task], seed: int, position: int = 0) -> None:
        self.tasks = tasks
        self.seed = seed
        self.position = position
        """How many tasks were taken so far: all that a checkpoint needs to keep."""
        self._order: tuple[int, list[Task]] = (-1, [])

    def take(self, count: int, besides: Collection[str] = ()) -> list[Task]:
        """The next tasks, none of them twice or among `besides`; fewer where there are no more."""
        taken: dict[str, Task] = {}
        while len(taken) < min(count, len(self.tasks) - len(besides)):
            epoch, place = divmod(self.position, len(self.tasks))
            task = self._epoch(epoch)[place]
            if task.id not in besides:
                taken.setdefault(task.id, task)
            self.position += 1
        return list(taken.values())

    def _epoch(self, epoch: int) -> list[Task]:
        if self._order[0] != epoch:
            self._order = (epoch, sorted(self.tasks, key=lambda task: self._key(epoch, task)))
        return self._order[1]

    def _key(self, epoch: int, task: Task) -> bytes:
        return hashlib.blake2b(f"{self.seed}/{epoch}/{task.id}".encode(), digest_size=8).digest()
