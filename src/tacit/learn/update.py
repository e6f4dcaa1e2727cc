"""Updates one policy with one batch: microbatches, gradients, optimiser steps, guards.

The content takes its optimiser steps first, and then the choice to speak is moved (`silence`). Not
covered: where rewards and advantages come from (`credit`).
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from tacit.config import Config, LossConfig
from tacit.engine.forward import flat, forward_of, placed
from tacit.engine.load import on_device
from tacit.engine.memory import as_memory_allows, in_two, ran_out
from tacit.errors import RunError
from tacit.learn.batch import Bundle, Row, bundle, microbatches, size_of, split
from tacit.learn.choice_model import SCORED_AT_ONCE, PolicyChoice
from tacit.learn.loss import LOSSES, BatchSizes, LossInputs, batch_sizes
from tacit.learn.loss_stats import LossStats, merge_stats
from tacit.learn.microbatch import Microbatch, halves, score_all
from tacit.learn.policy import Policy, accumulate, take_step
from tacit.learn.score import Scores
from tacit.silence import ChoicePoint
from tacit.silence.step import ChoiceStep

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Updated:
    """The metrics of one update."""

    stats: Mapping[str, float]
    """Means over the rows that were computed; those without an advantage mostly are not."""
    gradient_norm: float
    dropped: int
    """Microbatches left out because their loss or gradient was not finite."""


BatchStats = tuple[LossStats, Mapping[str, float]]
"""The statistics of one microbatch, and sums over its tokens."""
Gradients = Callable[["Updater", Sequence[Microbatch]], Iterator[BatchStats | None]]
"""`Updater.gradients`, or the same shared among several learners."""


@dataclass(slots=True)
class Seen:
    """Collects the metrics of the microbatches of one update."""

    stats: list[LossStats] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    dropped: int = 0

    def add(self, one: BatchStats | None) -> None:
        if one is None:
            self.dropped += 1
            return
        stats, extra = one
        self.stats.append(stats)
        for name, value in extra.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def updated(self) -> Updated:
        tokens = self.sums.get("tokens") or 1.0
        means = {name: value / tokens for name, value in self.sums.items() if name != "tokens"}
        return Updated(merge_stats(self.stats) | means, max(self.norms, default=0.0), self.dropped)


@dataclass(slots=True, eq=False)
class Updater:
    """The optimiser of one policy."""

    policy: Policy
    config: Config
    max_length: int
    """Length limit of the trained agents' messages."""
    loss: LossConfig = field(init=False)
    optimizer: torch.optim.AdamW = field(init=False)
    choice: PolicyChoice = field(init=False)
    step: ChoiceStep = field(init=False)
    """Moves the choice to speak."""
    taken: int = 0
    """Optimiser steps so far, for the schedule."""
    shared: "Gradients | None" = None
    """Computes gradients together with other learners."""

    def __post_init__(self) -> None:
        weights, schedule = list(self.policy.parameters.values()), self.config.optimizer
        self.optimizer = torch.optim.AdamW(
            weights, betas=schedule.betas, weight_decay=schedule.weight_decay, fused=True
        )
        self.choice = PolicyChoice(self.policy, self.config.train.microbatch_tokens)
        self.step = ChoiceStep(self.choice, self.config.silence)
        loss, aware = self.config.loss, self.config.loss.length_aware
        self.loss = loss.model_copy(
            update={
                "length_aware": self.config.train.updates > 1 if aware is None else aware,
                "max_length": loss.max_length or self.max_length,
            }
        )

    @property
    def tokens(self) -> int:
        """Most tokens of a microbatch; lowered when memory runs out."""
        return self.choice.tokens

    def update(
        self, rows: Sequence[Row], choices: Sequence[ChoicePoint], *, train_choice: bool
    ) -> Updated:
        """Learn from rows of this policy. Without `train_choice`, p is only held where it was."""
        parts = split(bundle(rows), self.config.train.updates)
        batches = [self._microbatches(part) for part in parts]
        seen, clip, scale = Seen(), self.config.optimizer.clip_norm, self._decay()
        with self._within_memory():
            if choices:
                choices = self.step.present(choices)
            self._store_old(batches[1:])
            for batch in batches:
                self.optimizer.zero_grad(set_to_none=True)
                for one in (self.shared or Updater.gradients)(self, batch):
                    seen.add(one)
                rate = self.learning_rate()
                seen.norms.append(take_step(self.policy, self.optimizer, rate, clip))
                self.taken += 1
            if choices:
                self.step.take(choices, train=train_choice, scale=scale)
        return seen.updated()

    def gradients(self, batch: Sequence[Microbatch]) -> Iterator[BatchStats | None]:
        """Accumulate the gradients of microbatches, with their statistics as it goes."""
        for _, one in as_memory_allows(batch, self._gradient, self._halved):
            yield one

    def learning_rate(self) -> float:
        """Linear warm-up, then constant or falling to 0 at the last step."""
        schedule = self.config.optimizer
        warm = min(1.0, (self.taken + 1) / max(1, schedule.warmup_steps))
        return schedule.learning_rate * warm * self._decay()

    def _decay(self) -> float:
        """The schedule's factor on the learning rate and on the step of the choice to speak."""
        train = self.config.train
        done = min(1.0, self.taken / max(1, train.steps * train.updates))
        shapes = {
            "constant": 1.0,
            "late": min(1.0, 3.0 * (1.0 - done)),
            "linear": 1.0 - done,
            "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
        }
        return shapes[self.config.optimizer.schedule]

    def _microbatches(self, part: list[Bundle]) -> list[Microbatch]:
        """One optimiser step's share of the batch, with sequences numbered from 0."""
        rows = sorted((row for one in part for row in one.rows), key=lambda row: row.sequence)
        number = {s: n for n, s in enumerate(dict.fromkeys(row.sequence for row in rows))}
        rows = [replace(row, sequence=number[row.sequence]) for row in rows]
        tokens = torch.tensor([len(row.output_ids) for row in rows])
        sizes = batch_sizes(tokens, torch.tensor([row.sequence for row in rows]))
        bundles = bundle(rows)
        # at least one bundle, so that every step has an entropy
        teaching = [one for one in bundles if self._teaches(one)] or bundles[:1]
        cut = microbatches(teaching, self.tokens, padded=self._pads)
        return [Microbatch([row for one in some for row in one.rows], sizes) for some in cut]

    @property
    def _pads(self) -> bool:
        return not forward_of(self.policy.loaded.module).packs

    def _teaches(self, one: Bundle) -> bool:
        """False if the gradient is 0; such bundles count in the sizes but are not computed."""
        return bool(self.loss.kl) or any(row.advantage for row in one.rows)

    @torch.no_grad()
    def _store_old(self, batches: list[list[Microbatch]]) -> None:
        """Score the microbatches of later updates before the weights change."""
        module = self.policy.loaded.module
        micros = [micro for batch in batches for micro in batch]
        # without gradients several fit into a GPU, and take it no longer than one
        at_once = SCORED_AT_ONCE if module.device.type == "cuda" and forward_of(module).packs else 1
        pieces = [micros[first : first + at_once] for first in range(0, len(micros), at_once)]

        def scored(some: list[Microbatch]) -> list[Scores]:
            return score_all(some, module, self.policy.on(), self.policy.ends)

        for some, scores in as_memory_allows(pieces, scored, in_two):
            for micro, one in zip(some, scores, strict=True):
                micro.old_BT = one.logprobs_BT

    @contextmanager
    def _within_memory(self) -> Iterator[None]:
        try:
            with on_device(self.policy.loaded.module):
                yield
        except RuntimeError as error:
            if not ran_out(error):
                raise
            raise RunError(
                "out of memory while learning: lower train.microbatch_tokens (now "
                f"{self.tokens}) or models.{self.policy.base.name}.rows, or set "
                "train.gradient_checkpointing; the run goes on from its last checkpoint"
            ) from error

    def _gradient(self, micro: Microbatch) -> BatchStats | None:
        """Accumulate the gradient of one microbatch; None if it is not finite."""
        loss, measured = self._loss(micro)
        return measured if accumulate(self.policy, loss) else None

    def _halved(self, micro: Microbatch) -> list[Microbatch]:
        """Two halves; later steps use microbatches of this size from the start."""
        parts = halves(micro)
        size = max((size_of(bundle(p.rows), padded=self._pads) for p in parts), default=0)
        if 0 < size < self.tokens:
            self.choice.tokens = size
            sentence = "%s: out of memory while learning; going on with microbatches of %d tokens"
            log.warning(sentence, self.policy.name, size)
        return parts

    def _loss(self, micro: Microbatch) -> tuple[Tensor, BatchStats]:
        own = self.policy.loaded.module, self.policy.on(), self.policy.ends
        (scored,) = score_all([micro], *own)
        device = scored.mask_BT.device
        sizes = BatchSizes(lengths_S=micro.sizes.lengths_S.to(device))
        engine_BT = _padded([row.engine_logprobs for row in micro.rows], scored.mask_BT)
        reference_BT = None
        if self.loss.kl:
            with torch.no_grad():
                base = *self.policy.reference(), self.policy.ends
                reference_BT = score_all([micro], *base)[0].logprobs_BT
        old_BT = scored.logprobs_BT.detach() if micro.old_BT is None else micro.old_BT
        inputs = LossInputs(
            logprobs_BT=scored.logprobs_BT,
            old_logprobs_BT=old_BT,
            mask_BT=scored.mask_BT,
            advantages=torch.tensor([row.advantage for row in micro.rows], device=device),
            sequence_B=torch.tensor([row.sequence for row in micro.rows], device=device),
            weights_B=torch.tensor([row.weight for row in micro.rows], device=device),
            apart={"silent": torch.tensor([row.silent for row in micro.rows], device=device)},
            ref_logprobs_BT=reference_BT,
            engine_logprobs_BT=engine_BT,
        )
        output = LOSSES[self.loss.name](inputs, sizes, self.loss)
        gap_BT = torch.where(scored.mask_BT, (old_BT - engine_BT).abs(), 0.0)
        extra = {
            "tokens": float(sum(len(row.output_ids) for row in micro.rows)),
            "entropy": float(torch.where(scored.mask_BT, scored.entropy_BT, 0.0).sum()),
            "engine_gap": float(gap_BT.sum()),
        }
        return output.loss, (output.stats, extra)


def _padded(rows: Sequence[Sequence[float]], mask_BT: Tensor) -> Tensor:
    blank = torch.zeros(mask_BT.shape, device=mask_BT.device)
    return blank.masked_scatter(mask_BT, placed(flat(rows, np.float32), mask_BT.device))
