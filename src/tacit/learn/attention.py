"""Attention within a pack of messages, by the flash kernel that comes with torch.

What an output attends to, itself and its prompt, takes two calls. Softmax over both is their mean
weighted by exp(log-sum-exp). The kernel's backward pass is given the *joint* result and
log-sum-exp, which makes its probabilities the joint ones, so the two gradients add up exactly.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from tacit.learn.packed import Pack, Ragged


def flash_attend(q: Tensor, k: Tensor, v: Tensor, packed: Pack, scale: float) -> Tensor:
    """Attention within the pack: [tokens, heads, width] in and out."""
    attended: Tensor = _Attention.apply(q, k, v, packed, scale)
    return attended


@triton.jit
def _merge(
    out, lse, more, more_lse, lse_stride, more_stride, heads, width,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head, column = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    real = head < heads
    a = tl.load(lse + head * lse_stride + token, mask=real, other=0.0)
    b = tl.load(more_lse + head * more_stride + token, mask=real, other=0.0)
    high = tl.maximum(a, b)
    joint = high + tl.log(tl.exp(a - high) + tl.exp(b - high))
    tl.store(lse + head * lse_stride + token, joint, mask=real)
    place = (token * heads + head)[:, None] * width + column[None, :]
    inside = real[:, None] & (column < width)[None, :]
    mine = tl.load(out + place, mask=inside, other=0.0)
    theirs = tl.load(more + place, mask=inside, other=0.0).to(tl.float32)
    mixed = mine.to(tl.float32) * tl.exp(a - joint)[:, None] + theirs * tl.exp(b - joint)[:, None]
    tl.store(out + place, mixed.to(mine.dtype), mask=inside)


def merge(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> None:
    """Join two results of attention over different keys, in place: [tokens, heads, width]."""
    tokens, heads, width = out.shape
    _merge[(tokens,)](
        out, lse, more, more_lse, lse.stride(0), more_lse.stride(0), heads, width,
        ROWS=triton.next_power_of_2(heads), BLOCK=triton.next_power_of_2(width), num_warps=2,
    )  # fmt: skip


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, packed: Pack, scale: float) -> Tensor:
        whole = packed.segments
        out, lse, *noise = _flash(q, k, v, whole, whole, True, scale)
        if packed.shared is not None:
            keys, first, asked, given = packed.shared
            there, there_lse, *_ = _flash(q[first:], k[:keys], v[:keys], asked, given, False, scale)
            merge(out[first:], lse[:, first:], there, there_lse)
        ctx.packed, ctx.scale = packed, scale
        ctx.save_for_backward(q, k, v, out, lse, *noise)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse, *noise = ctx.saved_tensors
        whole, scale = ctx.packed.segments, ctx.scale
        grad = grad.contiguous()
        dq, dk, dv = _flash_back(grad, q, k, v, out, lse, whole, whole, True, noise, scale)
        if ctx.packed.shared is not None:
            keys, first, asked, given = ctx.packed.shared
            more_q, more_k, more_v = _flash_back(
                grad[first:], q[first:], k[:keys], v[:keys], out[first:],
                lse[:, first:].contiguous(), asked, given, False, noise, scale,
            )  # fmt: skip
            dq[first:] += more_q
            dk[:keys] += more_k
            dv[:keys] += more_v
        return dq, dk, dv, None, None


def _flash(
    q: Tensor, k: Tensor, v: Tensor, asked: Ragged, given: Ragged, causal: bool, scale: float
) -> tuple[Tensor, ...]:
    """(result, log-sum-exp [heads, queries], and what the backward pass wants besides)."""
    out, lse, rng, unused, _ = torch.ops.aten._flash_attention_forward(
        q, k, v, asked.ends, given.ends, asked.longest, given.longest, 0.0, causal, False,
        scale=scale,
    )  # fmt: skip
    return out, lse, rng, unused


def _flash_back(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    asked: Ragged, given: Ragged, causal: bool, noise: Sequence[Tensor], scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._flash_attention_backward(
        grad, q, k, v, out, lse, asked.ends, given.ends, asked.longest, given.longest, 0.0, causal,
        *noise, scale=scale,
    )  # fmt: skip
    return gradients
