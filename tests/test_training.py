"""What a training run is compared with: itself untrained, and the baselines, both ways."""

from tacit.config import parse_config
from tacit.training import _tests
from tacit.types import Episode, Grade

SOLO = {"topology": "solo", "agents": {"actor": {}}}


def episodes(rights: str) -> list[Episode]:
    return [
        Episode(task_id=str(n), sample=0, grade=Grade(reward=float(r == "1"), right=r == "1"))
        for n, r in enumerate(rights)
    ]


def test_the_untrained_team_is_tested_against_the_first_baseline() -> None:
    config = parse_config({"teams": {"solo": SOLO, "other": SOLO}})
    played = {
        "untrained": episodes("1000"),
        "solo": episodes("1100"),
        "other": episodes("1110"),
        "trained": episodes("1111"),
    }
    trained_against, paired = _tests(played, config)
    assert {n: t and t.difference.mean for n, t in paired.items()} == {
        "untrained": -0.25,
        "other": 0.25,
    }
    assert {n: t and t.difference.mean for n, t in trained_against.items()} == {
        "untrained": 0.75,
        "solo": 0.5,
        "other": 0.25,
    }


def test_without_baselines_only_the_untrained_team_is_left() -> None:
    trained_against, paired = _tests(
        {"untrained": episodes("10"), "trained": episodes("11")}, parse_config({})
    )
    assert list(trained_against) == ["untrained"] and paired == {}
