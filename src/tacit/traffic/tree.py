"""The tree of numbers that `traffic` gives. It holds only what JSON can hold (`asdict`)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tacit.traffic.critical_path import CriticalPath
from tacit.traffic.exchange import Edge, Example, Prompts, Sender
from tacit.traffic.saying import Loop, Saying, ToolRepeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Sums or means; `cached` and `observed` are part of `prompt`, `reasoning` of `generated`."""

    calls: float
    prompt: float
    cached: float
    observed: float
    generated: float
    reasoning: float
    money: float | None
    """None without prices, or if the price of a model is not known."""

    def shared(self, by: int) -> "Amounts":
        names = ("calls", "prompt", "cached", "observed", "generated", "reasoning")
        means = {name: getattr(self, name) / by for name in names}
        return replace(self, **means, money=None if self.money is None else self.money / by)


@dataclass(frozen=True, slots=True)
class Spending:
    """What one agent, one model or the whole team spent."""

    name: str
    total: Amounts
    per_episode: Amounts


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, with its numbers and where to look."""

    kind: str
    agents: tuple[str, ...]
    sentence: str
    tokens: float
    """Tokens per episode that it is about; findings are ranked by them."""
    numbers: dict[str, float]
    examples: Sequence[Example] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The whole audit. Sums are over all episodes unless a field says otherwise."""

    episodes: int
    graded: int
    team: Spending
    agents: tuple[Spending, ...]
    models: tuple[Spending, ...]
    currency: str | None
    unpriced: tuple[str, ...]
    """Models without a price."""
    prompts: tuple[Prompts, ...]
    edges: tuple[Edge, ...]
    senders: tuple[Sender, ...]
    sayings: tuple[Saying, ...]
    repetition: float
    """The reward's measure, the mean over the episodes."""
    loops: tuple[Loop, ...]
    tool_repeats: tuple[ToolRepeat, ...]
    path: CriticalPath | None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    """What the numbers cannot tell."""
