"""Policy losses over one microbatch: gspo, gspo_token, grpo, dapo, dr_grpo, luspo.

Pure functions of log-probabilities. Not covered: computing those, advantages, the optimiser.

Every loss is a sum over tokens of a term times a weight, and the weights depend only on the sizes
of the *whole* batch. So the losses and gradients of microbatches add up to those of the batch,
however it is cut. One condition: the losses with a ratio per sequence (gspo, gspo_token, luspo)
need all rows of a sequence in one microbatch, and raise otherwise. The reduction is part of each
loss and not a setting, because GSPO with a token mean is a different, length-weighted loss.

Shapes: B rows, T positions, S sequences of the whole batch (a message is one row; an agent's or an
episode's messages are several rows with one sequence number).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.config import LossConfig
from tacit.learn.loss_stats import LossStats, measure

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to ± this before exp, so that one bad token cannot overflow the loss."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossInputs:
    """One microbatch. Values outside the mask are never read."""

    logprobs_BT: Tensor
    """log π_θ of the sampled tokens; the only tensor with a gradient."""
    old_logprobs_BT: Tensor
    mask_BT: Tensor
    """True on sampled tokens, end-of-sequence included; False on padding."""
    advantages: Tensor
    """(B,) or (B, T)."""
    sequence_B: Tensor
    """Each row's sequence, 0 … S−1 over the whole batch."""
    weights_B: Tensor | None = None
    """Factors on the advantages."""
    apart: Mapping[str, Tensor] = field(default_factory=dict)
    """Subsets of rows, as (B,) masks, whose clipping is also reported by name."""
    ref_logprobs_BT: Tensor | None = None
    engine_logprobs_BT: Tensor | None = None

    def __post_init__(self) -> None:
        shape = self.logprobs_BT.shape
        for name in ("old_logprobs_BT", "mask_BT", "ref_logprobs_BT", "engine_logprobs_BT"):
            tensor = getattr(self, name)
            if tensor is not None and tensor.shape != shape:
                raise ValueError(f"{name} is {tuple(tensor.shape)}, logprobs_BT {tuple(shape)}")
        if self.mask_BT.dtype != torch.bool:
            raise ValueError(f"mask_BT must be bool, got {self.mask_BT.dtype}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchSizes:
    """Sizes of a whole batch, for the denominators; rows of advantage 0 count too."""

    lengths_S: Tensor
    """Tokens of each sequence."""

    @property
    def sequences(self) -> int:
        return self.lengths_S.numel()

    @property
    def tokens(self) -> Tensor:
        return self.lengths_S.sum().clamp(min=1)


def batch_sizes(tokens_B: Tensor, sequence_B: Tensor) -> BatchSizes:
    """From the number of sampled tokens and the sequence of every row of the whole batch."""
    if tokens_B.numel() == 0:
        raise ValueError("a batch without rows has no loss")
    sequences = int(sequence_B.max()) + 1
    lengths_S = torch.zeros(sequences, dtype=torch.long, device=tokens_B.device)
    return BatchSizes(lengths_S=lengths_S.index_add(0, sequence_B, tokens_B.long()))


CLIP_RANGES = {
    "gspo": (3e-4, 4e-4),
    "gspo_token": (3e-4, 4e-4),
    "grpo": (0.2, 0.2),
    "dapo": (0.2, 0.28),
    "dr_grpo": (0.2, 0.2),
    "luspo": (2e-3, 2.5e-3),
}
"""(ε_low, ε_high) as each paper recommends."""
LENGTH_REF = 1024
"""`length_aware` widens ε by sqrt(LENGTH_REF/L): the mean log-ratio of L tokens spreads like
1/sqrt(L), so a fixed tiny ε clips nearly every short message. Only losses with a ratio per sequence
use it."""
MAX_LENGTH = 1024
"""The constant by which dr_grpo divides, if the config does not set it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossOutput:
    loss: Tensor
    stats: LossStats


def gspo(x: LossInputs, sizes: BatchSizes, config: LossConfig) -> LossOutput:
    """GSPO (arXiv 2507.18071, eq. 5 and 7): one ratio per sequence, the mean over sequences.

    J = 1/S Σ_i min(s_i·A_i, clip(s_i)·A_i),   s_i = exp(1/|y_i| Σ_t log π_θ/π_old)
    """
    ratio = _bounded_exp(_sequence_mean(_log_ratio(x), x, sizes))
    return _clipped_loss(x, sizes, config, ratio, _one_per_sequence(x, sizes), per_sequence=True)


def gspo_token(x: LossInputs, sizes: BatchSizes, config: LossConfig) -> LossOutput:
    """GSPO-token (arXiv 2507.18071, eq. 13 to 17): tokens may have advantages of their own.

    s_{i,t} = sg[s_i]·π_θ(y_t)/sg[π_θ(y_t)]: GSPO's value and clipping, each token's own gradient.
    """
    sequence_B1 = _sequence_mean(_log_ratio(x), x, sizes).detach()
    logprobs_BT = torch.where(x.mask_BT, x.logprobs_BT, 0.0)
    ratio = _bounded_exp(sequence_B1) * torch.exp(logprobs_BT - logprobs_BT.detach())
    return _clipped_loss(x, sizes, config, ratio, _one_per_sequence(x, sizes), per_sequence=True)


def grpo(x: LossInputs, sizes: BatchSizes, config: LossConfig) -> LossOutput:
    """GRPO (DeepSeekMath, arXiv 2402.03300, eq. 3): a ratio per token, a mean of sequence means.

    J = 1/S Σ_i 1/|y_i| Σ_t min(r_t·A, clip(r_t)·A),   r_t = π_θ(y_t)/π_old(y_t)
    """
    return _clipped_loss(x, sizes, config, _bounded_exp(_log_ratio(x)), _one_per_sequence(x, sizes))


def dapo(x: LossInputs, sizes: BatchSizes, config: LossConfig) -> LossOutput:
    """DAPO (arXiv 2503.14476, eq. 8): GRPO's terms, a mean over all tokens, ε_high above ε_low.

    Overlong shaping is `economy.reward.overlong_penalty`; dynamic sampling is in `loop`.
    """
    weight = torch.ones_like(x.logprobs_BT[:, :1]) / sizes.tokens
    return _clipped_loss(x, sizes, config, _bounded_exp(_log_ratio(x)), weight)


def dr_grpo(x: LossInputs, sizes: BatchSizes, config: LossConfig) -> LossOutput:
    """Dr. GRPO (arXiv 2503.20783): GRPO's terms over a constant length, so no length bias."""
    length = sizes.sequences * (config.max_length or MAX_LENGTH)
    weight = torch.ones_like(x.logprobs_BT[:, :1]) / length
    return _clipped_loss(x, sizes, config, _bounded_exp(_log_ratio(x)), weight)


def luspo(x: LossInputs, sizes: BatchSizes, config: LossConfig) -> LossOutput:
    """LUSPO (arXiv 2602.05261): GSPO times the length, which undoes its pull to short outputs.

    J = 1/S Σ_i |y_i|·min(s_i·A_i, clip(s_i)·A_i)
    """
    ratio = _bounded_exp(_sequence_mean(_log_ratio(x), x, sizes))
    weight = torch.ones_like(x.logprobs_BT[:, :1]) / sizes.sequences
    return _clipped_loss(x, sizes, config, ratio, weight, per_sequence=True)


LOSSES: dict[str, Callable[[LossInputs, BatchSizes, LossConfig], LossOutput]] = {
    "gspo": gspo,
    "gspo_token": gspo_token,
    "grpo": grpo,
    "dapo": dapo,
    "dr_grpo": dr_grpo,
    "luspo": luspo,
}


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(π‖ref), per token: exp(d) − d − 1 with d = log ref − log π."""
    d = ref_logprobs - logprobs
    return _bounded_exp(d) - d - 1


def _clipped_loss(
    x: LossInputs,
    sizes: BatchSizes,
    config: LossConfig,
    ratio: Tensor,
    weight_B1: Tensor,
    *,
    per_sequence: bool = False,
) -> LossOutput:
    """Σ_t weight·(−min(ratio·A, clip(ratio)·A)·correction + β·k3), and its statistics."""
    advantages = _weighted_advantages(x)
    lengths_B1 = sizes.lengths_S[x.sequence_B][:, None].clamp(min=1).to(ratio.dtype)
    aware = per_sequence and config.length_aware
    widen = (LENGTH_REF / lengths_B1) ** 0.5 if aware else torch.ones_like(lengths_B1)
    clip_low, clip_high = CLIP_RANGES[config.name]
    low = 1 - (config.clip_low or clip_low) * widen
    high = 1 + (config.clip_high or clip_high) * widen
    surrogate = torch.min(ratio * advantages, torch.clamp(ratio, low, high) * advantages)
    mismatch_B1 = _engine_mismatch(x)
    if mismatch_B1 is not None and config.mismatch_cap is not None:
        surrogate = surrogate * mismatch_B1.clamp(max=config.mismatch_cap)
    term_BT = -surrogate.expand_as(x.mask_BT)
    kl_BT = None
    if x.ref_logprobs_BT is not None:
        kl_BT = k3(*(torch.where(x.mask_BT, v, 0.0) for v in (x.logprobs_BT, x.ref_logprobs_BT)))
        term_BT = term_BT + config.kl * kl_BT
    clipped = ((ratio < low) & (advantages < 0)) | ((ratio > high) & (advantages > 0))
    stats = measure(
        mask_BT=x.mask_BT,
        ratio_BT=ratio.detach().expand_as(x.mask_BT),
        clipped_BT=clipped.expand_as(x.mask_BT),
        log_ratio_BT=_log_ratio(x).detach(),
        lengths_B1=lengths_B1,
        per_sequence=per_sequence,
        apart=x.apart,
        ref_kl_BT=None if kl_BT is None else kl_BT.detach(),
        mismatch_B1=mismatch_B1,
        mismatch_cap=config.mismatch_cap,
    )
    return LossOutput(loss=(torch.where(x.mask_BT, term_BT, 0.0) * weight_B1).sum(), stats=stats)


def _weighted_advantages(x: LossInputs) -> Tensor:
    """(B, 1) or (B, T)."""
    per_token = x.advantages.dim() == 2
    # 0 outside the mask, since NaN would survive a multiplication by a zero gradient
    advantages = (
        torch.where(x.mask_BT, x.advantages, 0.0) if per_token else x.advantages[:, None]
    ).detach()
    return advantages if x.weights_B is None else advantages * x.weights_B.detach()[:, None]


def _engine_mismatch(x: LossInputs) -> Tensor | None:
    """The geometric mean of π_old/π_engine over each row, detached and not truncated.

    The product would shrink with length (TRL pull request 5815: 0.569 where the mean is 0.993).
    """
    if x.engine_logprobs_BT is None:
        return None
    gap_BT = torch.where(x.mask_BT, x.old_logprobs_BT - x.engine_logprobs_BT, 0.0)
    tokens_B1 = x.mask_BT.sum(-1, keepdim=True).clamp(min=1)
    return _bounded_exp(gap_BT.sum(-1, keepdim=True) / tokens_B1).detach()


def _log_ratio(x: LossInputs) -> Tensor:
    """log π_θ/π_old, 0 outside the mask."""
    return torch.where(x.mask_BT, x.logprobs_BT - x.old_logprobs_BT, 0.0)


def _bounded_exp(log_ratio: Tensor) -> Tensor:
    return torch.exp(log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))


def _sequence_mean(values_BT: Tensor, x: LossInputs, sizes: BatchSizes) -> Tensor:
    """The mean over all tokens of each row's sequence, (B, 1)."""
    lengths_S = sizes.lengths_S
    here_S = torch.zeros_like(lengths_S).index_add(0, x.sequence_B, x.mask_BT.sum(-1))
    cut = (here_S != lengths_S) & (here_S > 0)
    if bool(cut.any()):
        number = int(cut.nonzero()[0])
        raise ValueError(
            f"sequence {number} has {int(lengths_S[number])} tokens, {int(here_S[number])} of them "
            "in this micro-batch: keep the rows of a sequence together"
        )
    sums_S = torch.zeros_like(lengths_S, dtype=values_BT.dtype)
    sums_S = sums_S.index_add(0, x.sequence_B, values_BT.sum(-1))
    return (sums_S / lengths_S.clamp(min=1))[x.sequence_B][:, None]


def _one_per_sequence(x: LossInputs, sizes: BatchSizes) -> Tensor:
    """Token weights under which every sequence counts the same, (B, 1)."""
    lengths_B1 = sizes.lengths_S[x.sequence_B][:, None].clamp(min=1)
    return 1.0 / (lengths_B1.to(x.logprobs_BT.dtype) * sizes.sequences)
