"""What one thing is worth: the reward with it minus the reward without it, task by task."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist, fmean

from tacit.audit.targets import Target
from tacit.economy.ledger import PriceTable
from tacit.evaluation.statistics import Estimate
from tacit.types import Episode

Pair = tuple[Episode, Episode]
"""The same task and sample with the target and without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Means per episode over the tasks that were played both ways."""

    name: str
    kind: str
    value: Estimate
    """Reward with it minus reward without it."""
    error: float
    """Standard error of the value."""
    tasks: int
    helped: int
    """Episodes that were right with it and wrong without it."""
    harmed: int
    generated: float
    """Tokens that it costs: with it minus without it."""
    read: float
    money: float | None
    failed: int
    """Plays without it that failed: with reward 0 if without it they could not go on."""

    @property
    def centre(self) -> float:
        """The middle of the interval, which unlike the mean never looks certain by chance."""
        return self.value.mean * self.tasks / (self.tasks + 2)

    def verdict(self, confidence: float, margin: float) -> str:
        """What an interval of this confidence says; undecided if it holds too much."""
        half = _z(confidence) * self.error
        if abs(self.centre) > half:
            return "helps" if self.centre > 0 else "harms"
        return "no matter" if abs(self.centre) + half < margin else "undecided"


def pairs_of(base: Iterable[Episode], other: Iterable[Episode]) -> list[Pair]:
    """The plays of the same task and sample that both ended with a grade."""
    graded = {(one.task_id, one.sample): one for one in base if one.grade}
    others = [(graded.get((one.task_id, one.sample)), one) for one in other if one.grade]
    return [(one, two) for one, two in others if one is not None]


def worth_of(
    target: Target,
    pairs: Sequence[Pair],
    *,
    confidence: float,
    prices: PriceTable | None = None,
    failed: int = 0,
) -> Worth:
    differences = list(by_task(pairs).values())
    value, error = adjusted(differences, confidence)
    changes = [one.right - two.right for one, two in pairs]
    usage = [(one.usage, two.usage) for one, two in pairs]
    return Worth(
        name=target.name,
        kind=target.kind,
        value=value,
        error=error,
        tasks=len(differences),
        helped=changes.count(1),
        harmed=changes.count(-1),
        generated=_mean(one.generated - two.generated for one, two in usage),
        read=_mean(one.prompt - two.prompt for one, two in usage),
        money=_mean(_money(one, prices) - _money(two, prices) for one, two in pairs)
        if prices
        else None,
        failed=failed,
    )


def by_task(pairs: Iterable[Pair]) -> dict[str, float]:
    """Task → mean difference in reward over its samples."""
    differences: dict[str, list[float]] = defaultdict(list)
    for one, two in pairs:
        assert one.grade and two.grade
        differences[one.task_id].append(one.grade.reward - two.grade.reward)
    return {task: fmean(values) for task, values in differences.items()}


def adjusted(differences: Sequence[float], confidence: float) -> tuple[Estimate, float]:
    """The mean of differences in [−1, 1] with an interval that holds for few and rare ones.

    Bonett and Price (2012, "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data"): one more task that helps and one that harms, which for
    differences of any size adds 2 to the sum of squares.
    """
    n = len(differences) + 2
    centre = sum(differences) / n
    variance = (sum(value * value for value in differences) + 2) / n - centre * centre
    error = math.sqrt(max(0.0, variance) / n)
    half = _z(confidence) * error
    mean = fmean(differences) if differences else 0.0
    low, high = max(-1.0, centre - half), min(1.0, centre + half)
    return Estimate(mean, min(mean, low), max(mean, high)), error


def unsettled(
    found: Mapping[str, Worth], confidence: float, margin: float, full: Collection[str] = ()
) -> set[str]:
    """Whom to play on with, so that the order becomes certain, and what is better than nothing.

    Of two that cannot be told apart, nor are surely within the margin of each other or of nothing,
    the one that is known less well; the other where that one is `full`, with no tasks left.
    """
    z = _z(confidence)
    idle = {n for n, one in found.items() if one.verdict(confidence, margin) == "no matter"}
    known = {name: (one.centre, one.error) for name, one in found.items()}
    chosen = set()
    for one, two in combinations(["", *known], 2):
        (first, error), (second, other) = known.get(one, (0.0, 0.0)), known[two]
        apart, half = abs(first - second), z * math.hypot(error, other)
        if apart > half or apart + half < margin or {one, two} <= idle:
            continue
        rest = [name for name in (one, two) if name and name not in full]
        if rest:
            chosen.add(max(rest, key=lambda name: known[name][1]))
    return chosen


def _z(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def _money(episode: Episode, prices: PriceTable | None) -> float:
    return sum(prices.cost(call) for call in episode.calls) if prices else 0.0


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return fmean(every) if every else 0.0
