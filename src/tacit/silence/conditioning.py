"""The exact probability of silence, and a message's probability given that it is not silence.

Silence is the marker's ids m_1 … m_{n−1} followed by m_n, which stands for any token at which the
engine stops; π(m_n) is the sum over them. P_j = Π_{i>j} π(m_i | prompt, m_<i) is the probability of
completing silence after its first j ids, so P_0 = π(silence). Given that silence is not completed,

    q(m_{j+1}) = π(m_{j+1})·(1 − P_{j+1})/(1 − P_j),   any other token: q = π/(1 − P_j),

and tokens after the message has left the marker keep q = π. So log q(y) = log π(y) − log(1 − P_0)
for every message y that is not silence. `log_shift` is this formula; engines use it to draw from q,
and the trainer to compute log q (`conditioned_logprobs`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.types import Ids

LEAST_REST = 2.0**-24
"""Half the distance from 1 to the next smaller number of single precision."""
LARGEST_LOG_P = -1e-6
"""Keeps log(1 − p) finite."""


def log_shift(log_rest: Sequence[Any], j: int, *, follows: bool) -> Any:
    """log q − log π of the token after the marker's first j ids; `log_rest` is log(1 − P_j)."""
    return log_rest[j + 1] - log_rest[j] if follows else -log_rest[j]


@dataclass(frozen=True, slots=True)
class SilenceOdds:
    """The probability of silence after one prompt, token by token."""

    marker: Ids
    """m_1 … m_{n−1}."""
    ends: Ids
    """The ids that m_n stands for."""
    logprobs: tuple[float, ...]
    """log π(m_{j+1} | prompt, m_1 … m_j) for j = 0 … n−1; the last is summed over the ends."""
    end_logprobs: tuple[float, ...]
    """log π of each end after the marker."""
    log_rest: tuple[float, ...]
    """log(1 − P_j) for j = 0 … n; the last is −∞."""

    @property
    def logprob(self) -> float:
        return math.fsum(self.logprobs)

    def silent(self, uniform: float | None) -> tuple[Ids, tuple[float, ...]]:
        """The ids of silence and their log π; `uniform` draws its end, None takes the likeliest."""
        if uniform is None:
            end = max(range(len(self.ends)), key=self.end_logprobs.__getitem__)
        else:
            end, left = 0, uniform * math.exp(self.logprobs[-1])
            others = self.end_logprobs[:-1]
            while end < len(others) and (left := left - math.exp(others[end])) >= 0.0:
                end += 1
        return (*self.marker, self.ends[end]), (*self.logprobs[:-1], self.end_logprobs[end])

    def log_q_marker(self, j: int) -> float:
        """log q of the marker's next id after its first j."""
        shifted: float = self.logprobs[j] + log_shift(self.log_rest, j, follows=True)
        return shifted


def silence_odds(logp_SNV: Tensor, marker: Ids, ends: Sequence[int]) -> list[SilenceOdds]:
    """Odds after each of S prompts, from the distributions over m_1, m_2, … m_n.

    1 − P_j is summed from what is *not* silence, (1 − π_j) + π_j·(1 − P_{j+1}), so that it stays
    exact when silence is all but certain.
    """
    place_N = torch.arange(len(marker), device=logp_SNV.device)
    marker_N = torch.tensor(marker, dtype=torch.int64, device=logp_SNV.device)
    ends_E = torch.tensor(ends, device=logp_SNV.device)
    logprobs_SN = logp_SNV[:, place_N, marker_N].tolist()
    end_logprobs_SE = logp_SNV[:, -1, ends_E].tolist()
    others_SNV = logp_SNV.clone()
    others_SNV[:, place_N, marker_N] = -torch.inf
    others_SNV[:, -1, ends_E] = -torch.inf
    known = zip(logprobs_SN, end_logprobs_SE, others_SNV.logsumexp(-1).tolist(), strict=True)
    return [_odds(marker, tuple(ends), *one) for one in known]


def marker_odds(
    logprobs: Sequence[float],
    end_logprobs: Sequence[float],
    marker: Ids,
    ends: Ids,
) -> SilenceOdds:
    """Odds from silence's own log-probabilities, if those of other tokens are not known.

    1 − P_j is then limited by single precision: a token of probability 1 leaves LEAST_REST to the
    others.
    """
    others = [log_others(logprob) for logprob in (*logprobs, _log_sum(end_logprobs))]
    return _odds(marker, ends, logprobs, end_logprobs, others)


def log_others(logprob: float) -> float:
    """log(1 − π) from log π."""
    return math.log(max(-math.expm1(min(logprob, 0.0)), LEAST_REST))


