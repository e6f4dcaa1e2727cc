"""Rewards against hand-computed numbers."""

import math
from dataclasses import replace
from typing import Any

import pytest

from tacit.config import BudgetConfig, RewardConfig
from tacit.config.file import parse_config
from tacit.economy.reward import (
    COSTS,
    EpisodeCost,
    Multipliers,
    RewardParts,
    overlong_penalty,
    repetition,
    reward_group,
)
from tacit.errors import ConfigError

Settings = tuple[RewardConfig, BudgetConfig]


def settings(
    *, tokens: Any = None, turns: Any = None, money: Any = None, **reward: Any
) -> Settings:
    return RewardConfig(**reward), BudgetConfig(tokens=tokens, turns=turns, money=money)


BUDGETS = settings(tokens=100, turns=2, money=0.5)


def totals(parts: tuple[RewardParts, ...]) -> list[float]:
    return [part.total for part in parts]


def test_linear_cost_by_hand() -> None:
    """x = 0.1·150/100 + 0.05·4/2 + 0.2·0.25 = 0.15 + 0.1 + 0.05, below the cap."""
    episode = EpisodeCost(reward=1.0, tokens=150, turns=4, repetition=0.25)
    (part,) = reward_group([episode], Multipliers(tokens=0.1, turns=0.05, repetition=0.2), *BUDGETS)
    assert part.charged == pytest.approx({"tokens": 0.15, "turns": 0.1, "repetition": 0.05})
    assert part.total == pytest.approx(0.7)
    assert (part.task, part.gate, part.raw) == (1.0, 1.0, episode)


@pytest.mark.parametrize("name", COSTS)
def test_whatever_is_spent_is_charged_if_it_has_a_price(name: str) -> None:
    spent = replace(EpisodeCost(reward=1.0), **{name: 1.0})
    prices = replace(Multipliers(), **{name: 0.1})
    (parts,) = reward_group([spent], prices, RewardConfig(), BudgetConfig(tokens=2.0, turns=2.0))
    assert parts.charged[name] > 0.0 and parts.total < 1.0


def test_the_cap_scales_the_whole_group_and_never_clips() -> None:
    """x = (1, 2) with cap ½: scaled by ¼ to (¼, ½). Clipped, both would be ½ and equal."""
    group = [EpisodeCost(reward=1.0, tokens=200), EpisodeCost(reward=1.0, tokens=400)]
    parts = reward_group(group, Multipliers(tokens=0.5), *BUDGETS)
    assert totals(parts) == pytest.approx([0.75, 0.5])


def test_a_cost_below_the_cap_is_not_scaled_up() -> None:
    parts = reward_group([EpisodeCost(reward=1.0, tokens=10)], Multipliers(tokens=1.0), *BUDGETS)
    assert totals(parts) == pytest.approx([0.9])


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("success", [1 - 0.1, 0.0, 0.5 - 0.5 * 0.3]),
        ("group", [1 - 0.5 * 0.1, -0.5 * 0.2, 0.5 - 0.5 * 0.3]),
        ("always", [1 - 0.1, -0.2, 0.5 - 0.3]),
    ],
)
def test_gates_by_hand(gate: str, expected: list[float]) -> None:
    """r = (1, 0, ½), x = (0.1, 0.2, 0.3); the group's mean r is ½."""
    group = [EpisodeCost(reward=r, tokens=t) for r, t in ((1.0, 100), (0.0, 200), (0.5, 300))]
    how = settings(tokens=100, gate=gate)
    assert totals(reward_group(group, Multipliers(tokens=0.1), *how)) == pytest.approx(expected)


@pytest.mark.parametrize("gate", ["success", "group", "always"])
def test_a_correct_verbose_episode_always_beats_a_wrong_silent_one(gate: str) -> None:
    group = [EpisodeCost(reward=1.0, tokens=10**6, turns=99), EpisodeCost(reward=0.0, tokens=3)]
    how = settings(tokens=1, turns=1, gate=gate)
    verbose, silent = totals(reward_group(group, Multipliers(tokens=1, turns=1), *how))
    assert verbose >= 0.5 - 1e-12 > silent


def test_one_sided_charges_only_the_excess() -> None:
    """Tokens 50 and 130 of 100, turns 1 and 3 of 2: x = 0 and 0.2·0.3 + 0.1·0.5."""
    group = [
        EpisodeCost(reward=1.0, tokens=50, turns=1),
        EpisodeCost(reward=1.0, tokens=130, turns=3),
    ]
    how = settings(tokens=100, turns=2, shape="one_sided")
    parts = reward_group(group, Multipliers(tokens=0.2, turns=0.1), *how)
    assert totals(parts) == pytest.approx([1.0, 1 - 0.06 - 0.05])


