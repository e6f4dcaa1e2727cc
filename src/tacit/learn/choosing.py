"""The choice to speak takes its step: p towards what the gains ask for (`arms`).

It comes after the content's steps, from wherever they have dragged p, with an optimiser of its own,
because either gradient would drown the other, and at a rate that falls with what is left to do,
because Adam would turn the noise of a settled choice into full steps. The content can drag p as a
whole farther than one step brings it back, so that mean logit p is levelled in the end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.config import OptimizerConfig, SilenceConfig
from tacit.learn.batch import Choice
from tacit.learn.gradients import accumulate, take_step
from tacit.learn.memory import as_memory_allows, in_two
from tacit.learn.policy import Policy
from tacit.learn.score import score
from tacit.learn.silence import ChoiceSettings, asked_change, choice_loss, silence_logit

SETTLED = 0.1
"""Root mean square of what is left to do on logit p below which the choice's rate falls."""
LEVEL = 0.1
"""How far mean logit p may be from what was asked for."""
LEVELLINGS = 6
"""Attempts of one update to bring it there,"""
LONGEST_LEVELLING = 2.0
"""each by so much at most."""


@dataclass(slots=True, eq=False)
class Chooser:
    """Moves one policy's choice to speak."""

    policy: Policy
    silence: SilenceConfig
    schedule: OptimizerConfig
    optimizer: torch.optim.Optimizer = field(init=False)
    held: float | None = None
    """Mean logit p when silence began to warm up: there it is held meanwhile."""

    def __post_init__(self) -> None:
        weights = list(self.policy.parameters.values())
        betas = self.schedule.betas
        self.optimizer = torch.optim.AdamW(weights, betas=betas, weight_decay=0.0, fused=True)

    def step(self, choices: Sequence[Choice], *, train: bool, rate: float, tokens: int) -> None:
        """p to where the gains ask it to be or, unless it is to `train`, back to where it was.

        `tokens`: how many of them are computed together.
        """
        old_C = torch.tensor([choice.log_p for choice in choices])
        change_C = self._change(old_C, choices) if train else self._back(old_C)
        self.optimizer.zero_grad(set_to_none=True)

        def approach(part: list[int]) -> float:
            log_p_C = self._log_p(choices, part)
            old, change = old_C[part].to(log_p_C), change_C[part].to(log_p_C)
            loss = choice_loss(log_p_C, old, change, len(choices))
            return 2.0 * float(loss.detach()) if accumulate(self.policy, loss) else 0.0

        done = list(as_memory_allows(_parts(choices, tokens), approach, in_two))
        left = sum(squares for _, squares in done) ** 0.5
        clip = self.schedule.clip_norm
        take_step(self.policy, self.optimizer, rate * min(1.0, left / SETTLED), clip)
        goal = float((silence_logit(old_C) + change_C).mean())
        self._level(choices, [part for part, _ in done], goal)

    def _change(self, log_p_C: Tensor, choices: Sequence[Choice]) -> Tensor:
        settings = ChoiceSettings(
            coefficient=self.silence.coefficient,
            least_weight=self.silence.least_weight,
            clip=self.silence.clip,
        )
        return asked_change(log_p_C, torch.tensor([choice.gain for choice in choices]), settings)

    def _back(self, log_p_C: Tensor) -> Tensor:
        mean = float(silence_logit(log_p_C).mean())
        self.held = mean if self.held is None else self.held
        return torch.full_like(log_p_C, self.held - mean)

    def _level(self, choices: Sequence[Choice], parts: list[list[int]], goal: float) -> None:
        """Bring mean logit p to the goal, the shortest way through the weights."""
        weights = list(self.policy.parameters.values())

        def climb(part: list[int]) -> float:
            share = silence_logit(self._log_p(choices, part)).sum() / len(choices)
            return float(share.detach()) if accumulate(self.policy, share) else math.nan

        for _ in range(LEVELLINGS):
            self.optimizer.zero_grad(set_to_none=True)
            left = goal - sum(mean for _, mean in as_memory_allows(parts, climb, in_two))
            given = [(weight, weight.grad) for weight in weights if weight.grad is not None]
            steepness = sum(float(gradient.square().sum()) for _, gradient in given)
            if not (abs(left) > LEVEL and steepness > 0.0):  # nor where it is not a number
                return
            rate = max(-LONGEST_LEVELLING, min(left, LONGEST_LEVELLING)) / steepness
            with torch.no_grad():
                for weight, gradient in given:
                    weight.add_(gradient, alpha=rate)
            self.policy.publish()

    def _log_p(self, choices: Sequence[Choice], part: list[int]) -> Tensor:
        """log π(silence) in some contexts."""
        asked = [(choices[i].prompt_ids, choices[i].marker_ids) for i in part]
        with self.policy.on():
            return score(self.policy.loaded.module, asked).logprobs_BT.sum(-1)


def _parts(choices: Sequence[Choice], tokens: int) -> list[list[int]]:
    """Choices in pieces of at most so many padded tokens."""
    width = max(len(choice.prompt_ids) + len(choice.marker_ids) for choice in choices)
    size = max(1, tokens // width)
    return [list(range(i, min(i + size, len(choices)))) for i in range(0, len(choices), size)]
