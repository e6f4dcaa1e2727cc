"""The step of silence: logit p moves to where the gains ask it to be (`arms`).

It comes after the content's steps, from wherever they have dragged p: the two share weights, and an
optimiser's step of the choice is too weak against that. So what is asked for is done, context by
context, as far as a few steps of conjugate gradients with a line search bring it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from tacit.config import SilenceConfig
from tacit.silence import ChoicePoint, Step
from tacit.silence.conditioning import silence_logit

REACH = 3.0
"""logit p is asked to stay within ±3, p between 5 and 95 %: a choice that is all but certain takes
many steps to come back, and what was learned about it meanwhile is lost."""
STD_FLOOR = 0.1
"""The unit of rewards, as in `learn.advantage`; a constant, so that contexts stay in proportion."""
MOST = 32
"""Contexts that one update is made from: with one for every episode, looking at all of them again
and again would take several times as long as learning what is said."""
STEPS = 4
"""Descents of one update at most. More hold p more firmly, at the cost of what is said: with eight,
two of three pocket teams, all of whose weights learn, no longer found short hints."""
SETTLED, HELD = 0.02, 0.1
"""Root mean square of what is left to do on logit p at which it is done: what many small gains ask
for adds up over updates, and in a warm-up what is missed on average is owed."""
FARTHEST = 2.0
"""How many times as far as the first guess, which is half-way, the line search may go."""
NEAR_ENOUGH = 0.1
"""Part of a guess by which it may be off without another look."""
RETRIES = 3
"""Shorter and shorter steps where a guess makes things worse."""
LONGEST = 0.05
"""The longest step, as a part of the weights' own length."""


Learn = Callable[[Tensor, list[int]], Tensor]
"""From log π(silence) of some contexts, given by number, to a loss."""


class ChoiceModel(Protocol):
    """One policy, as the step of silence sees it."""

    @property
    def weights(self) -> list[Tensor]:
        """What learns; gradients are left in `.grad`."""
        ...

    def publish(self) -> None:
        """Let forward passes use the weights as they are now."""

    def look(self, points: Sequence[ChoicePoint], learn: Learn | None = None) -> Tensor:
        """log π(silence) at each point; `learn` has its gradients added up."""
        ...


def choice_weight(p: Tensor, gain: Tensor, least: float) -> Tensor:
    """w = p(1−p), raised to `least` where silence pays though p < ½, or speaking though p > ½.

    So a lost choice can come back, and a settled one is left alone.
    """
    against = ((gain > 0) & (p < 0.5)) | ((gain < 0) & (p > 0.5))
    weight = p * (1 - p)
    return torch.where(against, weight.clamp(min=least), weight)


def choice_step(p: Tensor, gain: Tensor, config: SilenceConfig) -> Tensor:
    """The change of logit p to ask for; `gain` is R_silent − mean R_spoken in each context."""
    weight = choice_weight(p, gain, config.least_weight)
    step = config.coefficient * weight * gain / STD_FLOOR
    return step.clamp(-config.clip, config.clip).detach()


def asked_change(
    log_p: Tensor, gain: Tensor, config: SilenceConfig, *, owed: float | None = None
) -> Tensor:
    """`choice_step`, or in a warm-up what is `owed` to every context alike, kept within reach.

    A choice out of reach comes back by `clip` at a time.
    """
    logit = silence_logit(log_p)
    step = choice_step(log_p.exp(), gain, config) if owed is None else owed
    change = (logit + step).clamp(-REACH, REACH) - logit
    return change.clamp(-config.clip, config.clip).detach()


def choice_loss(log_p_C: Tensor, old_log_p_C: Tensor, step_C: Tensor, choices: int) -> Tensor:
    """½·(logit p − (old logit p + step))², summed and divided by the whole batch's `choices`.

    At the old policy its gradient is exactly −step on each logit p. A batch used for several
    updates stops at the step asked for, and a context dragged along by others is pulled back.
    """
    target_C = silence_logit(old_log_p_C.detach()) + step_C.detach()
    return 0.5 * (silence_logit(log_p_C) - target_C).square().sum() / choices


