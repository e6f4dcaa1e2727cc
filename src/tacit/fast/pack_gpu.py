"""Messages packed into one sequence without padding, shared beginnings computed once; for GPUs.

A token attends to its own segment and to those that it goes on from (`attention_gpu.py`).
For CPUs see `pack_cpu.py`. Laid out by numpy, since the GPU waits meanwhile.
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
    """Sequences of different lengths laid end to end."""

    ends: Tensor
    """0, then where each ends: int32, as the flash kernel wants it."""
    longest: int


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """Tokens, one segment after the other, each with all that it goes on from before it."""

    tokens_K: Tensor
    """Where each copy's token stands."""
    order_K: Tensor
    """The copies by their tokens: the first token's, then the second's."""
    ends_T: Tensor
    """Where each token's copies end in that order."""


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    ids_T: Tensor
    positions_T: Tensor
    predicts_N: Tensor
    """Where the state stands that predicts each output token, in the order of the messages."""
    asking: Ragged
    """The segments."""
    asked: Ragged
    """By segment, the tokens that its last one attends to."""
    copies: Copies | None
    """Those tokens, where any is shared; else the segment's own."""


def pack(messages: Sequence[tuple[Ids, Ids]], device: torch.device) -> Pack:
    """Lay out each (prompt ids, output ids); the last output token is predicted, never fed."""
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
    """The first token of an output comes after its prompt's last, the others after the output's."""
    sizes = np.array([len(output) for _, output in messages])
    found = _counted(begin - 1, sizes)
    found[sizes.cumsum() - sizes] = last
    return found


def _counted(first: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """`first`, `first` + 1, … of each, so many as `lengths` says, end to end."""
    ends = lengths.cumsum()
    return np.arange(ends[-1]) + np.repeat(first - (ends - lengths), lengths)


def _ragged(lengths: ArrayLike, device: torch.device) -> Ragged:
    ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return Ragged(placed(ends, device), int(np.max(lengths, initial=0)))
