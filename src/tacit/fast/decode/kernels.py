"""The Triton kernels of a decoding step, each next to the function that launches it.

They round where transformers rounds, so that sampling and the trainer's scoring stay close.
T tokens, H heads, K heads of keys and values, D a head's width.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_QUERIES = 64
"""How many queries of a prompt one program of the prefill attention handles."""


@triton.jit
def _add_norm(x, delta, weight, out, width, eps, HAS_DELTA: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0)
    kind = value.dtype
    if HAS_DELTA:
        added = tl.load(delta + row * width + column, mask=inside, other=0.0)
        value = (value.to(tl.float32) + added.to(tl.float32)).to(kind)
        tl.store(x + row * width + column, value, mask=inside)
    wide = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / width + eps)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    normed = (wide * scale).to(kind).to(tl.float32)
    tl.store(out + row * width + column, (normed * gain).to(kind), mask=inside)


def add_norm(x_TW: Tensor, delta_TW: Tensor | None, weight_W: Tensor, eps: float) -> Tensor:
    """Add to the residual stream in place, and return its RMS norm."""
    rows, width = x_TW.shape
    out_TW = torch.empty_like(x_TW)
    block = triton.next_power_of_2(width)
    _add_norm[(rows,)](
        x_TW,
        x_TW if delta_TW is None else delta_TW,
        weight_W,
        out_TW,
        width,
        eps,
        HAS_DELTA=delta_TW is not None,
        BLOCK=block,
        num_warps=4 if block <= 2048 else 8,
    )
    return out_TW


@triton.jit
def _head_norm(first, second, weight, half, column, inside, eps):
    kind = first.dtype
    a, b = first.to(tl.float32), second.to(tl.float32)
    scale = tl.rsqrt((tl.sum(a * a, axis=0) + tl.sum(b * b, axis=0)) / (2 * half) + eps)
    gain_a = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    gain_b = tl.load(weight + half + column, mask=inside, other=0.0).to(tl.float32)
    a = ((a * scale).to(kind).to(tl.float32) * gain_a).to(kind)
    b = ((b * scale).to(kind).to(tl.float32) * gain_b).to(kind)
    return a, b


@triton.jit
def _rotate_store(
    q, k, v, cos, sin, q_gain, k_gain, position, slot, keys, values, eps, stride,
    H: tl.constexpr, K: tl.constexpr, HALF: tl.constexpr,
    ROTATE: tl.constexpr, NORM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (token, head): heads of q first, then of k, then of v."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, BLOCK)
    inside = column < HALF
    place = tl.load(slot + token)
    if head >= H + K:
        if place >= 0:
            source = v + token * stride + (head - H - K) * 2 * HALF + column
            target = values + (place * K + head - H - K) * 2 * HALF + column
            tl.store(target, tl.load(source, mask=inside), mask=inside)
            tl.store(target + HALF, tl.load(source + HALF, mask=inside), mask=inside)
        return
    own = q + token * stride + head * 2 * HALF + column
    if head >= H:
        own = k + token * stride + (head - H) * 2 * HALF + column
    first = tl.load(own, mask=inside, other=0.0)
    second = tl.load(own + HALF, mask=inside, other=0.0)
    kind = first.dtype
    if NORM:
        if head < H:
            first, second = _head_norm(first, second, q_gain, HALF, column, inside, eps)
        else:
            first, second = _head_norm(first, second, k_gain, HALF, column, inside, eps)
    if ROTATE:
        angle = tl.load(position + token) * HALF + column
        c = tl.load(cos + angle, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(sin + angle, mask=inside, other=0.0).to(tl.float32)
        a, b = first.to(tl.float32), second.to(tl.float32)
        ac, bs = (a * c).to(kind).to(tl.float32), (b * s).to(kind).to(tl.float32)
        bc, as_ = (b * c).to(kind).to(tl.float32), (a * s).to(kind).to(tl.float32)
        first, second = (ac - bs).to(kind), (bc + as_).to(kind)
    tl.store(own, first, mask=inside)
    tl.store(own + HALF, second, mask=inside)
    if (head >= H) & (place >= 0):
        target = keys + (place * K + head - H) * 2 * HALF + column
        tl.store(target, first, mask=inside)
        tl.store(target + HALF, second, mask=inside)


def rotate_store(
    q_THD: Tensor,
    k_TKD: Tensor,
    v_TKD: Tensor,
    angles: tuple[Tensor, Tensor] | None,
    gains: tuple[Tensor, Tensor] | None,
    eps: float,
    position_T: Tensor,
    slot_T: Tensor,
    keys_SKD: Tensor,
    values_SKD: Tensor,
) -> None:
    """Normalise (in families that do) and rotate q and k in place; store k and v in their slots.

    q, k and v are parts of one tensor. A token with slot −1 is not stored.
    """
    tokens, heads, width = q_THD.shape
    kv_heads = k_TKD.shape[1]
    cos, sin = angles or (q_THD, q_THD)
    q_gain, k_gain = gains or (q_THD, q_THD)
    _rotate_store[(tokens, heads + 2 * kv_heads)](
        q_THD, k_TKD, v_TKD, cos, sin, q_gain, k_gain,
        position_T, slot_T, keys_SKD, values_SKD, eps, q_THD.stride(0),
        H=heads, K=kv_heads, HALF=width // 2, ROTATE=angles is not None, NORM=gains is not None,
        BLOCK=triton.next_power_of_2(width // 2), num_warps=1,
    )  # fmt: skip


@triton.jit
def _attend_more(query, keys, values, cell, wanted, seen, scale, best, total, mixed):
    """One step of online softmax: the highest score, the sum and the mix, with these keys added."""
    key = tl.load(keys + cell, mask=wanted, other=0.0)
    score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    score = tl.where(seen, score, -float("inf"))
    higher = tl.maximum(best, tl.max(score, axis=1))
    weight = tl.exp(score - higher[:, None])
    shrink = tl.exp(best - higher)
    value = tl.load(values + cell, mask=wanted, other=0.0)
    total = total * shrink + tl.sum(weight, axis=1)
    mixed = mixed * shrink[:, None]
    mixed = tl.dot(weight.to(value.dtype), value, mixed, input_precision="ieee")
    return higher, total, mixed


@triton.jit
def _decode_attention(
    q, keys, values, table, length, out, scale, table_width, stride,
    H: tl.constexpr, K: tl.constexpr, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    G_PAD: tl.constexpr, D_PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (row, head of keys): the G query heads that share it, over the row's tokens."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    present = tl.load(length + row)
    group, column = tl.arange(0, G_PAD), tl.arange(0, D_PAD)
    mine = (group < G)[:, None] & (column < D)[None, :]
    place = (row * H + head * G + group)[:, None] * D + column[None, :]
    own = row * stride + (head * G + group)[:, None] * D + column[None, :]
    query = tl.load(q + own, mask=mine, other=0.0)
    best = tl.full([G_PAD], -float("inf"), tl.float32)
    total = tl.zeros([G_PAD], tl.float32)
    mixed = tl.zeros([G_PAD, D_PAD], tl.float32)
    for start in range(0, present, BLOCK):
        at = start + tl.arange(0, BLOCK)
        there = at < present
        page = tl.load(table + row * table_width + at // PAGE, mask=there, other=0).to(tl.int64)
        slot = page * PAGE + at % PAGE
        cell = (slot * K + head)[:, None] * D + column[None, :]
        wanted = there[:, None] & (column < D)[None, :]
        best, total, mixed = _attend_more(
            query, keys, values, cell, wanted, there[None, :], scale, best, total, mixed
        )
    total = tl.where(total > 0.0, total, 1.0)
    tl.store(out + place, (mixed / total[:, None]).to(query.dtype), mask=mine)


def decode_attention(
    q_RHD: Tensor,
    keys_SKD: Tensor,
    values_SKD: Tensor,
    table_RP: Tensor,
    length_R: Tensor,
    page: int,
    scale: float,
) -> Tensor:
    """One query per row over that row's pages; a row of length 0 costs nothing."""
    rows, heads, width = q_RHD.shape
    kv_heads = keys_SKD.shape[1]
    out_RHD = q_RHD.new_empty(q_RHD.shape)
    group = heads // kv_heads
    _decode_attention[(rows, kv_heads)](
        q_RHD, keys_SKD, values_SKD, table_RP, length_R, out_RHD, scale,
        table_RP.stride(0), q_RHD.stride(0),
        H=heads, K=kv_heads, G=group, D=width, PAGE=page,
        G_PAD=max(16, triton.next_power_of_2(group)),
        D_PAD=max(16, triton.next_power_of_2(width)),
        BLOCK=64, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out_RHD


@triton.jit
def _prompt_attention(
    q, k, v, out, tiles, keys, values, pages, scale, stride,
    H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    D_PAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (tile, head): some queries of a prompt, over its known part and causally over the
    rest."""
    tile, head = tl.program_id(0), tl.program_id(1)
    start = tl.load(tiles + 5 * tile).to(tl.int64)
    offset, length = tl.load(tiles + 5 * tile + 1), tl.load(tiles + 5 * tile + 2)
    known, known_pages = tl.load(tiles + 5 * tile + 3), tl.load(tiles + 5 * tile + 4)
    mine, column = offset + tl.arange(0, BLOCK_M), tl.arange(0, D_PAD)
    place = ((start + mine) * H + head)[:, None] * D + column[None, :]
    inside = (mine < length)[:, None] & (column < D)[None, :]
    own = (start + mine)[:, None] * stride + head * D + column[None, :]
    query = tl.load(q + own, mask=inside, other=0.0)
    shared = head // (H // K)
    best = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    mixed = tl.zeros([BLOCK_M, D_PAD], tl.float32)
    for first in range(0, known, BLOCK_N):
        at = first + tl.arange(0, BLOCK_N)
        there = at < known
        page = tl.load(pages + known_pages + at // PAGE, mask=there, other=0).to(tl.int64)
        cell = ((page * PAGE + at % PAGE) * K + shared)[:, None] * D + column[None, :]
        wanted = there[:, None] & (column < D)[None, :]
        best, total, mixed = _attend_more(
            query, keys, values, cell, wanted, there[None, :], scale, best, total, mixed
        )
    for first in range(0, tl.minimum(length, offset + BLOCK_M), BLOCK_N):
        at = first + tl.arange(0, BLOCK_N)
        cell = (start + at)[:, None] * stride + shared * D + column[None, :]
        wanted = (at < length)[:, None] & (column < D)[None, :]
        seen = (at[None, :] <= mine[:, None]) & (at < length)[None, :]
        best, total, mixed = _attend_more(
            query, k, v, cell, wanted, seen, scale, best, total, mixed
        )
    tl.store(out + place, (mixed / total[:, None]).to(query.dtype), mask=inside)


def prompt_attention(
    q_THD: Tensor,
    k_TKD: Tensor,
    v_TKD: Tensor,
    tiles_N5: Tensor,
    cache_2SKD: Tensor,
    pages_P: Tensor,
    page: int,
    scale: float,
) -> Tensor:
    """Causal attention inside each of the packed prompts, and over its known part.

    `tiles_N5` comes from `prompt_tiles`, and `pages_P` are the known pages of all prompts. These
    may be written in the same pass: keys and values are stored before attention runs.
    """
    heads, width = q_THD.shape[1:]
    out_THD = q_THD.new_empty(q_THD.shape)
    _prompt_attention[(len(tiles_N5), heads)](
        q_THD, k_TKD, v_TKD, out_THD, tiles_N5, cache_2SKD[0], cache_2SKD[1], pages_P, scale,
        q_THD.stride(0),
        H=heads, K=k_TKD.shape[1], D=width, PAGE=page,
        D_PAD=max(16, triton.next_power_of_2(width)),
        BLOCK_M=BLOCK_QUERIES, BLOCK_N=64, num_warps=4, num_stages=2,
    )  # fmt: skip
    return out_THD


def prompt_tiles(lengths: list[int], known: list[int], page: int) -> Tensor:
    """Tiles of queries, int32, on the CPU: the prompt's start, the first query, how many of the
    prompt's tokens are in the pack, how many are known, and where the known pages start."""
    tiles = []
    start = pages = 0
    for length, before in zip(lengths, known, strict=True):
        offsets = range(0, length, BLOCK_QUERIES)
        tiles += [(start, offset, length, before, pages) for offset in offsets]
        start += length
        pages += before // page
    return torch.tensor(tiles, dtype=torch.int32)


@triton.jit
def _gate(both, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    g = tl.load(both + row * 2 * width + column, mask=inside, other=0.0)
    wide = g.to(tl.float32)
    active = (wide / (1.0 + tl.exp(-wide))).to(g.dtype).to(tl.float32)
    u = tl.load(both + row * 2 * width + width + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, (active * u).to(g.dtype), mask=inside)


def gate(both_TF: Tensor) -> Tensor:
    """silu(gate)·up, from the two side by side."""
    rows, width = both_TF.shape[0], both_TF.shape[1] // 2
    out_TF = both_TF.new_empty(rows, width)
    block = min(2048, triton.next_power_of_2(width))
    _gate[(rows, triton.cdiv(width, block))](both_TF, out_TF, width, BLOCK=block, num_warps=4)
    return out_TF
