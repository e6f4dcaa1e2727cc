"""Draws a token in every row and advances the row, all on the device.

The rows' state is in two tables, so that admitting or reordering rows is one copy each. What a row
draws depends on its logits, its seed and how many tokens it has drawn: the same inverse-CDF rule
and the same uniform numbers as `engine/sampler.py`, but in float32 instead of float64.
"""

from enum import IntEnum
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MARKER = 16
"""The longest silence marker, end-of-sequence included."""


class Ints(IntEnum):
    """Rows of the integer table; the marker's ids follow."""

    TOKEN = 0
    """The last token drawn, which is fed next."""
    POSITION = 1
    """The position of that token."""
    SLOT = 2
    """The slot for its key and value; −1 for an idle row."""
    LENGTH = 3
    """How many tokens attention sees once it is fed; 0 for an idle row."""
    COUNT = 4
    """How many tokens were drawn."""
    LIMIT = 5
    ACTIVE = 6
    SEED = 7
    GREEDY = 8
    FOLLOWS = 9
    """1 while the output is a prefix of the marker and the choice is to speak."""
    MARKER_LENGTH = 10
    MARKER_IDS = 11


INTS = Ints.MARKER_IDS + MARKER


class Floats(IntEnum):
    """Rows of the float table; log(1 − P_j) for j = 0 … MARKER follow (silence/conditioning.py)."""

    HEAT = 0
    """1 / temperature."""
    LOG_REST = 1


FLOATS = Floats.LOG_REST + MARKER + 1

_TOKEN = tl.constexpr(int(Ints.TOKEN))
_POSITION = tl.constexpr(int(Ints.POSITION))
_SLOT = tl.constexpr(int(Ints.SLOT))
_LENGTH = tl.constexpr(int(Ints.LENGTH))
_COUNT = tl.constexpr(int(Ints.COUNT))
_LIMIT = tl.constexpr(int(Ints.LIMIT))
_ACTIVE = tl.constexpr(int(Ints.ACTIVE))
_SEED = tl.constexpr(int(Ints.SEED))
_GREEDY = tl.constexpr(int(Ints.GREEDY))
_FOLLOWS = tl.constexpr(int(Ints.FOLLOWS))
_MARKER_LENGTH = tl.constexpr(int(Ints.MARKER_LENGTH))
_MARKER_IDS = tl.constexpr(int(Ints.MARKER_IDS))
_HEAT = tl.constexpr(int(Floats.HEAT))
_LOG_REST = tl.constexpr(int(Floats.LOG_REST))
_GAMMA = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2 = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def _mix(z):
    z = (z ^ (z >> 30)) * _MIX_1
    z = (z ^ (z >> 27)) * _MIX_2
    return z ^ (z >> 31)


@triton.jit
def _uniform(seed, counter):
    """As `sampler.uniforms`."""
    z = _mix(seed.to(tl.uint64, bitcast=True) + _GAMMA)
    z = _mix(z + counter.to(tl.uint64, bitcast=True) * _GAMMA)
    return (z >> 12).to(tl.float64) * 2.220446049250313e-16


@triton.jit
def _value(logits, at, inside, heat, marker, extra, ends, closing, ENDS: tl.constexpr):
    """`closing`: the output is the whole marker, so that any end would make it silence."""
    x = tl.load(logits + at, mask=inside, other=-float("inf")).to(tl.float32) * heat
    x = tl.where(at == marker, x + extra, x)
    if closing != 0:
        for number in tl.static_range(ENDS):
            x = tl.where(at == tl.load(ends + number), -float("inf"), x)
    return x


