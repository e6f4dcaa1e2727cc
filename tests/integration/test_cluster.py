"""Episodes on a real Ray cluster of two nodes: faults of every kind, each episode counted once."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from tacit.config import ClusterConfig
from tacit.engine.base import Account
from tacit.errors import Refused, RunError
from tacit.rollout.play import Job, play_all
from tacit.types import Episode, Receipt

pytest.importorskip("ray", reason="extra `integration` is not installed")

from tacit.cluster.pool import Pool
from tacit.cluster.rollout_worker import Opened
from tests.helpers.ray_nodes import actors, faulty, jobs, open_faulty, ray_nodes, remote_team

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with ray_nodes(2) as cluster:
        yield cluster


class Told:
    """What a pool told the run."""

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.warnings: list[str] = []
        self.account = Account(on_receipt=self.receipts.append, warn=self.warnings.append)


@asynccontextmanager
async def pool(
    folder: Path, told: Told, seconds: float = 0.05, **settings: Any
) -> AsyncIterator[Pool]:
    config = ClusterConfig(address="auto", **{"workers": 2, "graders": 1, **settings})
    async with Pool(config, faulty(folder, seconds), told.account, charged=True) as opened:
        yield opened


async def played(
    one: Pool,
    some: list[Job],
    disturb: Callable[[], None] = lambda: None,
    after: int = 10**9,
    seconds: float = 120.0,
) -> list[Episode]:
    """Play all, once each; `disturb` when so many are done."""
    counted: Counter[str] = Counter()

    def count(episode: Episode) -> None:
        counted[episode.task_id] += 1
        if counted.total() == after:
            disturb()

    roster = replace(remote_team(), remote=one.play)
    async with asyncio.timeout(seconds):
        episodes = await play_all(roster, some, concurrency=16, on_episode=count)
    assert counted == Counter(job.task.id for job in some), "each episode counts exactly once"
    return episodes


def right(episodes: list[Episode]) -> bool:
    return all(episode.grade and episode.grade.right for episode in episodes)


async def test_episodes_come_back_graded_in_order_and_paid_once(nodes: Any, tmp_path: Path) -> None:
    told = Told()
    async with pool(tmp_path, told) as one:
        await _until(lambda: one.ready == 2)
        episodes = await played(one, jobs(40))
    assert right(episodes) and [e.task_id for e in episodes] == [f"fine/{i}" for i in range(40)]
    assert len(told.receipts) == 40 and told.warnings == []
    await _until(lambda: not actors(nodes, "RolloutWorker") + actors(nodes, "GradingWorker"))


async def test_a_killed_worker_is_replaced_and_its_episodes_are_played_again(
    nodes: Any, tmp_path: Path
) -> None:
    told = Told()
    async with pool(tmp_path, told) as one:
        episodes = await played(one, jobs(30) + jobs(1, "die"))
        await _until(lambda: one.ready == 2)
        assert right(await played(one, jobs(10))), "the new worker plays too"
    assert right(episodes)
    assert one.counts["retried"] >= 1 and one.counts["failed"] == 0
    assert one.counts["unreceipted"] == one.counts["retried"]
    (line,) = told.warnings
    assert "was lost (its worker process has died" in line
    assert "its last words: I was about to die" in line
    assert "cost is counted nowhere" in line and line.endswith("s lost")


async def test_an_episode_that_kills_every_worker_fails_alone_and_is_not_wrong(
    nodes: Any, tmp_path: Path
) -> None:
    async with pool(tmp_path, told := Told()) as one:
        *fine, failed = await played(one, jobs(20) + jobs(1, "always-die"))
    assert right(fine)
    assert failed.grade is None and failed.error is not None
    assert failed.error.startswith("played 3 times in vain: worker ")
    assert "its worker process has died" in failed.error
    assert len(told.warnings) == 3 and one.counts["failed"] == 1


async def test_a_slot_is_not_given_up_for_what_an_episode_does(nodes: Any, tmp_path: Path) -> None:
    (job,) = jobs(1, "always-die")
    async with pool(tmp_path, Told(), workers=1) as one:
        assert (await one.play(remote_team(), job)).grade is None
        assert right(await played(one, jobs(4)))


@pytest.mark.parametrize("fault", ["block", "dawdle"])
async def test_a_worker_that_hangs_is_killed_and_replaced(
    nodes: Any, tmp_path: Path, fault: str
) -> None:
    told = Told()
    async with pool(tmp_path, told, heartbeat=3, deadline=6) as one:
        assert right(await played(one, jobs(30) + jobs(1, fault)))
        await _until(lambda: one.ready == 2)
    said = {"block": "no sign of life for 3 s", "dawdle": "dawdle/0 was not over after 6 s"}
    assert said[fault] in told.warnings[0]


async def test_a_stopped_process_is_ended_although_it_hears_nothing(
    nodes: Any, tmp_path: Path
) -> None:
    told = Told()

    def stop() -> None:
        os.kill(stopped := actors(nodes, "RolloutWorker")[0], signal.SIGSTOP)
        pids.append(stopped)

    pids: list[int] = []
    async with pool(tmp_path, told, heartbeat=3) as one:
        assert right(await played(one, jobs(60), stop, after=10))
        assert "no sign of life for 3 s" in told.warnings[0]
        await _until(lambda: not Path(f"/proc/{pids[0]}").exists())


async def test_a_killed_grader_is_asked_again(nodes: Any, tmp_path: Path) -> None:
    told = Told()

    def kill() -> None:
        for pid in actors(nodes, "GradingWorker"):
            os.kill(pid, signal.SIGKILL)

    async with pool(tmp_path, told) as one:
        assert right(await played(one, jobs(120), kill, after=10))
    assert any("grading worker 0 was lost with an answer to fine/" in w for w in told.warnings)
    assert len(told.warnings) <= 2, "one line for each worker that noticed"
    assert one.counts["retried"] == 0, "no episode was played again"


async def test_a_grader_that_hangs_is_replaced(nodes: Any, tmp_path: Path) -> None:
    told, (job,) = Told(), jobs(1)
    stuck = "tests.helpers.ray_nodes:stuck_once"
    task = replace(job.task, grader=stuck, answer=str(tmp_path / "seen"))
    async with pool(tmp_path, told, deadline=30, graders=2) as one:
        assert right(await played(one, [*jobs(5), replace(job, task=replace(task, id="stuck"))]))
    assert "(no grade within 15 s)" in told.warnings[0]
    assert one.counts["retried"] == 0


async def test_a_refusal_ends_the_run(nodes: Any, tmp_path: Path) -> None:
    async with pool(tmp_path, Told()) as one:
        with pytest.raises(Refused, match="sim: no such model"):
            await played(one, jobs(3) + jobs(1, "refuse"))


async def test_a_lost_node_is_done_without_and_a_new_one_is_used(
    nodes: Any, tmp_path: Path
) -> None:
    third = nodes.add_node(num_cpus=8, object_store_memory=100 * 2**20)
    async with pool(tmp_path, told := Told(), workers=2, cpus=5) as one:  # none fits elsewhere
        with pytest.raises(TimeoutError):
            await _until(lambda: one.ready == 2, 5)
        nodes.remove_node(third, allow_graceful=False)
        playing = asyncio.create_task(played(one, jobs(40)))
        await asyncio.sleep(2)
        again = nodes.add_node(num_cpus=10, object_store_memory=100 * 2**20)
        assert right(await playing)
        await _until(lambda: one.ready == 2)
    assert told.warnings
    nodes.remove_node(again)


async def test_without_any_worker_the_run_ends_with_the_reason(nodes: Any, tmp_path: Path) -> None:
    @asynccontextmanager
    async def broken(account: Account) -> AsyncIterator[Any]:
        raise FileNotFoundError("no model here")
        yield

    config = ClusterConfig(address="auto", workers=1, retries=0)
    async with Pool(config, broken, Told().account) as one:
        with pytest.raises(RunError, match=r"no worker of the cluster is left: .*no model here"):
            await played(one, jobs(1))


async def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


class Taker:
    """A policy and its engine in one; writes down how much it was given."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, state: dict[str, torch.Tensor], source: str) -> None:
        self._given = sum(one.numel() for one in state.values())

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        yield

    async def refresh(self, version: int) -> None:
        (self._folder / f"version-{version}-of-{self._given}-on-{os.getpid()}").touch()


@asynccontextmanager
async def open_taking(folder: Path, account: Account) -> AsyncIterator[Opened]:
    taker: Any = Taker(folder)
    async with open_faulty(folder, 0.01, account) as opened:
        yield replace(opened, policies={"team": taker}, trained={"team": taker})


async def test_weights_that_overfill_the_object_store_arrive_all_the_same(
    nodes: Any, tmp_path: Path
) -> None:
    """Three versions of 80 MiB each, for stores of 100 MiB: Ray moves them to the disk."""
    size = 20 * 2**20
    config = ClusterConfig(address="auto", workers=2, graders=0)
    async with Pool(config, partial(open_taking, tmp_path), Told().account) as one:
        await _until(lambda: one.ready == 2)
        for version in (1, 2, 3):
            weights = {"w": torch.full((size,), float(version))}
            await one.publish("team", version, partial(save, weights))
            assert right(await played(one, jobs(8)))
    assert one.recovered == []
    given = Counter(path.name.partition("-on-")[0] for path in tmp_path.glob("version-*"))
    assert given == Counter({f"version-{version}-of-{size}": 2 for version in (1, 2, 3)})
