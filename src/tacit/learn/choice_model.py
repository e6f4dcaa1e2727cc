"""Adapts a policy to the step of silence: π(silence) after some prompts, and its gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.engine.memory import as_memory_allows, in_two
from tacit.learn.policy import Policy, accumulate
from tacit.learn.score import score
from tacit.silence import ChoicePoint
from tacit.silence.conditioning import any_end, spelled
from tacit.silence.step import Learn


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

        width = max(len(point.prompt_ids) + len(point.marker_ids) for point in points)
        width *= len(self.policy.ends)
        size = max(1, self.tokens // width)
        parts = [list(range(len(points)))[i : i + size] for i in range(0, len(points), size)]
        seen = list(as_memory_allows(parts, one, in_two))
        if len(seen) > len(parts):
            self.tokens = width * max(len(part) for part, _ in seen)
        return torch.cat([log_p_C for _, log_p_C in seen])

    def _log_p(self, points: Sequence[ChoicePoint]) -> Tensor:
        ends = self.policy.ends
        messages = [(p.prompt_ids, ids) for p in points for ids in spelled(p.marker_ids, ends)]
        with self.policy.on():
            scores = score(self.policy.loaded.module, messages)
        return any_end(scores.logprobs_BT, len(ends)).sum(-1)
