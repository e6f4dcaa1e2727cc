"""Training on a Ray cluster of two nodes: the same run as in one process, whatever is killed."""

import asyncio
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.config import Config
from tacit.config.file import load_config, parse_config
from tests.helpers.commands import started
from tests.helpers.loopback import Server, by_hash
from tests.helpers.soaks import keep
from tests.helpers.training_runs import finish, kill_when, lines, tree

pytest.importorskip("ray", reason="extra `integration` is not installed")

from tacit.cli.training import run_training
from tests.helpers.ray_nodes import actors, ray_nodes
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.slow

SMALL = (
    "tasks.limit=6",
    "train_tasks.limit=60",
    "train.steps=3",
    "train.tasks_per_step=4",
    "train.group=4",
    "train.evaluate_every=2",
    "train.checkpoint_every=1",
    "evaluation.resamples=50",
    "optimizer.learning_rate=0.001",
    'teams={"solo": {"topology": "solo", "agents": {"actor": {"max_tokens": 16}}}}',
)
"""`pocket-hint`, but a few steps with small groups."""
HERE = "tests/integration/test_cluster_training.py"
HURRY = ("cluster.heartbeat=8",)


KEY = "sk-very-secret"
LIMIT_S = 400.0
"""Of one run; what hangs fails."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACIT_TEST_KEY", KEY)  # as exported on every host before Ray starts
        with ray_nodes(2) as cluster:
            yield cluster
    torch.use_deterministic_algorithms(False)


def trained(config: Config, folder: Path) -> dict[str, Any]:
    async def within_limit() -> dict[str, Any]:
        async with asyncio.timeout(LIMIT_S):
            return await run_training(config, folder)

    return asyncio.run(within_limit())


def config(*more: str) -> Config:
    return load_config("pocket-hint", [*SMALL, *more])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    trained(config(), folder)
    return folder


def episodes(run: Path, name: str) -> list[Any]:
    """Everything of a run's episodes but how long they took, in the order of the tasks."""
    whole = (run / "episodes" / f"{name}.jsonl").read_text(encoding="utf-8")
    found = [_untimed(json.loads(line)) for line in whole.splitlines()]
    return found if name == "train" else sorted(found, key=lambda one: str(one["task_id"]))


def _untimed(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _untimed(value) for key, value in tree.items() if key != "seconds"}
    return [_untimed(one) for one in tree] if isinstance(tree, list) else tree


def same(run: Path, other: Path) -> None:
    """Equal ids, log-probabilities, grades, rewards and metrics, to the last bit."""
    assert (run / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    names = sorted(path.stem for path in (other / "episodes").glob("*.jsonl"))
    assert names == sorted(path.stem for path in (run / "episodes").glob("*.jsonl"))
    for name in names:
        assert episodes(run, name) == episodes(other, name), name


def test_two_nodes_learn_what_one_process_learns(nodes: Any, alone: Path, tmp_path: Path) -> None:
    where = "cluster.address=" + nodes.address
    summary = trained(config(where), tmp_path / "run")
    same(tmp_path / "run", alone)
    assert summary["cluster"]["recoveries"] == 0
    versions = {call["version"] for one in episodes(alone, "train") for call in one["calls"]}
    assert versions == {0, 1, 2}


def test_a_run_goes_on_elsewhere(nodes: Any, alone: Path, tmp_path: Path) -> None:
    """Where it is played is no part of what is learned: one step here, the others there."""
    trained(config("train.steps=1"), run := tmp_path / "run")
    where = "cluster.address=" + nodes.address
    trained(config(where, "cluster.graders=0"), run)
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in metrics if "train/gradient_norm" in line]
    whole = [json.loads(line) for line in (alone / "metrics.jsonl").read_text().splitlines()]
    assert steps == [line for line in whole if "train/gradient_norm" in line]


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


def kill(cluster: Any, name: str, draw: random.Random, how: signal.Signals) -> None:
    os.kill(draw.choice(actors(cluster, name)), how)


def disturbed(run: Path, where: str, disturb: Callable[[], None], delay: float) -> dict[str, Any]:
    """Train, and disturb so many seconds after the first line of metrics."""

    def wait() -> None:
        wait_for(lambda: lines(run) or over.is_set())
        time.sleep(delay)
        if not over.is_set():
            disturb()

    over = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        return trained(config(where, *HURRY), run)
    finally:
        over.set()
        thread.join()


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
    summary = disturbed(run, where, lambda: kill(nodes, name, draw, how), moment)
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
    """20 runs, in each of which a worker is killed at a random moment."""
    seed, count = (
        int(os.environ.get(f"TACIT_SOAK_{name}", default))
        for name, default in (("SEED", "0"), ("RUNS", "20"))
    )
    draw, where = random.Random(seed), "cluster.address=" + nodes.address
    runs = []
    for number in range(count):
        moment, run = draw.uniform(0.0, 6.0), tmp_path / f"run-{number}"
        summary = disturbed(
            run, where, lambda: kill(nodes, "RolloutWorker", draw, signal.SIGKILL), moment
        )
        same(run, alone)
        runs.append({"seconds_in": moment, **summary["cluster"]})
    result = {
        "what": "a rollout worker killed at a random moment: metrics and episodes equal to the "
        "undisturbed run's",
        "command": f"TACIT_SOAK_SEED={seed} TACIT_SOAK_RUNS={count} pytest -m soak {HERE}",
        "runs": count,
        "recoveries": sum(one["recoveries"] for one in runs),
        "episodes_played_again": sum(one["episodes"].get("retried", 0) for one in runs),
        "lost_s": [one["lost_s"] for one in runs],
        "equal": True,
    }
    keep("cluster_soak.json", result)
    assert result["recoveries"] > 0, "no kill hit a run; try another TACIT_SOAK_SEED"
