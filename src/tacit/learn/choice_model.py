"""Adapts a policy to the step of silence: π(silence) after some prompts, and its gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.engine.forward import forward_of
from tacit.engine.memory import as_memory_allows, in_two
from tacit.learn.policy import Policy, accumulate
from tacit.learn.score import score
from tacit.silence import ChoicePoint
from tacit.silence.conditioning import any_end, spelled
from tacit.silence.step import Learn

SCORED_AT_ONCE = 4
"""How many times as many tokens fit into a GPU when no gradient is needed."""


def cut(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Indices in parts of at most so many tokens, one at least in each."""
    parts: list[list[int]] = []
    room = 0
    for index, size in enumerate(sizes):
        if size > room:
            parts.append([])
            room = most
        parts[-1].append(index)
        room -= size
    return parts


@dataclass(slots=True, eq=False)
class PolicyChoice:
    """Implements `silence.step.ChoiceModel`."""

    policy: Policy
    tokens: int
    """Most tokens to compute at once; lowered when memory runs out."""

    @property
    def weights(self) -> list[Tensor]:
        return list(self.policy.parameters.values())

    def publish(self) -> None:
        self.policy.publish()

    def look(self, points: Sequence[ChoicePoint], learn: Learn | None = None) -> Tensor:
        def one(part: list[int]) -> Tensor:
            log_p_C = self._log_p([points[i] for i in part])
            if learn:
                accumulate(self.policy, learn(log_p_C, part))
            return log_p_C.detach().float().cpu()

        sizes, on_gpu = self._sizes(points)
        at_once = SCORED_AT_ONCE if on_gpu and not learn else 1
        parts = cut(sizes, self.tokens * at_once)
        seen = list(as_memory_allows(parts, one, in_two))
        if len(seen) > len(parts):
            largest = max(sum(sizes[i] for i in part) for part, _ in seen if part not in parts)
            self.tokens = min(self.tokens, largest // at_once)
        return torch.cat([log_p_C for _, log_p_C in seen])

    def _sizes(self, points: Sequence[ChoicePoint]) -> tuple[list[int], bool]:
        """The tokens that each point takes, and whether it takes no more on a GPU.

        A GPU computes each prompt once for all ends and pads nothing. Elsewhere a point counts as
        if it were padded, which is safe and keeps the parts, and so every digit, as they were.
        """
        module, ends = self.policy.loaded.module, len(self.policy.ends)
        if module.device.type == "cuda" and forward_of(module).packs:
            return [len(p.prompt_ids) + ends * len(p.marker_ids) for p in points], True
        width = ends * max(len(p.prompt_ids) + len(p.marker_ids) for p in points)
        return [width] * len(points), False

    def _log_p(self, points: Sequence[ChoicePoint]) -> Tensor:
        ends = self.policy.ends
        messages = [(p.prompt_ids, ids) for p in points for ids in spelled(p.marker_ids, ends)]
        with self.policy.on():
            scores = score(self.policy.loaded.module, messages)
        return any_end(scores.logprobs_BT, len(ends)).sum(-1)
