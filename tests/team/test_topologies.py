"""Who is asked what, in which order, and who sees what others said."""

import asyncio
from collections.abc import Callable

import pytest

from tacit.engine.base import Request
from tacit.team.prompts import INTRODUCTIONS, PARTS, SILENCE_SENTENCE
from tacit.team.topologies import TOPOLOGIES
from tacit.team.vote import majority
from tacit.types import Message, Task
from tests.helpers.scripted_teams import SILENT, TASK, order, play, scripted, system, user

WORDS = ("zero", "one", "two", "three", "four")


def answers(*numbers: int) -> list[str]:
    """A reply for each debater, telling which one it is from."""
    return [f"{WORDS[i]} says \\boxed{{{number}}}" for i, number in enumerate(numbers)]


async def test_solo_is_one_call() -> None:
    episode = await play(scripted("solo", {"actor": [r"\boxed{42}"]}))
    assert order(episode) == [("actor", "solver")]
    assert episode.answer == r"\boxed{42}"
    assert episode.grade is not None and episode.grade.right
    assert [m.content for m in episode.calls[0].messages] == ["Box it.", TASK.question]


async def test_a_hint_reaches_the_actor() -> None:
    episode = await play(
        scripted("hint_actor", {"hinter": ["7 + 5 = 12"], "actor": [r"\boxed{42}"]})
    )
    assert order(episode) == [("hinter", "hinter"), ("actor", "solver")]
    assert [call.round for call in episode.calls] == [0, 1]
    hinter, actor = episode.calls
    assert user(hinter) == TASK.question and SILENCE_SENTENCE in system(hinter)
    assert "<hint>\n7 + 5 = 12\n</hint>" in user(actor) and SILENCE_SENTENCE not in system(actor)
    assert episode.turns == 2


async def test_a_silent_hinter_leaves_the_actor_alone() -> None:
    solo = await play(scripted("solo", {"actor": ["x"]}))
    quiet = await play(scripted("hint_actor", {"hinter": [SILENT], "actor": ["x"]}))
    assert quiet.calls[1].messages == solo.calls[0].messages
    assert quiet.calls[0].silent and quiet.turns == 1


async def test_text_that_is_almost_silence_is_delivered() -> None:
    for text in ("", "<silent>, I said", "I am <silent>!", "<SILENT>"):
        episode = await play(scripted("hint_actor", {"hinter": [text], "actor": ["x"]}))
        assert not episode.calls[0].silent
        assert f"<hint>\n{text}\n</hint>" in user(episode.calls[1])


async def test_an_agent_that_may_not_be_silent_says_the_marker_as_text() -> None:
    roster = scripted("hint_actor", {"hinter": [SILENT], "actor": ["x"]}, hinter={"silent": False})
    episode = await play(roster)
    assert not episode.calls[0].silent and SILENCE_SENTENCE not in system(episode.calls[0])
    assert SILENT in user(episode.calls[1])


async def test_the_critic_comments_on_a_fresh_draft_and_the_actor_revises() -> None:
    scripts = {"actor": ["draft 41", r"\boxed{42}"], "critic": ["off by one"]}
    episode = await play(scripted("critic_actor", scripts))
    assert order(episode) == [("actor", "solver"), ("critic", "critic"), ("actor", "reviser")]
    draft, comment, revision = episode.calls
    assert user(draft) == TASK.question
    assert "<draft>\ndraft 41\n</draft>" in user(comment)
    assert "<draft>\ndraft 41\n</draft>" in user(revision)
    assert "<comment>\noff by one\n</comment>" in user(revision)
    assert episode.answer == r"\boxed{42}"


async def test_a_silent_critic_saves_the_second_actor_call() -> None:
    roster = scripted("critic_actor", {"actor": [r"\boxed{42}"], "critic": [SILENT]})
    episode = await play(roster)
    assert order(episode) == [("actor", "solver"), ("critic", "critic")]
    assert episode.answer == r"\boxed{42}"


async def test_refinement_goes_on_until_the_critic_is_silent() -> None:
    scripts = {"actor": ["first", "second", "third"], "critic": ["no", "still no", SILENT]}
    episode = await play(scripted("critic_actor", scripts, options={"rounds": 5}))
    assert [call.agent for call in episode.calls] == ["actor", "critic"] * 3
    assert [call.round for call in episode.calls] == [0, 1, 1, 2, 2, 3]
    assert "<draft>\nsecond\n</draft>" in user(episode.calls[4])
    assert "first" not in user(episode.calls[4])
    assert episode.answer == "third"


