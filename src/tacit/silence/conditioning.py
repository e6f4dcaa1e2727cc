"""The exact probability of silence, and how a message is drawn given that it is not silence.

Silence is the marker's ids m_1 … m_{n−1} and then m_n, any token at which the engine stops, so that
π(m_n) is the sum over them. P_j = Π_{i>j} π(m_i | prompt, m_<i) is the chance of completing silence
from its first j ids, so P_0 = π(silence). Given that it is not completed,
q(m_{j+1}) = π(m_{j+1})·(1 − P_{j+1})/(1 − P_j), and every other token has π/(1 − P_j).
So log q(y) = log π(y) − log(1 − P_0) for every y that is not silence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from tacit.engine.base import SilenceRule
from tacit.engine.sampler import uniform
from tacit.types import Choice

_CHOICE_COUNTER, _END_COUNTER = -1, -2
"""Tokens use the counters from 0 on."""
LEAST_REST = 2.0**-24
"""Half the distance from 1 to the next smaller number of single precision."""


@dataclass(frozen=True, slots=True)
class SilenceOdds:
    """What the model makes of silence after one prompt."""

    marker: tuple[int, ...]
    """m_1 … m_{n−1}."""
    ends: tuple[int, ...]
    """What m_n may be."""
    logprobs: tuple[float, ...]
    """log π(m_{j+1} | prompt, m_1 … m_j), for j = 0 … n−1; the last is that of any end."""
    end_logprobs: tuple[float, ...]
    """Each end's own, after the marker."""
    log_rest: tuple[float, ...]
    """log(1 − P_j), for j = 0 … n; the last is −∞."""

    @property
    def logprob(self) -> float:
        return math.fsum(self.logprobs)

    def silent(self, seed: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Silence as the model would write it, and its log π: the end is drawn among the ends."""
        end, left = 0, uniform(seed, _END_COUNTER) * math.exp(self.logprobs[-1])
        while end + 1 < len(self.ends) and (left := left - math.exp(self.end_logprobs[end])) >= 0.0:
            end += 1
        logprobs = (*self.logprobs[:-1], self.end_logprobs[end])
        return (*self.marker, self.ends[end]), logprobs

    def log_q_marker(self, j: int) -> float:
        """log q of going on with the marker after its first j ids."""
        return self.logprobs[j] + self.log_rest[j + 1] - self.log_rest[j]


def silence_odds(
    logp_SNV: Tensor, marker: tuple[int, ...], ends: Sequence[int]
) -> list[SilenceOdds]:
    """After each of S prompts, from the distributions at which m_1, m_2, … m_n would be drawn.

    1 − P_j is summed from what is *not* silence, (1 − π_j) + π_j·(1 − P_{j+1}), so that it stays
    exact where silence is all but certain.
    """
    place_N = torch.arange(len(marker), device=logp_SNV.device)
    marker_N = torch.tensor(marker, dtype=torch.int64, device=logp_SNV.device)
    ends_E = torch.tensor(ends, device=logp_SNV.device)
    logprobs_SN = logp_SNV[:, place_N, marker_N].tolist()
    end_logprobs_SE = logp_SNV[:, -1, ends_E].tolist()
    others_SNV = logp_SNV.clone()
    others_SNV[:, place_N, marker_N] = -torch.inf
    others_SNV[:, -1, ends_E] = -torch.inf
    return [
        _odds(marker, tuple(ends), *known)
        for known in zip(
            logprobs_SN, end_logprobs_SE, others_SNV.logsumexp(-1).tolist(), strict=True
        )
    ]


def marker_odds(
    logprobs: Sequence[float],
    end_logprobs: Sequence[float],
    marker: tuple[int, ...],
    ends: tuple[int, ...],
) -> SilenceOdds:
    """From silence's own log-probabilities, where those of the other tokens are not known.

    1 − P_j is then no finer than they are: a token that is certain to single precision counts as
    leaving LEAST_REST to the others.
    """
    others = [log_others(logprob) for logprob in (*logprobs, _log_sum(end_logprobs))]
    return _odds(marker, ends, logprobs, end_logprobs, others)


def log_others(logprob: float) -> float:
    """log(1 − π) from log π."""
    return math.log(max(-math.expm1(min(logprob, 0.0)), LEAST_REST))


def along_marker(
    ids: Sequence[int], logprobs: Sequence[float], odds: SilenceOdds, *, spoken: bool
) -> tuple[float, ...]:
    """A drawn message's log π, known again from the odds as far as it follows the marker.

    `spoken` makes it log q, that of a message drawn given that it is not silence.
    """
    known = list(logprobs)
    for j, (token, marker) in enumerate(zip(ids, (*odds.marker, None), strict=False)):
        if token != marker:
            known[j] -= odds.log_rest[j] if spoken else 0.0
            break
        known[j] = odds.log_q_marker(j) if spoken else odds.logprobs[j]
    return tuple(known)


def decide(rule: SilenceRule, odds: SilenceOdds, seed: int) -> Choice:
    """FREE, SPEAK or SILENT: a floored choice is drawn here, from the request's seed."""
    if rule.choice is not Choice.FLOOR:
        return rule.choice
    silent = min(max(math.exp(odds.logprob), rule.floor), 1.0 - rule.floor)
    return Choice.SILENT if uniform(seed, _CHOICE_COUNTER) < silent else Choice.SPEAK


def condition_on_speech(logp_V: Tensor, odds: SilenceOdds, j: int) -> None:
    """Turn log π into log q, in place, where the output so far is the marker's first j ids."""
    logp_V -= odds.log_rest[j]
    aimed = [odds.marker[j]] if j < len(odds.marker) else list(odds.ends)
    logp_V[aimed] = odds.log_q_marker(j)


def _odds(
    marker: tuple[int, ...],
    ends: tuple[int, ...],
    logprobs: Sequence[float],
    end_logprobs: Sequence[float],
    others: Sequence[float],
) -> SilenceOdds:
    """`others`: log(1 − π) of each of silence's n ids."""
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
