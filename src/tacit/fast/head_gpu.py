"""Log-probabilities from hidden states on a GPU, with one pass over each block of logits.

The logits of a block of rows are computed, reduced by one kernel, and dropped; the backward pass
recomputes them and turns them into their own gradient in place.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOGITS_AT_ONCE = 2**28
"""Elements of the (tokens × vocabulary) block that are in memory at a time."""


@triton.jit
def _reduce(logits, target, lse, chosen, entropy, size, BLOCK: tl.constexpr):
    """Program: one row's log-sum-exp, the target's logit, and the entropy."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * size
    best = tl.full([], -float("inf"), tl.float32)
    total = tl.full([], 0.0, tl.float32)
    mean = tl.full([], 0.0, tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(logits + at, mask=at < size, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(best, tl.max(x, axis=0))
        weight = tl.exp(x - higher)
        shrink = tl.exp(best - higher)
        total = total * shrink + tl.sum(weight, axis=0)
        mean = mean * shrink + tl.sum(tl.where(at < size, weight * x, 0.0), axis=0)
        best = higher
    log_total = best + tl.log(total)
    tl.store(lse + row, log_total)
    tl.store(chosen + row, tl.load(logits + tl.load(target + row)).to(tl.float32))
    tl.store(entropy + row, log_total - mean / total)


@triton.jit
def _turn(logits, target, lse, grad, size, BLOCK: tl.constexpr):
    """Program: turns a row of logits into the gradient of its log-probability, times `grad`."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * size
    log_total, factor, chosen = tl.load(lse + row), tl.load(grad + row), tl.load(target + row)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(logits + at, mask=at < size, other=0.0)
        share = tl.exp(x.to(tl.float32) - log_total)
        value = (tl.where(at == chosen, 1.0, 0.0) - share) * factor
        tl.store(logits + at, value.to(x.dtype), mask=at < size)


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor
    ) -> tuple[Tensor, Tensor]:
        count, size = len(hidden_ND), len(weight_VD)
        lse_N, chosen_N, entropy_N = hidden_ND.new_empty(3, count, dtype=torch.float32)
        for some in _blocks(count, size):
            logits = hidden_ND[some] @ weight_VD.T
            _reduce[(len(logits),)](
                logits, targets_N[some], lse_N[some], chosen_N[some], entropy_N[some], size,
                BLOCK=4096, num_warps=8,
            )  # fmt: skip
        ctx.save_for_backward(hidden_ND, weight_VD, targets_N, lse_N)
        ctx.mark_non_differentiable(entropy_N)
        return chosen_N - lse_N, entropy_N

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        hidden_ND, weight_VD, targets_N, lse_N = ctx.saved_tensors
        grad_N = grad_N.contiguous()
        to_hidden = torch.empty_like(hidden_ND)
        to_weight = None
        if ctx.needs_input_grad[1]:
            to_weight = torch.zeros_like(weight_VD, dtype=torch.float32)
        for some in _blocks(len(hidden_ND), len(weight_VD)):
            logits = hidden_ND[some] @ weight_VD.T
            _turn[(len(logits),)](
                logits, targets_N[some], lse_N[some], grad_N[some], len(weight_VD),
                BLOCK=4096, num_warps=8,
            )  # fmt: skip
            torch.mm(logits, weight_VD, out=to_hidden[some])
            if to_weight is not None:
                to_weight += logits.T @ hidden_ND[some]
        return to_hidden, None if to_weight is None else to_weight.to(weight_VD.dtype), None


def head_logprobs(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """log π(target) and the entropy after each hidden state; gradients flow through the first."""
    result: tuple[Tensor, Tensor] = _Head.apply(hidden_ND.contiguous(), weight_VD, targets_N)
    return result


def _blocks(count: int, size: int) -> list[slice]:
    rows = max(1, LOGITS_AT_ONCE // size)
    return [slice(first, min(first + rows, count)) for first in range(0, count, rows)]
