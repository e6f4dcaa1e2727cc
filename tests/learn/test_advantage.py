"""Advantages against hand-computed numbers."""

import math

import pytest

from tacit.economy.reward import EpisodeCost, RewardParts
from tacit.learn.advantage import ESTIMATORS, Difficulty, batch, difficulty, gdpo

REWARDS = (1.0, 0.0, 0.0, 0.6)
"""mean 0.4, deviations 0.6, −0.4, −0.4, 0.2, squares 0.72, std sqrt(0.72/3) = 0.4898979."""
STD = math.sqrt(0.24)


def group(*rewards: float) -> list[RewardParts]:
    """Episodes that earned so much, in one part of the user's own."""
    costs = [EpisodeCost(reward=0.0, user={"all": reward}) for reward in rewards]
    return [RewardParts(raw=cost, gate=0.0, charged={}) for cost in costs]


def charged(*episodes: tuple[float, float, float]) -> list[RewardParts]:
    """Episodes by their task reward, what was taken off it, and the gate."""
    return [
        RewardParts(raw=EpisodeCost(reward=task), gate=gate, charged={"tokens": cost})
        for task, cost, gate in episodes
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", [0.6 / STD, -0.4 / STD, -0.4 / STD, 0.2 / STD]),
        ("dr_grpo", [0.6, -0.4, -0.4, 0.2]),
        ("rloo", [0.8, -1.6 / 3, -1.6 / 3, 0.6 - 1 / 3]),
        ("batch", [0.6 / STD, -0.4 / STD, -0.4 / STD, 0.2 / STD]),
    ],
)
def test_estimators_by_hand(name: str, expected: list[float]) -> None:
    (advantages,) = ESTIMATORS[name]([group(*REWARDS)])
    assert advantages == pytest.approx(expected, rel=1e-12)


def test_the_std_has_a_floor() -> None:
    """R = (0.99, 1.01): std 0.01414, so divided by 0.1 and not blown up to ±0.707."""
    ((low, high),) = ESTIMATORS["grpo"]([group(0.99, 1.01)])
    assert (low, high) == pytest.approx((-0.1, 0.1))


def test_gdpo_normalises_parts_apart_and_cost_among_those_who_pay() -> None:
    """Task (1, 1, 0, 0): std 0.5773, so ±0.8660. Cost of the two who solved it: −0.1 and −0.3,
    deviations ±0.1, std 0.1414, so ±0.7071; the two who failed get 0 for it."""
    paid = charged((1.0, 0.1, 1.0), (1.0, 0.3, 1.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    half, root = math.sqrt(0.75), math.sqrt(0.5)
    (advantages,) = gdpo([paid])
    assert advantages == pytest.approx((half + root, half - root, -half, -half), rel=1e-12)


def test_gdpo_would_praise_failure_without_the_gate() -> None:
    ungated = charged((1.0, 0.5, 1.0), (1.0, 0.5, 1.0), (0.0, 0.0, 1.0))
    gated = charged((1.0, 0.5, 1.0), (1.0, 0.5, 1.0), (0.0, 0.0, 0.0))
    praised, failure = (gdpo([some])[0][2] for some in (ungated, gated))
    assert praised > failure
    assert gdpo([gated])[0][0] > failure


def test_one_payer_has_nobody_to_be_compared_with() -> None:
    assert gdpo([charged((1.0, 0.2, 1.0), (1.0, 0.0, 0.0))]) == [(0.0, 0.0)]


def test_batch_compares_across_groups() -> None:
    """Two groups of equal rewards give nothing apart; together ±0.5/0.5773."""
    groups = [group(1.0, 1.0), group(0.0, 0.0)]
    half = math.sqrt(0.75)
    assert batch(groups) == [pytest.approx((half, half)), pytest.approx((-half, -half))]
    assert ESTIMATORS["grpo"](groups) == [(0.0, 0.0), (0.0, 0.0)]


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("rewards", [(0.7,), (0.1,) * 3, (1 / 3,) * 7, ()])
def test_groups_without_a_difference_give_exactly_zero(
    name: str, rewards: tuple[float, ...]
) -> None:
    """The mean of three 0.1 is not 0.1 in floats: equality must be tested on the rewards."""
    assert ESTIMATORS[name]([group(*rewards)]) == [(0.0,) * len(rewards)]


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "gdpo", "batch"])
def test_advantages_sum_to_zero_and_keep_the_order(name: str) -> None:
    (advantages,) = ESTIMATORS[name]([group(*REWARDS)])
    assert sum(advantages) == pytest.approx(0.0, abs=1e-12)
    assert advantages[0] > advantages[3] > advantages[1] == advantages[2]


def test_difficulty_is_counted_on_the_task_reward() -> None:
    assert difficulty([1.0, 1.0]) == Difficulty.TOO_EASY
    assert difficulty([0.0, 0.0]) == Difficulty.TOO_HARD
    assert difficulty([0.0, 1.0]) == Difficulty.MIXED
    assert difficulty([0.4, 0.6]) == Difficulty.MIXED
    assert difficulty([0.7]) == Difficulty.TOO_EASY
    assert difficulty([0.2, 0.2]) == Difficulty.TOO_HARD
