"""What a team does without is not asked for, not read, and costs nothing; the rest is as drawn."""

import itertools
from dataclasses import replace

import pytest

from tacit.config import Cut, TeamConfig
from tacit.engine.base import Request
from tacit.errors import ConfigError
from tacit.team.roster import Roster, check_team
from tacit.team.setting import Setting
from tacit.team.team import Team
from tacit.types import Message, Task
from tests.helpers.scripted_teams import TASK, order, play, scripted, user

DEBATE = {"debater": ["one 1", "two 2", "three 3", "again 1", "again 2", "again 3"]}


def debate(replies: list[str] | None = None) -> Roster:
    scripts = {"debater": replies or DEBATE["debater"]}
    return scripted("debate", scripts, debater={"count": 3})


def without(**cut: object) -> Setting:
    return Setting(without=frozenset({Cut.model_validate(cut)}))


async def test_an_agent_left_out_is_neither_asked_nor_read() -> None:
    episode = await play(debate(), setting=without(agent="debater 2"))
    assert order(episode) == [
        ("debater 1", "solver"),
        ("debater 3", "solver"),
        ("debater 1", "debater"),
        ("debater 3", "debater"),
    ]
    assert "one 1" in user(episode.calls[3]) and "debater 2" not in user(episode.calls[3])


async def test_without_a_round_the_last_answers_stand() -> None:
    episode = await play(debate(["1", r"\boxed{2}", r"\boxed{2}"]), setting=without(round=1))
    assert [call.round for call in episode.calls] == [0, 0, 0]
    assert episode.answer == r"\boxed{2}"


async def test_one_reader_does_not_hear_what_all_others_hear() -> None:
    episode = await play(debate(), setting=without(agent="debater 1", reader="debater 2"))
    first, second, third = (user(call) for call in episode.calls[3:])
    assert "one 1" in first and "one 1" in third
    assert "one 1" not in second and "three 3" in second


async def test_a_role_is_kept_from_a_role() -> None:
    scripts = {"hinter": ["try 7"], "actor": ["42"]}
    cut = without(agent="hinter", reader="actor")
    episode = await play(scripted("hint_actor", scripts), setting=cut)
    assert order(episode) == [("hinter", "hinter"), ("actor", "solver")]
    assert user(episode.calls[1]) == TASK.question


async def test_the_teams_answer_is_asked_for_all_the_same() -> None:
    scripts = {"agent": ["hello", "42"]}
    roster = scripted("dialogue", scripts, options={"rounds": 1}, agent={"count": 2})
    episode = await play(roster, setting=without(agent="agent 1"))
    assert order(episode) == [("agent 2", "speaker"), ("agent 1", "answerer")]


async def test_a_picker_left_out_leaves_an_expert_of_no_kind() -> None:
    scripts = {"picker": ["a baker"], "actor": ["42"]}
    episode = await play(scripted("role_assignment", scripts), setting=without(agent="picker"))
    assert order(episode) == [("actor", "expert")] and "baker" not in user(episode.calls[0])


async def test_a_round_of_self_refinement_leaves_the_draft() -> None:
    scripts = {"actor": ["draft", "wrong sign", "better"]}
    roster = scripted("self_refine", scripts, options={"rounds": 2})
    episode = await play(roster, setting=without(round=2))
    assert episode.answer == "better" and len(episode.calls) == 3


async def test_what_was_drawn_before_is_drawn_again_for_nothing() -> None:
    counted = itertools.count()

    def reply(request: Request) -> str:
        return f"{next(counted)}"

    roster = scripted("debate", {"debater": reply}, debater={"count": 3})
    first = await play(roster)
    same = await play(roster, setting=Setting(recorded=first.calls))
    assert [call.text for call in same.calls] == [call.text for call in first.calls]
    assert all(call.reused for call in same.calls) and same.usage == first.usage
    cut = Setting(recorded=first.calls, without=frozenset({Cut(agent="debater 3", round=0)}))
    other = await play(roster, setting=cut)
    assert [call.reused for call in other.calls] == [True, True, False, False, False]
    assert next(counted) == 9


async def test_equal_prompts_are_answered_in_the_order_of_the_record() -> None:
    replies = ["1", "2", "3", "4", "5"]
    roster = scripted("self_consistency", {"actor": replies}, options={"samples": 4})
    first = await play(roster)
    again = await play(roster, setting=Setting(recorded=first.calls[:3]))
    assert [call.text for call in again.calls] == ["1", "2", "3", "5"]


async def test_a_team_can_do_without_for_good() -> None:
    team = {
        "topology": "debate",
        "agents": {"debater": {"count": 3}},
        "without": [{"agent": "debater 3"}, {"round": 1}],
    }
    roster = debate()
    kept = Roster(
        agents=roster.agents,
        topology=roster.topology,
        without=frozenset(TeamConfig.model_validate(team).without),
    )
    assert len((await play(kept)).calls) == 2
    team["without"] = [{"agent": "debatr"}]
    with pytest.raises(ConfigError, match=r"team\.without: the team has no agent `debatr`; did"):
        check_team(TeamConfig.model_validate(team))


@pytest.mark.parametrize("cut", [{}, {"reader": "a"}, {"agent": "a", "reader": "b", "round": 1}])
def test_a_cut_says_what_is_left_out(cut: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a cut "):
        Cut.model_validate(cut)


async def test_the_talk_ends_where_the_answers_agree() -> None:
    same, other = r"\boxed{42}", r"so it is \boxed{41}"
    team = {"debater": {"count": 3}}
    for replies, calls in (([same] * 3, 3), ([same, other, same, same, same, same], 6)):
        roster = replace(scripted("debate", {"debater": replies}, **team), stop="agreed")
        episode = await play(roster)
        assert len(episode.calls) == calls and episode.answer == same


async def test_answers_that_cannot_be_read_do_not_agree() -> None:
    roster = scripted("debate", {"debater": ["no idea"] * 4}, debater={"count": 2})
    assert len((await play(replace(roster, stop="agreed"))).calls) == 4


async def judged(task: Task, team: Team) -> Message:
    """Two answer, a third picks one, and is not told that its answer is the last."""
    said = [await one.ask(task.question) for one in team.all("solver")]
    return await team.judge.ask(task.question, part="selector", solutions=said, round=1)


async def test_whoever_is_not_asked_gives_the_answer_that_all_gave() -> None:
    scripts = {"solver": [r"\boxed{42}"] * 2, "judge": ["never asked"]}
    team = scripted(f"{__name__}:judged", scripts, solver={"count": 2})
    episode = await play(replace(team, stop="agreed"))
    assert episode.answer == r"\boxed{42}" and len(episode.calls) == 2
