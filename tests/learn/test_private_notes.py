"""Where one agent knows what another lacks, it learns to speak there and to be silent elsewhere."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tacit.cli.training import run_training
from tacit.config.file import load_config

STEPS = 20


@pytest.fixture(autouse=True)
def plain_torch() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


async def test_silence_follows_need(tmp_path: Path) -> None:
    """The recipe, made shorter: fewer samples, a shorter warm-up, and brief messages."""
    shorter = (
        "tasks.limit=60",
        "teams={}",
        "team.agents.hinter.max_tokens=24",
        "optimizer.learning_rate=2e-4",
        "silence.warmup_steps=8",
        f"train={{steps: {STEPS}, tasks_per_step: 10, evaluate_every: {STEPS}}}",
    )
    await run_training(load_config("pocket-notes", shorter), tmp_path / "run")
    lines = (tmp_path / "run" / f"episodes/eval-{STEPS:06}.jsonl").read_text().splitlines()
    helped: dict[bool, list[bool]] = {True: [], False: []}
    for line in lines:
        episode = json.loads(line)
        helped[episode["needed"]["hinter"]].append(not episode["calls"][0]["silent"])
    needed, free = (sum(said) / len(said) for said in (helped[True], helped[False]))
    assert needed > 0.9 and free < 0.3, f"speaks on {needed:.0%}, and on {free:.0%} elsewhere"