@dataclass(slots=True, eq=False)
class DescentStep(Step):
    """Moves one policy's choice to speak."""

    model: ChoiceModel
    config: SilenceConfig
    missed: float = 0.0
    """What the last update of a warm-up missed, on average over its contexts."""

    def present(self, points: Sequence[ChoicePoint]) -> list[ChoicePoint]:
        """Some of them, with p as the weights have it now: an engine's may be a little off."""
        points = _evenly(points)
        with torch.no_grad():
            log_p_C = self.model.look(points)
        known = zip(points, log_p_C.tolist(), strict=True)
        return [replace(c, log_p=log_p) if math.isfinite(log_p) else c for c, log_p in known]

    def take(self, points: Sequence[ChoicePoint], *, train: bool) -> None:
        """p to where the gains ask it to be or, unless it is to `train`, back to where it was."""
        points = _evenly([point for point in points if math.isfinite(point.log_p)])
        if not points:
            return
        old_C = torch.tensor([point.log_p for point in points])
        gain_C = torch.tensor([point.gain for point in points])
        owed = None if train else self.missed
        change_C = asked_change(old_C, gain_C, self.config, owed=owed)
        descent = _Descent(self.model, points, old_C, change_C, SETTLED if train else HELD)
        for _ in range(STEPS):
            if not descent.step():
                break
        self.missed = 0.0 if train else float(descent.left().mean())


@dataclass(slots=True, eq=False)
class _Descent:
    """On half the mean square of what is left to do, by conjugate gradients (Fletcher–Reeves)."""

    model: ChoiceModel
    points: Sequence[ChoicePoint]
    old_C: Tensor
    change_C: Tensor
    settled: float = SETTLED
    before: "_Step | None" = None

    def step(self) -> bool:
        """One step downhill; False where there is nothing more to do, or no way to do it."""
        weights = self.model.weights
        for weight in weights:
            weight.grad = None  # the old one may be the way of the last step
        left_C = self._left(self.model.look(self.points, self._learn))
        moving = [weight for weight in weights if weight.grad is not None]
        downhill = [weight.grad for weight in moving if weight.grad is not None]
        size, steepness = float(left_C.square().mean()), _dot(downhill, downhill)
        if not (size > self.settled**2 and steepness > 0.0):  # nor where it is not a number
            return False
        conjugate = self.before is not None
        way = self._way(downhill, steepness)
        slope, length = _dot(downhill, way), math.sqrt(_dot(way, way))
        whole = math.sqrt(_dot(weights, weights))
        longest = LONGEST * whole / length
        guess = min(0.5 * size / slope, longest)
        if self.before:
            guess = min(guess, slope / (self.before.curvature * length**2))
        start = [weight.detach().clone() for weight in moving]

        def go(by: float) -> Tensor:
            with torch.no_grad():
                for weight, from_, direction in zip(moving, start, way, strict=True):
                    weight.copy_(from_).add_(direction, alpha=-by)
            self.model.publish()
            return self.left()

        for shorter in range(RETRIES + 1):
            by = guess / 4**shorter
            after_C = go(by)
            if float(after_C.square().mean()) < size:
                moved = float((left_C - after_C).square().mean())
                self.before = _Step(way, steepness, moved / (by * length) ** 2)
                best = min(by * _best(left_C, after_C), longest)
                if abs(best - by) > NEAR_ENOUGH * by and not _better(go(best), after_C):
                    go(by)
                return True
        go(0.0)
        self.before = None
        return conjugate  # straight down there may still be a way

    def _way(self, downhill: list[Tensor], steepness: float) -> list[Tensor]:
        """Straight down at first, then across what earlier steps have settled."""
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
        return self._left(self.model.look(self.points))

    def _left(self, log_p_C: Tensor) -> Tensor:
        return silence_logit(self.old_C) + self.change_C - silence_logit(log_p_C)

    def _learn(self, log_p_C: Tensor, part: list[int]) -> Tensor:
        old, change = self.old_C[part].to(log_p_C), self.change_C[part].to(log_p_C)
        return choice_loss(log_p_C, old, change, len(self.old_C))


@dataclass(frozen=True, slots=True)
class _Step:
    """The last one: where it went, how steep it was there, and how strongly p answered."""

    way: list[Tensor]
    steepness: float
    curvature: float


@torch.no_grad()
def _dot(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return sum(float((a * b).sum()) for a, b in zip(one, other, strict=True))


def _better(one_C: Tensor, other_C: Tensor) -> bool:
    return float(one_C.square().mean()) < float(other_C.square().mean())


def _best(before_C: Tensor, after_C: Tensor) -> float:
    """How far to go, in units of the step that led from `before` to `after`, were it all linear."""
    moved_C = before_C - after_C
    return min(float(before_C @ moved_C) / max(float(moved_C @ moved_C), 1e-12), FARTHEST)


def _evenly(points: Sequence[ChoicePoint]) -> list[ChoicePoint]:
    """As many as an update is made from, from all over the batch."""
    size = min(MOST, len(points))
    return [points[i * len(points) // size] for i in range(size)]
