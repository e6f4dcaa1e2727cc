"""One batch into one or more optimiser steps: microbatches, gradients, guards.

The content takes its steps first; then the choice to speak takes one (`silence`).

Knows one policy at a time. Not covered: where rewards and advantages come from (`credit`).
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
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
from tacit.learn.choice_model import PolicyChoice
from tacit.learn.gradients import accumulate, take_step
from tacit.learn.loss import LOSSES, BatchSizes, LossInputs, batch_sizes
from tacit.learn.loss_stats import LossStats, merge_stats
from tacit.learn.microbatch import Microbatch, halves, score_all
from tacit.learn.policy import Policy
from tacit.learn.score import Scores
from tacit.silence import ChoicePoint, Silence, Step

log = logging.getLogger(__name__)

SCORED_AT_ONCE = 4
"""Microbatch-batches that go through a GPU together where no gradient is wanted."""


@dataclass(frozen=True, slots=True)
class Updated:
    """What happened in one step's updates, for the metrics."""

    stats: Mapping[str, float]
    """Means over what was computed: messages without an advantage are mostly not."""
    gradient_norm: float
    dropped: int
    """Microbatch-batches left out because their loss or gradient was not finite."""


@dataclass(slots=True)
class Seen:
    """What the microbatches of one step say, as they come."""

    stats: list[LossStats] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    dropped: int = 0

    def add(self, stats: LossStats, extra: Mapping[str, float]) -> None:
        self.stats.append(stats)
        for name, value in extra.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def updated(self) -> Updated:
        tokens = self.sums.get("tokens") or 1.0
        means = {name: value / tokens for name, value in self.sums.items() if name != "tokens"}
        return Updated(merge_stats(self.stats) | means, max(self.norms, default=0.0), self.dropped)


@dataclass(slots=True, eq=False)
class Updater:
    """The optimiser of one policy, and what it needs to know."""

    policy: Policy
    config: Config
    silence: Silence
    max_length: int
    """The longest message that a trained agent may write."""
    loss: LossConfig = field(init=False)
    optimizer: torch.optim.AdamW = field(init=False)
    choice: PolicyChoice = field(init=False)
    step: Step = field(init=False)
    """Moves the choice to speak, after the content has moved."""
    taken: int = 0
    """Optimiser steps so far: the schedule's clock."""

    def __post_init__(self) -> None:
        weights, schedule = list(self.policy.parameters.values()), self.config.optimizer
        self.optimizer = torch.optim.AdamW(
            weights, betas=schedule.betas, weight_decay=schedule.weight_decay, fused=True
        )
        self.choice = PolicyChoice(self.policy, self.config.train.microbatch_tokens)
        self.step = self.silence.step(self.choice)
        loss, aware = self.config.loss, self.config.loss.length_aware
        self.loss = loss.model_copy(
            update={
                "length_aware": self.config.train.updates > 1 if aware is None else aware,
                "max_length": loss.max_length or self.max_length,
            }
        )

    @property
    def tokens(self) -> int:
        """How many tokens a microbatch has at most."""
        return self.choice.tokens

    def update(
        self, rows: Sequence[Row], choices: Sequence[ChoicePoint], *, train_choice: bool
    ) -> Updated:
        """Learn from rows of this policy. While silence warms up it is only held in place."""
        parts = split(bundle(rows), self.config.train.updates)
        batches = [self._microbatches(part) for part in parts]
        seen = Seen()
        with self._within_memory():
            if choices:
                choices = self.step.present(choices)
            self._remember(batches[1:])
            for batch in batches:
                self._gather(batch, seen)
                self._advance(seen)
            if choices:
                self.step.take(choices, train=train_choice)
        return seen.updated()

    def learning_rate(self) -> float:
        """Linear warm-up, then constant, or down to 0 at the last step."""
        schedule, train = self.config.optimizer, self.config.train
        warm = min(1.0, (self.taken + 1) / max(1, schedule.warmup_steps))
        done = min(1.0, self.taken / max(1, train.steps * train.updates))
        shape = {
            "constant": 1.0,
            "linear": 1.0 - done,
            "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
        }[schedule.schedule]
        return schedule.learning_rate * warm * shape

    def _microbatches(self, part: list[Bundle]) -> list[Microbatch]:
        """One optimiser step's share of the batch, its sequences numbered from 0."""
        rows = sorted((row for one in part for row in one.rows), key=lambda row: row.sequence)
        number = {s: n for n, s in enumerate(dict.fromkeys(row.sequence for row in rows))}
        rows = [replace(row, sequence=number[row.sequence]) for row in rows]
        tokens = torch.tensor([len(row.output_ids) for row in rows])
        sizes = batch_sizes(tokens, torch.tensor([row.sequence for row in rows]))
        bundles = bundle(rows)
        # one at least, so that entropy and the like are known at every step
        teaching = [one for one in bundles if self._teaches(one)] or bundles[:1]
        cut = microbatches(teaching, self.tokens, padded=self._padded)
        return [Microbatch([row for one in some for row in one.rows], sizes) for some in cut]

    @property
    def _padded(self) -> bool:
        return not forward_of(self.policy.loaded.module).packs

    def _teaches(self, one: Bundle) -> bool:
        """Whether there is a gradient, or something to be seen: else it counts, uncomputed."""
        return bool(self.loss.kl) or any(row.advantage for row in one.rows)

    @torch.no_grad()
    def _remember(self, batches: list[list[Microbatch]]) -> None:
        module = self.policy.loaded.module
        micros = [micro for batch in batches for micro in batch]
        # a GPU takes several as fast as one, and without gradients they have the room
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

    def _gather(self, micros: Sequence[Microbatch], seen: Seen) -> None:
        """The gradients of all."""
        self.optimizer.zero_grad(set_to_none=True)
        for _ in as_memory_allows(micros, lambda micro: self._learn(micro, seen), self._halved):
            pass

    def _learn(self, micro: Microbatch, seen: Seen) -> None:
        """Add one microbatch's gradient."""
        loss, stats, extra = self._loss(micro)
        if accumulate(self.policy, loss):
            seen.add(stats, extra)
        else:
            seen.dropped += 1

    def _halved(self, micro: Microbatch) -> list[Microbatch]:
        """Smaller ones; the following steps are cut as small from the start."""
        parts = halves(micro)
        size = max((size_of(bundle(p.rows), padded=self._padded) for p in parts), default=0)
        if 0 < size < self.tokens:
            self.choice.tokens = size
            sentence = "%s: out of memory while learning; going on with microbatches of %d tokens"
            log.warning(sentence, self.policy.name, size)
        return parts

    def _advance(self, seen: Seen) -> None:
        rate, clip = self.learning_rate(), self.config.optimizer.clip_norm
        seen.norms.append(take_step(self.policy, self.optimizer, rate, clip))
        self.taken += 1

    def _loss(self, micro: Microbatch) -> tuple[Tensor, LossStats, dict[str, float]]:
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
            silent_B=torch.tensor([row.silent for row in micro.rows], device=device),
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
        return output.loss, output.stats, extra


def _padded(rows: Sequence[Sequence[float]], mask_BT: Tensor) -> Tensor:
    blank = torch.zeros(mask_BT.shape, device=mask_BT.device)
    return blank.masked_scatter(mask_BT, placed(flat(rows, np.float32), mask_BT.device))
