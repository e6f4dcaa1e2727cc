"""Messages as one stream of tokens without padding, a shared prompt computed once; for GPUs.

The stream is all prompts, then all outputs. A token of an output attends to its own output and to
its prompt; `attention.py` computes that. For CPUs see `stream.py`. Laid out by numpy, since the GPU
waits meanwhile.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
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
    fed = {p: sum(len(messages[n][1]) - 1 for n in some) for p, some in groups.items()}
    prompts = sorted(groups, key=lambda prompt: fed[prompt] == 0)
    with_output = [prompt for prompt in prompts if fed[prompt]]
    order = [number for prompt in prompts for number in groups[prompt]]
    pieces = [*prompts, *(messages[number][1][:-1] for number in order)]
    lengths = np.array([len(piece) for piece in pieces])
    starts = lengths.cumsum() - lengths
    members = [len(groups[prompt]) for prompt in prompts]
    known = np.repeat(lengths[: len(prompts)], members)
    positions = _counted(np.append(np.zeros(len(prompts), np.int64), known), lengths)
    last, begin = np.empty((2, len(messages)), np.int64)
    last[order] = np.repeat((starts + lengths - 1)[: len(prompts)], members)
    begin[order] = starts[len(prompts) :]
    shared = (
        sum(map(len, with_output)),
        sum(map(len, prompts)),
        _ragged([fed[prompt] for prompt in with_output], device),
        _ragged([len(prompt) for prompt in with_output], device),
    )
    return Pack(
        placed(flat(pieces), device),
        placed(positions, device),
        placed(_predicts(messages, last, begin), device),
        _ragged(lengths[lengths > 0], device),
        shared if with_output else None,
    )


def _apart(messages: Sequence[tuple[Ids, Ids]], device: torch.device) -> Pack:
    lengths = np.array([len(prompt) + len(output) - 1 for prompt, output in messages])
    begin = lengths.cumsum() - lengths + [len(prompt) for prompt, _ in messages]
    pieces = [piece for prompt, output in messages for piece in (prompt, output[:-1])]
    return Pack(
        placed(flat(pieces), device),
        placed(_counted(np.zeros(len(lengths), np.int64), lengths), device),
        placed(_predicts(messages, begin - 1, begin), device),
        _ragged(lengths, device),
        None,
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


def flat(pieces: Collection[Sequence[Any]], kind: type = np.int64) -> NDArray[Any]:
    """Sequences of numbers end to end."""
    return np.fromiter(chain.from_iterable(pieces), kind, count=sum(map(len, pieces)))


def placed(values: NDArray[Any], device: torch.device) -> Tensor:
    """On the device; to a GPU from pinned memory, for which nobody waits."""
    tensor = torch.from_numpy(values)
    if device.type != "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def _ragged(lengths: ArrayLike, device: torch.device) -> Ragged:
    ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return Ragged(placed(ends, device), int(np.max(lengths, initial=0)))