def test_multiplicative_by_hand() -> None:
    """T̄ = 200, α = 0.5: 1/(1 + 0.25) and ½/(1 + 0.75). λ_tok has no part in it."""
    group = [EpisodeCost(reward=1.0, tokens=100), EpisodeCost(reward=0.5, tokens=300)]
    how = settings(shape="multiplicative", alpha=0.5)
    parts = reward_group(group, Multipliers(tokens=0.9), *how)
    assert totals(parts) == pytest.approx([0.8, 0.5 / 1.75])


def test_multiplicative_takes_turns_and_repetition_along() -> None:
    """r/(1 + α·T/T̄ + λ_turn·K/B + λ_rep·ρ) = 1/(1 + 0.5 + 0.3 + 0.2)."""
    episode = EpisodeCost(reward=1.0, tokens=7, turns=3, repetition=0.5)
    how = settings(shape="multiplicative", alpha=0.5, turns=2)
    (part,) = reward_group([episode], Multipliers(turns=0.2, repetition=0.4), *how)
    assert part.total == pytest.approx(0.5)


def test_priced_charges_money_and_not_tokens() -> None:
    episode = EpisodeCost(reward=1.0, tokens=10**6, money=0.75)
    how = settings(money=0.5, shape="priced")
    (part,) = reward_group([episode], Multipliers(tokens=0.2), *how)
    assert part.charged["tokens"] == pytest.approx(0.2 * 1.5)


def test_parts_of_the_users_own_are_added_ungated() -> None:
    episode = EpisodeCost(reward=0.0, user={"overlong": -0.25, "style": 0.1})
    (part,) = reward_group([episode], Multipliers(), *settings())
    assert part.total == pytest.approx(-0.15)


def test_without_cost_the_reward_is_the_task_reward_exactly() -> None:
    group = [EpisodeCost(reward=r, tokens=100) for r in (0.1, 0.7)]
    assert totals(reward_group(group, Multipliers(), *settings())) == [0.1, 0.7]
    assert reward_group([], Multipliers(), *settings()) == ()


@pytest.mark.parametrize("shape", ["linear", "multiplicative"])
def test_while_the_team_warms_up_no_shape_charges_anything(shape: Any) -> None:
    group = [EpisodeCost(reward=1.0, tokens=100, turns=3), EpisodeCost(reward=1.0, tokens=10)]
    how = settings(tokens=10, shape=shape, alpha=0.5)
    free = Multipliers(tokens=0.5, repetition=0.2, free=True)
    assert totals(reward_group(group, free, *how)) == [1.0, 1.0]


def test_silent_everywhere_costs_nothing() -> None:
    group = [EpisodeCost(reward=1.0), EpisodeCost(reward=0.0)]
    how = settings(shape="multiplicative", alpha=1.0)
    assert totals(reward_group(group, Multipliers(), *how)) == [1.0, 0.0]
    assert totals(reward_group(group, Multipliers(tokens=1), *BUDGETS)) == [1.0, 0.0]


def test_repetition_by_hand() -> None:
    """4-grams abcd bcde | abcd bcdx: the third was said before. None reaches across messages."""
    assert repetition(["a b c d e", "a b c d x"]) == pytest.approx(1 / 4)
    assert repetition(["a a a a a a a"]) == pytest.approx(3 / 4)
    assert repetition(["a b", "c d"]) == 0.0
    assert repetition([]) == 0.0


@pytest.mark.parametrize(
    ("tokens", "expected"), [(0, 0.0), (80, 0.0), (85, -0.25), (100, -1.0), (500, -1.0)]
)
def test_overlong_penalty_by_hand(tokens: int, expected: float) -> None:
    assert overlong_penalty(tokens, limit=100, buffer=20) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tree", "named"),
    [
        ({"budget": {"tokens": 0}}, r"budget\.tokens"),
        ({"reward": {"cap": 1.0}}, r"reward\.cap"),
        ({"reward": {"parts": {"tokens": "a:b"}}}, "`tokens` is a part of every reward"),
        ({"reward": {"shape": "multiplicative", "gate": "always"}}, r"set reward\.gate"),
    ],
)
def test_bad_settings_are_refused_by_name(tree: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse_config(tree)


def test_a_price_needs_its_unit() -> None:
    with pytest.raises(ConfigError, match=r"set budget\.turns"):
        reward_group([EpisodeCost(reward=1.0, turns=1)], Multipliers(turns=0.1), *settings())
    with pytest.raises(ConfigError, match=r"reward\.overlong"):
        overlong_penalty(10, limit=100, buffer=0)


def test_a_reward_that_is_no_number_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        EpisodeCost(reward=math.nan)
    with pytest.raises(ValueError, match="not finite"):
        EpisodeCost(reward=1.0, user={"mine": math.inf})
