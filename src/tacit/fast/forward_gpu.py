"""The forward pass on a GPU: learning on packed tokens with few kernels, decoding in `decode/`.

Walks transformers' own layers and calls their own projections, so adapters work unchanged. Norms,
rotations and gates, which as separate operations take longer than the matrix products, are one
kernel in each direction. The families are those of `fast/decode/layers_gpu.py`.
"""

import logging
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tacit.engine.forward import Ids, Scheduler
from tacit.fast.attention_gpu import flash_attend
from tacit.fast.decode.check_gpu import why_not_graphs
from tacit.fast.decode.layers_gpu import why_not_fused
from tacit.fast.decode.scheduler_gpu import GraphScheduler
from tacit.fast.forward_rows import RowForward
from tacit.fast.head_gpu import head_logprobs
from tacit.fast.pack_gpu import Pack, pack

log = logging.getLogger(__name__)

WEIGHT_ROWS = 32
"""Rows over which one program sums the gradient of a norm's weight."""


@triton.jit
def _norm(
    x, delta, weight, whole, out, inverse, width, eps, ADD: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0)
    kind = value.dtype
    if ADD:
        added = tl.load(delta + row * width + column, mask=inside, other=0.0)
        value = (value.to(tl.float32) + added.to(tl.float32)).to(kind)
        tl.store(whole + row * width + column, value, mask=inside)
    wide = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / width + eps)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(inverse + row, scale)
    normed = (wide * scale).to(kind).to(tl.float32)
    tl.store(out + row * width + column, (normed * gain).to(kind), mask=inside)


