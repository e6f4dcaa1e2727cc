"""Playing ahead of what is learned: how far, in which order, and with which weights."""

import asyncio
from typing import Any

import pytest

from tacit.config import Config
from tacit.economy.group import Group
from tacit.grading import grade
from tacit.learn.journal import Meter
from tacit.learn.metrics import staleness_metrics
from tacit.learn.overlap import Rollouts
from tacit.learn.task_sampler import TaskSampler
from tacit.rollout.groups import Player
from tacit.silence import open_silence
from tacit.types import Call, Episode, Stop, Task, Usage
from tests.helpers.scripted_teams import scripted


class Stage:
    """A scripted solo team that answers when it is let, and says what happened in which order."""

    def __init__(self, staleness: int, **train: Any) -> None:
        self.said: list[str] = []
        self.let = asyncio.Event()
        every = {"tasks_per_step": 1, "group": 2, "checkpoint_every": 3, "evaluate_every": 0}
        solo = {"topology": "solo", "agents": {"actor": {"trained": True}}}
        self.config = Config.model_validate({"team": solo, "train": {"steps": 9} | every | train})
        player = Player(
            scripted("solo", {"actor": self._reply}, actor={"trained": True}),
            grade,
            self.config,
            open_silence(self.config.silence, choosing=False),
            set(),
        )
        tasks = [
            Task(id=f"t{i}", question=f"{i} + 1?", answer=str(i + 1), grader="math")
            for i in range(9)
        ]
        sampler = TaskSampler(tasks, seed=0)
        self.rollouts = Rollouts(player, sampler, Meter(), self.config.train, staleness)

    async def _reply(self, request: Any) -> str:
        self.said.append("asked")
        await self.let.wait()
        return r"\boxed{1}"

    async def publish(self) -> None:
        async with self.rollouts.playing:
            self.said.append("new weights")


@pytest.mark.parametrize(
    ("staleness", "learning", "ahead"),
    [(0, 1, 0), (1, 1, 1), (2, 1, 2), (5, 1, 2), (1, 2, 1), (2, 2, 1), (1, 3, 0), (4, 7, 2)],
)
async def test_no_further_ahead_than_the_bound_and_never_across_a_checkpoint(
    staleness: int, learning: int, ahead: int
) -> None:
    """Checkpoints are after steps 3, 6 and 9, the last."""
    stage = Stage(staleness)
    stage.rollouts.begin(learning)
    assert len(stage.rollouts._begun) == ahead
    stage.rollouts.begin(learning)
    assert len(stage.rollouts._begun) == ahead, "what was begun is not begun again"
    stage.rollouts.drop()


async def test_weights_change_between_two_steps_and_never_within_one() -> None:
    stage = Stage(2)
    stage.rollouts.begin(1)
    await _until(lambda: stage.said == ["asked"] * 2)
    publishing = asyncio.create_task(stage.publish())
    await asyncio.sleep(0.01)
    assert stage.said == ["asked"] * 2, "step 2 is being played"
    stage.let.set()
    await publishing
    await stage.rollouts.take(2)
    await stage.rollouts.take(3)
    assert stage.said == ["asked", "asked", "new weights", "asked", "asked"]


async def test_steps_come_in_order_with_the_place_to_go_on_from() -> None:
    stage = Stage(2)
    stage.let.set()
    played = [await stage.rollouts.take(1)]
    stage.rollouts.begin(1)
    played += [await stage.rollouts.take(2), await stage.rollouts.take(3)]
    assert [one.position for one in played] == [1, 2, 3]
    alone = Stage(0)
    alone.let.set()
    for step, one in enumerate(played, start=1):
        same = await alone.rollouts.take(step)
        assert [g.task_id for g in same.groups] == [g.task_id for g in one.groups]


async def test_what_is_given_up_holds_nothing_up() -> None:
    stage = Stage(1)
    stage.rollouts.begin(1)
    await _until(lambda: stage.said == ["asked"] * 2)
    stage.rollouts.drop()
    async with asyncio.timeout(10):
        await stage.publish()
    assert stage.said[-1] == "new weights"


async def test_a_step_that_fails_ahead_fails_when_it_is_its_turn() -> None:
    stage = Stage(1)
    stage.rollouts.sampler.tasks = [
        Task(id="t", question="?", answer="1", grader="json:loads")  # a grader that breaks
    ]
    stage.let.set()
    stage.rollouts.begin(1)
    await stage.publish()
    with pytest.raises(Exception, match="t: grader `json:loads` failed"):
        await stage.rollouts.take(2)


def test_the_age_of_a_message_is_counted_in_updates() -> None:
    def call(version: int, **changed: Any) -> Call:
        said: dict[str, Any] = {"agent": "a", "model": "m", "messages": (), "text": ""}
        said |= {"stop": Stop.EOS, "usage": Usage(), "policy": "team", "version": version}
        return Call(**said | changed)

    calls = (call(3), call(4), call(0, reused=True), call(0, policy=""))
    episode = Episode(task_id="t", sample=0, calls=calls)
    group = Group(task_id="t", level="", episodes=(episode,))
    assert staleness_metrics([group], 4) == {"staleness/mean": 0.5, "staleness/max": 1}


async def _until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)
