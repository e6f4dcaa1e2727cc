"""The head's side: hands episodes to workers, takes them back once each, and replaces lost workers.

An episode counts when its outcome is taken, and only one is: whatever a lost worker had under way
is handed out again, up to `retries`, and then fails as an episode. One that was lost twice has a
worker without others like it, so that an episode that kills workers does not take down the rest.
Episodes of one task go to one worker, which shares among them what their team computes once
(`rollout/dedupe.py`).
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tacit.cluster.faults import WorkerLost, end, outcome, reason_of
from tacit.cluster.grading import AT_ONCE, Graders, GradingWorker
from tacit.cluster.messages import Edition, Order, Orders, Place, Recovery, Report
from tacit.cluster.worker import Opener, RolloutWorker
from tacit.config import ClusterConfig
from tacit.engine.base import Account
from tacit.errors import RunError
from tacit.rollout.dedupe import Once
from tacit.rollout.play import Job
from tacit.team.roster import Roster
from tacit.types import Episode

SUSPECT = 2
"""After so many losses an episode may be their cause."""
POLLS = 4
"""How often a worker reports, at least, within the time that it may be quiet."""
CLOSING_S = 10.0
"""Seconds in which workers may close their engines before they are ended."""
GRADING_SHARE = 0.5
"""Of an episode's deadline, for one answer."""


@dataclass(slots=True, eq=False)
class Pending:
    """An episode that somebody waits for."""

    order: Order
    future: asyncio.Future[Episode]
    shared: bool
    """True if the episodes of its task must be played by one worker."""
    tries: int = 0
    sent: float = 0.0
    versions: dict[str, int] = field(default_factory=dict)

    @property
    def suspect(self) -> bool:
        return self.tries >= SUSPECT


@dataclass(slots=True, eq=False)
class Hand:
    """A worker as the head knows it."""

    number: int
    actor: Any
    lost: asyncio.Future[None]
    """Fails if the worker cannot take what it is sent."""
    place: Place | None = None
    under_way: dict[int, Pending] = field(default_factory=dict)
    delivered: bool = False

    @property
    def suspects(self) -> list[Pending]:
        return [pending for pending in self.under_way.values() if pending.suspect]

    def __str__(self) -> str:
        return f"worker {self.number}" + (f" on {self.place.host}" if self.place else "")