def along_marker(
    ids: Sequence[int], logprobs: Sequence[float], odds: SilenceOdds, *, spoken: bool
) -> tuple[float, ...]:
    """The log π of a message, taken from the odds for as long as it follows the marker.

    With `spoken`, log q instead: that of a message drawn given that it is not silence.
    """
    known = list(logprobs)
    for j, (token, marker) in enumerate(zip(ids, (*odds.marker, None), strict=False)):
        if token != marker:
            known[j] += log_shift(odds.log_rest, j, follows=False) if spoken else 0.0
            break
        known[j] = odds.log_q_marker(j) if spoken else odds.logprobs[j]
    return tuple(known)


def condition_on_speech(logp_V: Tensor, odds: SilenceOdds, j: int) -> None:
    """Turn log π into log q in place, after an output of the marker's first j ids."""
    logp_V += log_shift(odds.log_rest, j, follows=False)
    aimed = [odds.marker[j]] if j < len(odds.marker) else list(odds.ends)
    logp_V[aimed] = odds.log_q_marker(j)


def _odds(
    marker: Ids,
    ends: Ids,
    logprobs: Sequence[float],
    end_logprobs: Sequence[float],
    others: Sequence[float],
) -> SilenceOdds:
    """`others` holds log(1 − π) of each of silence's n ids."""
    every = (*logprobs, _log_sum(end_logprobs))
    rest = [-math.inf]
    for logprob, other in zip(reversed(every), reversed(others), strict=True):
        rest.append(_logaddexp(other, logprob + rest[-1]))
    return SilenceOdds(marker, ends, every, tuple(end_logprobs), tuple(reversed(rest)))


def _log_sum(logprobs: Sequence[float]) -> float:
    return reduce(_logaddexp, logprobs)


def _logaddexp(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def log_not_silent(log_p: Tensor) -> Tensor:
    """log(1 − p) from log p, accurate at both ends."""
    # Clamp the value but not the gradient: with gradient 0 the choice could never come back.
    x = log_p + (log_p.clamp(max=LARGEST_LOG_P) - log_p).detach()
    near_one = x > -0.6931471805599453
    return torch.where(near_one, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


def silence_logit(log_p: Tensor) -> Tensor:
    """log p − log(1 − p)."""
    return log_p - log_not_silent(log_p)


def spelled(marker_ids: Sequence[int], ends: Sequence[int]) -> list[Ids]:
    """Silence with each of the ends; π(silence) is the sum over these."""
    return [(*marker_ids[:-1], end) for end in ends]


def any_end(logprobs_XM: Tensor, ends: int) -> Tensor:
    """Merge the scores of C choices, each `spelled` with every end, into [C, M].

    The last column is summed over the ends, so that a row sums to log π(silence).
    """
    if ends == 1 or not len(logprobs_XM):
        return logprobs_XM
    logprobs_CEM = logprobs_XM.reshape(-1, ends, logprobs_XM.shape[-1])
    return torch.cat([logprobs_CEM[:, 0, :-1], logprobs_CEM[:, :, -1:].logsumexp(1)], dim=-1)


def shared_prefix(output_ids: Sequence[int], marker_ids: Sequence[int]) -> int:
    """The number of leading tokens that a spoken message shares with the marker."""
    pairs = enumerate(zip(output_ids, marker_ids, strict=False))
    shared = next((n for n, (a, b) in pairs if a != b), min(len(output_ids), len(marker_ids)))
    if shared == len(marker_ids):
        raise ValueError("the message is the silence marker itself: it was not drawn given speech")
    return shared


def conditioned_logprobs(
    logprobs_BT: Tensor, marker_logprobs_BM: Tensor, shared_B: Tensor
) -> Tensor:
    """log q of each token of spoken messages; a row sums to log π(y) − log(1 − p). Differentiable.

    `shared_B` is the `shared_prefix` of each row.
    """
    log_p_BM = marker_logprobs_BM.flip(-1).cumsum(-1).flip(-1)
    rest_MB = [*log_not_silent(log_p_BM).unbind(-1), torch.zeros_like(log_p_BM[:, 0])]
    shifts = []
    for j in range(log_p_BM.shape[1]):
        goes_on, leaves = (log_shift(rest_MB, j, follows=follows) for follows in (True, False))
        kept = torch.where(shared_B == j, leaves, torch.zeros_like(leaves))
        shifts.append(torch.where(shared_B > j, goes_on, kept))
    shift_BM = torch.stack(shifts, dim=-1)
    return logprobs_BT + functional.pad(shift_BM, (0, logprobs_BT.shape[1] - shift_BM.shape[1]))
