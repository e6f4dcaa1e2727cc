"""`floor`: each choice is sampled with at least the floor's probability; advantages are reweighted.

For teams in which several agents choose, or one agent chooses several times. The estimator is ours.
"""

from math import exp, prod

from tacit.silence import Silence
from tacit.silence.conditioning import log_others
from tacit.types import Call, Choice, Episode


class Floor(Silence):
    choice = Choice.FLOOR

    def likelihood(self, episode: Episode) -> float:
        """Product of π/b over the choices."""
        ratios = (floored_ratio(call, self.config.floor) for call in episode.calls if call.policy)
        return prod(ratios)

    def weight(self, call: Call) -> float:
        """min(2, π/b) of the choice that was made."""
        return min(2.0, floored_ratio(call, self.config.floor))

    def logprobs(self, call: Call) -> tuple[float, ...]:
        """log π = log q + log(1 − p) of the whole message, since speech was drawn from q."""
        if not _floored(call) or call.silent or call.silence_logprob is None:
            return call.logprobs
        first, *rest = call.logprobs
        return (first + log_others(call.silence_logprob), *rest)


def floored_ratio(call: Call, floor: float) -> float:
    """π/b of the choice in a call, 1 if it was not drawn with a floor."""
    if not _floored(call) or call.silence_logprob is None:
        return 1.0
    p = exp(call.silence_logprob)
    return choice_ratio(p, floored(p, floor), call.silent)


def _floored(call: Call) -> bool:
    return call.choice is Choice.FLOOR and call.silence_logprob is not None


def floored(p: float, floor: float) -> float:
    """The probability of silence to sample with, at least `floor` away from 0 and 1."""
    return min(max(p, floor), 1.0 - floor)


def choice_ratio(p: float, sampled: float, silent: bool) -> float:
    """π/b of a choice if the engine samples silence with probability `sampled`."""
    return p / sampled if silent else (1.0 - p) / (1.0 - sampled)
