"""Confidence intervals and significance tests: pure functions over numbers and arrays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its confidence interval."""

    mean: float
    low: float
    high: float


def wilson(successes: float, n: int, confidence: float = 0.95) -> Estimate:
    """Wilson's score interval for a proportion, which also holds near 0 and 1 and for small n."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Estimate(p, max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half)))


def bootstrap(
    values: Sequence[float], *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Estimate:
    """Percentile bootstrap of the mean over tasks."""
    array = np.asarray(values, dtype=np.float64)
    return interval(float(array.mean()), resampled_means(array, resamples, seed), confidence)


@dataclass(frozen=True, slots=True)
class Paired:
    """How one team's results differ from another's on the same tasks."""

    difference: Estimate
    p_bootstrap: float
    """Two-sided: the share of resamples whose difference is on the other side of zero."""
    p_mcnemar: float
    """Exact two-sided McNemar test over the tasks that only one of the two solved."""
    only_first: int
    only_second: int
    tasks: int
    reward: Estimate | None = None
    """Difference of the rewards, if they are not just right or wrong."""


def paired(
    first: Sequence[float],
    second: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Paired:
    """Compare two teams task by task (`second − first`); a task counts as solved above ½."""
    differences = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    means = resampled_means(differences, resamples, seed)
    below, above = float((means <= 0).mean()), float((means >= 0).mean())
    only_first = sum(a > 0.5 >= b for a, b in zip(first, second, strict=True))
    only_second = sum(b > 0.5 >= a for a, b in zip(first, second, strict=True))
    return Paired(
        interval(float(differences.mean()), means, confidence),
        min(1.0, 2 * max(min(below, above), 1 / resamples)),
        mcnemar(only_first, only_second),
        only_first,
        only_second,
        len(differences),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction (1979): p-values that can all be compared with one level."""
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda n: p_values[n])):
        highest = max(highest, (len(p_values) - rank) * p_values[place])
        corrected[place] = min(1.0, highest)
    return corrected


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p: a fair coin over the tasks that only one of the two solved."""
    n, k = only_first + only_second, min(only_first, only_second)
    tail, ways = 0, 1
    for i in range(k + 1):
        tail += ways
        ways = ways * (n - i) // (i + 1)  # n over i + 1
    return min(1.0, 2 * tail / (1 << n))


def pass_at_k(n: int, right: int, k: int) -> float:
    """Chance that k of n samples hold a right one (Chen et al., 2021, eq. 1)."""
    return 1.0 if n - right < k else 1.0 - math.comb(n - right, k) / math.comb(n, k)


def interval(mean: float, resampled: NDArray[np.float64], confidence: float) -> Estimate:
    """A number with the percentile interval of its resamples."""
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Estimate(mean, float(low), float(high))


def resampled_means(
    array: NDArray[np.float64], resamples: int, seed: int = 0
) -> NDArray[np.float64]:
    """Means of resamples, computed in chunks to save memory.

    Arrays of the same length are resampled alike, so that tasks stay together.
    """
    generator = np.random.default_rng(seed)
    chunk = max(1, 4_000_000 // max(1, len(array)))
    counts = [min(chunk, resamples - start) for start in range(0, resamples, chunk)]
    return np.concatenate(
        [array[generator.integers(0, len(array), (n, len(array)))].mean(axis=1) for n in counts]
    )
