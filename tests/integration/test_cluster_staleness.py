"""Training with `cluster.staleness`: how old messages are, and that faults change nothing."""

import random
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.commands import started
from tests.helpers.training_runs import finish, kill_when, lines

pytest.importorskip("ray", reason="extra `integration` is not installed")

from tests.helpers.cluster_runs import (
    HURRY,
    SMALL,
    config,
    disturbed,
    episodes,
    kill,
    metrics,
    same,
    trained,
)
from tests.helpers.ray_nodes import actors, ray_nodes
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.slow

STALE = (
    "cluster.staleness=1",
    "loss.mismatch_cap=2",
    "train.steps=6",
    "train.checkpoint_every=3",
    "train.evaluate_every=0",
)
AGES = {1: 0, 2: 1, 3: 1, 4: 0, 5: 1, 6: 1}
"""Step → how many updates old its messages are: after a checkpoint none."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with ray_nodes(2) as cluster:
        yield cluster
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def undisturbed(nodes: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    trained(config(*STALE, f"cluster.address={nodes.address}"), folder)
    return folder


def ages(run: Path) -> dict[int, set[int]]:
    """Step → how many updates had been made since the weights that said its messages."""
    found: dict[int, set[int]] = {}
    for one in episodes(run, "train"):
        calls = [call for call in one["calls"] if call["policy"]]
        found.setdefault(one["step"], set()).update(one["step"] - 1 - c["version"] for c in calls)
    return found


def test_messages_are_as_old_as_the_metrics_say_and_count_as_such(undisturbed: Path) -> None:
    assert ages(undisturbed) == {step: {age} for step, age in AGES.items()}
    steps = [line for line in metrics(undisturbed) if "train/gradient_norm" in line]
    assert {line["step"]: line["staleness/max"] for line in steps} == AGES
    assert {line["step"]: line["staleness/mean"] for line in steps} == AGES
    for line in steps:  # the correction has something to correct where the weights are older
        assert (line["train/engine_gap"] > 1e-4) == (AGES[int(line["step"])] > 0), line


def test_a_killed_worker_changes_nothing(nodes: Any, undisturbed: Path, tmp_path: Path) -> None:
    draw, small = random.Random(), config(*STALE, *HURRY, f"cluster.address={nodes.address}")
    moment = draw.uniform(0.0, 1.0)
    shot = partial(kill, nodes, "RolloutWorker", draw, signal.SIGKILL)
    summary = disturbed(small, run := tmp_path / "run", shot, moment)
    same(run, undisturbed)
    assert summary["cluster"]["recoveries"] >= 1, f"nobody noticed, {moment:.2f} s in"


def test_a_killed_learner_goes_on_as_if_it_had_not_been(
    nodes: Any, undisturbed: Path, tmp_path: Path
) -> None:
    """Killed between two checkpoints, with a step under way that was begun ahead."""
    run = tmp_path / "run"
    where = f"cluster.address={nodes.address}"
    command = ("train", "pocket-hint", "--out", str(run), *SMALL, *STALE, where)
    assert kill_when(started(tmp_path, *command, warm=False), lambda: lines(run) >= 6)
    wait_for(lambda: not actors(nodes, "RolloutWorker"))
    finish(started(tmp_path, *command, warm=False))
    same(run, undisturbed)


def test_told_to_end_it_gives_up_what_it_plays_ahead_and_goes_on(
    nodes: Any, tmp_path: Path
) -> None:
    """SIGINT between two checkpoints: what goes on is within the bound, each step once."""
    run = tmp_path / "run"
    where = f"cluster.address={nodes.address}"
    command = ("train", "pocket-hint", "--out", str(run), *SMALL, *STALE, where)
    process = started(tmp_path, *command, warm=False)
    wait_for(lambda: lines(run) >= 3 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130 and "saved after step " in said
    finish(started(tmp_path, *command, warm=False))
    steps = [line["step"] for line in metrics(run) if "train/gradient_norm" in line]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert all(some <= {0, AGES[step]} for step, some in ages(run).items())


def test_a_larger_bound_is_kept(nodes: Any, tmp_path: Path) -> None:
    own = (*STALE, "cluster.staleness=3", "train.checkpoint_every=6")
    trained(config(*own, f"cluster.address={nodes.address}"), run := tmp_path / "run")
    found = ages(run)
    assert all(0 <= age <= 3 for some in found.values() for age in some)
    assert all(len(some) == 1 for some in found.values()), "one step, one version"
    assert max(age for some in found.values() for age in some) >= 1