SEEN = {
    "full": [{0, 1, 2, 3}] * 4,
    "sparse": [{0, 1, 3}, {0, 1, 2}, {1, 2, 3}, {0, 2, 3}],
    "centralised": [{0, 1, 2, 3}, {0, 1}, {0, 2}, {0, 3}],
}


@pytest.mark.parametrize("shape", SEEN)
async def test_debaters_see_who_the_shape_says(shape: str) -> None:
    scripts = {"debater": [*answers(1, 2, 3, 4), *answers(5, 6, 7, 8)]}
    roster = scripted(
        "debate", scripts, debater={"count": 4}, options={"shape": shape, "rounds": 2}
    )
    episode = await play(roster)
    names = [f"debater {i}" for i in range(1, 5)]
    assert order(episode) == [
        *((name, "solver") for name in names),
        *((name, "debater") for name in names),
    ]
    assert all(user(call) == TASK.question for call in episode.calls[:4])
    for i, call in enumerate(episode.calls[4:]):
        text = user(call)
        assert {j for j in range(4) if f"{WORDS[j]} says" in text} == SEEN[shape][i]
        own = f'<solution from="debater {i + 1}">\n{WORDS[i]} says'
        assert text.index(own) == text.index("<solution"), "its own answer comes first"


async def test_two_debaters_on_a_ring_see_each_other_once() -> None:
    roster = scripted(
        "debate",
        {"debater": answers(1, 2) * 2},
        debater={"count": 2},
        options={"shape": "sparse"},
    )
    episode = await play(roster)
    assert all(user(call).count("<solution ") == 2 for call in episode.calls[2:])


async def test_the_debate_ends_in_a_vote_over_the_last_round() -> None:
    scripts = {"debater": [*answers(1, 1, 1), *answers(7, 42, 42)]}
    episode = await play(scripted("debate", scripts, debater={"count": 3}))
    assert episode.answer == r"one says \boxed{42}"


async def test_one_round_of_debate_is_a_vote() -> None:
    roster = scripted(
        "debate", {"debater": answers(1, 2)}, debater={"count": 2}, options={"rounds": 1}
    )
    assert [call.part for call in (await play(roster)).calls] == ["solver", "solver"]


async def test_a_collaborator_advises_every_debater_in_every_round() -> None:
    scripts = {"debater": answers(1, 2) * 2, "collaborator": ["mind the carry"]}
    episode = await play(scripted("debate", scripts, debater={"count": 2}))
    assert order(episode)[0] == ("collaborator", "guide")
    for call in episode.calls[1:]:
        assert user(call).count("<advice>\nmind the carry\n</advice>") == 1


async def test_a_silent_collaborator_leaves_the_debate_as_it_was() -> None:
    scripts = {"debater": answers(1, 2) * 2}
    alone = await play(scripted("debate", scripts, debater={"count": 2}))
    with_one = scripts | {"collaborator": [SILENT]}
    joined = await play(scripted("debate", with_one, debater={"count": 2}))
    assert [c.messages for c in joined.calls[1:]] == [c.messages for c in alone.calls]
    assert joined.answer == alone.answer


async def test_the_actor_answers_as_the_expert_that_was_named() -> None:
    scripts = {"picker": ["an arithmetician"], "actor": [r"\boxed{42}"]}
    episode = await play(scripted("role_assignment", scripts))
    assert order(episode) == [("picker", "role_picker"), ("actor", "expert")]
    assert "<expert>\nan arithmetician\n</expert>" in user(episode.calls[1])


async def test_a_collaborator_in_role_assignment_only_adds_its_hint() -> None:
    scripts = {"picker": ["an arithmetician"], "actor": ["x"]}
    alone = await play(scripted("role_assignment", scripts))
    quiet = await play(scripted("role_assignment", scripts | {"collaborator": [SILENT]}))
    spoken = await play(scripted("role_assignment", scripts | {"collaborator": ["add tens"]}))
    assert quiet.calls[-1].messages == alone.calls[-1].messages
    assert order(spoken)[1] == ("collaborator", "hinter")
    hint = f"\n\n{INTRODUCTIONS['hint']}\n<hint>\nadd tens\n</hint>"
    assert user(spoken.calls[-1]).replace(hint, "") == user(alone.calls[-1])


