"""Scaling a sample up, by hand."""

from math import e

import pytest

from tacit.config import ModelConfig
from tacit.economy.ledger import Price, PriceTable
from tacit.errors import ConfigError
from tacit.plan.forecast import FALL_STEPS, Part, forecast, talk_left
from tacit.types import Call, Episode, Stop, Usage


def episode(**spent: tuple[int, int]) -> Episode:
    """Model → (read, generated), a call each."""
    calls = tuple(
        Call(
            agent=model,
            model=model,
            messages=(),
            text="",
            stop=Stop.EOS,
            usage=Usage(prompt=read, generated=said),
        )
        for model, (read, said) in spent.items()
    )
    return Episode(task_id="t", sample=0, calls=calls)


SPOKEN = [episode(big=(100, 10), small=(50, 40)), episode(big=(120, 10), small=(50, 60))]
QUIET = [episode(big=(70, 10), small=(50, 2))]


def part(**changed: object) -> Part:
    whole = {"name": "training", "episodes": 200, "sample": SPOKEN, "seconds": 3.0, **changed}
    return Part(**whole)  # type: ignore[arg-type]


def test_a_sample_is_scaled_to_the_number_of_episodes() -> None:
    found = forecast([part(), part(name="evaluation", episodes=10, sample=QUIET, seconds=0.5)])
    assert found.models["big"].calls == 200 + 10
    assert found.models["big"].prompt == 200 * 110 + 10 * 70
    assert found.models["small"].generated == 200 * 50 + 10 * 2
    assert found.parts == {"training": 200 * 220, "evaluation": 10 * 132}
    assert found.tokens == sum(found.parts.values())
    assert found.seconds == pytest.approx(100 * 3.0 + 10 * 0.5)
    assert (found.sample_episodes, found.sample_tokens, found.money) == (3, 440 + 132, None)


def test_talk_that_will_fall_is_mixed_with_what_is_left_without_it() -> None:
    found = forecast([part(talk=0.25, quiet=QUIET)])
    assert found.tokens == pytest.approx(200 * (0.25 * 220 + 0.75 * 132))
    assert found.models["small"].generated == pytest.approx(200 * (0.25 * 50 + 0.75 * 2))


def test_how_unsure_it_is_comes_from_the_sample() -> None:
    """Totals 200 and 240: variance 800, of a mean of two 400, of 200 episodes (200·20)²."""
    assert forecast([part()]).unsure == pytest.approx(1.96 * 200 * 20 / (200 * 220))
    assert forecast([part(sample=SPOKEN[:1])]).unsure == 0.0
    assert forecast([]).tokens == forecast([]).unsure == 0.0


def test_money_needs_a_price_for_every_model() -> None:
    prices = PriceTable(
        date="2026-01-01",
        models={"big": Price(input=1, output=2), "small": Price(input=0, output=3)},
    )
    found = forecast([part()], prices)
    assert found.money == pytest.approx((200 * 110 + 200 * 10 * 2 + 200 * 50 * 3) / 1e6)
    with pytest.raises(ConfigError, match="no price"):
        forecast([part()], PriceTable(date="2026-01-01", models={"big": Price(input=1, output=2)}))


def test_limits_of_speed_make_it_longer() -> None:
    never = ModelConfig(requests_per_minute=1e-9)
    slow = {"big": ModelConfig(requests_per_minute=10), "elsewhere": never}
    assert forecast([part()], limits=slow).seconds == pytest.approx(200 / 10 * 60)
    tokens = {"big": ModelConfig(tokens_per_minute=1000)}
    assert forecast([part()], limits=tokens).seconds == pytest.approx(200 * 120 / 1000 * 60)
    assert forecast([part()], limits={"big": ModelConfig()}, more_seconds=5).seconds == 305


@pytest.mark.parametrize(
    ("budget", "end"),
    [
        (None, 1.0),  # nothing presses
        (70, 1.0),  # already below
        (36.0, (36 - 12) / (60 - 12)),  # from 60 down to 36, 12 of it not talk
        (5.0, 0.0),  # below what silence costs: down to no talk at all
    ],
)
def test_talk_falls_towards_the_budget(budget: float | None, end: float) -> None:
    assert talk_left(SPOKEN, QUIET, budget, [0]) == 1.0
    assert talk_left(SPOKEN, QUIET, budget, [FALL_STEPS]) == pytest.approx(end + (1 - end) / e)
    assert talk_left(SPOKEN, QUIET, budget, [10**6]) == pytest.approx(end)
    both = talk_left(SPOKEN, QUIET, budget, [0, 10**6])
    assert both == pytest.approx((1 + end) / 2), "the mean over the steps"


def test_without_quiet_plays_talk_is_taken_to_stay() -> None:
    assert talk_left(SPOKEN, [], 10.0, range(100)) == 1.0
    assert forecast([part(talk=0.5)]).tokens == forecast([part()]).tokens
