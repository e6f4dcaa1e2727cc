"""A node that cannot be reached for a while: a Ray node in a network namespace, its link cut."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ray", reason="extra `integration` is not installed")

from tests.helpers.cluster_runs import (
    HURRY,
    config,
    disturbed,
    episodes,
    faults,
    same,
    timed,
    trained,
)
from tests.helpers.network import Link, linked_namespace, refusal
from tests.helpers.ray_nodes import ray_node_inside, ray_nodes
from tests.helpers.soaks import keep_part

pytestmark = pytest.mark.slow

LONGER = ("train.steps=6", "train.evaluate_every=0")
STEPS = 60
LONGEST = (f"train.steps={STEPS}", "train.evaluate_every=0", "optimizer.learning_rate=0.0001")
ONE_EACH = ("cluster.graders=0",)
"""Two workers on two nodes of one CPU, and nothing else."""
HERE = "tests/integration/test_cluster_partition.py"


@pytest.fixture(scope="module")
def far() -> Iterator[tuple[Link, str]]:
    """The link to a cluster's second node, and the cluster's address."""
    if reason := refusal():
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    with (
        linked_namespace() as link,
        ray_nodes(1, cpus=1, ip=link.here) as cluster,
        ray_node_inside(link, cluster.address, cpus=1),
    ):
        yield link, cluster.address
    torch.use_deterministic_algorithms(False)


def alone(tmp_path: Path, *longer: str) -> Path:
    """The run in one process."""
    trained(config(*longer), folder := tmp_path / "alone")
    return folder


def partitioned(far: tuple[Link, str], run: Path, seconds: float, *longer: str) -> dict[str, Any]:
    """Train with the link cut for so long; the summary's part on the cluster, and the time."""
    link, address = far

    def cut() -> None:
        link.cut()
        try:
            time.sleep(seconds)
        finally:
            link.mend()

    small = config(*longer, *HURRY, *ONE_EACH, f"cluster.address={address}")
    return timed(lambda: disturbed(small, run, cut, 0.5) if seconds else trained(small, run))


def counted_once(run: Path, steps: int) -> None:
    """Every task of every step has its whole group, each sample once."""
    seen = [(one["step"], one["task_id"], one["sample"]) for one in episodes(run, "train")]
    assert len(seen) == len(set(seen)) == steps * 4 * 4


def noticed(told: dict[str, Any], link: Link) -> bool:
    """True if the worker at the far end was given up because it was not heard of."""
    lost = [what for what in told["what"] if f"({link.there}, pid " in what]
    return any("no sign of life for 8 s" in what for what in lost)


def test_a_run_gets_over_a_node_that_was_out_of_reach(
    far: tuple[Link, str], tmp_path: Path
) -> None:
    told = partitioned(far, run := tmp_path / "run", 20.0, *LONGER)
    counted_once(run, 6)
    same(run, alone(tmp_path, *LONGER))
    assert noticed(told, far[0]), told["what"]
    assert told["episodes"].get("failed", 0) == 0


@pytest.mark.soak
def test_a_partition_that_ends_and_one_that_outlasts_most_of_the_run(
    far: tuple[Link, str], tmp_path: Path
) -> None:
    """After the first the far node plays again; in the second the near one ends the run alone."""
    one_process = alone(tmp_path, *LONGEST)
    calm = partitioned(far, tmp_path / "calm", 0.0, *LONGEST)
    runs = []
    for seconds, workers in ((20.0, 2), (90.0, 1)):
        run = tmp_path / f"{seconds:g}"
        runs.append(told := partitioned(far, run, seconds, *LONGEST))
        counted_once(run, STEPS)
        same(run, one_process)
        assert noticed(told, far[0]), told["what"]
        *_, last = map(json.loads, (run / "timing.jsonl").read_text().splitlines())
        assert last["cluster/workers"] == workers
    found = faults(
        "the link to a node cut for some seconds",
        f"pytest -m soak {HERE}",
        runs,
        heartbeat_s=8.0,
        cut_s=[20.0, 90.0],
        run_s=[one["run_s"] for one in runs],
        undisturbed_s=calm["run_s"],
    )
    keep_part("cluster_soak.json", "partitioned", found)
