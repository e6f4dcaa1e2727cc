"""The dual step against hand-computed numbers, and that it holds a budget."""

import math
from collections.abc import Callable, Sequence

import pytest

from tacit.config import BudgetConfig, RewardConfig
from tacit.economy.budget import (
    PATIENCE,
    Dual,
    Warmup,
    open_duals,
    step_dual,
    step_warmup,
    unreachable,
)
from tacit.economy.reward import EpisodeCost, Multipliers, reward_group

TOKENS = BudgetConfig(tokens=100)


@pytest.mark.parametrize(
    ("before", "cost", "after"),
    [
        (0.0, 300.0, 0.01),  # 0.005·(3 − 1)
        (0.2, 50.0, 0.1975),  # 0.005·(0.5 − 1)
        (0.2, 100.0, 0.2),  # on budget
        (0.001, 0.0, 0.0),  # never below 0
        (0.999, 1000.0, 1.0),  # never above the ceiling
    ],
)
def test_dual_step_by_hand(before: float, cost: float, after: float) -> None:
    assert step_dual("tokens", Dual(value=before), cost, TOKENS).value == pytest.approx(
        after, rel=1e-12
    )


def test_nothing_is_charged_while_the_team_warms_up() -> None:
    settings = BudgetConfig(tokens=100, weight_tokens=0.3)
    assert open_duals(settings, warming=True)["tokens"].value == 0.0
    assert open_duals(settings)["tokens"].value == 0.3
    assert step_dual("tokens", Dual(value=0.3), 900.0, settings, warming=True).value == 0.0


def test_the_price_begins_where_it_was_set_when_the_warm_up_is_over() -> None:
    settings = BudgetConfig(tokens=100, weight_tokens=0.3)
    dual = open_duals(settings, warming=True)["tokens"]
    dual = step_dual("tokens", dual, 300.0, settings, warming=True)
    assert step_dual("tokens", dual, 100.0, settings).value == pytest.approx(0.3)
    assert step_dual("tokens", dual, 300.0, settings).value == pytest.approx(0.31)  # 0.005·(3 − 1)


def test_fixed_keeps_the_multiplier_after_the_warm_up() -> None:
    settings = BudgetConfig(turns=2, weight_turns=0.3, control="fixed")
    dual = open_duals(settings, warming=True)["turns"]
    for cost in (0.0, 50.0, 1e6):
        dual = step_dual("turns", dual, cost, settings)
        assert dual == Dual(value=0.3)


def test_money_has_the_weight_of_the_tokens_that_it_replaces() -> None:
    settings = BudgetConfig(control="fixed", money=6e-4, weight_tokens=0.1, weight_turns=0.3)
    dual = open_duals(settings, warming=True)["money"]
    assert step_dual("money", dual, 1e-3, settings).value == 0.1
    assert open_duals(settings)["money"].value == 0.1


def test_a_resumed_run_keeps_the_fixed_price_that_it_was_saved_with() -> None:
    """As one that was begun when fixed prices did not charge money."""
    settings = BudgetConfig(control="fixed", money=6e-4, weight_tokens=0.1)
    assert step_dual("money", Dual(value=0.0), 1e-3, settings).value == 0.0


def test_a_ceiling_held_in_vain_is_reported() -> None:
    settings = BudgetConfig(tokens=100, rate=1.0)
    dual, said = open_duals(settings)["tokens"], []
    for cost in (*[300] * (PATIENCE + 1), 90):
        dual = step_dual("tokens", dual, cost, settings)
        said.append(unreachable("tokens", dual, settings))
    assert [text is not None for text in said[-4:]] == [False, True, True, False]
    assert said[-2] is not None and "budget not reachable" in said[-2]
    assert "budget.tokens = 100" in said[-2]


def test_a_ceiling_within_the_budget_is_not_in_vain() -> None:
    assert step_dual("tokens", Dual(value=1.0, at_ceiling=9), 100.0, TOKENS).at_ceiling == 0


def test_a_cost_that_is_no_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="nan"):
        step_dual("tokens", Dual(), math.nan, TOKENS)


Charge = Callable[[Sequence[float], float], list[float]]


def scaled(tokens: Sequence[float], multiplier: float) -> list[float]:
    """The library's own cost."""
    group = [EpisodeCost(reward=1.0, tokens=t) for t in tokens]
    parts = reward_group(group, Multipliers(tokens=multiplier), RewardConfig(), TOKENS)
    return [1 - part.total for part in parts]


def clipped(tokens: Sequence[float], multiplier: float) -> list[float]:
    """The cost it must not be."""
    return [min(multiplier * t / 100, 0.5) for t in tokens]


def train_length(charge: Charge, steps: int = 600) -> tuple[float, float]:
    """A team of one number, its length: it follows the cost's gradient, and drifts longer without.

    Each group holds episodes 10 % shorter and longer than the team's length. The slope of the cost
    between them shortens the team; talking more is what it does when nothing holds it back.
    """
    length, dual = 400.0, open_duals(TOKENS)["tokens"]
    for _ in range(steps):
        low, high = charge((0.9 * length, 1.1 * length), dual.value)
        length *= math.exp(0.002 - 0.2 * (high - low))
        dual = step_dual("tokens", dual, length, TOKENS)
    return length, dual.value


def test_a_clipped_cost_has_no_slope_and_winds_the_multiplier_up() -> None:
    """At λ = 0.2, x = (0.72, 0.88): clipped, both are ½ and nothing pushes them down."""
    assert clipped((360, 440), 0.2) == [0.5, 0.5]
    assert scaled((360, 440), 0.2) == pytest.approx([0.5 * 360 / 440, 0.5])
    held, price = train_length(scaled)
    assert held <= 1.1 * 100
    assert price < TOKENS.ceiling
    wound, ceiling = train_length(clipped)
    assert wound > 1.5 * 100
    assert ceiling == TOKENS.ceiling


def test_warm_up_ends_after_its_steps_at_the_latest() -> None:
    state = Warmup(limit=3)
    seen = []
    for _ in range(4):
        seen.append(state.over)
        state = step_warmup(state, gap=-0.5)
    assert seen == [False, False, False, True]
    assert Warmup(limit=0).over


def test_warm_up_ends_early_when_speaking_has_caught_up_over_five_steps() -> None:
    """Gaps −0.10, −0.04, −0.03, −0.02, −0.01 average −0.04; then 0.01 for −0.10: −0.018."""
    state = Warmup(limit=100)
    for gap in (-0.10, -0.04, -0.03, -0.02, -0.01):
        state = step_warmup(state, gap)
        assert not state.over
    state = step_warmup(state, 0.01)
    assert state.over and state.steps == 6
    assert step_warmup(state, -0.9).over


def test_warm_up_can_last_until_speaking_is_worth_its_price() -> None:
    state = Warmup(limit=100, gain=0.05)
    for gap in (0.0, 0.04, 0.04, 0.05, 0.06):
        state = step_warmup(state, gap)
    assert not state.over
    assert step_warmup(state, 0.06).over


def test_one_good_step_does_not_end_the_warm_up() -> None:
    assert not step_warmup(Warmup(limit=100), 0.5).over


def test_warm_up_counts_steps_where_nobody_can_be_silent() -> None:
    state = Warmup(limit=2)
    for _ in range(2):
        state = step_warmup(state, None)
    assert state.over and state.gaps == ()
