"""Draws tokens for many rows at a time; what a row draws depends on that row alone.

Works in float64 on whole rows of logits. For the silence rule see `silence/conditioning.py`.
"""

import torch
from torch import Tensor

from tacit.engine.base import Sampling

_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64
GREEDY = Sampling()


def uniforms(seeds: Tensor, counters: Tensor) -> Tensor:
    """A number in [0, 1) for each (seed, counter) pair: splitmix64's finaliser twice, in int64."""
    bits = _mix(_mix(seeds + _GAMMA) + counters * _GAMMA)
    return _shift(bits, 12).double() * 2.0**-52


def uniform(seed: int, counter: int) -> float:
    """`uniforms` for one pair."""
    return float(uniforms(torch.tensor([seed]), torch.tensor([counter])).item())


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return z ^ _shift(z, 31)


def _shift(z: Tensor, by: int) -> Tensor:
    """Logical right shift; torch's `>>` on int64 keeps the sign."""
    return (z >> by) & ((1 << (64 - by)) - 1)


class RowSettings:
    """How each row of a block draws: tensors on the device, and lists that the host reads freely.

    All rows start with the given sampling and seed.
    """

    def __init__(
        self, rows: int, device: torch.device, sampling: Sampling = GREEDY, seed: int = 0
    ) -> None:
        def filled(value: float, dtype: torch.dtype) -> Tensor:
            return torch.full((rows,), value, dtype=dtype, device=device)

        self.seeds_R = filled(seed, torch.int64)
        self.temperature_R = filled(sampling.temperature or 1.0, torch.float64)
        self.greedy_R = filled(sampling.greedy, torch.bool)
        self.top_p_R = filled(sampling.top_p, torch.float64)
        self.top_k_R = filled(sampling.top_k, torch.int64)
        self.greedy = [sampling.greedy] * rows
        self.tempered = [sampling.temperature not in (0.0, 1.0)] * rows
        self.filtered = [sampling.filtered] * rows

    def put(self, row: int, sampling: Sampling, seed: int) -> None:
        self.seeds_R[row] = seed
        self.temperature_R[row] = sampling.temperature or 1.0
        self.greedy_R[row] = self.greedy[row] = sampling.greedy
        self.top_p_R[row] = sampling.top_p
        self.top_k_R[row] = sampling.top_k
        self.tempered[row] = sampling.temperature not in (0.0, 1.0)
        self.filtered[row] = sampling.filtered


def log_distribution(logits_RV: Tensor, settings: RowSettings) -> Tensor:
    """log π of every token as sampled: temperature, then top-k, then top-p. Greedy is T = 1."""
    wide_RV = logits_RV.double()
    if any(settings.tempered):  # dividing by 1 changes nothing
        wide_RV = wide_RV / settings.temperature_R[:, None]
    logp_RV = wide_RV.log_softmax(-1)
    if rows := [row for row, filtered in enumerate(settings.filtered) if filtered]:
        logp_RV[rows] = _filter(logp_RV[rows], settings.top_p_R[rows], settings.top_k_R[rows])
    return logp_RV


def _filter(logp_RV: Tensor, top_p_R: Tensor, top_k_R: Tensor) -> Tensor:
    ranked, order = torch.sort(logp_RV, dim=-1, descending=True, stable=True)
    rank_V = torch.arange(logp_RV.shape[-1], device=logp_RV.device)
    beyond = (rank_V >= top_k_R[:, None]) & (top_k_R > 0)[:, None]
    ranked = ranked.masked_fill(beyond, -torch.inf).log_softmax(-1)
    mass = ranked.exp()
    before = mass.cumsum(-1) - mass
    beyond = (before >= top_p_R[:, None]) & (top_p_R < 1.0)[:, None]
    ranked = ranked.masked_fill(beyond, -torch.inf).log_softmax(-1)
    return torch.empty_like(logp_RV).scatter_(-1, order, ranked)


def draw(logq_RV: Tensor, settings: RowSettings, counters_R: Tensor) -> tuple[Tensor, Tensor]:
    """One token for each row, by inverse CDF or greedily, and its log q."""
    if all(settings.greedy):
        ids_R = logq_RV.argmax(-1)
    else:
        cdf_RV = logq_RV.exp().cumsum_(-1)
        # u ≤ 1 − 2⁻⁵², so the target stays below the total and falls on a token with mass
        target_R1 = (uniforms(settings.seeds_R, counters_R) * cdf_RV[:, -1])[:, None]
        ids_R = torch.searchsorted(cdf_RV, target_R1, right=True)[:, 0]
        ids_R = ids_R.clamp_max(logq_RV.shape[-1] - 1)  # for rows of NaN
        if any(settings.greedy):
            ids_R = torch.where(settings.greedy_R, logq_RV.argmax(-1), ids_R)
    return ids_R, logq_RV.gather(-1, ids_R[:, None])[:, 0]
