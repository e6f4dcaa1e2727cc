"""Messages as one stream of tokens without padding, a shared prompt computed once; for GPUs.

The stream is all prompts, then all outputs. A token of an output attends to its own output and to
its prompt. These are two calls of the flash kernel, and softmax over both is their mean weighted by
exp(log-sum-exp). The kernel's backward pass takes the *joint* result and log-sum-exp, which makes
its probabilities the joint ones, so the two gradients add up exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

Ids = Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Sequences of different lengths laid end to end."""

    ends: Tensor
    """0, then where each ends: int32, as the flash kernel wants it."""
    longest: int


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    ids_T: Tensor
    positions_T: Tensor
    predicts_N: Tensor
    """Where the state stands that predicts each output token, in the order of the messages."""
    segments: Ragged
    """Whole messages, or prompts and outputs apart where prompts are shared."""
    shared: tuple[int, int, Ragged, Ragged] | None
    """Tokens of shared prompts with outputs, of all prompts; queries and keys by prompt."""


def pack(messages: Sequence[tuple[Ids, Ids]], device: torch.device) -> Pack:
    """Lay out each (prompt ids, output ids); the last output token is predicted, never fed."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, (prompt, _) in enumerate(messages):
        groups.setdefault(tuple(prompt), []).append(number)
    if len(groups) == len(messages):
        return _apart(messages, device)
    # prompts without a fed output go last, so that the others' keys are one piece
    fed = {p: sum(len(messages[n][1]) - 1 for n in members) for p, members in groups.items()}
    prompts = sorted(groups, key=lambda prompt: fed[prompt] == 0)
    starts = dict(zip(prompts, accumulate(map(len, prompts), initial=0), strict=False))
    ids = [token for prompt in prompts for token in prompt]
    positions = [at for prompt in prompts for at in range(len(prompt))]
    every, lengths = len(ids), [len(prompt) for prompt in prompts]
    predicts: dict[int, list[int]] = {}
    for prompt in prompts:
        for number in groups[prompt]:
            said = messages[number][1][:-1]
            last = starts[prompt] + len(prompt) - 1
            predicts[number] = [last, *range(len(ids), len(ids) + len(said))]
            ids += said
            positions += range(len(prompt), len(prompt) + len(said))
            lengths += [len(said)] if said else []
    with_output = [prompt for prompt in prompts if fed[prompt]]
    shared = (
        sum(map(len, with_output)),
        every,
        _ragged([fed[prompt] for prompt in with_output], device),
        _ragged([len(prompt) for prompt in with_output], device),
    )
    found = [at for number in range(len(messages)) for at in predicts[number]]
    flat = torch.tensor([ids, positions], device=device)
    return Pack(
        flat[0],
        flat[1],
        torch.tensor(found, device=device),
        _ragged(lengths, device),
        shared if with_output else None,
    )


def _apart(messages: Sequence[tuple[Ids, Ids]], device: torch.device) -> Pack:
    ids: list[int] = []
    positions: list[int] = []
    predicts: list[int] = []
    lengths = []
    for prompt, output in messages:
        whole = [*prompt, *output[:-1]]
        predicts += range(len(ids) + len(prompt) - 1, len(ids) + len(whole))
        ids += whole
        positions += range(len(whole))
        lengths.append(len(whole))
    flat = torch.tensor([ids, positions], device=device)
    return Pack(
        flat[0], flat[1], torch.tensor(predicts, device=device), _ragged(lengths, device), None
    )


def _ragged(lengths: list[int], device: torch.device) -> Ragged:
    ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    return Ragged(ends, max(lengths, default=0))


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
