"""A worker, called as Ray would call it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.cluster.envelopes import Edition, Order, Orders, Report
from tacit.cluster.grading import Graders, GradingWorker
from tacit.cluster.rollout_worker import Opened, RolloutWorker, check_versions, installed
from tacit.engine.base import Account
from tacit.errors import ConfigError, Refused, RunError
from tacit.grading import GradingError
from tacit.rollout.play import Job
from tacit.types import Episode
from tests.helpers.ray_nodes import faulty, jobs
from tests.helpers.scripted_teams import TASK, scripted


def orders(*some: Job) -> Orders:
    roster = scripted("solo", {"actor": lambda request: r"\boxed{42}"})
    numbered = tuple(Order(number, 7, job) for number, job in enumerate(some))
    return Orders(orders=numbered, edition=Edition(), rosters={7: _ready(roster)})


async def _ready(value: Any) -> Any:
    return value


async def opened(folder: Path) -> RolloutWorker:
    worker = RolloutWorker(faulty(folder, 0.0), Account(), None)
    await worker.open()
    return worker


async def collected(worker: RolloutWorker, count: int) -> Report:
    whole = Report()
    async with asyncio.timeout(60):
        while len(whole.done) < count:
            report = await worker.collect(1.0)
            whole.done += report.done
            whole.receipts += report.receipts
    return whole


async def test_it_plays_what_it_takes_and_reports_it_once(tmp_path: Path) -> None:
    worker = await opened(tmp_path)
    await worker.take(orders(*jobs(5)))
    report = await collected(worker, 5)
    assert sorted(number for number, _ in report.done) == [0, 1, 2, 3, 4]
    assert all(isinstance(one, Episode) and one.grade for _, one in report.done)
    assert await worker.collect(0.01) == Report() == await worker.close()


async def test_what_would_hit_every_episode_is_reported_as_such(tmp_path: Path) -> None:
    async def broken(task: Any, text: str) -> Any:
        raise KeyError("a bug")

    worker = await opened(tmp_path)
    worker._grader = broken
    await worker.take(orders(*jobs(1)))
    ((_, error),) = (await collected(worker, 1)).done
    assert isinstance(error, RunError) and str(error) == "KeyError: 'a bug'"


@pytest.mark.parametrize(
    ("error", "kind"), [(Refused("no"), Refused), (ConfigError("no"), ConfigError)]
)
async def test_why_it_cannot_open_can_be_sent(error: Exception, kind: type[Exception]) -> None:
    @asynccontextmanager
    async def broken(account: Account) -> AsyncIterator[Opened]:
        raise error
        yield

    with pytest.raises(kind, match=r"^no$"):
        await RolloutWorker(broken, Account(), None).open()


def test_a_node_with_other_versions_is_refused() -> None:
    pytest.importorskip("ray")
    check_versions(installed())
    with pytest.raises(ConfigError, match=r"it has torch .* and the learner has 1\.0: install"):
        check_versions({**installed(), "torch": "1.0"})


class _Call:
    """An actor's method, as Ray shows it."""

    def __init__(self, actor: GradingWorker) -> None:
        self.grade, self.remote = self, actor.grade


async def test_a_grading_worker_grades_and_says_why_it_cannot() -> None:
    graders = Graders([_Call(GradingWorker())], 0, 60.0, lambda recovery: None)
    assert (await graders(TASK, r"\boxed{42}")).right
    with pytest.raises(GradingError, match=r"sum/1: grader `json:loads` failed"):
        await graders(replace(TASK, grader="json:loads"), "")
    with pytest.raises(ConfigError, match="cannot import grader `missing:grade`"):
        await graders(replace(TASK, grader="missing:grade"), "")
