"""The choice to speak takes its step: logit p to what the gains ask for (`arms`).

It comes after the content's steps, from wherever they have dragged p: the two share weights, and an
optimiser's step of the choice is too weak against that. So what is asked for is done, context by
context, as far as a few steps of steepest descent with a line search bring it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.config import SilenceConfig
from tacit.learn.batch import Choice
from tacit.learn.gradients import accumulate
from tacit.learn.memory import as_memory_allows, in_two
from tacit.learn.policy import Policy
from tacit.learn.score import score
from tacit.learn.silence import ChoiceSettings, asked_change, choice_loss, silence_logit

STEPS = 6
"""Descents of one update at most."""
SETTLED = 0.1
"""Root mean square of what is left to do on logit p at which it is done."""
FARTHEST = 2.0
"""How many times as far as the first guess, which is half-way, the line search may go."""

Given = list[tuple[Tensor, Tensor]]
"""Weights and their gradients."""


@dataclass(slots=True, eq=False)
class Chooser:
    """Moves one policy's choice to speak."""

    policy: Policy
    silence: SilenceConfig
    held: float | None = None
    """Mean logit p when silence began to warm up: there it is held meanwhile."""

    def step(self, choices: Sequence[Choice], *, train: bool, tokens: int) -> None:
        """p to where the gains ask it to be or, unless it is to `train`, back to where it was.

        `tokens`: how many of them are computed together.
        """
        old_C = torch.tensor([choice.log_p for choice in choices])
        change_C = self._change(old_C, choices) if train else self._back(old_C)
        asked = _Asked(self.policy, choices, old_C, change_C, _parts(choices, tokens))
        for _ in range(STEPS):
            left_C, given = asked.slope()
            size = float(left_C.square().mean())
            steepness = sum(float(gradient.square().sum()) for _, gradient in given)
            if not (size > SETTLED**2 and steepness > 0.0):  # nor where it is not a number
                return
            guess = 0.5 * size / steepness  # half-way, were all contexts one
            self._move(given, -guess)
            self._move(given, guess - guess * _line_search(left_C, asked.left()))

    def _change(self, log_p_C: Tensor, choices: Sequence[Choice]) -> Tensor:
        settings = ChoiceSettings(
            coefficient=self.silence.coefficient,
            least_weight=self.silence.least_weight,
            clip=self.silence.clip,
        )
        return asked_change(log_p_C, torch.tensor([choice.gain for choice in choices]), settings)

    def _back(self, log_p_C: Tensor) -> Tensor:
        """The same in every context, so that p may go on differing between them."""
        mean = float(silence_logit(log_p_C).mean())
        self.held = mean if self.held is None else self.held
        return torch.full_like(log_p_C, self.held - mean)

    def _move(self, given: Given, by: float) -> None:
        with torch.no_grad():
            for weight, gradient in given:
                weight.add_(gradient, alpha=by)
        self.policy.publish()


@dataclass(slots=True, eq=False)
class _Asked:
    """What some contexts are asked for, and what is left of it under the present weights."""

    policy: Policy
    choices: Sequence[Choice]
    old_C: Tensor
    change_C: Tensor
    parts: list[list[int]]
    """Contexts that are computed together; smaller ones where memory wants it."""

    def slope(self) -> tuple[Tensor, Given]:
        """What is left, and the gradient of half its mean square."""
        weights = list(self.policy.parameters.values())
        for weight in weights:
            weight.grad = None

        def learn(part: list[int]) -> Tensor:
            log_p_C = self._log_p(part)
            old, change = self.old_C[part].to(log_p_C), self.change_C[part].to(log_p_C)
            accumulate(self.policy, choice_loss(log_p_C, old, change, len(self.choices)))
            return log_p_C.detach()

        left_C = self._left(learn)
        return left_C, [(weight, weight.grad) for weight in weights if weight.grad is not None]

    @torch.no_grad()
    def left(self) -> Tensor:
        return self._left(self._log_p)

    def _left(self, look: Callable[[list[int]], Tensor]) -> Tensor:
        seen = list(as_memory_allows(self.parts, look, in_two))
        self.parts = [part for part, _ in seen]
        left_C = silence_logit(self.old_C) + self.change_C
        for part, log_p_C in seen:
            left_C[part] -= silence_logit(log_p_C).to(left_C)
        return left_C

    def _log_p(self, part: list[int]) -> Tensor:
        """log π(silence) in some contexts."""
        asked = [(self.choices[i].prompt_ids, self.choices[i].marker_ids) for i in part]
        with self.policy.on():
            return score(self.policy.loaded.module, asked).logprobs_BT.sum(-1)


def _line_search(before_C: Tensor, after_C: Tensor) -> float:
    """How far to go, in units of the step that led from `before` to `after`, were it all linear."""
    moved_C = before_C - after_C
    best = float(before_C @ moved_C) / max(float(moved_C @ moved_C), 1e-12)
    return min(max(best, 0.0), FARTHEST) if math.isfinite(best) else 0.0


def _parts(choices: Sequence[Choice], tokens: int) -> list[list[int]]:
    """Choices in pieces of at most so many padded tokens."""
    width = max(len(choice.prompt_ids) + len(choice.marker_ids) for choice in choices)
    size = max(1, tokens // width)
    return [list(range(i, min(i + size, len(choices)))) for i in range(0, len(choices), size)]
