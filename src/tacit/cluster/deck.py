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
class Hand:
    """A worker as the head knows it."""

    number: int
    actor: Any
    lost: asyncio.Future[None]
    """Fails if the worker cannot take what it is sent."""
    place: Place | None = None
    under_way: dict[int, Pending] = field(default_factory=dict)
    """By ticket."""
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


class Deck:
    """The workers that can play, and the episodes that wait for one."""

    def __init__(self, workers: int, retries: int) -> None:
        self.workers = workers
        """How many there should be; fewer may be there."""
        self.hands: list[Hand] = []
        self.counts: Counter[str] = Counter()
        """Episodes `retried`, and `failed` after that."""
        self._retries = retries
        self._waiting: deque[Pending] = deque()
        self._homes: dict[str, Hand] = {}
        """Task → the worker of its episodes."""

    def add(self, pending: Pending) -> None:
        self._waiting.append(pending)

    def deal(self) -> dict[Hand, list[Pending]]:
        """Hand out what waits, but leave to workers that are yet to come their share."""
        total = len(self._waiting) + sum(len(hand.under_way) for hand in self.hands)
        most = -(-total // max(1, self.workers))
        dealt: dict[Hand, list[Pending]] = {}
        left: deque[Pending] = deque()
        for pending in self._waiting:
            if pending.future.done():  # nobody waits for it any more
                continue
            if (hand := self._hand_for(pending, most)) is None:
                left.append(pending)
                continue
            pending.sent = time.monotonic()
            hand.under_way[pending.order.ticket] = pending
            dealt.setdefault(hand, []).append(pending)
        self._waiting = left
        return dealt

    def _hand_for(self, pending: Pending, most: int) -> Hand | None:
        """The worker of its task, or the least busy one; None if all have enough to do."""
        hands, task = self.hands, pending.order.job.task.id
        if pending.suspect:
            hands = [hand for hand in hands if not hand.suspects]
        elif pending.shared and task in self._homes:
            return self._homes[task]
        hand = min(hands, key=lambda one: len(one.under_way), default=None)
        if hand is None or len(hand.under_way) >= most:
            return None
        if pending.shared:
            self._homes[task] = hand
        return hand

    def drop(self, hand: Hand) -> list[Pending]:
        """Forget a lost worker; returns what it had under way."""
        self.hands.remove(hand)
        self._homes = {task: home for task, home in self._homes.items() if home is not hand}
        lost = list(hand.under_way.values())
        hand.under_way.clear()
        return lost

    def last_try(self, pending: Pending) -> bool:
        return pending.tries >= self._retries

    def again(self, pending: Pending, reason: str, *, blamed: bool = True) -> None:
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

    def forget_homes(self) -> None:
        self._homes.clear()

    def close(self, reason: str) -> None:
        """Nobody will play what waits."""
        while self._waiting:
            pending = self._waiting.popleft()
            if not pending.future.done():
                pending.future.set_exception(RunError(reason))


def blamed_for(hand: Hand, deadline: float) -> Collection[Pending]:
    """What may have ended a worker: what was too late, or else suspect, or else all it had."""
    return hand.late(deadline) or hand.suspects or list(hand.under_way.values())
