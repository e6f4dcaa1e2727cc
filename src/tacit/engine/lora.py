"""LoRA (arXiv 2106.09685) on the linear layers of a model, several adapters side by side.

Not peft, because a team's agents switch adapters many times a second, and because importing peft
takes longer than a pocket evaluation. The files are peft's, so either can read the other's. Not
covered: layers other than linear ones, dropout, biases.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(slots=True)
class Switch:
    """The active adapter of a model, shared by all its layers."""

    active: str | None = None
    scales: dict[str, float] = field(default_factory=dict)


class LoraLinear(nn.Module):
    """y = W·x + (α/r)·B·A·x for the active adapter; exactly W·x if there is none."""

    def __init__(self, base: nn.Linear, switch: Switch) -> None:
        super().__init__()
        self.base = base
        self.lora_A = nn.ParameterDict()
        self.lora_B = nn.ParameterDict()
        self._switch = switch

    def add(self, name: str, rank: int, generator: torch.Generator) -> None:
        """Add an adapter: A initialised as in `nn.Linear`, B zero, so that it changes nothing."""
        bound = 1 / math.sqrt(self.base.in_features)
        a = torch.empty(rank, self.base.in_features).uniform_(-bound, bound, generator=generator)
        device = self.base.weight.device
        self.lora_A[name] = nn.Parameter(a.to(device))
        self.lora_B[name] = nn.Parameter(torch.zeros(self.base.out_features, rank, device=device))

    def forward(self, x: Tensor) -> Tensor:
        name = self._switch.active
        if name is None or name not in self.lora_A:
            plain: Tensor = self.base(x)
            return plain
        a, b, scale = self.lora_A[name], self.lora_B[name], self._switch.scales[name]
        if x.is_cuda:
            return adapted(x, self.base.weight, self.base.bias, a, b, scale)
        added: Tensor = (x @ a.to(x.dtype).T @ b.to(x.dtype).T) * scale
        y: Tensor = self.base(x) + added
        return y

    @property
    def weight(self) -> Tensor:
        return self.base.weight

    def scale(self, name: str) -> float:
        """α/r of that adapter."""
        return self._switch.scales[name]


def adapted(
    x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
) -> Tensor:
    """`LoraLinear.forward` for GPUs: the adapter's share is added in place, in both passes.

    One more pass over a wide output would take a good part of the time of the product itself.
    """
    y: Tensor = _Adapted.apply(x, weight, bias, a, b, scale)  # type: ignore[no-untyped-call]
    return y


class _Adapted(torch.autograd.Function):
    """Has gradients for x, A and B; the base is frozen."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        a: Tensor,
        b: Tensor,
        scale: float,
    ) -> Tensor:
        down, up = a.to(x.dtype), (b * scale).to(x.dtype)
        flat = x.reshape(-1, x.shape[-1])
        inner = flat @ down.T
        y = functional.linear(flat, weight, bias).addmm_(inner, up.T)
        ctx.save_for_backward(flat, weight, down, up, inner)
        ctx.scale, ctx.shape = scale, x.shape
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        flat, weight, down, up, inner = ctx.saved_tensors
        wide = grad.reshape(len(flat), -1)
        to_inner = wide @ up
        to_x = None
        if ctx.needs_input_grad[0]:
            to_x = (wide @ weight).addmm_(to_inner, down).view(ctx.shape)
        return to_x, None, None, to_inner.T @ flat, (wide.T @ inner) * ctx.scale, None


def add_adapter(
    module: nn.Module, name: str, *, rank: int, alpha: float, targets: list[str], seed: int
) -> int:
    """Put an adapter on every linear layer whose own name is a target; returns their number."""
    switch = _switch_of(module)
    generator = torch.Generator().manual_seed(seed)
    layers = 0
    for path, layer in list(module.named_modules()):
        parent, _, own = path.rpartition(".")
        if own not in targets:
            continue
        if isinstance(layer, nn.Linear):
            layer = LoraLinear(layer, switch)
            setattr(module.get_submodule(parent), own, layer)
        if isinstance(layer, LoraLinear):
            layer.add(name, rank, generator)
            layers += 1
    switch.scales[name] = alpha / rank
    return layers


def adapter_parameters(module: nn.Module, name: str) -> dict[str, nn.Parameter]:
    """The adapter's weights under peft's names."""
    found: dict[str, nn.Parameter] = {}
    for path, layer in module.named_modules():
        if isinstance(layer, LoraLinear) and name in layer.lora_A:
            found[f"base_model.model.{path}.lora_A.weight"] = layer.lora_A[name]
            found[f"base_model.model.{path}.lora_B.weight"] = layer.lora_B[name]
    return found


def base_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The frozen weights under the names they have without adapters."""
    for path, parameter in module.named_parameters():
        if ".lora_A." not in path and ".lora_B." not in path:
            yield path.replace(".base.", "."), parameter


@contextmanager
def switched_on(module: nn.Module, name: str | None) -> Iterator[None]:
    """Forward passes inside this block use this adapter; None is the frozen base."""
    switch = _switch_of(module)
    before, switch.active = switch.active, name
    try:
        yield
    finally:
        switch.active = before


def active_adapter(module: nn.Module) -> str | None:
    """The adapter in use at this moment."""
    return _switch_of(module).active


def peft_config(base: str, rank: int, alpha: float, targets: list[str]) -> dict[str, Any]:
    """The adapter_config.json with which peft loads the adapter."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": targets,
        "lora_dropout": 0.0,
        "bias": "none",
    }


def _switch_of(module: nn.Module) -> Switch:
    switch: Switch = module.__dict__.setdefault("_tacit_switch", Switch())
    return switch
