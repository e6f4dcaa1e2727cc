"""The step of silence: moves logit p of each context by what its gain asks for (`arms`).

Runs after the content's steps. Both share weights, and the content drags p further than one
optimiser step could bring it back, so the step is a small descent of its own on the distance to the
wanted logits: a few steps of conjugate gradients with a line search.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from tacit.config import SilenceConfig
from tacit.silence import ChoicePoint
from tacit.silence.conditioning import silence_logit

REACH = 3.0
"""logit p is kept within ±3, p between 5 and 95 %: a choice that is all but certain takes many
steps to come back, and what was learned about it meanwhile is lost."""
STD_FLOOR = 0.1
"""The scale of rewards, as in `learn.advantage`; constant, so that contexts stay in proportion."""
STEPS = 4
"""Most descent steps in one update. More hold p more firmly at the expense of the content: with
eight, two of three fully trained pocket teams no longer found short hints."""
SETTLED, HELD = 0.02, 0.1
"""Root mean square error of logit p at which the descent stops, in training and in a warm-up. Small
gains add up over updates, and what a warm-up misses on average is made up in its next step."""
FARTHEST = 2.0
"""Reach of the line search in units of the first guess, which goes half-way."""
NEAR_ENOUGH = 0.1
"""Relative error of a guess that does not justify another evaluation."""
RETRIES = 3
"""Attempts with a shorter step after a guess that made things worse."""
LONGEST = 0.05
"""The longest step, relative to the norm of the weights."""

Learn = Callable[[Tensor, list[int]], Tensor]
"""(log π(silence) of some contexts, their indices) → loss."""


class ChoiceModel(Protocol):
    """A policy as the step uses it."""

    @property
    def weights(self) -> list[Tensor]:
        """The trained weights; `look` leaves gradients in `.grad`."""
        ...

    def publish(self) -> None:
        """Make forward passes use the current weights."""

    def look(self, points: Sequence[ChoicePoint], learn: Learn | None = None) -> Tensor:
        """log π(silence) at each point; if `learn` is given, its gradients are accumulated."""
        ...


def choice_weight(p: Tensor, gain: Tensor, least: float) -> Tensor:
    """w = p(1−p), raised to `least` where silence pays but p < ½, or speaking pays but p > ½.

    This lets a lost choice come back and leaves a settled one alone.
    """
    against = ((gain > 0) & (p < 0.5)) | ((gain < 0) & (p > 0.5))
    weight = p * (1 - p)
    return torch.where(against, weight.clamp(min=least), weight)


def choice_step(p: Tensor, gain: Tensor, config: SilenceConfig) -> Tensor:
    """The wanted change of logit p; `gain` is R_silent − mean R_spoken in each context."""
    weight = choice_weight(p, gain, config.least_weight)
    step = config.coefficient * weight * gain / STD_FLOOR
    return step.clamp(-config.clip, config.clip).detach()


def wanted_change(
    log_p: Tensor,
    gain: Tensor,
    config: SilenceConfig,
    *,
    owed: float | None = None,
    scale: float = 1.0,
) -> Tensor:
    """`scale` times `choice_step`, or the error `owed` in a warm-up; logit p stays within REACH.

    A choice beyond REACH returns by at most `clip` per update.
    """
    logit = silence_logit(log_p)
    step = scale * choice_step(log_p.exp(), gain, config) if owed is None else owed
    change = (logit + step).clamp(-REACH, REACH) - logit
    return change.clamp(-config.clip, config.clip).detach()


def choice_loss(log_p_C: Tensor, old_log_p_C: Tensor, step_C: Tensor, choices: int) -> Tensor:
    """½·(logit p − (old logit p + step))², summed and divided by the number of `choices`.

    At the old policy the gradient on each logit p is exactly −step. Repeated updates stop at the
    wanted step, and a context dragged along by others is pulled back.
    """
    target_C = silence_logit(old_log_p_C.detach()) + step_C.detach()
    return 0.5 * (silence_logit(log_p_C) - target_C).square().sum() / choices


@dataclass(slots=True, eq=False)
class ChoiceStep:
    """Moves one policy's choice to speak."""

    model: ChoiceModel
    config: SilenceConfig
    missed: float = 0.0
    """Mean error of logit p that the last warm-up step left; saved in checkpoints."""

    def present(self, points: Sequence[ChoicePoint]) -> list[ChoicePoint]:
        """A sample of the points, with p recomputed: the engine's may differ slightly."""
        points = _some(points, self.config.contexts)
        with torch.no_grad():
            log_p_C = self.model.look(points)
        known = zip(points, log_p_C.tolist(), strict=True)
        return [replace(c, log_p=log_p) if math.isfinite(log_p) else c for c, log_p in known]

    def take(self, points: Sequence[ChoicePoint], *, train: bool, scale: float = 1.0) -> None:
        """Move p by `scale` of the wanted step; without `train`, undo what the content moved."""
        points = _some([p for p in points if math.isfinite(p.log_p)], self.config.contexts)
        if not points:
            return
        old_C = torch.tensor([point.log_p for point in points])
        gain_C = torch.tensor([point.gain for point in points])
        owed = None if train else self.missed
        change_C = wanted_change(old_C, gain_C, self.config, owed=owed, scale=scale)
        descent = _Descent(self.model, points, old_C, change_C, SETTLED if train else HELD)
        for _ in range(STEPS):
            if not descent.step():
                break
        self.missed = 0.0 if train else float(descent.left().mean())


