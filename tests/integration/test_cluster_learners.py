"""SharedLearners that share a step come to the weights that one alone comes to."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tacit.config import Config
from tacit.learn.assemble import open_assembly, updater_of
from tacit.learn.batch import Row
from tacit.learn.loss import BatchSizes
from tacit.learn.microbatch import Microbatch
from tacit.learn.update import Updated
from tests.helpers.learn_parts import make_rows

pytest.importorskip("ray", reason="extra `integration` is not installed")

import ray

from tacit.cluster.shared_learners import SharedLearners, shares

pytestmark = pytest.mark.slow

CONFIG = Config.model_validate(
    {
        "team": {
            "topology": "hint_actor",
            "agents": {"hinter": {"trained": True, "max_tokens": 16}, "actor": {"max_tokens": 8}},
        },
        "policy": {"kind": "lora", "rank": 4},
        "optimizer": {"learning_rate": 1e-3, "warmup_steps": 0},
        "train": {"microbatch_tokens": 64},
    }
)


NEAR = 5e-5
"""A twentieth of one step of Adam, which makes much of the order in which floats are added."""


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 * 2**20)
    yield
    ray.shutdown()


async def updated(rows: list[Row], learners: Any = None) -> tuple[Updated, dict[str, torch.Tensor]]:
    """The pocket team's policy after two updates."""
    assert CONFIG.team
    async with open_assembly(CONFIG, CONFIG.team) as made:
        updater = updater_of(made, "team")
        updater.shared = learners
        for _ in range(2):
            found = updater.update(rows, [], train_choice=False)
        return found, updater.policy.state()


async def test_two_learners_and_the_head_learn_what_one_does(local_ray: None) -> None:
    rows = make_rows(24)
    alone, weights = await updated(rows)
    learners = SharedLearners(CONFIG, 2, deadline=120.0)
    together, same = await updated(rows, learners)
    learners.close()
    assert learners.lost == 0
    for name, weight in weights.items():
        torch.testing.assert_close(same[name], weight, rtol=1e-3, atol=NEAR)
    assert together.gradient_norm == pytest.approx(alone.gradient_norm, rel=1e-4)
    assert together.stats == pytest.approx(dict(alone.stats), rel=1e-4, abs=1e-6)


async def test_a_learner_that_dies_costs_nothing_but_time(
    local_ray: None, caplog: pytest.LogCaptureFixture
) -> None:
    rows = make_rows(24)
    _, weights = await updated(rows)
    learners = SharedLearners(CONFIG, 1, deadline=120.0)
    pid = ray.get(learners._actors[0].pid.remote())
    os.kill(pid, 9)
    _, same = await updated(rows, learners)
    learners.close()
    assert learners.lost >= 1 and "was lost" in caplog.text
    for name, weight in weights.items():
        torch.testing.assert_close(same[name], weight, rtol=1e-3, atol=NEAR)


def test_shares_are_runs_of_about_as_many_rows() -> None:
    sizes = BatchSizes(lengths_S=torch.ones(1))
    batch = [Microbatch(make_rows(n), sizes) for n in (4, 4, 4, 4, 8)]
    assert [[len(m.rows) for m in one] for one in shares(batch, 3)] == [[4, 4], [4, 4], [8]]
    assert [len(one) for one in shares(batch[:1], 3)] == [0, 1, 0]
