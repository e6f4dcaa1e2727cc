"""Training on a Ray cluster of two nodes: the same run as in one process, whatever is killed."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.config.file import parse_config
from tacit.errors import ConfigError
from tests.helpers.commands import started
from tests.helpers.loopback import Server, by_hash
from tests.helpers.soaks import keep_part
from tests.helpers.training_runs import finish, kill_when, lines, tree

pytest.importorskip("ray", reason="extra `integration` is not installed")

from tests.helpers.cluster_runs import (
    HURRY,
    LIMIT_S,
    SMALL,
    config,
    disturbed,
    episodes,
    faults,
    kill,
    metrics,
    same,
    timed,
    trained,
)
from tests.helpers.ray_nodes import actors, ray_nodes
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.slow

HERE = "tests/integration/test_cluster_training.py"
KEY = "sk-very-secret"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACIT_TEST_KEY", KEY)  # as exported on every host before Ray starts
        with ray_nodes(2) as cluster:
            yield cluster
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    trained(config(), folder)
    return folder


def test_two_nodes_learn_what_one_process_learns(nodes: Any, alone: Path, tmp_path: Path) -> None:
    where = "cluster.address=" + nodes.address
    summary = trained(config(where), tmp_path / "run")
    same(tmp_path / "run", alone)
    assert summary["cluster"]["recoveries"] == 0
    versions = {call["version"] for one in episodes(alone, "train") for call in one["calls"]}
    assert versions == {0, 1, 2}


def test_a_cluster_that_is_too_small_is_refused_before_models_load(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.learn.assemble.load_model", None)
    large = config("cluster.address=" + nodes.address, "cluster.workers=9")
    with pytest.raises(ConfigError, match=r"^cluster: 9 workers .* no room for 2 of them; start"):
        trained(large, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_elsewhere(nodes: Any, alone: Path, tmp_path: Path) -> None:
    """Where it is played is no part of what is learned: one step here, the others there."""
    trained(config("train.steps=1"), run := tmp_path / "run")
    where = "cluster.address=" + nodes.address
    trained(config(where, "cluster.graders=0"), run)
    steps = [line for line in metrics(run) if "train/gradient_norm" in line]
    assert steps == [line for line in metrics(alone) if "train/gradient_norm" in line]


def test_every_answer_of_an_api_is_paid_once_and_the_key_stays_where_it_is(
    nodes: Any, tmp_path: Path
) -> None:
    server, prices = Server(by_hash), tmp_path / "prices.yaml"
    prices.write_text("date: 2026-01-01\ncurrency: EUR\nmodels: {far: {input: 0, output: 1}}\n")
    far = {"engine": "api", "model": "far", "base_url": server.url, "api_key_env": "TACIT_TEST_KEY"}
    own = {"budget": {"tokens": 30}, "train": {"steps": 2}, "prices": str(prices)}
    whole = tree(models={"far": far}, **own)
    whole["team"]["agents"]["actor"]["model"] = "far"
    trained(parse_config(whole), tmp_path / "alone")
    before = len(server.asked)
    on_nodes = parse_config(whole | {"cluster": {"address": nodes.address}})
    summary = trained(on_nodes, tmp_path / "run")
    server.stop()
    same(tmp_path / "run", tmp_path / "alone")
    (paid,) = summary["spend"]["models"]
    assert paid["calls"] == len(server.asked) - before > 0
    files = [
        *(tmp_path / "run").rglob("*"),
        *Path(nodes.head_node.get_session_dir_path()).rglob("*"),
    ]
    assert not [one for one in files if one.is_file() and KEY.encode() in one.read_bytes()]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("RolloutWorker", signal.SIGKILL),
        ("RolloutWorker", signal.SIGSTOP),
        ("GradingWorker", signal.SIGKILL),
    ],
)
def test_a_run_gets_over_a_lost_process(
    nodes: Any, alone: Path, tmp_path: Path, name: str, how: signal.Signals
) -> None:
    run, draw = tmp_path / "run", random.Random()
    where = "cluster.address=" + nodes.address
    moment = draw.uniform(0.0, 1.0)
    small = config(where, *HURRY)
    summary = disturbed(small, run, lambda: kill(nodes, name, draw, how), moment)
    same(run, alone)
    if name == "RolloutWorker":
        assert summary["cluster"]["recoveries"] >= 1, f"nobody noticed, {moment:.2f} s in"


def test_a_dead_head_goes_on_from_its_last_checkpoint(
    nodes: Any, alone: Path, tmp_path: Path
) -> None:
    """SIGKILL to the learner: Ray ends its workers, and the same command goes on."""
    run, where = tmp_path / "run", "cluster.address=" + nodes.address
    command = ("train", "pocket-hint", "--out", str(run), *SMALL, where)
    process = started(tmp_path, *command, warm=False)
    assert kill_when(process, lambda: lines(run) >= 2)
    wait_for(lambda: not actors(nodes, "RolloutWorker"))
    again = started(tmp_path, *command, warm=False)
    limit = threading.Timer(LIMIT_S, again.kill)
    limit.start()
    finish(again)
    limit.cancel()
    same(run, alone)


@pytest.mark.soak
def test_twenty_kills_of_workers(nodes: Any, alone: Path, tmp_path: Path) -> None:
    """Runs in each of which a worker is killed at a random moment, until 20 kills hit one."""
    seed, count = (
        int(os.environ.get(f"TACIT_SOAK_{name}", default))
        for name, default in (("SEED", "0"), ("RUNS", "20"))
    )
    draw, where = random.Random(seed), "cluster.address=" + nodes.address
    runs: list[Any] = []
    while sum(one["recoveries"] for one in runs) < count and len(runs) < 3 * count:
        moment, run = draw.uniform(0.0, 6.0), tmp_path / f"run-{len(runs)}"
        shot = partial(kill, nodes, "RolloutWorker", draw, signal.SIGKILL)
        summary = disturbed(config(where, *HURRY), run, shot, moment)
        same(run, alone)
        runs.append(summary["cluster"])
    command = f"TACIT_SOAK_SEED={seed} TACIT_SOAK_RUNS={count} pytest -m soak {HERE}"
    found = faults("a rollout worker killed at a random moment", command, runs)
    keep_part("cluster_soak.json", "killed", found)
    assert found["recoveries"] >= count, "some came when the run was over; try another seed"


@pytest.mark.soak
def test_what_a_worker_that_stops_answering_costs(nodes: Any, alone: Path, tmp_path: Path) -> None:
    small = config("cluster.address=" + nodes.address, *HURRY)
    calm = timed(lambda: trained(small, tmp_path / "calm"))
    stop = partial(kill, nodes, "RolloutWorker", random.Random(0), signal.SIGSTOP)
    hung = timed(lambda: disturbed(small, tmp_path / "run", stop, 0.5))
    same(tmp_path / "run", alone)
    assert hung["recoveries"] >= 1
    times = {"heartbeat_s": 8.0, "run_s": [hung["run_s"]], "undisturbed_s": calm["run_s"]}
    found = faults("a rollout worker stopped", f"pytest -m soak {HERE}", [hung], **times)
    keep_part("cluster_soak.json", "hung", found)
