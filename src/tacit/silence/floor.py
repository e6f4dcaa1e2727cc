"""`floor`: each choice is sampled with at least the floor's probability; advantages are reweighted.

For teams in which several agents choose, or one agent chooses several times. The estimator is ours.
"""

from tacit.silence import Silence
from tacit.silence.conditioning import log_others
from tacit.types import Call, Choice


class Floor(Silence):
    choice = Choice.FLOOR

    def logprobs(self, call: Call) -> tuple[float, ...]:
        """log π = log q + log(1 − p) of the whole message, since speech was drawn from q."""
        if call.choice is not Choice.FLOOR or call.silent or call.silence_logprob is None:
            return call.logprobs
        first, *rest = call.logprobs
        return (first + log_others(call.silence_logprob), *rest)
