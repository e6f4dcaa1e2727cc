"""The head's side: hands episodes to workers, takes each back once, and replaces lost workers.

An episode counts when its outcome is taken, and only one is. Whatever a lost worker had under way
is handed out again, up to `retries`, and then fails as an episode.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tacit.cluster.deck import Deck, Hand, Pending, blamed_for
from tacit.cluster.envelopes import Edition, Order, Orders, Recovery, Report
from tacit.cluster.faults import NoRoom, WorkerLost, end, last_words, outcome, reason_of
from tacit.cluster.grading import AT_ONCE, Graders, GradingWorker
from tacit.cluster.rollout_worker import GraderFactory, Opener, RolloutWorker
from tacit.config import ClusterConfig
from tacit.engine.base import Account
from tacit.errors import RunError
from tacit.rollout.dedupe import DedupedEngine
from tacit.rollout.play import Job
from tacit.team.roster import Roster
from tacit.types import Episode

POLLS = 4
"""How often a worker reports, at least, within the time that it may be quiet."""
CLOSING_S = 10.0
"""Seconds in which workers may close their engines before they are ended."""
GRADING_SHARE = 0.5
"""Of an episode's deadline, for one answer."""


class Pool:
    """Rollout and grading workers. For one event loop, which the learner may block."""

    def __init__(
        self, settings: ClusterConfig, opener: Opener, account: Account, *, charged: bool = False
    ) -> None:
        """`charged`: the workers ask API models, whose answers cost money."""
        self._settings, self._opener, self._account = settings, opener, account
        self._charged = charged
        self._deck = Deck(settings.workers, settings.retries)
        self.counts = self._deck.counts
        """Episodes `retried`, `failed`, `stale`, and `unreceipted`: lost while an API was asked."""
        self.recovered: list[Recovery] = []
        self._rosters: dict[int, tuple[Roster, int, Any]] = {}
        self._edition = Edition()
        self._tickets = 0
        self._dealing = False
        self._slots: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Future[Any]] = set()
        self._graders: list[Any] = []
        self._closed: str | None = None

    async def __aenter__(self) -> "Pool":
        import ray

        graders = ray.remote(GradingWorker).options(
            num_cpus=1, max_restarts=-1, max_concurrency=AT_ONCE, scheduling_strategy="SPREAD"
        )
        self._graders = [graders.remote() for _ in range(self._settings.graders)]
        self._slots = [asyncio.create_task(self._keep(n)) for n in range(self._settings.workers)]
        return self

    async def __aexit__(self, *error: object) -> None:
        import ray

        for slot in self._slots:
            slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)
        hands = self._deck.hands
        closing = [outcome(hand.actor.close.remote(), CLOSING_S) for hand in hands]
        last = await asyncio.gather(*closing, return_exceptions=True)
        for hand, report in zip(hands, last, strict=True):
            if isinstance(report, Report):
                self._take(hand, report)
        for actor in (*(hand.actor for hand in hands), *self._graders):
            ray.kill(actor)

    @property
    def ready(self) -> int:
        """Workers that can play now."""
        return len(self._deck.hands)

    async def play(self, roster: Roster, job: Job) -> Episode:
        """Have an episode played; a failed one after too many losses. Raises what ends a run."""
        if self._closed:
            raise RunError(self._closed)
        self._tickets += 1
        order = Order(self._tickets, self._number(roster), job)
        shared = any(isinstance(agent.engine, DedupedEngine) for agent in roster.agents)
        pending = Pending(order, asyncio.get_running_loop().create_future(), shared)
        self._deck.add(pending)
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
        self._deck.forget_homes()

    def _number(self, roster: Roster) -> int:
        """The roster's number; its content is put into the object store once."""
        if id(roster) not in self._rosters:
            import ray

            sent = ray.put(replace(roster, remote=None))
            self._rosters[id(roster)] = (roster, len(self._rosters), sent)
        return self._rosters[id(roster)][1]

    def _deal_soon(self) -> None:
        """Deal once for all that happens in this turn of the event loop."""
        if not self._dealing:
            self._dealing = True
            asyncio.get_running_loop().call_soon(self._deal)

    def _deal(self) -> None:
        self._dealing = False
        versions = {name: version for name, (version, _) in self._edition.policies.items()}
        sent = {number: reference for _, number, reference in self._rosters.values()}
        for hand, mine in self._deck.deal().items():
            for pending in mine:
                pending.versions = versions
            orders = tuple(pending.order for pending in mine)
            rosters = {order.roster: sent[order.roster] for order in orders}
            self._send(hand, Orders(orders=orders, edition=self._edition, rosters=rosters))

    def _send(self, hand: Hand, orders: Orders) -> None:
        def check(done: asyncio.Future[Any]) -> None:
            self._background.discard(done)
            if not done.cancelled() and (error := done.exception()) and not hand.lost.done():
                late = isinstance(error, TimeoutError)
                hand.lost.set_exception(WorkerLost("it takes no orders") if late else error)

        taken = outcome(hand.actor.take.remote(orders), self._settings.deadline)
        task = asyncio.ensure_future(taken)
        self._background.add(task)
        task.add_done_callback(check)

    async def _keep(self, number: int) -> None:
        """Keep one worker alive: start it, listen to it, start it again when it is lost."""
        failures, reason = 0, ""
        while failures <= self._settings.retries:
            hand = self._start(number)
            try:
                await self._open(hand)
                await self._listen(hand)
            except asyncio.CancelledError:
                if hand not in self._deck.hands:
                    end(hand.actor)
                raise
            except Exception as error:  # Ray's errors, and what the worker raised
                # what it was playing may be the cause, and has a limit of its own
                excused = (
                    hand.delivered or hand.under_way or (isinstance(error, NoRoom) and self.ready)
                )
                failures = 0 if excused else failures + 1
                reason = await self._lose(hand, error)
        self._deck.workers -= 1
        if not self._deck.workers:
            self._closed = f"no worker of the cluster is left: {reason}"
            self._deck.close(self._closed)

    def _start(self, number: int) -> Hand:
        import ray

        settings = self._settings
        workers = ray.remote(RolloutWorker).options(
            num_cpus=settings.cpus, num_gpus=settings.gpus, scheduling_strategy="SPREAD"
        )
        bare = Account(cache=self._account.cache, served=self._account.served)
        actor = workers.remote(self._opener, bare, self._grading())
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lost.add_done_callback(lambda done: done.cancelled() or done.exception())
        return Hand(number, actor, lost)

    def _grading(self) -> GraderFactory | None:
        if not self._graders:
            return None
        seconds = GRADING_SHARE * self._settings.deadline
        return partial(Graders, self._graders, self._settings.retries, seconds)

    async def _open(self, hand: Hand) -> None:
        seconds = self._settings.start
        try:
            hand.place = await outcome(hand.actor.where.remote(), seconds)
        except TimeoutError:
            raise NoRoom(f"no node had room for it within {seconds:g} s") from None
        try:
            await outcome(hand.actor.open.remote(), seconds)
        except TimeoutError:
            raise WorkerLost(f"its models were not loaded after {seconds:g} s") from None
        self._deck.hands.append(hand)
        self._deal_soon()

    async def _listen(self, hand: Hand) -> None:
        """Take reports until the worker is lost, which raises the reason."""
        settings = self._settings
        poll = min(settings.heartbeat, settings.deadline) / POLLS
        while True:
            asked = asyncio.ensure_future(
                outcome(hand.actor.collect.remote(poll), settings.heartbeat)
            )
            try:
                await asyncio.wait([asked, hand.lost], return_when=asyncio.FIRST_COMPLETED)
                if not asked.done():
                    hand.lost.result()
                report = asked.result()
            except TimeoutError:
                raise WorkerLost(f"no sign of life for {settings.heartbeat:g} s") from None
            finally:
                asked.cancel()
            self._take(hand, report)
            if late := hand.late(settings.deadline):
                task = late[0].order.job.task.id
                raise WorkerLost(f"{task} was not over after {settings.deadline:g} s")

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
            elif pending.stale(done):
                self.counts["stale"] += 1
                self._deck.again(pending, f"{hand} played it with other weights than it was sent")
            else:
                pending.future.set_result(done)
        if report.done:
            self._deal_soon()

    async def _lose(self, hand: Hand, error: Exception) -> str:
        """Hand out again what a lost worker had under way, then find out what happened to it."""
        if hand not in self._deck.hands:
            end(hand.actor)
            reason = reason_of(error) + await last_words(hand.place)
            self._account.warn(f"{hand} could not be started: {reason}")
            return reason
        blamed = blamed_for(hand, self._settings.deadline)
        lost, now = self._deck.drop(hand), time.monotonic()
        seconds = max((now - pending.sent for pending in lost), default=0.0)
        failing = [pending for pending in blamed if self._deck.last_try(pending)]
        for pending in lost:
            if pending not in failing:
                self._deck.again(pending, "", blamed=pending in blamed)
        self._deal_soon()
        end(hand.actor)
        if self._charged and lost:
            self.counts["unreceipted"] += len(lost)
        reason = reason_of(error)
        recovery = Recovery(self._sentence(hand, reason, len(lost)), seconds)
        self.recovered.append(recovery)  # before its node answers, which may take until all is over
        try:
            reason += await last_words(hand.place)
            recovery.what = self._sentence(hand, reason, len(lost))
        finally:
            self._account.warn(str(recovery))
        for pending in failing:
            self._deck.again(pending, f"{hand} was lost: {reason}")
        return reason

    def _sentence(self, hand: Hand, reason: str, lost: int) -> str:
        sentence = f"{hand} was lost ({reason}); {lost} episodes were under way"
        if self._charged and lost:
            sentence += "; what their API calls since its last report cost is counted nowhere"
        return sentence

    def _recover(self, recovery: Recovery) -> None:
        self.recovered.append(recovery)
        self._account.warn(str(recovery))
