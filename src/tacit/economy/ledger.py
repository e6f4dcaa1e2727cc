"""Tokens spent by each agent, and their price. A model without a price is an error."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import yaml

from tacit.errors import ConfigError, one_line
from tacit.registry import did_you_mean
from tacit.types import Call, Episode, Usage

MALFORMED = (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""Errors from reading a price table of the wrong shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Money per million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Price of cached prompt tokens; by default the same as `input`."""
    reasoning: float | None = None
    """Price of reasoning tokens; by default the same as `output`."""

    def of(self, usage: Usage) -> float:
        cached = self.input if self.cached is None else self.cached
        reasoning = self.output if self.reasoning is None else self.reasoning
        read = (usage.prompt - usage.cached) * self.input + usage.cached * cached
        said = (usage.generated - usage.reasoning) * self.output + usage.reasoning * reasoning
        return (read + said) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    date: str
    currency: str = "USD"
    models: Mapping[str, Price] = field(default_factory=dict)

    def of(self, model: str) -> Price:
        if model not in self.models:
            hint = did_you_mean(model, self.models)
            raise ConfigError(
                f"the price table has no price for model `{model}`; {hint} "
                "(only local models may be left out, at a price of 0)"
            )
        return self.models[model]

    def cost(self, call: Call) -> float:
        return self.of(call.model).of(call.usage)


def load_prices(path: str | Path) -> PriceTable:
    """Read `date:`, `currency:` and `models: {name: {input:, output:, cached:, reasoning:}}`."""
    try:
        tree = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        models = {str(name): Price(**price) for name, price in tree["models"].items()}
        day, currency = str(date.fromisoformat(str(tree["date"]))), str(tree.get("currency", "USD"))
    except OSError as error:
        raise ConfigError(f"prices: `{path}` cannot be read: {error.strerror}") from None
    except MALFORMED as error:
        raise ConfigError(
            f"prices: `{path}` needs `date:` and `models:` with `input:` and `output:` "
            f"per million tokens ({one_line(error)})"
        ) from None
    for name, price in models.items():
        for amount in (price.input, price.output, price.cached or 0.0, price.reasoning or 0.0):
            if type(amount) not in (int, float) or not 0 <= amount < math.inf:
                raise ConfigError(
                    f"prices: `{path}`: the price of `{name}` must be numbers of 0 or more, "
                    f"got {amount!r}"
                )
    return PriceTable(date=day, currency=currency, models=models)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One agent's calls and tokens on one model."""

    agent: str
    model: str
    calls: int
    choices: int
    """Calls in which the agent could have been silent."""
    withheld: int
    """Calls in which nothing was heard of it."""
    tool_calls: int
    turns: int
    usage: Usage
    money: float | None

    @property
    def silence(self) -> float:
        """Silent calls as a share of those that could have been silent."""
        return self.withheld / max(1, self.choices)


def ledger(episodes: Iterable[Episode], prices: PriceTable | None = None) -> list[LedgerRow]:
    """Totals by agent and model, in order of their first call."""
    calls: dict[tuple[str, str], list[Call]] = {}
    for episode in episodes:
        for call in episode.calls:
            calls.setdefault((call.agent, call.model), []).append(call)
    return [
        LedgerRow(
            agent=agent,
            model=model,
            calls=len(mine),
            choices=sum(bool(call.may_be_silent) for call in mine),
            withheld=sum(call.withheld for call in mine),
            tool_calls=sum(len(call.tool_calls) for call in mine),
            turns=sum(call.is_turn for call in mine),
            usage=sum((call.usage for call in mine), Usage()),
            money=sum(map(prices.cost, mine)) if prices else None,
        )
        for (agent, model), mine in calls.items()
    ]
