"""The head's side: gives episodes to workers, takes each back once, and replaces lost workers.

An episode counts when its outcome is taken, and only one is. Whatever a lost worker had under way
is played again, up to `retries`, and then fails as an episode.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tacit.cluster.dispatcher import Dispatcher, Pending, WorkerHandle, blamed_for
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
        self._dispatcher = Dispatcher(settings.workers, settings.retries)
        self.counts = self._dispatcher.counts
        """Episodes `retried`, `failed`, `stale`, and `unreceipted`: lost while an API was asked."""
        self.recovered: list[Recovery] = []
        self._rosters: dict[int, tuple[Roster, int, Any]] = {}
        self._edition = Edition()
        self._orders = 0
        self._assigning = False
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
        workers = self._dispatcher.workers
        closing = [outcome(worker.actor.close.remote(), CLOSING_S) for worker in workers]
        last = await asyncio.gather(*closing, return_exceptions=True)
        for worker, report in zip(workers, last, strict=True):
            if isinstance(report, Report):
                self._take(worker, report)
        for actor in (*(worker.actor for worker in workers), *self._graders):
            ray.kill(actor)

    @property
    def ready(self) -> int:
        """Workers that can play now."""
        return len(self._dispatcher.workers)

    async def play(self, roster: Roster, job: Job) -> Episode:
        """Have an episode played; a failed one after too many losses. Raises what ends a run."""
        if self._closed:
            raise RunError(self._closed)
        self._orders += 1
        order = Order(self._orders, self._number(roster), job)
        shared = any(isinstance(agent.engine, DedupedEngine) for agent in roster.agents)
        pending = Pending(order, asyncio.get_running_loop().create_future(), shared)
        self._dispatcher.add(pending)
        self._assign_soon()
        return await pending.future

    async def publish(self, policy: str, version: int, weights: Callable[[], bytes]) -> None:
        """Every episode assigned from now on is played with these weights."""
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
        self._dispatcher.forget_affinity()

    def _number(self, roster: Roster) -> int:
        """The roster's number; its content is put into the object store once."""
        if id(roster) not in self._rosters:
            import ray

            sent = ray.put(replace(roster, remote=None))
            self._rosters[id(roster)] = (roster, len(self._rosters), sent)
        return self._rosters[id(roster)][1]

    def _assign_soon(self) -> None:
        """Assign episodes once for all that happens in this turn of the event loop."""
        if not self._assigning:
            self._assigning = True
            asyncio.get_running_loop().call_soon(self._assign)

    def _assign(self) -> None:
        self._assigning = False
        versions = {name: version for name, (version, _) in self._edition.policies.items()}
        sent = {number: reference for _, number, reference in self._rosters.values()}
        for worker, mine in self._dispatcher.assign().items():
            for pending in mine:
                pending.versions = versions
            orders = tuple(pending.order for pending in mine)
            rosters = {order.roster: sent[order.roster] for order in orders}
            self._send(worker, Orders(orders=orders, edition=self._edition, rosters=rosters))

    def _send(self, worker: WorkerHandle, orders: Orders) -> None:
        def check(done: asyncio.Future[Any]) -> None:
            self._background.discard(done)
            if not done.cancelled() and (error := done.exception()) and not worker.lost.done():
                late = isinstance(error, TimeoutError)
                worker.lost.set_exception(WorkerLost("it takes no orders") if late else error)

        taken = outcome(worker.actor.take.remote(orders), self._settings.deadline)
        task = asyncio.ensure_future(taken)
        self._background.add(task)
        task.add_done_callback(check)

    async def _keep(self, number: int) -> None:
        """Keep one worker alive: start it, listen to it, start it again when it is lost."""
        failures, reason = 0, ""
        while failures <= self._settings.retries:
            worker = self._start(number)
            try:
                await self._open(worker)
                await self._listen(worker)
            except asyncio.CancelledError:
                if worker not in self._dispatcher.workers:
                    end(worker.actor)
                raise
            except Exception as error:  # Ray's errors, and what the worker raised
                # what it was playing may be the cause, and has a limit of its own
                waits = isinstance(error, NoRoom) and self.ready
                excused = worker.delivered or worker.under_way or waits
                failures = 0 if excused else failures + 1
                reason = await self._lose(worker, error)
        self._dispatcher.wanted -= 1
        if not self._dispatcher.wanted:
            self._closed = f"no worker of the cluster is left: {reason}"
            self._dispatcher.close(self._closed)

    def _start(self, number: int) -> WorkerHandle:
        import ray

        settings = self._settings
        workers = ray.remote(RolloutWorker).options(
            num_cpus=settings.cpus, num_gpus=settings.gpus, scheduling_strategy="SPREAD"
        )
        bare = Account(cache=self._account.cache, served=self._account.served)
        actor = workers.remote(self._opener, bare, self._grading())
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lost.add_done_callback(lambda done: done.cancelled() or done.exception())
        return WorkerHandle(number, actor, lost)

    def _grading(self) -> GraderFactory | None:
        if not self._graders:
            return None
        seconds = GRADING_SHARE * self._settings.deadline
        return partial(Graders, self._graders, self._settings.retries, seconds)

    async def _open(self, worker: WorkerHandle) -> None:
        seconds = self._settings.start
        try:
            worker.place = await outcome(worker.actor.where.remote(), seconds)
        except TimeoutError:
            raise NoRoom(f"no node had room for it within {seconds:g} s") from None
        try:
            await outcome(worker.actor.open.remote(), seconds)
        except TimeoutError:
            raise WorkerLost(f"its models were not loaded after {seconds:g} s") from None
        self._dispatcher.workers.append(worker)
        self._assign_soon()

    async def _listen(self, worker: WorkerHandle) -> None:
        """Take reports until the worker is lost, which raises the reason."""
        settings = self._settings
        poll = min(settings.heartbeat, settings.deadline) / POLLS
        while True:
            asked = asyncio.ensure_future(
                outcome(worker.actor.collect.remote(poll), settings.heartbeat)
            )
            try:
                await asyncio.wait([asked, worker.lost], return_when=asyncio.FIRST_COMPLETED)
                if not asked.done():
                    worker.lost.result()
                report = asked.result()
            except TimeoutError:
                raise WorkerLost(f"no sign of life for {settings.heartbeat:g} s") from None
            finally:
                asked.cancel()
            self._take(worker, report)
            if late := worker.late(settings.deadline):
                task = late[0].order.job.task.id
                raise WorkerLost(f"{task} was not over after {settings.deadline:g} s")

    def _take(self, worker: WorkerHandle, report: Report) -> None:
        """Count what a worker did: what it paid first, which decides whether more is played."""
        for receipt in report.receipts:
            self._account.on_receipt(receipt)
        for sentence in report.warnings:
            self._account.warn(f"{worker}: {sentence}")
        for recovery in report.recovered:
            self._recover(recovery)
        for number, done in report.done:
            pending = worker.under_way.pop(number)
            worker.delivered = True
            if pending.future.done():
                continue
            if isinstance(done, Exception):
                pending.future.set_exception(done)
            elif pending.stale(done):
                self.counts["stale"] += 1
                reason = f"{worker} played it with other weights than it was sent"
                self._dispatcher.retry(pending, reason)
            else:
                pending.future.set_result(done)
        if report.done:
            self._assign_soon()

    async def _lose(self, worker: WorkerHandle, error: Exception) -> str:
        """Queue again what a lost worker had under way, then find out what happened to it."""
        if worker not in self._dispatcher.workers:
            end(worker.actor)
            reason = reason_of(error) + await last_words(worker.place)
            self._account.warn(f"{worker} could not be started: {reason}")
            return reason
        blamed = blamed_for(worker, self._settings.deadline)
        lost, now = self._dispatcher.drop(worker), time.monotonic()
        seconds = max((now - pending.sent for pending in lost), default=0.0)
        failing = [pending for pending in blamed if self._dispatcher.last_try(pending)]
        for pending in lost:
            if pending not in failing:
                self._dispatcher.retry(pending, "", blamed=pending in blamed)
        self._assign_soon()
        end(worker.actor)
        if self._charged and lost:
            self.counts["unreceipted"] += len(lost)
        reason = reason_of(error)
        recovery = Recovery(self._sentence(worker, reason, len(lost)), seconds)
        self.recovered.append(recovery)  # before its node answers, which may take until all is over
        try:
            reason += await last_words(worker.place)
            recovery.what = self._sentence(worker, reason, len(lost))
        finally:
            self._account.warn(str(recovery))
        for pending in failing:
            self._dispatcher.retry(pending, f"{worker} was lost: {reason}")
        return reason

    def _sentence(self, worker: WorkerHandle, reason: str, lost: int) -> str:
        sentence = f"{worker} was lost ({reason}); {lost} episodes were under way"
        if self._charged and lost:
            sentence += "; what their API calls since its last report cost is counted nowhere"
        return sentence

    def _recover(self, recovery: Recovery) -> None:
        self.recovered.append(recovery)
        self._account.warn(str(recovery))
