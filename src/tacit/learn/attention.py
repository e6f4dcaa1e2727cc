"""Attention within a pack of messages, by the flash kernel that comes with torch.

The keys and values of shared segments are copied to each segment that goes on from them: with few
heads of keys that is little beside the rest, and one causal call is then all there is to compute.
"""

from typing import Any

import torch
from torch import Tensor

from tacit.learn.packed import Pack


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
        return dq, _gathered(dk, k, packed), _gathered(dv, v, packed), None, None


def _sizes(packed: Pack) -> tuple[Tensor, Tensor, int, int]:
    asking, asked = packed.asking, packed.asked
    return asking.ends, asked.ends, asking.longest, asked.longest


def _copied(states: Tensor, packed: Pack) -> Tensor:
    """The keys or values that each segment asks, one segment after the other."""
    return states if packed.keys_K is None else states.index_select(0, packed.keys_K)


def _gathered(gradient: Tensor, states: Tensor, packed: Pack) -> Tensor:
    """The copies' gradients added up, in float32, where they came from."""
    if packed.keys_K is None:
        return gradient
    whole = torch.zeros(states.shape, dtype=torch.float32, device=states.device)
    return whole.index_add_(0, packed.keys_K, gradient.float()).to(states.dtype)