@dataclass(slots=True, eq=False)
class _Descent:
    """Minimises half the mean square error of logit p by conjugate gradients (Fletcher–Reeves)."""

    model: ChoiceModel
    points: Sequence[ChoicePoint]
    old_C: Tensor
    change_C: Tensor
    settled: float = SETTLED
    before: "_Step | None" = None

    def step(self) -> bool:
        """One step downhill; False if the error is small enough or no step reduces it."""
        weights = self.model.weights
        for weight in weights:
            weight.grad = None  # not zeroed: it may be the last step's direction
        left_C = self._left(self.model.look(self.points, self._learn))
        moving = [weight for weight in weights if weight.grad is not None]
        downhill = [weight.grad for weight in moving if weight.grad is not None]
        size, steepness = _mean_square(left_C), _dot(downhill, downhill)
        if not (size > self.settled**2 and steepness > 0.0):  # also stops at NaN
            return False
        conjugate = self.before is not None
        way = self._way(downhill, steepness)
        slope, length = _dot(downhill, way), math.sqrt(_dot(way, way))
        longest = LONGEST * math.sqrt(_dot(weights, weights)) / length
        guess = min(0.5 * size / slope, longest)
        if self.before:
            guess = min(guess, slope / (self.before.curvature * length**2))
        start = [weight.detach().clone() for weight in moving]

        def go(by: float) -> Tensor:
            with torch.no_grad():
                torch._foreach_copy_(moving, start)
                torch._foreach_add_(moving, way, alpha=-by)
            self.model.publish()
            return self.left()

        for shorter in range(RETRIES + 1):
            by = guess / 4**shorter
            after_C = go(by)
            if _mean_square(after_C) < size:
                moved_C = left_C - after_C
                self.before = _Step(way, steepness, _mean_square(moved_C) / (by * length) ** 2)
                # the best step, if logits were linear in it
                times = float(left_C @ moved_C) / max(float(moved_C @ moved_C), 1e-12)
                best = min(by * min(times, FARTHEST), longest)
                far = abs(best - by) > NEAR_ENOUGH * by
                if far and not _mean_square(go(best)) < _mean_square(after_C):
                    go(by)
                return True
        go(0.0)
        self.before = None
        return conjugate  # steepest descent may still succeed

    def _way(self, downhill: list[Tensor], steepness: float) -> list[Tensor]:
        """The gradient at first, then directions conjugate to the earlier ones."""
        if self.before:
            turned = steepness / self.before.steepness
            pairs = zip(downhill, self.before.way, strict=True)
            way = [earlier.mul_(turned).add_(down) for down, earlier in pairs]
            if _dot(downhill, way) > 0.0:
                return way
        self.before = None
        return downhill

    @torch.no_grad()
    def left(self) -> Tensor:
        """The wanted logits minus the current ones."""
        return self._left(self.model.look(self.points))

    def _left(self, log_p_C: Tensor) -> Tensor:
        return silence_logit(self.old_C) + self.change_C - silence_logit(log_p_C)

    def _learn(self, log_p_C: Tensor, part: list[int]) -> Tensor:
        old, change = self.old_C[part].to(log_p_C), self.change_C[part].to(log_p_C)
        return choice_loss(log_p_C, old, change, len(self.old_C))


@dataclass(frozen=True, slots=True)
class _Step:
    """The previous step: its direction, squared gradient norm, and curvature along it."""

    way: list[Tensor]
    steepness: float
    curvature: float


@torch.no_grad()
def _dot(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    sums = torch.stack([(a * b).sum() for a, b in zip(one, other, strict=True)])
    return float(sum(sums.tolist()))  # a GPU is waited for once


def _mean_square(values_C: Tensor) -> float:
    return float(values_C.square().mean())


def _some(points: Sequence[ChoicePoint], most: int) -> list[ChoicePoint]:
    """At most `most` points: pseudo-random, but the same in a resumed run.

    Not every n-th: points alternate between agents, so some agents would never be chosen.
    """
    if len(points) <= most:
        return list(points)
    return sorted(points, key=lambda p: hash((p.prompt_ids, p.log_p)))[:most]
