"""Messages packed into one sequence without padding, shared prefixes computed once; for GPUs.

A token attends to its own segment and to the segment's ancestors (`attention_gpu.py`). Laid out
with numpy, because the GPU waits for it. For CPUs see `pack_cpu.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tacit.engine.forward import Ids, flat, placed
from tacit.fast.prefixes import forest


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Concatenated sequences of different lengths."""

    ends: Tensor
    """0, then the end of each: int32, as the flash kernel expects."""
    longest: int


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """The tokens of each segment in turn, preceded by those of its ancestors."""

    tokens_K: Tensor
    """The index of each copy's token."""
    order_K: Tensor
    """The copies sorted by token: those of the first token, then of the second, …"""
    ends_T: Tensor
    """The end of each token's copies in that order."""


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    ids_T: Tensor
    positions_T: Tensor
    predicts_N: Tensor
    """The index of the state that predicts each output token, in the order of the messages."""
    asking: Ragged
    """The segments: queries."""
    asked: Ragged
    """For each segment the tokens that its last one attends to: keys and values."""
    copies: Copies | None
    """Those tokens; None if nothing is shared, so that they are the segments themselves."""


def pack(messages: Sequence[tuple[Ids, Ids]], device: torch.device) -> Pack:
    """Pack (prompt ids, output ids) pairs; the last output token is predicted, never fed."""
    grown = forest(messages)
    lengths = np.array([len(segment.ids) for segment in grown.segments])
    depths = np.array([segment.depth for segment in grown.segments])
    starts = lengths.cumsum() - lengths
    homes = np.array([grown.home(n, prompt) for n, (prompt, _) in enumerate(messages)])
    known = np.array([len(prompt) for prompt, _ in messages])
    leaves = np.array(grown.leaves)
    last = starts[homes] + known - 1 - depths[homes]
    begin = starts[leaves] + known - depths[leaves]
    fed = lengths > 0
    copies = None
    if depths.any():
        pieces = np.array([n for path in grown.paths() if fed[path[-1]] for n in path])
        tokens = _counted(starts[pieces], lengths[pieces])
        order, ends = np.argsort(tokens, kind="stable"), np.bincount(tokens).cumsum()
        copies = Copies(placed(tokens, device), placed(order, device), placed(ends, device))
    return Pack(
        placed(flat([segment.ids for segment in grown.segments]), device),
        placed(_counted(depths, lengths), device),
        placed(_predicts(messages, last, begin), device),
        _ragged(lengths[fed], device),
        _ragged((depths + lengths)[fed], device),
        copies,
    )


def _predicts(
    messages: Sequence[tuple[Ids, Ids]], last: NDArray[np.int64], begin: NDArray[np.int64]
) -> NDArray[np.int64]:
    """An output's first token is predicted by the prompt's last, the others by the output's own."""
    sizes = np.array([len(output) for _, output in messages])
    found = _counted(begin - 1, sizes)
    found[sizes.cumsum() - sizes] = last
    return found


def _counted(first: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each pair `first`, `first` + 1, …, `length` numbers of them, concatenated."""
    ends = lengths.cumsum()
    return np.arange(ends[-1]) + np.repeat(first - (ends - lengths), lengths)


def _ragged(lengths: ArrayLike, device: torch.device) -> Ragged:
    ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return Ragged(placed(ends, device), int(np.max(lengths, initial=0)))
