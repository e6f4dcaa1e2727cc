"""Small training runs on a Ray cluster, disturbed or not, and what it means that two are equal."""

import asyncio
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.cli.training import run_training
from tacit.config import Config
from tacit.config.file import load_config
from tests.helpers.ray_nodes import actors
from tests.helpers.training_runs import lines
from tests.helpers.waiting import wait_for

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
LIMIT_S = 400.0
"""Of one run; what hangs fails."""
HURRY = ("cluster.heartbeat=8",)


def config(*more: str) -> Config:
    return load_config("pocket-hint", [*SMALL, *more])


def trained(config: Config, folder: Path) -> dict[str, Any]:
    async def within_limit() -> dict[str, Any]:
        async with asyncio.timeout(LIMIT_S):
            return await run_training(config, folder)

    return asyncio.run(within_limit())


def disturbed(config: Config, run: Path, disturb: Callable[[], None], delay: float) -> Any:
    """Train, and disturb so many seconds after the first line of metrics; the summary."""

    def wait() -> None:
        wait_for(lambda: lines(run) or over.is_set())
        time.sleep(delay)
        if not over.is_set():
            disturb()

    over = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        return trained(config, run)
    finally:
        over.set()
        thread.join()


def timed(how: Callable[[], Any]) -> dict[str, Any]:
    """The cluster's part of a run's summary, with how long the run took."""
    began = time.perf_counter()
    summary = how()
    return {"run_s": time.perf_counter() - began, **summary["cluster"]}


def faults(what: str, command: str, runs: Sequence[Mapping[str, Any]], **more: Any) -> Any:
    """What a soak keeps of runs that were all equal to the undisturbed one."""
    return {
        "what": f"{what}: metrics and episodes equal to the undisturbed run's",
        "command": command,
        "runs": len(runs),
        "recoveries": sum(one["recoveries"] for one in runs),
        "episodes_played_again": sum(one["episodes"].get("retried", 0) for one in runs),
        "lost_s": [one["lost_s"] for one in runs],
        **more,
        "equal": True,
    }


def kill(cluster: Any, name: str, draw: random.Random, how: signal.Signals) -> None:
    os.kill(draw.choice(actors(cluster, name)), how)


def episodes(run: Path, name: str) -> list[Any]:
    """Everything of a run's episodes but how long they took, in the order of the tasks."""
    whole = (run / "episodes" / f"{name}.jsonl").read_text(encoding="utf-8")
    found = [_untimed(json.loads(line)) for line in whole.splitlines()]
    return found if name == "train" else sorted(found, key=lambda one: str(one["task_id"]))


def _untimed(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _untimed(value) for key, value in tree.items() if key != "seconds"}
    return [_untimed(one) for one in tree] if isinstance(tree, list) else tree


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def same(run: Path, other: Path) -> None:
    """Equal ids, log-probabilities, grades, rewards and metrics, to the last bit."""
    assert (run / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    names = sorted(path.stem for path in (other / "episodes").glob("*.jsonl"))
    assert names == sorted(path.stem for path in (run / "episodes").glob("*.jsonl"))
    for name in names:
        assert episodes(run, name) == episodes(other, name), name
