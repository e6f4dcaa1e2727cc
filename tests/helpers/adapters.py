"""Adapters that change something, and what a model with one computes."""

from typing import Any

import torch

from tacit.engine.lora import adapter_parameters, add_adapter

TARGETS = ["q_proj", "v_proj", "down_proj"]
INPUT = torch.tensor([[5, 9, 60, 7, 120]])


@torch.no_grad()
def logits(module: Any) -> torch.Tensor:
    result: torch.Tensor = module(input_ids=INPUT).logits
    return result


def filled(module: torch.nn.Module, name: str = "mine", *, seed: int = 1) -> None:
    """An adapter whose B is not zero, so that it changes something."""
    add_adapter(module, name, rank=4, alpha=12.0, targets=TARGETS, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for path, weight in adapter_parameters(module, name).items():
            if ".lora_B." in path:
                weight.normal_(std=0.1, generator=generator)
