"""Gradients of a policy's weights: added up where they are finite, and turned into a step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.engine.forward import forward_of
from tacit.learn.policy import Policy


def accumulate(policy: Policy, loss: Tensor) -> bool:
    """Add the gradient of one micro-batch, unless it or the loss is not finite."""
    if not bool(torch.isfinite(loss)):
        return False
    weights, live = list(policy.parameters.values()), list(policy.live.values())
    with policy.on(), forward_of(policy.loaded.module).recomputing():
        gradients = torch.autograd.grad(loss, live, allow_unused=True)
    given = [gradient for gradient in gradients if gradient is not None]
    if not given or not bool(torch.isfinite(torch.stack(torch._foreach_norm(given))).all()):
        return False
    mine = [w for w, gradient in zip(weights, gradients, strict=True) if gradient is not None]
    pairs = list(zip(mine, _widened(mine, given), strict=True))
    if later := [(weight.grad, wide) for weight, wide in pairs if weight.grad is not None]:
        torch._foreach_add_([grad for grad, _ in later], [wide for _, wide in later])
    for weight, wide in pairs:
        weight.grad = wide if weight.grad is None else weight.grad
    return True


def take_step(
    policy: Policy, optimizer: torch.optim.Optimizer, rate: float, clip_norm: float
) -> float:
    """An optimiser step with what was accumulated; says the norm before clipping."""
    weights = list(policy.parameters.values())
    if all(weight.grad is None for weight in weights):
        return 0.0
    norm = torch.nn.utils.clip_grad_norm_(weights, clip_norm)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    policy.publish()
    return float(norm)


def _widened(weights: Sequence[Tensor], gradients: list[Tensor]) -> list[Tensor]:
    """The gradients in the weights' precision; all at once, where it is another."""
    if all(weight.dtype == one.dtype for weight, one in zip(weights, gradients, strict=True)):
        return gradients
    wide = [torch.empty_like(weight) for weight in weights]
    torch._foreach_copy_(wide, gradients)
    return wide
