"""One batch into one or more optimiser steps: micro-batches, gradients, guards.

The content takes its steps first; then, under `arms`, the choice to speak takes one (`choosing`).

Knows one policy at a time. Not covered: where rewards and advantages come from (`credit`).
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tacit.config import LossConfig, OptimizerConfig, SilenceConfig
from tacit.engine.forward import flat, forward_of, placed
from tacit.engine.load import on_device
from tacit.engine.memory import ran_out
from tacit.errors import RunError
from tacit.learn.batch import Bundle, Choice, Row, bundle, microbatches, size_of, split
from tacit.learn.choosing import Chooser
from tacit.learn.gradients import accumulate, take_step
from tacit.learn.loss import (
    CLIP_RANGES,
    LOSSES,
    BatchSizes,
    LossInputs,
    LossSettings,
    batch_sizes,
)
from tacit.learn.loss_stats import LossStats, merge_stats
from tacit.learn.memory import as_memory_allows, in_two
from tacit.learn.microbatch import Micro, Scored, cut_out, halves, score_all
from tacit.learn.policy import Policy

log = logging.getLogger(__name__)

SCORED_AT_ONCE = 4
"""Micro-batches that go through a GPU together where no gradient is wanted."""


@dataclass(frozen=True, slots=True)
class Updated:
    """What happened in one step's updates, for the metrics."""

    stats: Mapping[str, float]
    """Means over what was computed: messages without an advantage are mostly not."""
    gradient_norm: float
    dropped: int
    """Micro-batches left out because their loss or gradient was not finite."""


