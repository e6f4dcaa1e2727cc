"""The experiments' own teams: who is told what, and what the Actor hears."""

from dataclasses import replace

import pytest

from tacit import ConfigError
from tests.helpers.scripted_teams import SILENT, TASK, order, play, scripted, user

HERE = "experiments.topologies"
SPLIT = "experiments.split_gsm8k"
CUT = replace(
    TASK,
    question="Ann has some eggs. She buys 3 more. How many has she?",
    data={
        "notes": "- Bob has 9 cats.\n- Ann had 4 eggs.",
        "asked": "How many has she?",
        "fact": "Ann had 4 eggs.",
    },
)


async def test_the_actor_hears_a_hint_in_other_words() -> None:
    scripts = {"hinter": ["h1"], "paraphraser": ["other words"], "actor": [r"\boxed{42}"]}
    episode = await play(scripted(f"{HERE}:hint_reworded", scripts))
    assert [call.agent for call in episode.calls] == ["hinter", "paraphraser", "actor"]
    assert user(episode.calls[1]) == "h1"
    assert "other words" in user(episode.calls[2]) and "h1" not in user(episode.calls[2])


async def test_silence_is_not_reworded() -> None:
    scripts = {"hinter": [SILENT], "paraphraser": [], "actor": ["42"]}
    episode = await play(scripted(f"{HERE}:hint_reworded", scripts))
    assert [call.agent for call in episode.calls] == ["hinter", "actor"]
    assert user(episode.calls[-1]) == TASK.question


async def test_a_wrong_teammate_is_heard_before_the_hinter_or_alone() -> None:
    scripts = {"saboteur": ["it is 41"], "hinter": ["it is 42"], "actor": ["42"]}
    episode = await play(scripted(f"{HERE}:hint_disputed", scripts))
    heard = user(episode.calls[-1])
    assert heard.index("it is 41") < heard.index("it is 42")
    del scripts["hinter"]
    alone = await play(scripted(f"{HERE}:hint_disputed", scripts))
    assert order(alone) == [("saboteur", "hinter"), ("actor", "solver")]


async def test_a_second_opinion_costs_a_third_turn_and_silence_neither() -> None:
    scripts = {"actor": ["it is 41"], "second": ["no: 42"], "arbiter": [r"\boxed{42}"]}
    episode = await play(scripted(f"{HERE}:second_opinion", scripts))
    assert order(episode) == [("actor", "solver"), ("second", "critic"), ("arbiter", "selector")]
    assert "it is 41" in user(episode.calls[1])
    assert all(words in user(episode.calls[2]) for words in ("it is 41", "no: 42"))
    assert episode.answer == r"\boxed{42}" and episode.turns == 3

    trusted = {"actor": ["first"], "second": [SILENT], "arbiter": []}
    episode = await play(scripted(f"{HERE}:second_opinion", trusted))
    assert episode.answer == "first" and episode.turns == 1


async def test_private_notes_reach_the_actor_only_by_what_is_said() -> None:
    for name, sees_all in (("seeing", True), ("blind", False)):
        scripts = {"hinter": ["Ann had 4."], "actor": ["7"]}
        episode = await play(scripted(f"{SPLIT}:{name}", scripts), CUT)
        helper, actor = (user(call) for call in episode.calls)
        assert CUT.data["notes"] in helper
        assert ("She buys 3 more." in helper) == sees_all and "How many has she?" in helper
        assert "Ann had 4." in actor and "Bob" not in actor and "4 eggs" not in actor


async def test_an_oracle_tells_the_actor_what_it_lacks() -> None:
    episode = await play(scripted(f"{SPLIT}:oracle", {"actor": ["7"]}), CUT)
    assert "Ann had 4 eggs." in user(episode.calls[0])
    free = replace(CUT, data={**CUT.data, "fact": ""})
    episode = await play(scripted(f"{SPLIT}:oracle", {"actor": ["7"]}), free)
    assert user(episode.calls[0]) == CUT.question


ORDERS = {
    "hint": [("collaborator", "hinter"), ("actor", "solver")],
    "critic": [("actor", "solver"), ("collaborator", "critic"), ("actor", "reviser")],
    "expert": [("actor", "role_picker"), ("collaborator", "hinter"), ("actor", "expert")],
}


@pytest.mark.parametrize("way", ORDERS)
async def test_one_collaborator_helps_in_several_ways(way: str) -> None:
    scripts = {"collaborator": {"": "add 2"}, "actor": {"": r"\boxed{42}"}}
    team = scripted(f"{HERE}:several", scripts, options={"ways": [way]})
    episode = await play(team)
    assert order(episode) == ORDERS[way] and "add 2" in user(episode.calls[-1])


async def test_the_tasks_of_a_run_are_shared_among_the_ways() -> None:
    scripts = {"collaborator": {"": "add 2"}, "actor": {"": r"\boxed{42}"}}
    team = scripted(f"{HERE}:several", scripts, options={"ways": ["hint", "critic"]})
    seen = [order(await play(team, replace(TASK, id=f"gsm8k/train/{n}"))) for n in range(40)]
    assert 10 < seen.count(ORDERS["hint"]) < 30
    assert seen.count(ORDERS["hint"]) + seen.count(ORDERS["critic"]) == 40


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ConfigError, match="`debate` is none of hint, critic, expert"):
        scripted(f"{HERE}:several", {"collaborator": [], "actor": []}, options={"ways": ["debate"]})
