"""Chooses the tasks of a step: every task once per epoch, in an order that differs by epoch."""

import hashlib
from collections.abc import Collection, Sequence

from tacit.types import Task


class TaskSampler:
    def __init__(self, tasks: Sequence[Task], seed: int, position: int = 0) -> None:
        self.tasks = tasks
        self.seed = seed
        self.position = position
        """Tasks taken so far; all that a checkpoint needs to keep."""
        self._order: tuple[int, list[Task]] = (-1, [])

    def take(self, count: int, besides: Collection[str] = ()) -> list[Task]:
        """The next distinct tasks that are not in `besides`; fewer if there are not enough."""
        taken: dict[str, Task] = {}
        while len(taken) < min(count, len(self.tasks) - len(besides)):
            epoch, place = divmod(self.position, len(self.tasks))
            task = self._epoch(epoch)[place]
            if task.id not in besides:
                taken.setdefault(task.id, task)
            self.position += 1
        return list(taken.values())

    def _epoch(self, epoch: int) -> list[Task]:
        def key(task: Task) -> bytes:
            name = f"{self.seed}/{epoch}/{task.id}"
            return hashlib.blake2b(name.encode(), digest_size=8).digest()

        if self._order[0] != epoch:
            self._order = (epoch, sorted(self.tasks, key=key))
        return self._order[1]