@triton.jit
def _norm_back(
    x, weight, inverse, grad, passed, to_x, to_weight, rows, width,
    ADD: tl.constexpr, LEARNS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program: some rows; dx = r·(g·w − x̂·mean(g·w·x̂)), plus the residual stream's gradient."""
    column = tl.arange(0, BLOCK)
    inside = column < width
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    share = tl.zeros([BLOCK], tl.float32)
    first = tl.program_id(0).to(tl.int64) * ROWS
    for row in range(first, tl.minimum(first + ROWS, rows)):
        value = tl.load(x + row * width + column, mask=inside, other=0.0)
        kind = value.dtype
        scale = tl.load(inverse + row)
        normed = value.to(tl.float32) * scale
        upstream = tl.load(grad + row * width + column, mask=inside, other=0.0).to(tl.float32)
        if LEARNS:
            share += upstream * normed
        weighted = upstream * gain
        back = scale * (weighted - normed * (tl.sum(weighted * normed, axis=0) / width))
        if ADD:
            back += tl.load(passed + row * width + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(to_x + row * width + column, back.to(kind), mask=inside)
    if LEARNS:
        tl.store(to_weight + tl.program_id(0) * width + column, share, mask=inside)


class _Norm(torch.autograd.Function):
    """(x + delta, its RMS norm); without a delta, (x, its norm)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        rows, width = x.shape
        whole = x if delta is None else torch.empty_like(x)
        out = torch.empty_like(x)
        inverse = x.new_empty(rows, dtype=torch.float32)
        block = triton.next_power_of_2(width)
        _norm[(rows,)](
            x, x if delta is None else delta, weight, whole, out, inverse, width, eps,
            ADD=delta is not None, BLOCK=block, num_warps=_warps(block),
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(whole, weight, inverse)
        ctx.added = delta is not None
        return (x.view_as(x) if delta is None else whole), out

    @staticmethod
    def backward(
        ctx: Any, passed: Tensor | None, grad: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        whole, weight, inverse = ctx.saved_tensors
        rows, width = whole.shape
        to_x = torch.empty_like(whole)
        learns = ctx.needs_input_grad[2]
        programs = triton.cdiv(rows, WEIGHT_ROWS if learns else 8)
        shares = whole.new_empty((programs if learns else 0, width), dtype=torch.float32)
        block = triton.next_power_of_2(width)
        _norm_back[(programs,)](
            whole, weight, inverse, grad.contiguous(),
            grad if passed is None else passed.contiguous(), to_x, shares, rows, width,
            ADD=passed is not None, LEARNS=learns, ROWS=WEIGHT_ROWS if learns else 8,
            BLOCK=block, num_warps=_warps(block),
        )  # fmt: skip
        to_weight = shares.sum(0).to(weight.dtype) if learns else None
        return to_x, to_x if ctx.added else None, to_weight, None


@triton.jit
def _rotate(
    x, cos, sin, out, stride, HEADS: tl.constexpr, HALF: tl.constexpr,
    BACK: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program: all heads of one token."""
    token = tl.program_id(0).to(tl.int64)
    head, column = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (head < HEADS) & (column < HALF)
    own = x + token * stride + head * 2 * HALF + column
    first = tl.load(own, mask=inside, other=0.0)
    kind = first.dtype
    a, b = first.to(tl.float32), tl.load(own + HALF, mask=inside, other=0.0).to(tl.float32)
    angle = token * HALF + column
    c = tl.load(cos + angle, mask=column < HALF, other=0.0).to(tl.float32)
    s = tl.load(sin + angle, mask=column < HALF, other=0.0).to(tl.float32)
    if BACK:
        s = -s
    ac, bs = (a * c).to(kind).to(tl.float32), (b * s).to(kind).to(tl.float32)
    bc, as_ = (b * c).to(kind).to(tl.float32), (a * s).to(kind).to(tl.float32)
    target = out + (token * HEADS + head) * 2 * HALF + column
    tl.store(target, (ac - bs).to(kind), mask=inside)
    tl.store(target + HALF, (bc + as_).to(kind), mask=inside)


class _Rotate(torch.autograd.Function):
    """Rotary embedding of [tokens, heads, width]; gradients rotate back by the same angles."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin, back=False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _turned(grad.contiguous(), *ctx.saved_tensors, back=True), None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor, *, back: bool) -> Tensor:
    tokens, heads, width = x.shape
    out = x.new_empty(x.shape)
    _rotate[(tokens,)](
        x, cos, sin, out, x.stride(0), HEADS=heads, HALF=width // 2, BACK=back,
        ROWS=triton.next_power_of_2(heads), BLOCK=triton.next_power_of_2(width // 2), num_warps=2,
    )  # fmt: skip
    return out


@triton.jit
def _gate(gate, up, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    g = tl.load(gate + at, mask=inside, other=0.0)
    wide = g.to(tl.float32)
    active = (wide / (1.0 + tl.exp(-wide))).to(g.dtype).to(tl.float32)
    u = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (active * u).to(g.dtype), mask=inside)


@triton.jit
def _gate_back(gate, up, grad, to_gate, to_up, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    loaded = tl.load(gate + at, mask=inside, other=0.0)
    g, u = loaded.to(tl.float32), tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    back = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    share = 1.0 / (1.0 + tl.exp(-g))
    tl.store(to_up + at, (back * g * share).to(loaded.dtype), mask=inside)
    slope = share * (1.0 + g * (1.0 - share))
    tl.store(to_gate + at, (back * u * slope).to(loaded.dtype), mask=inside)


class _Gate(torch.autograd.Function):
    """silu(gate)·up."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        out, count = torch.empty_like(gate), gate.numel()
        _gate[(triton.cdiv(count, 2048),)](gate, up, out, count, BLOCK=2048, num_warps=4)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        to_gate, to_up, count = torch.empty_like(gate), torch.empty_like(up), gate.numel()
        _gate_back[(triton.cdiv(count, 2048),)](
            gate, up, grad.contiguous(), to_gate, to_up, count, BLOCK=2048, num_warps=4
        )
        return to_gate, to_up


def _warps(block: int) -> int:
    return 4 if block <= 2048 else 8


class GpuForward(RowForward):
    """Any model on a GPU: Llama and its relatives by graphs and fused kernels, others in rows."""

    @classmethod
    def supports(cls, module: Any) -> bool:
        return bool(module.device.type == "cuda")

    @property
    def packs(self) -> bool:
        """True if the flash kernel supports the model's heads and precision."""
        if self.module.dtype not in (torch.bfloat16, torch.float16) or why_not_fused(self.module):
            return False
        width = self.module.model.layers[0].self_attn.head_dim
        recent = torch.cuda.get_device_capability(self.module.device) >= (8, 0)
        return recent and width % 8 == 0 and width <= 256

    def scheduler(self, name: str, ends: frozenset[int], rows: int, context: int) -> Scheduler:
        if reason := why_not_graphs(self.module, context):
            log.warning("%s decodes without graphs: %s", name, reason)
            return super().scheduler(name, ends, rows, context)
        return GraphScheduler(self.module, name, ends, rows, context)

    def _hidden(self, messages: Sequence[tuple[Ids, Ids]]) -> Tensor:
        if not self.packs:
            return super()._hidden(messages)
        return fused_hidden(self.module, pack(messages, self.module.device))

    def _project(self, hidden_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        head = self.module.get_output_embeddings()
        if not (self.packs and isinstance(head, torch.nn.Linear) and head.bias is None):
            return super()._project(hidden_ND, targets_N)
        return head_logprobs(hidden_ND, head.weight, targets_N)


def fused_hidden(module: Any, packed: Pack) -> Tensor:
    """The last hidden states that predict the outputs."""
    body = module.model
    x: Tensor = functional.embedding(packed.ids_T, body.embed_tokens.weight)
    delta: Tensor | None = None
    cos, sin = body.rotary_emb(x[None], packed.positions_T[None])
    half = cos.shape[-1] // 2
    angles = cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()
    saving = module.is_gradient_checkpointing and torch.is_grad_enabled()
    for layer in body.layers:
        if saving:
            x, delta = checkpoint(_layer, layer, x, delta, angles, packed, use_reentrant=False)
        else:
            x, delta = _layer(layer, x, delta, angles, packed)
    _, normed = _normed(x, delta, body.norm)
    return normed[packed.predicts_N]


def _layer(
    layer: Any, x: Tensor, delta: Tensor | None, angles: tuple[Tensor, Tensor], packed: Pack
) -> tuple[Tensor, Tensor]:
    """One layer; returns the residual stream and the part not yet added to it."""
    attention, mlp = layer.self_attn, layer.mlp
    x, normed = _normed(x, delta, layer.input_layernorm)
    shape = (len(normed), -1, attention.head_dim)
    q = attention.q_proj(normed).view(shape)
    k = attention.k_proj(normed).view(shape)
    v = attention.v_proj(normed).view(shape)
    if hasattr(attention, "q_norm"):
        q, k = _heads_normed(q, attention.q_norm), _heads_normed(k, attention.k_norm)
    if getattr(attention, "use_rope", True):
        q, k = _Rotate.apply(q, *angles), _Rotate.apply(k, *angles)
    delta = attention.o_proj(flash_attend(q, k, v, packed, attention.scaling).flatten(1))
    x, normed = _normed(x, delta, layer.post_attention_layernorm)
    return x, mlp.down_proj(_Gate.apply(mlp.gate_proj(normed), mlp.up_proj(normed)))


def _normed(x: Tensor, delta: Tensor | None, norm: Any) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = _Norm.apply(x, delta, norm.weight, norm.variance_epsilon)
    return result


def _heads_normed(x: Tensor, norm: Any) -> Tensor:
    flat = x.reshape(-1, x.shape[-1])
    return _normed(flat, None, norm)[1].view(x.shape)
