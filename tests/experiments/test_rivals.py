"""Other people's ways to save tokens do what their papers say."""

from dataclasses import replace
from pathlib import Path

import pytest

import tacit
from experiments.rivals import sure, unlike
from tacit.types import Message
from tests.helpers.scripted_teams import TASK, order, play, scripted, user

HERE = "experiments.rivals"
RIGHT, WRONG = r"\boxed{42}", r"\boxed{41}"


async def test_sampling_stops_when_the_majority_is_probable() -> None:
    """Four of one kind: Beta(5, 1) has 1 - 0.5⁵ = 0.97 above ½; three have 0.94."""
    team = scripted(f"{HERE}:adaptive_consistency", {"actor": [RIGHT] * 8})
    assert len((await play(team)).calls) == 4
    mixed = [RIGHT, WRONG, RIGHT, RIGHT, WRONG, RIGHT, RIGHT, RIGHT]
    episode = await play(scripted(f"{HERE}:adaptive_consistency", {"actor": mixed}))
    assert len(episode.calls) == 8 and episode.answer == RIGHT


def test_the_posterior_is_the_beta_distributions() -> None:
    """By hand: the mass of Beta(a + 1, b + 1) above one half."""
    known = {(0, 0): 1 / 2, (1, 0): 3 / 4, (1, 1): 1 / 2, (3, 1): 26 / 32, (4, 0): 31 / 32}
    for (first, second), wanted in known.items():
        said = [Message("a", RIGHT)] * first + [Message("a", WRONG)] * second
        assert abs(sure(TASK, said) - wanted) < 1e-12


async def test_a_window_of_one_mind_ends_the_sampling() -> None:
    team = scripted(f"{HERE}:early_stopping", {"actor": [WRONG, *[RIGHT] * 7]})
    episode = await play(team)
    assert len(episode.calls) == 8 and episode.answer == RIGHT
    team = scripted(f"{HERE}:early_stopping", {"actor": [RIGHT] * 8})
    assert len((await play(team)).calls) == 4
    nothing = scripted(f"{HERE}:early_stopping", {"actor": ["no idea"] * 8})
    assert len((await play(nothing)).calls) == 8, "answers that cannot be read agree on nothing"


async def test_debaters_read_only_what_they_do_not_think_already() -> None:
    replies = [RIGHT, WRONG, RIGHT, "now 42: " + RIGHT, "still " + RIGHT, RIGHT]
    team = scripted(f"{HERE}:s2_mad", {"debater": replies}, debater={"count": 3})
    episode = await play(team)
    second = episode.calls[3:]
    assert [call.agent for call in second] == ["debater 1", "debater 2", "debater 3"]
    assert user(second[1]).count("<solution") == 2, "its own, and the other answer once"
    assert len(episode.calls) == 6, "all agree after one round"


def test_each_other_answer_is_read_once() -> None:
    said = [Message("a", RIGHT), Message("b", WRONG), Message("c", WRONG)]
    assert unlike(TASK, said[0], said) == [said[1]] and unlike(TASK, said[1], said) == [said[0]]


async def test_an_auction_hears_short_drafts_within_its_budget_and_counts_all() -> None:
    scripts = {"agent": ["a b c d e f", "x y"], "answerer": ["42"]}
    options = {"rounds": 1, "budget": 4}
    team = scripted(f"{HERE}:auction", scripts, options=options, agent={"count": 2})
    assert {one.role: one.temperature for one in team.agents} == {"agent": 0.7, "answerer": 0.0}
    episode = await play(team)
    assert order(episode)[-1] == ("answerer", "answerer")
    assert "x y" in user(episode.calls[-1]) and "a b c" not in user(episode.calls[-1])
    assert episode.usage.generated == 9


async def test_one_agent_checks_and_revises_in_one_conversation() -> None:
    team = scripted(f"{HERE}:one_context", {"actor": [WRONG, "the sum is off", RIGHT]})
    episode = await play(team)
    assert [part for _, part in order(episode)] == ["solver", "self_critic", "refiner"]
    assert WRONG in user(episode.calls[2]) and "the sum is off" in user(episode.calls[2])
    assert episode.answer == RIGHT


async def test_an_unsure_answer_is_put_to_a_vote() -> None:
    """A scripted engine knows no log-probability, so it is never sure."""
    scripts = {"actor": [WRONG], "sampler": [RIGHT, RIGHT, WRONG]}
    team = scripted(f"{HERE}:cascade", scripts, options={"samples": 3})
    episode = await play(team, replace(TASK, id="sum/2"))
    assert len(episode.calls) == 4


@pytest.mark.parametrize(("threshold", "calls"), [(-1e9, 1.0), (0.0, 3.0)])
def test_a_sure_answer_of_a_model_is_not(threshold: float, calls: float, tmp_path: Path) -> None:
    """What a model says greedily has a log-probability, and a mean of 0 is never reached."""
    agent = {"max_tokens": 8}
    config = {
        "tasks": {"name": "arithmetic", "limit": 2},
        "team": {
            "topology": f"{HERE}:cascade",
            "agents": {"actor": agent, "sampler": agent},
            "options": {"threshold": threshold, "samples": 2},
        },
        "evaluation": {"resamples": 20},
    }
    (summary,) = tacit.evaluate(config, out=tmp_path / "run")["teams"].values()
    assert sum(one["calls"] for one in summary["agents"]) == calls


async def test_the_rule_reports_a_failing_test_and_nothing_else() -> None:
    code = replace(TASK, data={"visible": ["assert f(2) == 4"], "entry_point": "f"})
    bad, good = ("```python\ndef f(n):\n    return n * " + by + "\n```" for by in ("3", "2"))
    episode = await play(scripted(f"{HERE}:failing_tests", {"actor": [bad, good]}), code)
    assert "f(2) gave 6" in user(episode.calls[1]) and episode.answer == good
    accepted = await play(scripted(f"{HERE}:failing_tests", {"actor": [good]}), code)
    assert len(accepted.calls) == 1
