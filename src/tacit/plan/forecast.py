"""Scales a small sample up to a whole run: tokens, money and time, and how certain they are.

Pure functions over episodes; `tacit.plan.dry_run` plays the sample.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, sqrt
from statistics import fmean, variance
from typing import Any

from tacit.config import ModelConfig
from tacit.economy.ledger import PriceTable
from tacit.types import Call, Episode, Usage

FALL_STEPS = 50
"""Steps in which tokens above a budget fall to 1/e."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A kind of episode that a run plays many times, and a sample of it."""

    name: str
    episodes: float
    """Number of episodes in the whole run."""
    sample: Sequence[Episode]
    seconds: float
    """Wall time of the sample."""
    talk: float = 1.0
    """Expected mean share of episodes like the sample; the others are like `quiet`."""
    quiet: Sequence[Episode] = ()
    """Episodes in which the helpers say nothing."""

    def weighted(self) -> list[tuple[float, Sequence[Episode]]]:
        """Each sample, with how many episodes of the run each of its episodes stands for."""
        talk = self.talk if self.quiet else 1.0
        weights = [(talk, self.sample), (1.0 - talk, self.quiet)]
        return [(self.episodes * weight / len(some), some) for weight, some in weights if some]


@dataclass(slots=True, kw_only=True)
class Need:
    """What a run needs from one model."""

    calls: float = 0.0
    prompt: float = 0.0
    generated: float = 0.0
    cached: float = 0.0
    reasoning: float = 0.0

    @property
    def tokens(self) -> float:
        return self.prompt + self.generated

    def add(self, usage: Usage, times: float) -> None:
        self.calls += times
        self.prompt += usage.prompt * times
        self.generated += usage.generated * times
        self.cached += usage.cached * times
        self.reasoning += usage.reasoning * times

    def usage(self) -> Usage:
        return Usage(
            round(self.prompt), round(self.generated), round(self.cached), round(self.reasoning)
        )

    def seconds(self, model: ModelConfig) -> float:
        """The least time within the model's rate limits."""
        requests, tokens = model.requests_per_minute, model.tokens_per_minute
        return 60 * max(
            self.calls / requests if requests else 0.0, self.tokens / tokens if tokens else 0.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    models: Mapping[str, Need]
    parts: Mapping[str, float]
    """Part → its tokens."""
    unsure: float
    """Half the width of the 95 % interval of the token count, divided by that count."""
    money: float | None
    seconds: float
    sample_episodes: int = 0
    sample_tokens: int = 0

    @property
    def tokens(self) -> float:
        return sum(need.tokens for need in self.models.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens": round(self.tokens),
            "unsure": self.unsure,
            "money": self.money,
            "seconds": self.seconds,
            "models": {
                name: {"calls": round(need.calls), **asdict(need.usage())}
                for name, need in self.models.items()
            },
            "parts": {name: round(tokens) for name, tokens in self.parts.items()},
            "sample": {"episodes": self.sample_episodes, "tokens": self.sample_tokens},
        }


def forecast(
    parts: Sequence[Part],
    prices: PriceTable | None = None,
    limits: Mapping[str, ModelConfig] | None = None,
    more_seconds: float = 0.0,
    judged: Sequence[Call] = (),
) -> Forecast:
    """Scale every part's sample up to the whole run.

    `limits` holds the models with rate limits, `judged` the judge's calls about the samples.
    """
    models: dict[str, Need] = {}
    by_part: dict[str, float] = {}
    spread = seconds = 0.0
    for part in parts:
        before = sum(need.tokens for need in models.values())
        for times, some in part.weighted():
            for call in (call for episode in some for call in episode.calls):
                models.setdefault(call.model, Need()).add(call.usage, times)
            spread += _spread(some, times)
        by_part[part.name] = sum(need.tokens for need in models.values()) - before
        drawn = sum(episode.usage.total for episode in part.sample)
        seconds += part.seconds * by_part[part.name] / max(1, drawn)
    sampled = list({id(e): e for part in parts for e in part.sample}.values())
    if judged:
        times = sum(part.episodes for part in parts) / max(len(sampled), len(judged))
        for call in judged:
            models.setdefault(call.model, Need()).add(call.usage, times)
        by_part["judge"] = times * sum(call.usage.total for call in judged)
    total = sum(by_part.values())
    limited = [models[name].seconds(m) for name, m in (limits or {}).items() if name in models]
    return Forecast(
        models=models,
        parts=by_part,
        unsure=1.96 * sqrt(spread) / total if total else 0.0,
        money=sum(prices.of(n).of(need.usage()) for n, need in models.items()) if prices else None,
        seconds=max([seconds + more_seconds, *limited]),
        sample_episodes=len(sampled),
        sample_tokens=sum(episode.usage.total for episode in sampled),
    )


def talk_left(
    spoken: Sequence[Episode],
    quiet: Sequence[Episode],
    budget: float | None,
    steps: Iterable[int],
) -> float:
    """The mean share of today's talk to expect at these steps of training under a budget.

    Assumes that it falls towards the budget as e^(−step/50), about as in the pocket runs. Without a
    budget, or if already below it, the talk is assumed to stay.
    """
    if budget is None or not spoken or not quiet:
        return 1.0
    now, least = (fmean(e.usage.spent for e in some) for some in (spoken, quiet))
    if now <= max(budget, least):
        return 1.0
    end = max(0.0, (budget - least) / (now - least))
    return fmean(end + (1.0 - end) * exp(-step / FALL_STEPS) for step in steps)


def _spread(episodes: Sequence[Episode], times: float) -> float:
    """Variance of the scaled-up total of a sample."""
    if len(episodes) < 2:
        return 0.0
    return variance(e.usage.total for e in episodes) * len(episodes) * times**2


def duration(seconds: float) -> str:
    """In words, roughly."""
    minutes, hours = seconds / 60, seconds / 3600
    if hours >= 2:
        return f"{hours:.0f} hours"
    return f"{minutes:.0f} minutes" if minutes >= 2 else f"{seconds:.0f} seconds"
