"""The choice to speak takes its step: logit p to what the gains ask for (`arms`).

It comes after the content's steps, from wherever they have dragged p: the two share weights, and an
optimiser's step of the choice is too weak against that. So what is asked for is done, context by
context, as far as a few steps of conjugate gradients with a line search bring it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.config import SilenceConfig
from tacit.learn.batch import Choice
from tacit.learn.gradients import accumulate
from tacit.learn.memory import as_memory_allows, in_two
from tacit.learn.policy import Policy
from tacit.learn.score import score
from tacit.learn.silence import (
    ChoiceSettings,
    any_end,
    asked_change,
    choice_loss,
    silence_logit,
    spelled,
)

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


@dataclass(slots=True, eq=False)
class Chooser:
    """Moves one policy's choice to speak."""

    policy: Policy
    silence: SilenceConfig
    missed: float = 0.0
    """What the last update of a warm-up missed, on average over its contexts."""

    def present(self, choices: Sequence[Choice], tokens: int) -> list[Choice]:
        """Those that count, with p as the weights have it now: an engine's may be a little off.

        `tokens`: how many are computed together, here and in `step`.
        """
        choices = _evenly(choices)
        with torch.no_grad():
            log_p_C = _Contexts(self.policy, choices, tokens).look()
        known = zip(choices, log_p_C.tolist(), strict=True)
        return [replace(c, log_p=log_p) if math.isfinite(log_p) else c for c, log_p in known]

    def step(self, choices: Sequence[Choice], *, train: bool, tokens: int) -> None:
        """p to where the gains ask it to be or, unless it is to `train`, back to where it was."""
        choices = _evenly([choice for choice in choices if math.isfinite(choice.log_p)])
        if not choices:
            return
        old_C = torch.tensor([choice.log_p for choice in choices])
        gain_C = torch.tensor([choice.gain for choice in choices])
        owed = None if train else self.missed
        change_C = asked_change(old_C, gain_C, self._settings(), owed=owed)
        contexts = _Contexts(self.policy, choices, tokens)
        descent = _Descent(contexts, old_C, change_C, SETTLED if train else HELD)
        for _ in range(STEPS):
            if not descent.step():
                break
        self.missed = 0.0 if train else float(descent.left().mean())

    def _settings(self) -> ChoiceSettings:
        return ChoiceSettings(
            coefficient=self.silence.coefficient,
            least_weight=self.silence.least_weight,
            clip=self.silence.clip,
        )


class _Contexts:
    """Where a choice is made, computed in parts that memory allows."""

    def __init__(self, policy: Policy, choices: Sequence[Choice], tokens: int) -> None:
        self.policy = policy
        self._asked = [
            [(choice.prompt_ids, ids) for ids in spelled(choice.marker_ids, policy.ends)]
            for choice in choices
        ]
        self._parts = _parts(choices, tokens // len(policy.ends))

    def look(self, learn: Callable[[Tensor, list[int]], None] | None = None) -> Tensor:
        """log π(silence) in each; `learn` is given those of one part after the other."""

        def one(part: list[int]) -> Tensor:
            with self.policy.on():
                asked = [message for i in part for message in self._asked[i]]
                scores = score(self.policy.loaded.module, asked)
            log_p_C = any_end(scores.logprobs_BT, len(self.policy.ends)).sum(-1)
            if learn:
                learn(log_p_C, part)
            return log_p_C.detach().float().cpu()

        seen = list(as_memory_allows(self._parts, one, in_two))
        self._parts = [part for part, _ in seen]
        return torch.cat([log_p_C for _, log_p_C in seen])


@dataclass(slots=True, eq=False)
class _Descent:
    """On half the mean square of what is left to do, by conjugate gradients (Fletcher–Reeves)."""

    contexts: _Contexts
    old_C: Tensor
    change_C: Tensor
    settled: float = SETTLED
    before: "_Step | None" = None

    def step(self) -> bool:
        """One step downhill; False where there is nothing more to do, or no way to do it."""
        weights = list(self.contexts.policy.parameters.values())
        for weight in weights:
            weight.grad = None  # the old one may be the way of the last step
        left_C = self._left(self.contexts.look(self._learn))
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
            self.contexts.policy.publish()
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
        return self._left(self.contexts.look())

    def _left(self, log_p_C: Tensor) -> Tensor:
        return silence_logit(self.old_C) + self.change_C - silence_logit(log_p_C)

    def _learn(self, log_p_C: Tensor, part: list[int]) -> None:
        old, change = self.old_C[part].to(log_p_C), self.change_C[part].to(log_p_C)
        loss = choice_loss(log_p_C, old, change, len(self.old_C))
        accumulate(self.contexts.policy, loss)


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


def _evenly(choices: Sequence[Choice]) -> list[Choice]:
    """As many as an update is made from, from all over the batch."""
    size = min(MOST, len(choices))
    return [choices[i * len(choices) // size] for i in range(size)]


def _parts(choices: Sequence[Choice], tokens: int) -> list[list[int]]:
    """Choices in pieces of at most so many padded tokens."""
    width = max(len(choice.prompt_ids) + len(choice.marker_ids) for choice in choices)
    size = max(1, tokens // width)
    return [list(range(i, min(i + size, len(choices)))) for i in range(0, len(choices), size)]
