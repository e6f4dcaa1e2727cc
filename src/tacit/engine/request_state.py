"""A request in progress: what was drawn so far, the choice of silence, and the future to answer.

Created in the event loop, advanced in the worker's thread, and answered in the event loop.
"""

import asyncio
import contextlib
import math
from dataclasses import dataclass, field

from torch import Tensor

from tacit.engine.base import Request, SilenceRule
from tacit.engine.memory import ran_out
from tacit.engine.sampler import RowSettings, log_distribution, uniform
from tacit.errors import EngineError
from tacit.silence import floored
from tacit.silence.conditioning import SilenceOdds, condition_on_speech, silence_odds
from tacit.types import Choice, Ids, Stop

CHOICE_COUNTER, END_COUNTER = -1, -2
"""The counters of a seed's uniform numbers for the choice and for the end of silence; tokens use
0 and up."""


def decide(rule: SilenceRule, odds: SilenceOdds, request: Request) -> Choice:
    """FREE, SPEAK or SILENT; a greedy or floored choice is made here.

    Greedy is silence where π(silence) is high enough, not where its tokens are one by one the most
    likely: speech begins in many ways and silence in one, so that would favour silence.
    """
    p = math.exp(odds.logprob)
    if rule.choice is Choice.FREE and request.sampling.greedy:
        return Choice.SILENT if p >= rule.silent_above else Choice.SPEAK
    if rule.choice is not Choice.FLOOR:
        return rule.choice
    silent = uniform(request.seed, CHOICE_COUNTER) < floored(p, rule.floor)
    return Choice.SILENT if silent else Choice.SPEAK


def drawn_silence(odds: SilenceOdds, request: Request) -> tuple[Ids, tuple[float, ...]]:
    """The ids of silence and their log π; its end is drawn like any token of the request."""
    greedy = request.sampling.greedy
    return odds.silent(None if greedy else uniform(request.seed, END_COUNTER))


@dataclass(slots=True, eq=False)
class RequestState:
    request: Request
    eos_ids: frozenset[int]
    answered: asyncio.Future[None]
    cancelled: bool = False
    """True once the caller has stopped waiting."""
    version: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop: Stop | None = None
    odds: SilenceOdds | None = None
    choice: Choice = Choice.FREE
    _marker_logits_NV: Tensor | None = None

    @property
    def marker(self) -> Ids:
        return self.request.silence.ids if self.request.silence else ()

    @property
    def done(self) -> bool:
        return self.stop is not None

    def begin(self, logits_NV: Tensor, version: int) -> None:
        """Record the weights' version; if silence is allowed, compute its odds and choose."""
        self.version = version
        request, rule = self.request, self.request.silence
        if rule is None:
            return
        settings = RowSettings(len(rule.ids), logits_NV.device, request.sampling)
        logp_1NV = log_distribution(logits_NV, settings)[None]
        self.settle(silence_odds(logp_1NV, rule.ids[:-1], sorted(self.eos_ids))[0])
        if not self.done:
            self._marker_logits_NV = logits_NV

    def settle(self, odds: SilenceOdds) -> None:
        """Choose between silence and speech; a silent request is done."""
        rule = self.request.silence
        assert rule is not None
        self.odds = odds
        self.choice = decide(rule, odds, self.request)
        if self.choice is Choice.SPEAK and odds.log_rest[0] == -math.inf:
            raise EngineError("top-p or top-k leaves nothing to say but silence; use wider ones")
        if self.choice is Choice.SILENT:
            ids, logprobs = drawn_silence(odds, self.request)
            self.ids, self.logprobs, self.stop = list(ids), list(logprobs), Stop.EOS

    def marker_logits(self) -> Tensor | None:
        """The next token's logits, as long as the output follows the marker.

        They replace the decoding pass's own, which may differ in the last bit, so that the
        probabilities along the marker multiply to exactly the reported odds of silence.
        """
        return None if self._marker_logits_NV is None else self._marker_logits_NV[len(self.ids)]

    def condition(self, logp_V: Tensor) -> None:
        """Condition the next token's distribution, in place, on the message not being silence."""
        if self._marker_logits_NV is not None and self.choice is Choice.SPEAK and self.odds:
            condition_on_speech(logp_V, self.odds, len(self.ids))

    def take(self, token: int, logprob: float) -> None:
        if self._marker_logits_NV is not None:
            follows = self.marker[len(self.ids)] == token and len(self.ids) + 1 < len(self.marker)
            self._marker_logits_NV = self._marker_logits_NV if follows else None
        self.extend([token], [logprob])

    def extend(self, tokens: list[int], logprobs: list[float]) -> None:
        """Append drawn tokens, of which only the last can be the end."""
        if any(map(math.isnan, logprobs)):
            raise EngineError("the model returned logits that are not numbers")
        self.ids += tokens
        self.logprobs += logprobs
        if tokens and tokens[-1] in self.eos_ids:
            self.stop = Stop.EOS
        elif len(self.ids) >= self.request.sampling.max_tokens:
            self.stop = Stop.LENGTH

    def answer(self, error: Exception | None = None) -> None:
        """Wake the caller, from any thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits
            self.answered.get_loop().call_soon_threadsafe(self._set, error)

    def _set(self, error: Exception | None) -> None:
        if self.answered.done():
            return
        if error is None:
            self.answered.set_result(None)
        elif isinstance(error, EngineError):
            self.answered.set_exception(error)
        elif ran_out(error):
            advice = "lower the model's `rows` or the agents' max_tokens"
            self.answered.set_exception(EngineError(f"out of memory: {advice}"))
        else:
            self.answered.set_exception(EngineError(f"{type(error).__name__}: {error}"))
