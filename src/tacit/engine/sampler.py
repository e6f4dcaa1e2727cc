"""Drawing tokens, many rows at a time: what is drawn in a row depends on that row alone.

Works in float64 on whole rows of logits. What the silence rule does to a row is in `silence.py`.
"""

import torch
from torch import Tensor

from tacit.engine.base import Sampling

_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def uniforms(seeds: Tensor, counters: Tensor) -> Tensor:
    """A number in [0, 1) for each (seed, counter) pair: splitmix64's finaliser, twice, in int64."""
    bits = _mix(_mix(seeds + _GAMMA) + counters * _GAMMA)
    return _shift(bits, 12).double() * 2.0**-52


def uniform(seed: int, counter: int) -> float:
    """`uniforms` of one pair."""
    return float(uniforms(torch.tensor([seed]), torch.tensor([counter])).item())


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return z ^ _shift(z, 31)


def _shift(z: Tensor, by: int) -> Tensor:
    """Logical right shift; torch's `>>` on int64 keeps the sign."""
    return (z >> by) & ((1 << (64 - by)) - 1)


class RowSettings:
    """How each row of a block draws."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.seeds = torch.zeros(rows, dtype=torch.int64, device=device)
        self.temperature = torch.ones(rows, dtype=torch.float64, device=device)
        self.greedy = torch.ones(rows, dtype=torch.bool, device=device)
        self.top_p = torch.ones(rows, dtype=torch.float64, device=device)
        self.top_k = torch.zeros(rows, dtype=torch.int64, device=device)
        self._greedy = [True] * rows
        self._tempered = [False] * rows
        self._filtered = [False] * rows

    def put(self, row: int, sampling: Sampling, seed: int) -> None:
        greedy = sampling.temperature == 0.0
        self.seeds[row] = seed
        self.temperature[row] = 1.0 if greedy else sampling.temperature
        self.greedy[row] = greedy
        self.top_p[row] = sampling.top_p
        self.top_k[row] = sampling.top_k
        self._greedy[row] = greedy
        self._tempered[row] = sampling.temperature not in (0.0, 1.0)
        self._filtered[row] = not greedy and (sampling.top_p < 1.0 or sampling.top_k > 0)

    def repeated(self, rows: int) -> "RowSettings":
        """The first row's settings, so many times."""
        copy = RowSettings(rows, self.seeds.device)
        for name in ("seeds", "temperature", "greedy", "top_p", "top_k"):
            setattr(copy, name, getattr(self, name)[:1].repeat(rows))
        for name in ("_greedy", "_tempered", "_filtered"):
            setattr(copy, name, getattr(self, name)[:1] * rows)
        return copy

    @property
    def filtered_rows(self) -> list[int]:
        """Rows that need a full sort, for top-p or top-k."""
        return [row for row, filtered in enumerate(self._filtered) if filtered]

    @property
    def any_greedy(self) -> bool:
        return any(self._greedy)

    @property
    def all_greedy(self) -> bool:
        return all(self._greedy)

    @property
    def any_tempered(self) -> bool:
        return any(self._tempered)


def equal_rows(rows: int, sampling: Sampling, seed: int, device: torch.device) -> RowSettings:
    settings = RowSettings(1, device)
    settings.put(0, sampling, seed)
    return settings.repeated(rows)


def log_distribution(logits_RV: Tensor, settings: RowSettings) -> Tensor:
    """log π of every token as it is sampled: tempered, then top-k, then top-p. Greedy is T = 1."""
    wide_RV = logits_RV.double()
    if settings.any_tempered:  # dividing by 1 changes nothing
        wide_RV = wide_RV / settings.temperature[:, None]
    logp_RV = wide_RV.log_softmax(-1)
    if rows := settings.filtered_rows:
        logp_RV[rows] = _filter(logp_RV[rows], settings.top_p[rows], settings.top_k[rows])
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
    """One token a row, by inverse CDF or greedily, and its log q."""
    if settings.all_greedy:
        ids_R = logq_RV.argmax(-1)
    else:
        cdf_RV = logq_RV.exp().cumsum_(-1)
        # u ≤ 1 − 2⁻⁵², so the target stays below the total and falls on a token with mass
        target_R1 = (uniforms(settings.seeds, counters_R) * cdf_RV[:, -1])[:, None]
        ids_R = torch.searchsorted(cdf_RV, target_R1, right=True)[:, 0]
        ids_R = ids_R.clamp_max(logq_RV.shape[-1] - 1)  # a row of NaN has no token
        if settings.any_greedy:
            ids_R = torch.where(settings.greedy, logq_RV.argmax(-1), ids_R)
    return ids_R, logq_RV.gather(-1, ids_R[:, None])[:, 0]
