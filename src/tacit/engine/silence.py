"""The exact probability of silence, and how a message is drawn given that it is not silence.

Silence is the ids m_1 … m_n (marker, then end-of-sequence). P_j = Π_{i>j} π(m_i | prompt, m_<i) is
the chance of completing it from its first j ids, so P_0 = π(silence). Given that it is not
completed, q(m_{j+1}) = π(m_{j+1})·(1 − P_{j+1})/(1 − P_j), and every other token has π/(1 − P_j).
So log q(y) = log π(y) − log(1 − P_0) for every y that is not silence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.engine.base import SilenceRule
from tacit.engine.sampler import uniforms
from tacit.types import Choice

_CHOICE_COUNTER = -1
"""Tokens use the counters from 0 on."""
LEAST_REST = 2.0**-24
"""Half the distance from 1 to the next smaller number of single precision."""


@dataclass(frozen=True, slots=True)
class SilenceOdds:
    """What the model makes of silence after one prompt."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """log π(m_{j+1} | prompt, m_1 … m_j), for j = 0 … n−1."""
    log_rest: tuple[float, ...]
    """log(1 − P_j), for j = 0 … n; the last is −∞."""

    @property
    def logprob(self) -> float:
        return math.fsum(self.logprobs)

    def log_q_marker(self, j: int) -> float:
        """log q of going on with the marker after its first j ids."""
        return self.logprobs[j] + self.log_rest[j + 1] - self.log_rest[j]


def silence_odds(logp_SNV: Tensor, ids: tuple[int, ...]) -> list[SilenceOdds]:
    """After each of S prompts, from the distributions at which m_1, m_2, … m_n would be drawn.

    1 − P_j is summed from what is *not* the marker, (1 − π_j) + π_j·(1 − P_{j+1}), so that it stays
    exact where silence is all but certain.
    """
    index_SN1 = torch.tensor(ids, device=logp_SNV.device).expand(len(logp_SNV), -1)[..., None]
    logprobs_SN = logp_SNV.gather(-1, index_SN1)[..., 0].tolist()
    others_SN = logp_SNV.scatter(-1, index_SN1, -torch.inf).logsumexp(-1).tolist()
    return [
        _odds(ids, logprobs, others)
        for logprobs, others in zip(logprobs_SN, others_SN, strict=True)
    ]


def marker_odds(logprobs: Sequence[float], ids: tuple[int, ...]) -> SilenceOdds:
    """From the marker's own log-probabilities, where those of the other tokens are not known.

    1 − P_j is then no finer than they are: a token that is certain to single precision counts as
    leaving LEAST_REST to the others.
    """
    return _odds(ids, logprobs, [log_others(logprob) for logprob in logprobs])


def log_others(logprob: float) -> float:
    """log(1 − π) from log π."""
    return math.log(max(-math.expm1(logprob), LEAST_REST))


def along_marker(
    ids: Sequence[int], logprobs: Sequence[float], odds: SilenceOdds, *, spoken: bool
) -> tuple[float, ...]:
    """A drawn message's log π, known again from the odds as far as it follows the marker.

    `spoken` makes it log q, that of a message drawn given that it is not silence.
    """
    known = list(logprobs)
    for j, (token, marker) in enumerate(zip(ids, odds.ids, strict=False)):
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
    u = uniforms(torch.tensor([seed]), torch.tensor([_CHOICE_COUNTER])).item()
    return Choice.SILENT if u < silent else Choice.SPEAK


def condition_on_speech(logp_V: Tensor, odds: SilenceOdds, j: int) -> None:
    """Turn log π into log q, in place, where the output so far is the marker's first j ids."""
    logp_V -= odds.log_rest[j]
    logp_V[odds.ids[j]] = odds.log_q_marker(j)


def _odds(ids: tuple[int, ...], logprobs: Sequence[float], others: Sequence[float]) -> SilenceOdds:
    """`others`: log(1 − π) of each of the marker's ids."""
    rest = [-math.inf]
    for logprob, other in zip(reversed(logprobs), reversed(others), strict=True):
        rest.append(_logaddexp(other, logprob + rest[-1]))
    return SilenceOdds(ids, tuple(logprobs), tuple(reversed(rest)))


def _logaddexp(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
