"""A rollout worker: a Ray actor with engines of its own that plays whole episodes, many at once.

It is built from the config as a training run builds its engines, and told of new weights by
editions. What it has done it reports when asked; the question is also how the head knows that it is
alive. Not covered: which episodes it gets (`pool.py`).
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cluster.engines import HERE, model_key, policy_key
from tacit.cluster.envelopes import Edition, Order, Orders, Place, Recovery, Report
from tacit.cluster.faults import sendable
from tacit.config import Config
from tacit.engine.base import Account, Engine, TrainedEngine
from tacit.errors import ConfigError, Refused, RunError, one_line
from tacit.grading import Grader, grade
from tacit.rollout.dedupe import DedupedEngine
from tacit.rollout.play import play_episode
from tacit.team.roster import Roster
from tacit.types import Episode, Receipt, Task

if TYPE_CHECKING:
    from tacit.learn.policy import Policy

GATHERING_S = 0.002
"""How long a report waits for further episodes that end at the same time."""


@dataclass(slots=True, kw_only=True)
class Opened:
    """What a worker plays with."""

    engines: Mapping[str, Engine]
    """By `model_key` and `policy_key`."""
    policies: Mapping[str, "Policy"] = field(default_factory=dict)
    trained: Mapping[str, TrainedEngine] = field(default_factory=dict)
    """The engines of the policies."""
    grader: Grader = grade


Opener = Callable[[Account], AbstractAsyncContextManager[Opened]]
GraderFactory = Callable[[Callable[[Recovery], None]], Grader]


class RolloutWorker:
    """The actor. `grading` makes the grader of tasks that no judge marks; None: graded here."""

    def __init__(self, opener: Opener, account: Account, grading: GraderFactory | None) -> None:
        self._opener, self._account, self._grading = opener, account, grading
        self._stack = AsyncExitStack()
        self._report, self._news = Report(), asyncio.Event()
        self._rosters: dict[int, Roster] = {}
        self._edition = 0
        self._changing = asyncio.Lock()
        self._playing: set[asyncio.Task[None]] = set()

    async def where(self) -> Place:
        """Answered at once, before models load."""
        import ray

        context = ray.get_runtime_context()
        host = ray.util.get_node_ip_address()
        errors = Path("/proc/self/fd/2")  # a link to the log, on Linux
        log = str(errors.readlink()) if errors.is_symlink() else ""
        return Place(node=context.get_node_id(), host=host, pid=os.getpid(), log=log)

    async def open(self) -> None:
        """Load models and start servers."""
        account = Account(
            cache=self._account.cache,
            on_receipt=self._paid,
            warn=lambda sentence: self._report.warnings.append(sentence),
            served=self._account.served,
        )
        try:
            self._opened = await self._stack.enter_async_context(self._opener(account))
        except Exception as error:
            raise _plain(error) from None
        HERE.update(self._opened.engines)
        self._grader = self._opened.grader
        if self._grading:
            self._grader = _apart(self._opened.grader, self._grading(self._recovered))

    async def take(self, orders: Orders) -> None:
        """Begin to play, with the weights of the orders' edition."""
        async with self._changing:
            if orders.edition.number != self._edition:
                await self._load(orders.edition)
            for number, reference in orders.rosters.items():
                if number not in self._rosters:
                    self._rosters[number] = await reference
        for order in orders.orders:
            task = asyncio.create_task(self._play(order))
            self._playing.add(task)
            task.add_done_callback(self._playing.discard)

    async def collect(self, seconds: float) -> Report:
        """What was done since the last call, as soon as something is or these seconds are over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
                await asyncio.sleep(GATHERING_S)
        self._news.clear()
        report, self._report = self._report, Report()
        return report

    async def close(self) -> Report:
        """Close engines and the servers they started; returns what was not reported yet."""
        for task in self._playing:
            task.cancel()
        await self._stack.aclose()
        return self._report

    async def _play(self, order: Order) -> None:
        done: Episode | Exception
        try:
            roster = self._rosters[order.roster]
            done = await play_episode(roster, order.job, grader=self._grader)
        except Exception as error:
            done = _plain(error)
        self._report.done.append((order.number, done))
        self._news.set()

    async def _load(self, edition: Edition) -> None:
        from safetensors.torch import load

        for name, (version, reference) in edition.policies.items():
            engine, state = self._opened.trained[name], load(await reference)
            async with engine.paused():
                self._opened.policies[name].load(state, "the learner's state")
                await engine.refresh(version)
        for roster in self._rosters.values():
            for agent in roster.agents:
                if isinstance(agent.engine, DedupedEngine):
                    agent.engine.forget()
        self._edition = edition.number

    def _paid(self, receipt: Receipt) -> None:
        self._report.receipts.append(receipt)
        self._news.set()

    def _recovered(self, recovery: Recovery) -> None:
        self._report.recovered.append(recovery)


@asynccontextmanager
async def open_from_config(
    config: Config, versions: Mapping[str, str], account: Account
) -> AsyncIterator[Opened]:
    """The engines of a training run's team, checked like those of a run on one machine."""
    from tacit.engine.chat import chat_of
    from tacit.engine.fitness import check_chat
    from tacit.learn.assemble import open_assembly
    from tacit.run.opening import grader_of

    check_versions(versions)
    assert config.team is not None
    teams = (config.team, *config.teams.values())
    async with open_assembly(config, config.team, account=account) as assembly:
        for model in assembly.frozen.values():
            check_chat(chat_of(model), system=any(one.prompts != "role_last" for one in teams))
        trained = {engine.policy: engine for engine in assembly.trained_engines}
        frozen: dict[str, Engine] = {model_key(n): one for n, one in assembly.engines.items()}
        engines = frozen | {policy_key(name): engine for name, engine in trained.items()}
        grader = grader_of(config, assembly.engines)
        yield Opened(engines=engines, policies=assembly.policies, trained=trained, grader=grader)


def installed() -> dict[str, str]:
    """What must be the same on all nodes."""
    import platform
    from importlib.metadata import version

    import tacit

    packages = {name: version(name) for name in ("torch", "transformers", "ray")}
    return {"tacit": tacit.__version__, "python": platform.python_version(), **packages}


def check_versions(wanted: Mapping[str, str]) -> None:
    """Episodes played by other versions would not be the learner's own."""
    for name, have in installed().items():
        if wanted.get(name, have) != have:
            raise ConfigError(
                f"it has {name} {have} and the learner has {wanted[name]}: "
                "install the same versions on every node"
            )


def _apart(own: Grader, others: Grader) -> Grader:
    """Judged tasks are graded by the engines of this worker, all others by grading workers."""

    async def graded(task: Task, text: str) -> Any:
        return await (own if task.grader == "judge" else others)(task, text)

    return graded


def _plain(error: Exception) -> Exception:
    """An error that can be sent: of a kind that ends a run, with its sentence."""
    other = RunError(f"{type(error).__name__}: {one_line(error)}")
    return sendable(error, Refused, ConfigError, RunError) or other