async def test_dialogue_goes_round_in_order_and_the_first_answers() -> None:
    said = ["a1", SILENT, "c1", SILENT, "b2", SILENT, r"\boxed{42}"]
    episode = await play(scripted("dialogue", {"agent": said}, agent={"count": 3}))
    assert order(episode) == [
        *((f"agent {i}", "speaker") for i in (1, 2, 3, 1, 2, 3)),
        ("agent 1", "answerer"),
    ]
    assert [call.round for call in episode.calls] == [0, 0, 0, 1, 1, 1, 2]
    heard = [[w for w in ("a1", "c1", "b2") if w in user(call)] for call in episode.calls]
    assert heard == [[], ["a1"], ["a1"], *[["a1", "c1"]] * 2, *[["a1", "c1", "b2"]] * 2]
    assert '<message from="agent 3">\nc1\n</message>' in user(episode.calls[-1])
    assert episode.turns == 4 and episode.answer == r"\boxed{42}"
    assert system(episode.calls[1]).startswith("You are agent 2 of a team")


async def test_a_round_in_which_nobody_speaks_ends_the_dialogue() -> None:
    said = ["a1", SILENT, SILENT, SILENT, "done"]
    episode = await play(
        scripted("dialogue", {"agent": said}, agent={"count": 2}, options={"rounds": 9})
    )
    assert [call.part for call in episode.calls] == ["speaker"] * 4 + ["answerer"]
    assert "a1" in user(episode.calls[-1])


async def test_the_answerer_of_a_dialogue_may_not_be_silent() -> None:
    roster = scripted("dialogue", {"agent": [SILENT, SILENT, SILENT]}, agent={"count": 2})
    episode = await play(roster)
    last = episode.calls[-1]
    assert last.part == "answerer" and not last.silent and episode.answer == SILENT
    assert SILENCE_SENTENCE not in system(last)
    assert all(SILENCE_SENTENCE in system(call) for call in episode.calls[:-1])
    assert user(last) == TASK.question


async def test_self_consistency_votes_over_samples() -> None:
    replies = [r"\boxed{7}", r"so \boxed{42}", r"\boxed{8}", r"\boxed{42}"]
    roster = scripted("self_consistency", {"actor": replies}, options={"samples": 4})
    episode = await play(roster)
    assert order(episode) == [("actor", "solver")] * 4
    assert episode.answer == r"so \boxed{42}"


async def test_self_refine_criticises_and_refines_its_own_answer() -> None:
    replies = ["first", "wrong", "second", "better", "third"]
    episode = await play(scripted("self_refine", {"actor": replies}))
    assert [call.part for call in episode.calls] == ["solver", *["self_critic", "refiner"] * 2]
    assert "<draft>\nsecond\n</draft>" in user(episode.calls[3])
    assert "<feedback>\nbetter\n</feedback>" in user(episode.calls[4])
    assert "wrong" not in user(episode.calls[4])
    assert episode.answer == "third"


@pytest.mark.parametrize(
    ("replies", "answer"),
    [
        (["first", "There are no errors."], "first"),
        (["first", "wrong", "second", "None."], "second"),
    ],
    ids=["in the first round", "in the second"],
)
async def test_feedback_that_finds_nothing_wrong_ends_self_refine(
    replies: list[str], answer: str
) -> None:
    roster = scripted("self_refine", {"actor": [*replies, "never said"]}, options={"rounds": 3})
    episode = await play(roster)
    assert [call.text for call in episode.calls] == replies
    assert [call.part for call in episode.calls][-1] == "self_critic"
    assert episode.answer == answer


async def test_step_back_answers_from_principles() -> None:
    episode = await play(scripted("step_back", {"actor": ["addition", r"\boxed{42}"]}))
    assert [call.part for call in episode.calls] == ["abstracter", "solver"]
    assert "<principles>\naddition\n</principles>" in user(episode.calls[1])


async def test_quality_diversity_shows_earlier_solutions_then_selects() -> None:
    episode = await play(scripted("quality_diversity", {"actor": ["s1", "s2", "s3", "best"]}))
    assert [call.part for call in episode.calls] == [
        "solver",
        "diversifier",
        "diversifier",
        "selector",
    ]
    seen = [[s for s in ("s1", "s2", "s3") if s in user(call)] for call in episode.calls]
    assert seen == [[], ["s1"], ["s1", "s2"], ["s1", "s2", "s3"]]
    assert episode.answer == "best"


