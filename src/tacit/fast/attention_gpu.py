"""Attention within a pack of messages, by torch's attention for sequences of different lengths.

The keys and values of shared segments are copied for each segment that continues them. With few
heads of keys this costs little, and one causal call then computes everything.
"""

import inspect
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from tacit.fast.pack_gpu import Pack

CAUSAL: dict[str, Any] = {"window_size": (-1, 0)}
if "enable_gqa" in inspect.signature(varlen_attn).parameters:  # older releases always allow it
    CAUSAL["enable_gqa"] = True


def flash_attend(q: Tensor, k: Tensor, v: Tensor, packed: Pack, scale: float) -> Tensor:
    """Attention within the pack: [tokens, heads, width] in and out.

    The kernel aligns the last query of each segment with its last key.
    """
    asking, asked = packed.asking, packed.asked
    if packed.copies is not None:
        k, v = _Copied.apply(k, packed), _Copied.apply(v, packed)
    attended = varlen_attn(
        q, k, v, asking.ends, asked.ends, asking.longest, asked.longest, scale=scale, **CAUSAL
    )
    assert isinstance(attended, Tensor)
    return attended


class _Copied(torch.autograd.Function):
    """The keys or values that each segment attends to, concatenated."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, packed: Pack) -> Tensor:
        assert packed.copies is not None
        ctx.packed = packed
        return states.index_select(0, packed.copies.tokens_K)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return added_up(gradient, ctx.packed), None


@triton.jit
def _add_copies(copies, order, ends, out, width, BLOCK: tl.constexpr):
    """Program: one token."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    start = tl.load(ends + token - 1, mask=token > 0, other=0)
    whole = tl.zeros([BLOCK], tl.float32)
    for at in range(start, tl.load(ends + token)):
        copy = tl.load(order + at)
        whole += tl.load(copies + copy * width + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * width + column, whole, mask=inside)


def added_up(gradient: Tensor, packed: Pack) -> Tensor:
    """The copies' gradients summed for each token, always in the same order."""
    assert packed.copies is not None
    ends, width = packed.copies.ends_T, gradient[0].numel()
    out = gradient.new_empty(len(ends), *gradient.shape[1:])
    _add_copies[(len(ends),)](
        gradient.contiguous(), packed.copies.order_K, ends, out, width,
        BLOCK=triton.next_power_of_2(width), num_warps=1 if width <= 256 else 4,
    )  # fmt: skip
    return out
