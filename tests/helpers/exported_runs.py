"""Short real runs of each kind of policy, trained once, and what their weights compute."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.cli.training import run_training
from tacit.export.exporting import Order
from tacit.learn.assemble import open_training
from tacit.learn.checkpoint import Checkpoints
from tacit.run.folder import RunFolder
from tacit.types import ChatMessage
from tests.helpers.training_runs import tiny_config

SHORT = {"steps": 2, "evaluate_every": 1, "checkpoint_every": 1, "tasks_per_step": 2, "group": 3}
BOTH = {"hinter": {"max_tokens": 32, "trained": True}, "actor": {"max_tokens": 16, "trained": True}}
RUNS: dict[str, dict[str, Any]] = {
    "shared": {"silence": {"warmup_steps": 0, "coefficient": 50.0}, "seed": 3},
    "per-role": {
        "team": {"topology": "hint_actor", "agents": BOTH},
        "policy": {"kind": "lora", "rank": 4, "share": "role"},
        "budget": {"tokens": 60},
        "silence": {"silent_samples": 1},
    },
    "full": {"policy": {"kind": "full"}},
}
PROMPT = (
    ChatMessage("system", "Give your teammate one short hint for this question."),
    ChatMessage("user", "What is 37 + 48 - 15?"),
)
LAST_MERGED = Order(checkpoint="last", merged=True)


_TRAINED: dict[str, Path] = {}


def train(name: str, factory: pytest.TempPathFactory) -> Path:
    """A real run of two steps, made once."""
    if name not in _TRAINED:
        folder = factory.mktemp("run") / name
        config = tiny_config(**{"name": name, "train": SHORT, **RUNS[name]})
        asyncio.run(run_training(config, folder))
        torch.use_deterministic_algorithms(False)
        _TRAINED[name] = folder
    return _TRAINED[name]


@torch.no_grad()
def logits_of(module: Any, ids: tuple[int, ...]) -> torch.Tensor:
    result: torch.Tensor = module(input_ids=torch.tensor([ids])).logits
    return result


def trained_logits(run: Path) -> dict[str, tuple[torch.Tensor, tuple[int, ...]]]:
    """Policy → what the last checkpoint's team itself computes, and the prompt's ids."""

    async def compute() -> dict[str, tuple[torch.Tensor, tuple[int, ...]]]:
        _, config = RunFolder.existing(run)
        found = {}
        async with open_training(config) as made:
            ids = made.trained_engines[0].encode(PROMPT)
            for name, policy in made.policies.items():
                Checkpoints(run / "checkpoints").load_policy(SHORT["steps"], policy)
                with policy.on():
                    found[name] = logits_of(policy.loaded.module, ids), ids
        torch.use_deterministic_algorithms(False)
        return found

    return asyncio.run(compute())


def program_in(folder: Path) -> str:
    """What the model card tells people to run."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    return str(program)