@triton.jit
def _by_chance(
    logits, size, heat, marker, extra, ends, closing, best, total, target_share, token,
    ENDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The token at which the cumulative probability passes the target; else the given one."""
    target = target_share * total.to(tl.float64)
    below = tl.full([], 0.0, tl.float64)
    found = tl.full([], 0, tl.int32)
    start = tl.full([], 0, tl.int32)
    while (start < size) & (found == 0):
        at = start + tl.arange(0, BLOCK)
        x = _value(logits, at, at < size, heat, marker, extra, ends, closing, ENDS)
        weight = tl.exp(x - best)
        inside = tl.sum(weight, axis=0).to(tl.float64)
        if below + inside > target:
            reached = below + tl.cumsum(weight, axis=0).to(tl.float64)
            first = tl.min(tl.where((reached > target) & (weight > 0.0), at, size), axis=0)
            if first < size:
                token = first.to(tl.int64)
            found += 1
        below += inside
        start += BLOCK
    return token


@triton.jit
def _move_on(
    ints, table, ends, rows, row, token, marker, follows, count, table_width,
    ENDS: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Update the row's state after its token: where to feed it, or that the row is done."""
    count += 1
    done = count >= tl.load(ints + _LIMIT * rows + row)
    for number in tl.static_range(ENDS):
        done = done | (token == tl.load(ends + number))
    position = tl.load(ints + _POSITION * rows + row) + 1
    page = tl.load(table + row * table_width + position // PAGE, mask=done == 0, other=0)
    goes_on = (follows != 0) & (token == marker)
    goes_on = goes_on & (count < tl.load(ints + _MARKER_LENGTH * rows + row))
    slot = page.to(tl.int64) * PAGE + position % PAGE
    tl.store(ints + _TOKEN * rows + row, token)
    tl.store(ints + _POSITION * rows + row, position)
    tl.store(ints + _COUNT * rows + row, count)
    tl.store(ints + _FOLLOWS * rows + row, goes_on.to(tl.int64))
    tl.store(ints + _ACTIVE * rows + row, tl.where(done, 0, 1).to(tl.int64))
    tl.store(ints + _SLOT * rows + row, tl.where(done, -1, slot))
    tl.store(ints + _LENGTH * rows + row, tl.where(done, 0, position + 1))


@triton.jit
def _draw(
    logits, which, ints, floats, table, ends, step, tokens, logprobs, rows, size, table_width,
    ENDS: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program i draws for row which[i] from the i-th logits."""
    number = tl.program_id(0).to(tl.int64)
    row = tl.load(which + number)
    logits += number * size
    place = tl.load(step) * rows + row
    if tl.load(ints + _ACTIVE * rows + row) == 0:
        tl.store(tokens + place, -1)
        return
    count = tl.load(ints + _COUNT * rows + row)
    follows = tl.load(ints + _FOLLOWS * rows + row)
    heat = tl.load(floats + _HEAT * rows + row)
    marker = tl.full([], -1, tl.int64)
    extra = tl.full([], 0.0, tl.float32)
    closing = (follows != 0) & (count + 1 == tl.load(ints + _MARKER_LENGTH * rows + row))
    if follows != 0:
        marker = tl.load(ints + (_MARKER_IDS + count) * rows + row)
        extra = tl.load(floats + (_LOG_REST + count + 1) * rows + row)

    best = tl.full([], -float("inf"), tl.float32)
    total = tl.full([], 0.0, tl.float32)
    token = tl.full([], 0, tl.int64)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = _value(logits, at, at < size, heat, marker, extra, ends, closing, ENDS)
        top = tl.max(x, axis=0)
        if top > best:
            token = (start + tl.argmax(x, axis=0)).to(tl.int64)
        higher = tl.maximum(best, top)
        total = total * tl.exp(best - higher) + tl.sum(tl.exp(x - higher), axis=0)
        best = higher
    if tl.load(ints + _GREEDY * rows + row) == 0:
        share = _uniform(tl.load(ints + _SEED * rows + row), count)
        token = _by_chance(
            logits, size, heat, marker, extra, ends, closing, best, total, share, token, ENDS, BLOCK
        )  # fmt: skip

    chosen = tl.load(logits + token).to(tl.float32) * heat
    chosen = tl.where(token == marker, chosen + extra, chosen)
    tl.store(tokens + place, token)
    tl.store(logprobs + place, chosen - best - tl.log(total))
    _move_on(ints, table, ends, rows, row, token, marker, follows, count, table_width, ENDS, PAGE)


class Rows:
    """The state of R rows on the device, and what they drew in the last steps."""

    def __init__(
        self, rows: int, pages: int, page: int, steps: int, ends: list[int], device: Any
    ) -> None:
        self.page = page
        self.ints = torch.zeros(INTS, rows, dtype=torch.int64, device=device)
        self.ints[Ints.SLOT] = -1
        self.floats = torch.zeros(FLOATS, rows, dtype=torch.float32, device=device)
        self.table = torch.zeros(rows, pages, dtype=torch.int32, device=device)
        self.all = torch.arange(rows, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.tokens = torch.full((steps, rows), -1, dtype=torch.int64, device=device)
        self.logprobs = torch.zeros(steps, rows, dtype=torch.float32, device=device)
        self.ends = torch.tensor(ends, dtype=torch.int64, device=device)

    def of(self, field: Ints, size: int) -> Tensor:
        """One field of the first `size` rows."""
        return self.ints[field, :size]

    def draw(self, logits_NV: Tensor, which_N: Tensor) -> None:
        """Each of these rows draws from its logits and advances."""
        count, size = logits_NV.shape
        _draw[(count,)](
            logits_NV, which_N, self.ints, self.floats, self.table, self.ends,
            self.step, self.tokens, self.logprobs,
            self.ints.shape[1], size, self.table.shape[1],
            ENDS=len(self.ends), PAGE=self.page, BLOCK=2048, num_warps=8,
        )  # fmt: skip

    def reorder(self, order: list[int]) -> None:
        """Row i becomes what row order[i] was."""
        index = torch.tensor(order, device=self.ints.device)
        self.table.copy_(self.table[index])
        for table in (self.ints, self.floats, self.tokens, self.logprobs):
            table.copy_(table[:, index])
