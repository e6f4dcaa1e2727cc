"""A microbatch: rows that go through the model together, and their scores."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.engine.memory import in_two
from tacit.learn.batch import Row, bundle, markers
from tacit.learn.loss import BatchSizes
from tacit.learn.score import Scores, score
from tacit.silence.conditioning import any_end, conditioned_logprobs, shared_prefix, spelled


@dataclass(slots=True, eq=False)
class Microbatch:
    rows: Sequence[Row]
    sizes: BatchSizes
    """Sizes of the whole optimiser step, so that the losses of its microbatches add up exactly."""
    old_BT: Tensor | None = None
    """Log-probabilities before the batch's first update; None during the first."""

    @property
    def width(self) -> int:
        outputs = [row.output_ids for row in self.rows] + [ids for _, ids in markers(self.rows)]
        return max(map(len, outputs))


def halves(micro: Microbatch) -> list[Microbatch]:
    """The microbatch in two parts; empty if it is one bundle."""
    place = {id(row): number for number, row in enumerate(micro.rows)}
    parts = []
    for bundles in in_two(bundle(micro.rows)):
        part = Microbatch([row for one in bundles for row in one.rows], micro.sizes)
        if micro.old_BT is not None:
            part.old_BT = micro.old_BT[[place[id(row)] for row in part.rows], : part.width]
        parts.append(part)
    return parts


def score_all(
    micros: Sequence[Microbatch],
    module: Any,
    weights: AbstractContextManager[None],
    ends: Sequence[int],
) -> list[Scores]:
    """Score rows and markers in one forward pass; rows with a marker get log q."""
    messages = [
        [(row.prompt_ids, row.output_ids) for row in micro.rows]
        + [(prompt, ids) for prompt, m in markers(micro.rows) for ids in spelled(m, ends)]
        for micro in micros
    ]
    with weights:
        scores = score(module, [message for some in messages for message in some])
    found, first = [], 0
    for micro, some in zip(micros, messages, strict=True):
        own = slice(first, first + len(some)), slice(micro.width)
        found.append(_conditioned(micro, len(ends), *(one[own] for one in scores.tensors)))
        first += len(some)
    return found


def _conditioned(
    micro: Microbatch, ends: int, logprobs: Tensor, entropy: Tensor, mask: Tensor
) -> Scores:
    """The scores of the rows, from those of rows and markers together."""
    rows, count = micro.rows, len(micro.rows)
    logprobs_BT = logprobs[:count]
    if drawn := [i for i, row in enumerate(rows) if row.marker]:
        pairs = markers(rows)
        place = {pair: number for number, pair in enumerate(pairs)}
        marker_CM = any_end(logprobs[count:, : max(len(ids) for _, ids in pairs)], ends)
        contexts = [place[rows[i].prompt_ids, rows[i].marker] for i in drawn]
        shared = [shared_prefix(rows[i].output_ids, rows[i].marker) for i in drawn]
        index, shared_B = torch.tensor([drawn, shared], device=logprobs.device)
        given = conditioned_logprobs(logprobs_BT[index], marker_CM[contexts], shared_B)
        logprobs_BT = logprobs_BT.index_copy(0, index, given)
    return Scores(logprobs_BT, entropy[:count], mask[:count])
