"""Messages as one stream of tokens without padding, a shared prompt computed once; for GPUs.

The stream is all prompts, then all outputs. A token of an output attends to its own output and to
its prompt; `attention.py` computes that. For CPUs see `stream.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
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
