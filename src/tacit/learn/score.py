"""Log-probabilities of sampled tokens under a model, computed by `engine/forward.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.engine.forward import Ids, forward_of
from tacit.engine.load import on_device


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """B messages, padded to the longest of T tokens."""

    logprobs_BT: Tensor
    entropy_BT: Tensor
    mask_BT: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.logprobs_BT, self.entropy_BT, self.mask_BT


def score(module: Any, messages: Sequence[tuple[Ids, Ids]]) -> Scores:
    """Score each (prompt ids, output ids). Differentiable."""
    with on_device(module):
        logprobs_N, entropy_N = forward_of(module).score(messages)
        device, lengths = logprobs_N.device, [len(output) for _, output in messages]
        ends_B1 = torch.tensor(lengths, device=device)[:, None]
        mask_BT = torch.arange(max(lengths), device=device) < ends_B1
        blank = torch.zeros(mask_BT.shape, device=device, dtype=logprobs_N.dtype)
        return Scores(
            blank.masked_scatter(mask_BT, logprobs_N),
            blank.masked_scatter(mask_BT, entropy_N),
            mask_BT,
        )