async def test_evo_agent_breeds_experts_over_generations() -> None:
    replies = [f"reply-{i:02}" for i in range(15)]
    roster = scripted("evo_agent", {"actor": replies}, options={"generations": 2, "population": 2})
    episode = await play(roster)
    one = ["evolver"] * 2 + ["expert"] * 2 + ["integrator"] * 2 + ["selector"]
    assert [call.part for call in episode.calls] == ["solver", *one, *one]
    seen = [[r for r in replies if r in user(call)] for call in episode.calls]
    start, born, found, improved, best = replies[0], *(replies[i : i + 2] for i in (1, 3, 5, 7))
    assert seen[1:3] == [[], []], "nobody to be unlike yet"
    assert seen[3:5] == [[born[0]], [born[1]]], "each expert in its own prompt"
    assert seen[5:7] == [[start, found[0]], [start, found[1]]]
    assert seen[7] == [start, *improved]
    assert seen[8:10] == [born, born], "the second generation is unlike the first"
    assert seen[12] == [best[0], replies[10]], "and improves what was selected"
    assert episode.answer == replies[-1]


def _words(n: int) -> str:
    return " ".join(["word"] * n)


async def test_the_critical_path_of_branches_is_the_longest_of_them() -> None:
    said = [_words(3), _words(5), _words(2), _words(4), _words(1), _words(7)]
    scripts = {"collaborator": [_words(10)], "debater": said}
    episode = await play(scripted("debate", scripts, debater={"count": 3}))
    assert [call.path_tokens for call in episode.calls] == [10, 13, 15, 12, 19, 16, 22]
    assert episode.path_tokens == 10 + 5 + 7
    assert episode.usage.generated == 10 + 3 + 5 + 2 + 4 + 1 + 7


async def test_the_critical_path_of_a_chain_is_all_of_it() -> None:
    scripts = {"hinter": [_words(6)], "actor": [_words(3)]}
    assert (await play(scripted("hint_actor", scripts))).path_tokens == 9


async def test_calls_are_kept_in_the_order_they_were_asked_whoever_is_faster() -> None:
    def slow_first(turns: dict[str, int]) -> Callable[[Request], object]:
        async def script(request: Request) -> str:
            for _ in range(turns[request.messages[0].content]):
                await asyncio.sleep(0)
            return request.messages[0].content

        return script

    agents = {role: {"system": role} for role in "abc"}
    fast = {"a": 0, "b": 0, "c": 0}
    for turns in (fast, {"a": 9, "b": 5, "c": 1}, {"a": 2, "b": 9, "c": 4}):
        scripts = {role: slow_first(turns) for role in "abc"}
        roster = scripted("tests.team.test_topologies:all_at_once", scripts, **agents)
        assert [call.agent for call in (await play(roster)).calls] == ["a", "b", "c"]


async def all_at_once(task: Task, team: object) -> Message:
    """A topology of a user's own, named in a config as `tests.team.test_topologies:all_at_once`."""
    said = await team.together(*(getattr(team, role).ask(task.question) for role in "abc"))
    return said[-1]


def test_every_shipped_role_has_a_prompt() -> None:
    for name, topology in TOPOLOGIES.items():
        assert topology.summary, name
        assert {role.part for role in topology.roles.values()} <= PARTS.keys(), name


@pytest.mark.parametrize(
    ("texts", "winner"),
    [
        ((r"\boxed{1}", r"\boxed{2}", r"it is \boxed{2}"), 1),
        ((r"\boxed{1}", r"\boxed{2}"), 0),
        (("no idea", "none", r"\boxed{2}"), 2),
        (("no idea", "none"), 0),
        ((r"\boxed{3}", r"\boxed{1/2}", r"\boxed{0.5}"), 1),
    ],
    ids=["most", "tie", "no answer is no vote", "nobody", "equal forms"],
)
def test_the_vote(texts: tuple[str, ...], winner: int) -> None:
    messages = [Message(f"agent {i}", text) for i, text in enumerate(texts)]
    assert majority(TASK, messages) is messages[winner]
