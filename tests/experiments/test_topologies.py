"""The teams that test honesty: who is told what, and what the Actor hears."""

import pytest

from experiments.topologies import MISJUDGE, SOLVE_WRONGLY
from tacit.errors import ConfigError
from tacit.team.prompts import PARTS, SILENCE_SENTENCE
from tests.helpers.scripted_teams import SILENT, TASK, order, play, scripted, system, user

HERE = "experiments.topologies"
CRITIC_DISPUTED = f"{HERE}:critic_disputed"
DIALOGUE_TOLD = f"{HERE}:dialogue_told"
OTHER = "You, {agent}, help your team."
REVISED = ["draft 42", r"\boxed{42}"]


async def test_only_the_speakers_of_a_dialogue_are_told_something_else() -> None:
    scripts = {"agent": ["a1", SILENT, "b1", SILENT, r"\boxed{42}"]}
    count = {"count": 2}
    usual = await play(scripted("dialogue", scripts, agent=count))
    other = await play(scripted(DIALOGUE_TOLD, scripts, options={"told": OTHER}, agent=count))
    assert [system(call) for call in other.calls[:2]] == [
        f"You, {name}, help your team. {SILENCE_SENTENCE}" for name in ("agent 1", "agent 2")
    ]
    assert other.calls[-1].messages == usual.calls[-1].messages, "the answerer"
    assert [user(call) for call in other.calls] == [user(call) for call in usual.calls]
    assert order(other) == order(usual) and other.answer == usual.answer
    assert [c.silent for c in other.calls] == [False, True, False, True, False]
    assert [c.round for c in other.calls] == [c.round for c in usual.calls]


async def test_in_a_reworded_dialogue_nobody_hears_what_was_said() -> None:
    agents = {"agent": ["a1", SILENT, SILENT, SILENT, r"\boxed{42}"], "paraphraser": ["a one"]}
    episode = await play(scripted(f"{HERE}:dialogue_reworded", agents, agent={"count": 2}))
    assert [call.agent for call in episode.calls] == [
        "agent 1", "paraphraser", "agent 2", "agent 1", "agent 2", "agent 1",
    ]  # fmt: skip
    assert user(episode.calls[1]) == "a1"
    for call in episode.calls[2:]:
        assert "a one" in user(call) and "a1" not in user(call)


async def test_a_wrong_agent_speaks_last_in_every_round() -> None:
    agents = {"agent": ["a1", SILENT, r"\boxed{42}"], "saboteur": ["no: 41", "41!"]}
    episode = await play(scripted(f"{HERE}:dialogue_disputed", agents, agent={"count": 1}))
    assert [call.agent.split()[0] for call in episode.calls] == [
        "agent", "saboteur", "agent", "saboteur", "agent",
    ]  # fmt: skip
    assert all(words in user(episode.calls[-1]) for words in ("a1", "no: 41", "41!"))


async def test_a_dialogue_told_otherwise_still_ends_when_nobody_speaks() -> None:
    options = {"told": OTHER, "rounds": 9}
    roster = scripted(
        DIALOGUE_TOLD, {"agent": [SILENT, SILENT, "x"]}, options=options, agent={"count": 2}
    )
    episode = await play(roster)
    assert [call.part for call in episode.calls] == ["speaker", "speaker", "answerer"]
    assert user(episode.calls[-1]) == TASK.question


def test_what_the_speakers_are_told_must_be_given() -> None:
    with pytest.raises(ConfigError, match="needs `told"):
        scripted(DIALOGUE_TOLD, {"agent": []}, agent={"count": 2})


async def test_an_arbiter_sees_both_solutions_and_has_the_last_word() -> None:
    scripts = {"actor": ["it is 41"], "second": ["42"], "arbiter": [r"\boxed{42}"]}
    episode = await play(scripted(f"{HERE}:arbitrated", scripts))
    assert order(episode) == [("actor", "solver"), ("second", "solver"), ("arbiter", "critic")]
    solvers, arbiter = episode.calls[:2], episode.calls[2]
    assert [user(call) for call in solvers] == [TASK.question] * 2, "they solve it apart"
    assert all(words in user(arbiter) for words in ("it is 41", "42"))
    assert episode.answer == r"\boxed{42}"
    assert episode.path_tokens == max(c.usage.generated for c in solvers) + (
        arbiter.usage.generated
    )


async def test_a_silent_arbiter_lets_the_first_solution_stand() -> None:
    scripts = {"actor": ["first"], "second": ["other"], "arbiter": [SILENT]}
    episode = await play(scripted(f"{HERE}:arbitrated", scripts))
    assert episode.answer == "first" and episode.calls[-1].silent


async def test_a_third_solver_is_heard_by_the_arbiter_alone() -> None:
    scripts = {"actor": ["1"], "second": ["2"], "third": ["3"], "arbiter": ["4"]}
    episode = await play(scripted(f"{HERE}:arbitrated", scripts, third={"system": SOLVE_WRONGLY}))
    assert system(episode.calls[2]) == SOLVE_WRONGLY
    assert user(episode.calls[-1]).count("</solution>") == 3


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


async def test_a_second_opinion_can_be_reworded_on_its_way() -> None:
    scripts = {"actor": ["41"], "second": ["no"], "paraphraser": ["nay"], "arbiter": ["42"]}
    episode = await play(scripted(f"{HERE}:second_opinion", scripts))
    assert "nay" in user(episode.calls[-1]) and "no" not in user(episode.calls[-1]).split()


async def test_the_actor_hears_the_wrong_comment_and_then_the_critic() -> None:
    scripts = {"actor": REVISED, "saboteur": ["it is 41"], "critic": ["it is right"]}
    episode = await play(scripted(CRITIC_DISPUTED, scripts, saboteur={"system": MISJUDGE}))
    assert order(episode) == [
        ("actor", "solver"),
        ("saboteur", "critic"),
        ("critic", "critic"),
        ("actor", "reviser"),
    ]
    draft, wrong, critic, revision = episode.calls
    assert system(wrong) == MISJUDGE
    assert system(critic) == f"{PARTS['critic']} {SILENCE_SENTENCE}"
    assert user(wrong) == user(critic), "the critic has not heard the saboteur"
    assert "<draft>\ndraft 42\n</draft>" in user(critic)
    comments = "<comment>\nit is 41\n</comment>\n<comment>\nit is right\n</comment>"
    assert comments in user(revision) and "<draft>\ndraft 42\n</draft>" in user(revision)
    assert user(draft) == TASK.question and episode.answer == r"\boxed{42}"


async def test_a_silent_critic_or_none_leaves_the_wrong_comment_alone() -> None:
    scripts = {"actor": REVISED, "saboteur": ["it is 41"]}
    alone = await play(scripted(CRITIC_DISPUTED, scripts))
    quiet = await play(scripted(CRITIC_DISPUTED, scripts | {"critic": [SILENT]}))
    assert [call.agent for call in alone.calls] == ["actor", "saboteur", "actor"]
    assert user(alone.calls[-1]).count("<comment>") == 1
    assert quiet.calls[-1].messages == alone.calls[-1].messages
    assert quiet.calls[2].silent and quiet.answer == alone.answer == r"\boxed{42}"


async def test_the_wrong_commentator_may_not_be_silent() -> None:
    episode = await play(scripted(CRITIC_DISPUTED, {"actor": REVISED, "saboteur": [SILENT]}))
    assert not episode.calls[1].silent and SILENT in user(episode.calls[-1])
