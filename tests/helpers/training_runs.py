"""Tiny training runs of the pocket hint team, whole or killed, for the tests of `tacit train`."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.config import Config
from tacit.config.file import parse_config
from tests.helpers.commands import Process, started

TINY: dict[str, Any] = {
    "name": "tiny",
    "train_tasks": {"name": "arithmetic", "split": "train", "limit": 40},
    "tasks": {"name": "arithmetic", "split": "test", "limit": 4},
    "evaluation": {"resamples": 50},
    "team": {
        "topology": "hint_actor",
        "agents": {"hinter": {"max_tokens": 32, "trained": True}, "actor": {"max_tokens": 16}},
    },
    "policy": {"kind": "lora", "rank": 4},
    "optimizer": {"learning_rate": 1e-3, "warmup_steps": 0},
    "budget": {"tokens": 18},
    "silence": {"warmup_steps": 2},
    "train": {
        "steps": 5,
        "tasks_per_step": 2,
        "group": 3,
        "evaluate_every": 3,
        "checkpoint_every": 1,
    },
}


def tree(**changed: Any) -> dict[str, Any]:
    """The tiny config with `train={"steps": 2}` and the like laid over it."""
    whole = json.loads(json.dumps(TINY))
    for section, values in changed.items():
        if isinstance(values, dict) and isinstance(whole.get(section), dict):
            whole[section] |= values
        else:
            whole[section] = values
    return whole


def tiny_config(**changed: Any) -> Config:
    return parse_config(tree(**changed))


def start(here: Path, *arguments: str, warm: bool = True) -> Process:
    return started(here, "train", *arguments, warm=warm)


def finish(process: Process) -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def kill_when(process: Process, moment: Callable[[], bool]) -> bool:
    """SIGKILL as soon as the moment has come; False where the run was over before."""
    while not moment():
        if process.poll() is not None:
            finish(process)
            return False
        time.sleep(0.001)
    process.kill()
    process.communicate()
    return True


def saving(run: Path) -> Callable[[], bool]:
    """The moment at which another checkpoint than those of now is half written."""
    before = set((run / "checkpoints").glob(".step-*"))
    return lambda: bool(set((run / "checkpoints").glob(".step-*")) - before)


def after_lines(run: Path, more: int, delay: float) -> Callable[[], bool]:
    """So many more lines of metrics than now, and then a little later."""
    wanted, seen = lines(run) + more, 0.0

    def moment() -> bool:
        nonlocal seen
        if not seen and lines(run) >= wanted:
            seen = time.monotonic()
        return bool(seen) and time.monotonic() >= seen + delay

    return moment


def lines(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def random_moment(run: Path, draw: random.Random) -> tuple[str, Callable[[], bool]]:
    if draw.random() < 0.4:
        return "saving a checkpoint", saving(run)
    return "anywhere", after_lines(run, draw.randrange(0, 3), draw.uniform(0.0, 0.4))
