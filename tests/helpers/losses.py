"""Batches for the losses, and a loss with its gradient."""

import torch
from torch import Tensor

from tacit.config import LossConfig
from tacit.learn.loss import LOSSES, BatchSizes, LossInputs, batch_sizes


def sizes_of(x: LossInputs) -> BatchSizes:
    return batch_sizes(x.mask_BT.sum(-1), x.sequence_B)


def ragged(seed: int, rows: int = 7, width: int = 9) -> LossInputs:
    """A random batch with every length from 1 to the width."""
    random = torch.Generator().manual_seed(seed)
    old = -torch.rand(rows, width, generator=random, dtype=torch.float64) * 3 - 0.1
    noise = torch.randn(rows, width, generator=random, dtype=torch.float64)
    lengths = torch.randint(1, width + 1, (rows,), generator=random)
    lengths[0] = width
    return LossInputs(
        logprobs_BT=(old + 0.3 * noise).requires_grad_(),
        old_logprobs_BT=old,
        mask_BT=torch.arange(width) < lengths[:, None],
        advantages=torch.randn(rows, generator=random, dtype=torch.float64),
        sequence_B=torch.arange(rows),
        ref_logprobs_BT=old + 0.2 * torch.randn(rows, width, generator=random, dtype=torch.float64),
        engine_logprobs_BT=old + 0.1 * noise.flip(0),
    )


def value_and_gradient(
    name: str, x: LossInputs, settings: LossConfig, sizes: BatchSizes | None = None
) -> tuple[Tensor, Tensor]:
    loss = LOSSES[name](x, sizes or sizes_of(x), settings).loss
    return loss.detach(), torch.autograd.grad(loss, x.logprobs_BT)[0]
