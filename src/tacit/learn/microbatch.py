"""A microbatch: rows and choices that go through the model together, and what it makes of them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.engine.memory import in_two
from tacit.learn.batch import Bundle, Row, bundle
from tacit.learn.loss import BatchSizes
from tacit.learn.score import score
from tacit.silence import ChoicePoint, Ids
from tacit.silence.conditioning import any_end, conditioned_logprobs, shared_prefix, spelled


@dataclass(slots=True, eq=False)
class Microbatch:
    """Rows and choices that go through the model together."""

    rows: list[Row]
    choices: list[ChoicePoint]
    sizes: BatchSizes
    """Of the whole optimiser step, so that microbatches add up to it exactly."""
    old_BT: Tensor | None = None
    """Log-probabilities before the batch's first update; None where this is the first."""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A microbatch under some weights: rows given speech where they were drawn so."""

    logprobs_BT: Tensor
    entropy_BT: Tensor
    mask_BT: Tensor


def cut_out(
    rows: Sequence[Row],
    choices: Sequence[ChoicePoint],
    bundles: list[Bundle],
    number: Mapping[int, int],
    sizes: BatchSizes,
) -> Microbatch:
    """The rows and choices of some bundles, their references to each other renumbered."""
    place = {c: n for n, c in enumerate(c for one in bundles for c in one.choices)}
    mine = [
        replace(
            rows[i],
            sequence=number[rows[i].sequence],
            context=None if (context := rows[i].context) is None else place[context],
        )
        for one in bundles
        for i in one.rows
    ]
    return Microbatch(mine, [choices[c] for c in place], sizes)


def halves(micro: Microbatch) -> list[Microbatch]:
    """The same in two; nothing where what is in it must be computed together."""
    return [_part(micro, some) for some in in_two(bundle(micro.rows, micro.choices))]


def _part(micro: Microbatch, bundles: list[Bundle]) -> Microbatch:
    number = {row.sequence: row.sequence for row in micro.rows}
    part = cut_out(micro.rows, micro.choices, bundles, number, micro.sizes)
    if micro.old_BT is not None:
        width = max(map(len, _outputs(part)))
        part.old_BT = micro.old_BT[[i for one in bundles for i in one.rows], :width]
    return part


def _outputs(micro: Microbatch) -> list[Ids]:
    """What is predicted: of the rows, then of the choices."""
    return [row.output_ids for row in micro.rows] + [c.marker_ids for c in micro.choices]


def score_all(
    micros: Sequence[Microbatch],
    module: Any,
    weights: AbstractContextManager[None],
    ends: Sequence[int],
) -> list[Scored]:
    """Rows and markers in one forward pass; rows drawn given speech are conditioned on it."""
    messages = [
        [(row.prompt_ids, row.output_ids) for row in micro.rows]
        + [(c.prompt_ids, ids) for c in micro.choices for ids in spelled(c.marker_ids, ends)]
        for micro in micros
    ]
    with weights:
        scores = score(module, [message for some in messages for message in some])
    found, first = [], 0
    for micro, some in zip(micros, messages, strict=True):
        width = max(map(len, _outputs(micro)))
        own = slice(first, first + len(some)), slice(width)
        found.append(_conditioned(micro, len(ends), *(one[own] for one in scores.tensors)))
        first += len(some)
    return found


def _conditioned(
    micro: Microbatch, ends: int, logprobs: Tensor, entropy: Tensor, mask: Tensor
) -> Scored:
    b, m = len(micro.rows), max((len(choice.marker_ids) for choice in micro.choices), default=0)
    logprobs_BT, marker_CM = logprobs[:b], any_end(logprobs[b:, :m], ends)
    if micro.choices:
        logprobs_BT = _given_speech(micro, logprobs_BT, marker_CM)
    return Scored(logprobs_BT, entropy[:b], mask[:b])


def _given_speech(micro: Microbatch, logprobs_BT: Tensor, marker_CM: Tensor) -> Tensor:
    drawn = [i for i, row in enumerate(micro.rows) if row.context is not None]
    if not drawn:
        return logprobs_BT
    contexts = [context for row in micro.rows if (context := row.context) is not None]
    shared = [
        shared_prefix(micro.rows[i].output_ids, micro.choices[c].marker_ids)
        for i, c in zip(drawn, contexts, strict=True)
    ]
    index = torch.tensor(drawn, device=logprobs_BT.device)
    conditioned = conditioned_logprobs(
        logprobs_BT[index], marker_CM[contexts], torch.tensor(shared, device=logprobs_BT.device)
    )
    return logprobs_BT.index_copy(0, index, conditioned)