@dataclass(slots=True)
class Seen:
    """What the micro-batches of one step say, as they come."""

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
    loss: LossConfig
    silence: SilenceConfig
    schedule: OptimizerConfig
    steps: int
    updates: int
    microbatch_tokens: int
    max_length: int
    optimizer: torch.optim.AdamW = field(init=False)
    chooser: Chooser = field(init=False)
    taken: int = 0
    """Optimiser steps so far: the schedule's clock."""

    def __post_init__(self) -> None:
        weights = list(self.policy.parameters.values())
        decay = self.schedule.weight_decay
        betas = self.schedule.betas
        self.optimizer = torch.optim.AdamW(weights, betas=betas, weight_decay=decay, fused=True)
        self.chooser = Chooser(self.policy, self.silence)

    def update(
        self, rows: Sequence[Row], choices: Sequence[Choice], *, train_choice: bool
    ) -> Updated:
        """Learn from rows of this policy. While silence warms up its p is only held in place."""
        parts = split(bundle(rows, choices), self.updates)
        batches = [self._micros(rows, choices, part) for part in parts]
        seen = Seen()
        with self._within_memory():
            if choices:
                choices = self.chooser.present(choices, self.microbatch_tokens)
            self._remember(batches[1:])
            for batch in batches:
                self._gather(batch, seen)
                self._advance(seen)
            if choices:
                self._choose(choices, train_choice)
        return seen.updated()

    def learning_rate(self) -> float:
        """Linear warm-up, then constant, or down to 0 at the last step."""
        warm = min(1.0, (self.taken + 1) / max(1, self.schedule.warmup_steps))
        done = min(1.0, self.taken / max(1, self.steps * self.updates))
        shape = {
            "constant": 1.0,
            "linear": 1.0 - done,
            "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
        }[self.schedule.schedule]
        return self.schedule.learning_rate * warm * shape

    def _micros(
        self, rows: Sequence[Row], choices: Sequence[Choice], part: list[Bundle]
    ) -> list[Micro]:
        """Cut one optimiser step's share of the batch, its sequences numbered from 0."""
        mine = [rows[i] for one in part for i in one.rows]
        number = {s: n for n, s in enumerate(dict.fromkeys(row.sequence for row in mine))}
        tokens = torch.tensor([len(row.output_ids) for row in mine])
        sizes = batch_sizes(tokens, torch.tensor([number[row.sequence] for row in mine]))
        padded = not forward_of(self.policy.loaded.module).packs
        # one at least, so that entropy and the like are known at every step
        teaching = [one for one in part if self._teaches(rows, one)]
        teaching = teaching or [one for one in part if one.rows][:1]
        return [
            cut_out(rows, choices, some, number, sizes)
            for some in microbatches(teaching, self.microbatch_tokens, padded=padded)
        ]

    def _teaches(self, rows: Sequence[Row], one: Bundle) -> bool:
        """Whether there is a gradient, or something to be seen: else it counts, uncomputed."""
        return bool(self.loss.kl) or any(rows[i].advantage for i in one.rows)

    @torch.no_grad()
    def _remember(self, batches: list[list[Micro]]) -> None:
        module = self.policy.loaded.module
        micros = [micro for batch in batches for micro in batch]
        # a GPU takes several as fast as one, and without gradients they have the room
        at_once = SCORED_AT_ONCE if module.device.type == "cuda" and forward_of(module).packs else 1
        pieces = [micros[first : first + at_once] for first in range(0, len(micros), at_once)]

        def scored(some: list[Micro]) -> list[Scored]:
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
                f"{self.microbatch_tokens}) or models.{self.policy.base.name}.rows, or set "
                "train.gradient_checkpointing; the run goes on from its last checkpoint"
            ) from error

    def _gather(self, micros: Sequence[Micro], seen: Seen) -> None:
        """The gradients of all."""
        self.optimizer.zero_grad(set_to_none=True)
        for _ in as_memory_allows(micros, lambda micro: self._learn(micro, seen), self._halved):
            pass

    def _learn(self, micro: Micro, seen: Seen) -> None:
        """Add one micro-batch's gradient."""
        loss, stats, extra = self._loss(micro)
        if accumulate(self.policy, loss):
            seen.add(stats, extra)
        else:
            seen.dropped += 1

    def _halved(self, micro: Micro) -> list[Micro]:
        """Smaller ones; the following steps are cut as small from the start."""
        parts, padded = halves(micro), not forward_of(self.policy.loaded.module).packs
        size = max((size_of(bundle(p.rows, p.choices), padded=padded) for p in parts), default=0)
        if 0 < size < self.microbatch_tokens:
            self.microbatch_tokens = size
            sentence = "%s: out of memory while learning; going on with micro-batches of %d tokens"
            log.warning(sentence, self.policy.name, size)
        return parts

    def _advance(self, seen: Seen) -> None:
        rate, clip = self.learning_rate(), self.schedule.clip_norm
        seen.norms.append(take_step(self.policy, self.optimizer, rate, clip))
        self.taken += 1

    def _loss(self, micro: Micro) -> tuple[Tensor, LossStats, dict[str, float]]:
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
        output = LOSSES[self.loss.name](inputs, sizes, self._settings())
        gap_BT = torch.where(scored.mask_BT, (old_BT - engine_BT).abs(), 0.0)
        extra = {
            "tokens": float(sum(len(row.output_ids) for row in micro.rows)),
            "entropy": float(torch.where(scored.mask_BT, scored.entropy_BT, 0.0).sum()),
            "engine_gap": float(gap_BT.sum()),
        }
        return output.loss, output.stats, extra

    def _choose(self, choices: Sequence[Choice], train_choice: bool) -> None:
        self.chooser.step(choices, train=train_choice, tokens=self.microbatch_tokens)

    def _settings(self) -> LossSettings:
        low, high = CLIP_RANGES[self.loss.name]
        aware = self.loss.length_aware
        return LossSettings(
            clip_low=self.loss.clip_low or low,
            clip_high=self.loss.clip_high or high,
            length_aware=self.updates > 1 if aware is None else aware,
            kl=self.loss.kl,
            mismatch_cap=self.loss.mismatch_cap,
            max_length=self.loss.max_length or self.max_length,
        )


def _padded(rows: Sequence[Sequence[float]], mask_BT: Tensor) -> Tensor:
    blank = torch.zeros(mask_BT.shape, device=mask_BT.device)
    return blank.masked_scatter(mask_BT, placed(flat(rows, np.float32), mask_BT.device))
