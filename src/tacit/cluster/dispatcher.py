"""Which worker plays which episode, and which episode is played again: plain rules, without Ray.

An episode that was lost twice has a worker without others like it, so that one that kills workers
does not take the rest down with it. Episodes of one task go to one worker, which shares among them
what their team computes once (`rollout/dedupe.py`).
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from tacit.cluster.envelopes import Order, Place
from tacit.errors import RunError
from tacit.types import Episode

SUSPECT = 2
"""After so many losses an episode may be their cause."""


@dataclass(slots=True, eq=False)
class Pending:
    """An episode that somebody waits for."""

    order: Order
    future: asyncio.Future[Episode]
    shared: bool = False
    """True if the episodes of its task should be played by one worker."""
    tries: int = 0
    """How often it was lost."""
    sent: float = 0.0
    versions: dict[str, int] = field(default_factory=dict)
    """Policy → the version that must have played it."""

    @property
    def suspect(self) -> bool:
        return self.tries >= SUSPECT

    def stale(self, episode: Episode) -> bool:
        """True if other weights played it than were asked for."""
        return any(
            call.policy and not call.reused and call.version != self.versions.get(call.policy, 0)
            for call in episode.calls
        )

    def failed(self, reason: str) -> Episode:
        """The episode without a grade."""
        job = self.order.job
        return Episode(
            task_id=job.task.id,
            sample=job.setting.sample,
            level=job.task.level,
            views=job.task.views,
            error=f"played {self.tries} times in vain: {reason}",
        )


@dataclass(slots=True, eq=False)
class WorkerHandle:
    """A worker as the head knows it."""

    number: int
    actor: Any
    lost: asyncio.Future[None]
    """Fails if the worker cannot take what it is sent."""
    place: Place | None = None
    under_way: dict[int, Pending] = field(default_factory=dict)
    """By the number of the order."""
    delivered: bool = False

    @property
    def suspects(self) -> list[Pending]:
        return [pending for pending in self.under_way.values() if pending.suspect]

    def late(self, deadline: float) -> list[Pending]:
        """What has been under way for longer than so many seconds."""
        limit = time.monotonic() - deadline
        return [pending for pending in self.under_way.values() if pending.sent < limit]

    def __str__(self) -> str:
        there = self.place
        return f"worker {self.number}" + (f" ({there.host}, pid {there.pid})" if there else "")


class Dispatcher:
    """The workers that can play, and the episodes that wait for one."""

    def __init__(self, wanted: int, retries: int) -> None:
        self.wanted = wanted
        """How many there should be; fewer may be there."""
        self.workers: list[WorkerHandle] = []
        self.counts: Counter[str] = Counter()
        """Episodes `retried`, and `failed` after that."""
        self._retries = retries
        self._waiting: deque[Pending] = deque()
        self._affinity: dict[str, WorkerHandle] = {}
        """Task → the worker of its episodes."""

    def add(self, pending: Pending) -> None:
        self._waiting.append(pending)

    def assign(self) -> dict[WorkerHandle, list[Pending]]:
        """Assign what waits, but leave their share to workers that are yet to come."""
        total = len(self._waiting) + sum(len(worker.under_way) for worker in self.workers)
        most = -(-total // max(1, self.wanted))
        assigned: dict[WorkerHandle, list[Pending]] = {}
        left: deque[Pending] = deque()
        for pending in self._waiting:
            if pending.future.done():  # nobody waits for it any more
                continue
            if (worker := self._worker_for(pending, most)) is None:
                left.append(pending)
                continue
            pending.sent = time.monotonic()
            worker.under_way[pending.order.number] = pending
            assigned.setdefault(worker, []).append(pending)
        self._waiting = left
        return assigned

    def _worker_for(self, pending: Pending, most: int) -> WorkerHandle | None:
        """The worker of its task, or the least busy one; None if all have enough to do."""
        workers, task = self.workers, pending.order.job.task.id
        if pending.suspect:
            workers = [worker for worker in workers if not worker.suspects]
        elif pending.shared and task in self._affinity:
            return self._affinity[task]
        worker = min(workers, key=lambda one: len(one.under_way), default=None)
        if worker is None or len(worker.under_way) >= most:
            return None
        if pending.shared:
            self._affinity[task] = worker
        return worker

    def drop(self, worker: WorkerHandle) -> list[Pending]:
        """Forget a lost worker; returns what it had under way."""
        self.workers.remove(worker)
        self._affinity = {task: home for task, home in self._affinity.items() if home is not worker}
        lost = list(worker.under_way.values())
        worker.under_way.clear()
        return lost

    def last_try(self, pending: Pending) -> bool:
        return pending.tries >= self._retries

    def retry(self, pending: Pending, reason: str, *, blamed: bool = True) -> None:
        """Play it once more, or let it fail for this reason when its tries are used up."""
        if pending.future.done():
            return
        pending.tries += blamed
        if pending.tries > self._retries:
            self.counts["failed"] += 1
            pending.future.set_result(pending.failed(reason))
        else:
            self.counts["retried"] += 1
            self._waiting.appendleft(pending)

    def forget_affinity(self) -> None:
        self._affinity.clear()

    def close(self, reason: str) -> None:
        """Nobody will play what waits."""
        while self._waiting:
            pending = self._waiting.popleft()
            if not pending.future.done():
                pending.future.set_exception(RunError(reason))


def blamed_for(worker: WorkerHandle, deadline: float) -> Collection[Pending]:
    """Episodes that may have ended a worker: the late ones, else the suspects, else all it had."""
    return worker.late(deadline) or worker.suspects or list(worker.under_way.values())