class Pool:
    """Plays episodes on workers. `publish` and `play` are for the learner's event loop."""

    def __init__(
        self, settings: ClusterConfig, opener: Opener, account: Account, *, charged: bool = False
    ) -> None:
        """`charged`: the workers ask API models, whose answers cost money."""
        self._settings, self._opener, self._account = settings, opener, account
        self._charged = charged
        self._hands: list[Hand] = []
        self._waiting: deque[Pending] = deque()
        self._homes: dict[str, Hand] = {}
        self._rosters: dict[int, tuple[Roster, int, Any]] = {}
        self._edition = Edition()
        self._tickets = 0
        self._dealing = False
        self._slots: list[asyncio.Task[None]] = []
        self._given_up = 0
        self._background: set[asyncio.Future[Any]] = set()
        self._graders: list[Any] = []
        self._closed: str | None = None
        self.recovered: list[Recovery] = []
        self.counts: Counter[str] = Counter()
        """Episodes `retried`, `failed`, `stale`, and `unreceipted`: lost while an API was asked."""

    async def __aenter__(self) -> "Pool":
        import ray

        graders = ray.remote(GradingWorker).options(
            num_cpus=1, max_restarts=-1, max_concurrency=AT_ONCE, scheduling_strategy="SPREAD"
        )
        self._graders = [graders.remote() for _ in range(self._settings.graders)]
        loop = asyncio.get_running_loop()
        self._slots = [loop.create_task(self._keep(n)) for n in range(self._settings.workers)]
        return self

    async def __aexit__(self, *error: object) -> None:
        import ray

        for slot in self._slots:
            slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)
        closing = [outcome(hand.actor.close.remote(), CLOSING_S) for hand in self._hands]
        await asyncio.gather(*closing, return_exceptions=True)
        for actor in (*(hand.actor for hand in self._hands), *self._graders):
            ray.kill(actor)
        self._hands.clear()

    @property
    def ready(self) -> int:
        """Workers that can play now."""
        return len(self._hands)

    async def play(self, roster: Roster, job: Job) -> Episode:
        """Have an episode played; a failed one after too many losses. Raises what ends a run."""
        if self._closed:
            raise RunError(self._closed)
        self._tickets += 1
        order = Order(self._tickets, self._number(roster), job)
        shared = any(isinstance(agent.engine, Once) for agent in roster.agents)
        pending = Pending(order, asyncio.get_running_loop().create_future(), shared)
        self._waiting.append(pending)
        self._deal_soon()
        return await pending.future

    async def publish(self, policy: str, version: int, weights: Callable[[], bytes]) -> None:
        """Every episode handed out from now on is played with these weights."""
        import ray

        data = await asyncio.to_thread(weights)
        try:
            reference = await asyncio.to_thread(ray.put, data)
        except ray.exceptions.RayError as error:
            raise RunError(
                f"the weights of `{policy}` ({len(data) / 2**20:.0f} MiB) do not fit into Ray's "
                f"object store: start the nodes with more --object-store-memory ({error})"
            ) from error
        policies = {**self._edition.policies, policy: (version, reference)}
        self._edition = Edition(number=self._edition.number + 1, policies=policies)
        self._homes.clear()

    def _number(self, roster: Roster) -> int:
        """The roster's number; its content is put into the object store once."""
        if id(roster) not in self._rosters:
            import ray

            sent = ray.put(replace(roster, elsewhere=None))
            self._rosters[id(roster)] = (roster, len(self._rosters), sent)
        return self._rosters[id(roster)][1]

    def _deal_soon(self) -> None:
        """Deal once for all that happens in this turn of the event loop."""
        if not self._dealing:
            self._dealing = True
            asyncio.get_running_loop().call_soon(self._deal)

    def _deal(self) -> None:
        """Hand waiting episodes to the least busy workers, so many that none is left without."""
        self._dealing = False
        total = len(self._waiting) + sum(len(hand.under_way) for hand in self._hands)
        most = -(-total // max(1, self._settings.workers - self._given_up))
        dealt: dict[Hand, list[Pending]] = {}
        left: deque[Pending] = deque()
        for pending in self._waiting:
            if pending.future.done():  # nobody waits for it any more
                continue
            if (hand := self._hand_for(pending, most)) is None:
                left.append(pending)
                continue
            pending.sent = time.monotonic()
            pending.versions = {name: one[0] for name, one in self._edition.policies.items()}
            hand.under_way[pending.order.ticket] = pending
            dealt.setdefault(hand, []).append(pending)
        self._waiting = left
        for hand, mine in dealt.items():
            self._send(hand, mine)

    def _hand_for(self, pending: Pending, most: int) -> Hand | None:
        """The worker to play it: its task's own, or the least busy; None if all are busy."""
        hands = self._hands
        if pending.suspect:
            hands = [hand for hand in hands if not hand.suspects]
        elif pending.shared and (home := self._homes.get(pending.order.job.task.id)):
            return home
        hand = min(hands, key=lambda one: len(one.under_way), default=None)
        if hand is None or len(hand.under_way) >= most:
            return None
        if pending.shared:
            self._homes[pending.order.job.task.id] = hand
        return hand

    def _send(self, hand: Hand, mine: Iterable[Pending]) -> None:
        orders = tuple(pending.order for pending in mine)
        known = {number: sent for _, number, sent in self._rosters.values()}
        rosters = {order.roster: known[order.roster] for order in orders}
        taken = hand.actor.take.remote(
            Orders(orders=orders, edition=self._edition, rosters=rosters)
        )

        def check(done: asyncio.Future[Any]) -> None:
            self._background.discard(done)
            if not done.cancelled() and (error := done.exception()) and not hand.lost.done():
                hand.lost.set_exception(error)

        task = asyncio.ensure_future(outcome(taken, self._settings.deadline))
        self._background.add(task)
        task.add_done_callback(check)

    async def _keep(self, number: int) -> None:
        """Keep one worker alive: start it, listen to it, start it again when it is lost."""
        failures = 0
        while failures <= self._settings.retries:
            hand = self._start(number)
            try:
                hand.place = await outcome(hand.actor.where.remote(), self._settings.start)
                await outcome(hand.actor.open.remote(), self._settings.start)
                self._hands.append(hand)
                self._deal_soon()
                await self._listen(hand)
            except asyncio.CancelledError:
                if hand not in self._hands:
                    await end(hand.actor, None)
                raise
            except Exception as error:  # Ray's errors, and what the worker raised
                reason = await self._lose(hand, error)
                full = isinstance(error, TimeoutError) and bool(self._hands)  # no room for it yet
                failures = 0 if hand.delivered else failures + (not full)
        self._given_up += 1
        if self._given_up == self._settings.workers:
            self._close(f"no worker of the cluster is left: {reason}")

    def _start(self, number: int) -> Hand:
        import ray

        settings = self._settings
        grading = None
        if self._graders:
            deadline = GRADING_SHARE * settings.deadline
            graders = partial(Graders, retries=settings.retries, deadline=deadline)
            grading = partial(_grading, graders, self._graders)
        workers = ray.remote(RolloutWorker).options(
            num_cpus=settings.cpus, num_gpus=settings.gpus, scheduling_strategy="SPREAD"
        )
        bare = Account(cache=self._account.cache, served=self._account.served)
        actor = workers.remote(self._opener, bare, grading)
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lost.add_done_callback(lambda done: done.cancelled() or done.exception())
        return Hand(number, actor, lost)

    async def _listen(self, hand: Hand) -> None:
        """Take reports until the worker is lost, which raises the reason."""
        settings = self._settings
        poll = min(settings.heartbeat, settings.deadline) / POLLS
        while True:
            asked = asyncio.ensure_future(
                outcome(hand.actor.collect.remote(poll), settings.heartbeat)
            )
            await asyncio.wait([asked, hand.lost], return_when=asyncio.FIRST_COMPLETED)
            if hand.lost.done():
                asked.cancel()
                hand.lost.result()
            try:
                report = asked.result()
            except TimeoutError:
                raise WorkerLost(f"no sign of life for {settings.heartbeat:g} s") from None
            self._take(hand, report)
            if late := self._late(hand):
                task = late[0].order.job.task.id
                raise WorkerLost(f"{task} was not over after {settings.deadline:g} s")

    def _late(self, hand: Hand) -> list[Pending]:
        limit = time.monotonic() - self._settings.deadline
        return [pending for pending in hand.under_way.values() if pending.sent < limit]

    def _take(self, hand: Hand, report: Report) -> None:
        """Count what a worker did: what it paid first, which decides whether more is played."""
        for receipt in report.receipts:
            self._account.on_receipt(receipt)
        for sentence in report.warnings:
            self._account.warn(f"{hand}: {sentence}")
        for recovery in report.recovered:
            self._recover(recovery)
        for ticket, done in report.done:
            pending = hand.under_way.pop(ticket)
            hand.delivered = True
            if pending.future.done():
                continue
            if isinstance(done, Exception):
                pending.future.set_exception(done)
            elif _stale(done, pending.versions):
                self.counts["stale"] += 1
                self._again(pending, f"{hand} played it with other weights than the learner's")
            else:
                pending.future.set_result(done)
        if report.done:
            self._deal_soon()

    async def _lose(self, hand: Hand, error: Exception) -> str:
        """Hand out again what a lost worker had under way, then find out what happened to it."""
        if hand in self._hands:
            self._hands.remove(hand)
        self._homes = {task: home for task, home in self._homes.items() if home is not hand}
        now, lost = time.monotonic(), list(hand.under_way.values())
        seconds = max((now - pending.sent for pending in lost), default=0.0)
        blamed = self._late(hand) or hand.suspects or lost
        hand.under_way.clear()
        ending = asyncio.ensure_future(end(hand.actor, hand.place))
        out_of_tries = []
        for pending in lost:
            if pending not in blamed or pending.tries < self._settings.retries:
                self._again(pending, "", blamed=pending in blamed)
            else:
                out_of_tries.append(pending)
        await ending
        reason = await reason_of(error, hand.place)
        for pending in out_of_tries:
            self._again(pending, f"{hand} was lost: {reason}")
        sentence = f"{hand} was lost ({reason}); {len(lost)} episodes were under way"
        if self._charged and lost:
            self.counts["unreceipted"] += len(lost)
            sentence += "; what their API calls since its last report cost is counted nowhere"
        self._recover(Recovery(sentence, seconds))
        return reason

    def _again(self, pending: Pending, reason: str, *, blamed: bool = True) -> None:
        """Play it once more, or let it fail for this reason when its tries are used up."""
        if pending.future.done():
            return
        pending.tries += blamed
        if pending.tries > self._settings.retries:
            self.counts["failed"] += 1
            pending.future.set_result(_failed(pending, reason))
            return
        self.counts["retried"] += 1
        self._waiting.appendleft(pending)
        self._deal_soon()

    def _recover(self, recovery: Recovery) -> None:
        self.recovered.append(recovery)
        self._account.warn(f"{recovery.what}; {recovery.seconds:.1f} s lost")

    def _close(self, reason: str) -> None:
        self._closed = reason
        while self._waiting:
            pending = self._waiting.popleft()
            if not pending.future.done():
                pending.future.set_exception(RunError(reason))


def _grading(
    graders: Callable[..., Graders], actors: list[Any], on_recovery: Callable[[Recovery], None]
) -> Graders:
    return graders(actors, on_recovery=on_recovery)


def _stale(episode: Episode, versions: dict[str, int]) -> bool:
    return any(
        call.policy and not call.reused and call.version != versions.get(call.policy, 0)
        for call in episode.calls
    )


def _failed(pending: Pending, reason: str) -> Episode:
    job = pending.order.job
    return Episode(
        task_id=job.task.id,
        sample=job.setting.sample,
        level=job.task.level,
        views=job.task.views,
        error=f"played {pending.tries} times in vain: {reason}",
    )
