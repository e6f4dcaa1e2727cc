"""Attention within a pack of messages, by the flash kernel that comes with torch.

The keys and values of shared segments are copied to each segment that goes on from them: with few
heads of keys that is little beside the rest, and one causal call is then all there is to compute.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from tacit.fast.pack_gpu import Pack


def flash_attend(q: Tensor, k: Tensor, v: Tensor, packed: Pack, scale: float) -> Tensor:
    """Attention within the pack: [tokens, heads, width] in and out."""
    attended: Tensor = _Attention.apply(q, k, v, packed, scale)
    return attended


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, packed: Pack, scale: float) -> Tensor:
        # the last query of each segment stands at its last key: so the kernel aligns them
        out: Tensor
        out, lse, *noise, _ = torch.ops.aten._flash_attention_forward(
            q, _copied(k, packed), _copied(v, packed), *_sizes(packed), 0.0, True, False,
            scale=scale,
        )  # fmt: skip
        ctx.packed, ctx.scale = packed, scale
        ctx.save_for_backward(q, k, v, out, lse, *noise)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse, *noise = ctx.saved_tensors
        packed = ctx.packed
        dq, dk, dv = torch.ops.aten._flash_attention_backward(
            grad.contiguous(), q, _copied(k, packed), _copied(v, packed), out, lse,
            *_sizes(packed), 0.0, True, *noise, scale=ctx.scale,
        )  # fmt: skip
        return dq, added_up(dk, packed), added_up(dv, packed), None, None


def _sizes(packed: Pack) -> tuple[Tensor, Tensor, int, int]:
    asking, asked = packed.asking, packed.asked
    return asking.ends, asked.ends, asking.longest, asked.longest


def _copied(states: Tensor, packed: Pack) -> Tensor:
    """The keys or values that each segment asks, one segment after the other."""
    return states if packed.copies is None else states.index_select(0, packed.copies.tokens_K)


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
    """The copies' gradients where they came from, always in the same order."""
    if packed.copies is None:
        return gradient
    ends, width = packed.copies.ends_T, gradient[0].numel()
    out = gradient.new_empty(len(ends), *gradient.shape[1:])
    _add_copies[(len(ends),)](
        gradient.contiguous(), packed.copies.order_K, ends, out, width,
        BLOCK=triton.next_power_of_2(width), num_warps=1 if width <= 256 else 4,
    )  # fmt: skip
    return out
