"""Intervals and tests against published and hand-computed values."""

import math

import numpy as np
import pytest

from tacit.evaluation.statistics import (
    Estimate,
    bootstrap,
    holm,
    mcnemar,
    paired,
    pass_at_k,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Newcombe (1998), Stat. Med. 17:857-872, table I, method 3 (score).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_equals_the_published_intervals(
    successes: int, n: int, low: float, high: float
) -> None:
    estimate = wilson(successes, n)
    assert estimate.mean == successes / n
    assert (estimate.low, estimate.high) == (
        pytest.approx(low, abs=5e-5),
        pytest.approx(high, abs=5e-5),
    )


def test_wilson_is_symmetric_and_stays_in_its_bounds() -> None:
    for k in range(21):
        one, other = wilson(k, 20), wilson(20 - k, 20)
        assert 0.0 <= one.low <= one.mean <= one.high <= 1.0
        assert one.low == pytest.approx(1 - other.high)
    assert wilson(20, 20).high == 1.0 and wilson(0, 20).low == 0.0


def test_less_confidence_is_a_narrower_interval() -> None:
    wide, narrow = wilson(7, 20, 0.99), wilson(7, 20, 0.8)
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(
    ("only_first", "only_second", "p"),
    [
        (0, 0, 1.0),
        (3, 3, 1.0),
        (0, 5, 2 / 32),
        (1, 8, 2 * (1 + 9) / 512),
        (2, 10, 2 * (1 + 12 + 66) / 4096),
        (1, 0, 1.0),
    ],
)
def test_mcnemar_is_the_exact_binomial_test(only_first: int, only_second: int, p: float) -> None:
    assert mcnemar(only_first, only_second) == pytest.approx(p)
    assert mcnemar(only_second, only_first) == mcnemar(only_first, only_second)


def test_mcnemar_of_many_tasks_neither_overflows_nor_leaves_its_bounds() -> None:
    assert mcnemar(5000, 5000) == 1.0
    assert 0.0 < mcnemar(4700, 5300) < 1e-8


@pytest.mark.parametrize(
    ("n", "right", "k", "value"),
    [
        (1, 1, 1, 1.0),
        (5, 0, 3, 0.0),
        (4, 1, 2, 0.5),
        (10, 3, 1, 0.3),
        (10, 3, 5, 1 - 21 / 252),
        (10, 8, 3, 1.0),
    ],
)
def test_pass_at_k_by_hand(n: int, right: int, k: int, value: float) -> None:
    assert pass_at_k(n, right, k) == pytest.approx(value)


def test_pass_at_k_equals_counting_every_draw() -> None:
    from itertools import combinations

    samples = [True, True, False, False, False, False]
    draws = list(combinations(samples, 3))
    assert pass_at_k(6, 2, 3) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_the_bootstrap_is_the_same_every_time_and_holds_its_mean() -> None:
    values = [0.0, 1.0, 1.0, 0.5, 0.25]
    assert bootstrap(values) == bootstrap(values)
    estimate = bootstrap(values)
    assert estimate.mean == pytest.approx(0.55)
    assert estimate.low < estimate.mean < estimate.high
    assert bootstrap([3.0] * 7) == Estimate(3.0, 3.0, 3.0)


def test_the_bootstrap_agrees_with_the_normal_interval_for_many_tasks() -> None:
    values = np.random.default_rng(1).normal(5.0, 2.0, 2000)
    estimate = bootstrap(values.tolist(), resamples=4000)
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert estimate.low == pytest.approx(values.mean() - half, abs=0.01)
    assert estimate.high == pytest.approx(values.mean() + half, abs=0.01)


def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for seed in range(300):
        sample = generator.binomial(4, 0.6, 80) / 4
        estimate = bootstrap(sample.tolist(), confidence=0.9, resamples=500, seed=seed)
        covered += estimate.low <= 0.6 <= estimate.high
    assert 0.84 <= covered / 300 <= 0.95


def test_resamples_in_chunks_are_all_there() -> None:
    many = np.random.default_rng(2).random(300_000).tolist()
    estimate = bootstrap(many, resamples=40)
    assert estimate.low < estimate.mean < estimate.high


def test_paired_by_hand() -> None:
    first = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    second = [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    result = paired(first, second)
    assert result.difference.mean == pytest.approx(3 / 8)
    assert (result.only_first, result.only_second, result.tasks) == (1, 4, 8)
    assert result.p_mcnemar == pytest.approx(2 * (1 + 5) / 32)
    assert result.difference.low < 3 / 8 < result.difference.high


def test_paired_changes_its_sign_with_the_order_and_not_its_p() -> None:
    generator = np.random.default_rng(3)
    a, b = generator.random(50).round().tolist(), generator.random(50).round().tolist()
    one, other = paired(a, b), paired(b, a)
    assert one.difference.mean == pytest.approx(-other.difference.mean)
    assert one.p_bootstrap == pytest.approx(other.p_bootstrap)
    assert one.p_mcnemar == other.p_mcnemar


def test_equal_teams_do_not_differ() -> None:
    same = paired([1.0, 0.0, 0.5], [1.0, 0.0, 0.5])
    assert same.difference == Estimate(0.0, 0.0, 0.0)
    assert same.p_bootstrap == same.p_mcnemar == 1.0


def test_a_clear_difference_is_found_by_both_tests_and_no_p_is_zero() -> None:
    clear = paired([0.0] * 60 + [1.0] * 40, [1.0] * 95 + [0.0] * 5, resamples=1000)
    assert clear.p_bootstrap == pytest.approx(2 / 1000)
    assert 0 < clear.p_mcnemar < 1e-6


def test_pairing_sees_what_two_separate_intervals_hide() -> None:
    hard = [1.0] * 50 + [0.0] * 50
    better = [1.0] * 50 + [1.0] * 8 + [0.0] * 42
    apart = wilson(50, 100), wilson(58, 100)
    assert apart[0].high > apart[1].low
    assert paired(hard, better).p_mcnemar < 0.01


def test_teams_with_other_tasks_cannot_be_paired() -> None:
    with pytest.raises(ValueError):
        paired([1.0, 0.0], [1.0])


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0], "never over 1, and in the order of the p-values"
    assert holm([]) == []
