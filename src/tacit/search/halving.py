"""Successive halving on paired episodes (Jamieson & Talwalkar, 2016): pure functions over results.

All candidates of a rung have played the same tasks with the same seeds, so they are compared task
by task. What is not covered: the search's tasks are looked at many times, so the winner's accuracy
on them flatters it; it is checked on others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tacit.config import EvaluationConfig, SearchConfig
from tacit.evaluation.statistics import Estimate, paired

HALF, BEATEN, FAILED, CROWDED = "worse half", "beaten", "failed", "no better"
"""Why a candidate is dropped: by rank; its paired upper bound against the leader is below 0; none
of its episodes could be graded; as an edited team, it is behind those that were there."""
LEAST = 2
"""Candidates that go on to another rung, so that there is something to compare."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one candidate did, by task: the share of right samples, and the cost of one sample."""

    right: Mapping[str, float]
    costs: Mapping[str, float]

    @property
    def accuracy(self) -> float:
        return fmean(self.right.values()) if self.right else 0.0

    @property
    def cost(self) -> float:
        return fmean(self.costs.values()) if self.costs else 0.0

    def value(self, task: str, price: float) -> float:
        """The objective on one task: right or wrong, less what it cost."""
        return self.right[task] - price * self.costs[task]

    def objective(self, price: float) -> float:
        return self.accuracy - price * self.cost


@dataclass(frozen=True, slots=True)
class Judged:
    """The candidates after a rung, best first."""

    kept: Sequence[str]
    dropped: Mapping[str, str]
    """Candidate → why."""
    behind: Mapping[str, Estimate]
    """Candidate → how far it is from the leader, with the paired interval."""


def judge(
    results: Mapping[str, Result], keep: int, search: SearchConfig, settings: EvaluationConfig
) -> Judged:
    """Rank the candidates and keep the best ones, none whose interval lies below the leader."""
    graded = {name: one for name, one in results.items() if one.right}
    dropped = {name: FAILED for name in results if name not in graded}
    order, behind = ranked(graded, search, settings)
    lost = [name for name in order[1:] if behind[name].high < 0]
    rest = [name for name in order if name not in lost]
    dropped |= dict.fromkeys(lost, BEATEN) | dict.fromkeys(rest[keep:], HALF)
    return Judged(rest[:keep], dropped, behind)


def ranked(
    results: Mapping[str, Result], search: SearchConfig, settings: EvaluationConfig
) -> tuple[list[str], dict[str, Estimate]]:
    """The candidates by accuracy − price·cost, and how far each is from the best of them.

    Those that are no further than `tie` from the best, with 0 inside the paired interval, come
    first, in the order of their cost.
    """
    price = search.price
    order = sorted(results, key=lambda n: (-results[n].objective(price), results[n].cost))
    if not order:
        return [], {}
    best = results[order[0]]
    behind = {name: _difference(best, results[name], price, settings) for name in order}
    level = {n for n in order if behind[n].mean >= -search.tie and behind[n].high >= 0}
    order.sort(key=lambda n: (n not in level, results[n].cost if n in level else 0.0))
    return order, behind


def _difference(
    first: Result, second: Result, price: float, settings: EvaluationConfig
) -> Estimate:
    """`second − first` on the tasks that both have a grade for."""
    both = sorted(first.right.keys() & second.right.keys())
    if not both:
        return Estimate(second.objective(price) - first.objective(price), -1.0, 1.0)
    return paired(
        [first.value(task, price) for task in both],
        [second.value(task, price) for task in both],
        confidence=settings.confidence,
        resamples=settings.resamples,
    ).difference


def sizes(search: SearchConfig, tasks: int) -> list[int]:
    """How many tasks each rung has: eta times as many as the one before, as far as there are."""
    wanted = (min(tasks, search.first * search.eta**rung) for rung in range(search.rungs))
    return list(dict.fromkeys(wanted))


def kept_of(teams: int, search: SearchConfig) -> int:
    """How many of a rung's candidates go on."""
    return max(min(LEAST, teams), math.ceil(teams / search.eta))
