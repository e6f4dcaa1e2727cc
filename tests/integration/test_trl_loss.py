"""Our losses beside TRL's own code: the same values and the same gradients."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit.config import LossConfig
from tests.helpers.losses import ragged, value_and_gradient

grpo_trainer = pytest.importorskip(
    "trl.trainer.grpo_trainer",
    reason="trl is not installed (extra `integration`)",
    exc_type=ImportError,
)

TRL_SETTINGS = {
    "gspo": ("grpo", "sequence", 0.05, 0.07),
    "grpo": ("grpo", "token", 0.2, 0.2),
    "dapo": ("dapo", "token", 0.2, 0.28),
    "dr_grpo": ("dr_grpo", "token", 0.2, 0.2),
    "luspo": ("luspo", "sequence", 0.05, 0.07),
}


def trl_trainer(name: str, beta: float, corrected: bool, logprobs: Tensor, width: int) -> Any:
    """TRL's trainer without its constructor: only what `_compute_loss` reads, and a fake model."""
    loss_type, level, low, high = TRL_SETTINGS[name]
    trainer = object.__new__(grpo_trainer.GRPOTrainer)
    trainer.__dict__.update(
        loss_type=loss_type,
        importance_sampling_level=level,
        epsilon_low=low,
        epsilon_high=high,
        beta=beta,
        max_completion_length=width,
        use_vllm=corrected,
        vllm_importance_sampling_correction=corrected,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        current_gradient_accumulation_steps=1,
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
        accelerator=SimpleNamespace(
            num_processes=1, reduce=lambda x, reduction: x, gather=lambda x: x
        ),
        _get_per_token_logps_and_entropies=lambda *_, **__: (
            logprobs,
            torch.zeros_like(logprobs),
            None,
        ),
    )
    return trainer


@pytest.mark.parametrize("name", TRL_SETTINGS)
@pytest.mark.parametrize(("beta", "corrected"), [(0.0, False), (0.04, False), (0.04, True)])
def test_value_and_gradient_equal_those_of_trl(name: str, beta: float, corrected: bool) -> None:
    _, _, low, high = TRL_SETTINGS[name]
    for seed in range(4):
        x = ragged(seed)
        rows, width = x.mask_BT.shape
        gap = torch.where(x.mask_BT, x.old_logprobs_BT - x.engine_logprobs_BT, 0.0)
        mismatch = torch.exp(gap.sum(-1, keepdim=True) / x.mask_BT.sum(-1, keepdim=True))
        prompt = torch.ones(rows, 1, dtype=torch.long)
        inputs = {
            "prompt_ids": prompt,
            "prompt_mask": prompt,
            "completion_ids": torch.ones(rows, width, dtype=torch.long),
            "completion_mask": x.mask_BT.long(),
            "advantages": x.advantages,
            "old_per_token_logps": x.old_logprobs_BT,
            "ref_per_token_logps": x.ref_logprobs_BT,
            "importance_sampling_ratio": mismatch.clamp(max=1.02),
            "num_items_in_batch": x.mask_BT.sum().double(),
        }
        trainer = trl_trainer(name, beta, corrected, x.logprobs_BT, width)
        theirs = type(trainer)._compute_loss(trainer, None, inputs)
        expected = torch.autograd.grad(theirs, x.logprobs_BT)[0]
        settings = LossConfig(
            clip_low=low,
            clip_high=high,
            kl=beta,
            mismatch_cap=1.02 if corrected else None,
            max_length=width,
        )
        value, gradient = value_and_gradient(name, x, settings)
        torch.testing.assert_close(value, theirs.detach(), rtol=1e-5, atol=0)
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-12)
        assert bool((gradient != 0).any()) and bool((gradient[x.mask_BT] == 0).any() or beta)
