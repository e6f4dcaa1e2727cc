"""Prompts cut into pieces by hand: whose text it is, and whether it had been sent before."""

import random

import pytest
from hypothesis import given, strategies as st

from tacit.traffic.prompt_pieces import CallReading, read_episode, said
from tacit.types import Call, ChatMessage, Episode, Stop, ToolCall, Usage
from tests.helpers.recorded import episode, recorded
from tests.helpers.scripted_teams import SILENT, play, scripted

QUESTION = "How many legs have three spiders?"
FIRST = "Each spider has eight legs, so multiply."
SECOND = "Three times eight is twenty-four."


def parts(reading: CallReading) -> list[tuple[str, str, bool, int | None]]:
    return [(p.part, p.text, p.before, p.source) for p in reading.pieces]


def test_a_dialogue_whose_history_is_resent_by_hand() -> None:
    system = ("system", "Be brief.")
    readings = read_episode(
        episode(
            recorded("ann", FIRST, system, QUESTION),
            recorded("bob", SECOND, system, QUESTION, FIRST),
            recorded("ann", "Yes: 24.", system, QUESTION, ("assistant", FIRST), SECOND),
        )
    )
    assert parts(readings[0]) == [
        ("instructions", "Be brief.", False, None),
        ("question", QUESTION, False, None),
    ]
    assert parts(readings[1])[2] == ("others", FIRST, False, 0)
    assert parts(readings[2]) == [
        ("instructions", "Be brief.", True, None),
        ("question", QUESTION, True, None),
        ("own", FIRST, False, 0),
        ("others", SECOND, False, 1),
    ]
    assert [p.tokens for p in readings[2].pieces] == [9, 33, 40, 33]


def test_white_space_does_not_hide_a_message_but_a_cut_word_does() -> None:
    wrapped = "Notes:\n  Each spider has\n  eight legs,\tso multiply. Go on."
    glued = "xEach spider has eight legs, so multiply."
    readings = read_episode(
        episode(recorded("ann", FIRST, QUESTION), recorded("bob", "ok", wrapped, glued))
    )
    assert parts(readings[1]) == [
        ("rest", "Notes:", False, None),
        ("others", FIRST, False, 0),
        ("rest", "Go on.", False, None),
        ("rest", glued, False, None),
    ]


async def test_our_own_quotation_does_not_hide_what_was_said() -> None:
    hint = "Do not write <hint> here: (add the tens first."
    for form in ("tagged", "role_last", "published"):
        team = scripted("hint_actor", {"hinter": [hint], "actor": ["42"]}, prompts=form)
        played = await play(team)
        quoted = played.calls[1].messages[-1].content
        assert "&lt;hint>" in quoted
        others = [p for p in read_episode(played)[1].pieces if p.part == "others"]
        assert [(p.text, p.source) for p in others] == [(hint, 0)]


async def test_nobody_reads_a_marker_at_the_end_nor_a_silence() -> None:
    team = scripted("hint_actor", {"hinter": [f"Add the tens. {SILENT}"], "actor": ["42"]})
    readings = read_episode(await play(team))
    assert readings[0].said == "Add the tens."
    assert ("others", "Add the tens.", False, 0) in parts(readings[1])
    team = scripted("hint_actor", {"hinter": [SILENT], "actor": ["42"]})
    readings = read_episode(await play(team))
    assert readings[0].said == ""
    assert all(piece.source is None for piece in readings[1].pieces)


def test_reasoning_is_not_what_others_read() -> None:
    call = recorded("ann", "<think>Hm, let me see.</think>\n\nIt is twenty-four.", QUESTION)
    assert said(call) == "It is twenty-four."


def test_a_short_message_must_fill_a_line() -> None:
    readings = read_episode(
        episode(
            recorded("ann", "24", QUESTION),
            recorded("bob", "ok", 'They said:\n<message from="ann">\n24\n</message>'),
            recorded("bob", "ok", "They have 24 legs."),
        )
    )
    assert ("others", "24", False, 0) in parts(readings[1])
    assert parts(readings[2]) == [("rest", "They have 24 legs.", False, None)]


def test_equal_messages_go_to_whom_the_prompt_names_else_to_the_latest_in_order() -> None:
    named = f'<message from="bob">\n{FIRST}\n</message>\n<message from="ann">\n{FIRST}\n</message>'
    readings = read_episode(
        episode(
            recorded("ann", FIRST, QUESTION),
            recorded("bob", FIRST, QUESTION),
            recorded("cat", "ok", named),
            recorded("cat", "ok", FIRST, FIRST),
            recorded("cat", "ok", FIRST),
            recorded(
                "cat", "ok", f"The planning of bob: {FIRST}", f"A bobsleigh, ann said: {FIRST}"
            ),
        )
    )
    sources = [[p.source for p in one.pieces if p.source is not None] for one in readings]
    assert sources[2:] == [[1, 0], [0, 1], [1], [1, 0]]


def test_an_agent_that_repeats_the_question_does_not_own_it() -> None:
    readings = read_episode(
        episode(recorded("ann", QUESTION, QUESTION), recorded("bob", "ok", QUESTION))
    )
    assert parts(readings[1]) == [("question", QUESTION, False, None)]


def test_private_views_are_part_of_the_question_and_other_context_is_not() -> None:
    asked = f"{QUESTION}\n\nOnly you can see this:\n<view>\nA spider is no insect.\n</view>"
    played = Episode(
        task_id="t",
        sample=0,
        views={"ann": "A spider is no insect."},
        calls=(recorded("ann", "ok", asked),),
    )
    assert [p.part for p in read_episode(played)[0].pieces] == [
        "question", "rest", "rest", "question", "rest",
    ]  # fmt: skip


def test_tools_are_asked_in_own_words_and_answer_as_observations() -> None:
    ask = ToolCall("search", '{"query": "spider legs"}')
    history = ChatMessage("assistant", "", (ask,)), ChatMessage("tool", "Eight of them.", (ask,))
    readings = read_episode(
        episode(
            recorded("ann", "", QUESTION, tools=(ask,)),
            recorded("ann", SECOND, QUESTION, *history),
            recorded("boss", "Fine.", QUESTION, ("tool", SECOND)),
        )
    )
    assert parts(readings[1])[1:] == [
        ("own", 'search {"query": "spider legs"}', False, 0),
        ("observations", "Eight of them.", False, None),
    ]
    assert parts(readings[2])[1] == ("others", SECOND, False, 1), "an agent used as a tool"


def test_words_beside_a_tool_call_can_be_read_with_and_without_it() -> None:
    ask = ToolCall("search", "{}")
    history = ChatMessage("assistant", FIRST, (ask,))
    readings = read_episode(
        episode(
            recorded("ann", FIRST, QUESTION, tools=(ask,)),
            recorded("ann", "ok", history),
            recorded("bob", "ok", FIRST),
        )
    )
    assert parts(readings[1]) == [("own", f"{FIRST} search {{}}", False, 0)]
    assert parts(readings[2]) == [("others", FIRST, False, 0)]


def test_a_prompt_without_its_text_is_unrecorded() -> None:
    dark = Call(
        agent="ann", model="m", messages=(), text="", stop=Stop.EOS, usage=Usage(prompt=70)
    )  # fmt: skip
    assert parts(read_episode(episode(dark))[0]) == [("unrecorded", "", False, None)]


def test_novel_words_are_those_the_agent_was_not_shown() -> None:
    readings = read_episode(
        episode(
            recorded("ann", "Spiders have eight legs.", QUESTION),
            recorded("bob", "Thanks, eight legs it is!", QUESTION, "Spiders have eight legs."),
            recorded("bob", "Then 24.", QUESTION),
        )
    )
    assert readings[0].novel == {"eight"}
    assert readings[1].novel == frozenset()
    assert readings[2].novel == {"24"}


TEXTS = st.text(alphabet="ab <>\n&lt;(é中", max_size=40)


@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), TEXTS, st.lists(TEXTS, max_size=3)),
        max_size=6,
    ),
    st.randoms(),
)
def test_the_pieces_of_a_prompt_hold_all_its_characters_and_tokens(
    told: list[tuple[str, str, list[str]]], rng: random.Random
) -> None:
    """Prompts quote earlier messages at random; but for white space nothing is lost or doubled."""
    calls: list[Call] = []
    for agent, text, prompt in told:
        earlier = [call.text for call in calls]
        asked = [*prompt, *rng.sample(earlier, len(earlier) // 2)]
        calls.append(recorded(agent, text, *asked, ("system", "Be brief.")))
    for call, reading in zip(calls, read_episode(episode(*calls)), strict=True):
        texts = [message.content.replace("&lt;", "<") for message in call.messages]
        whole = "".join("".join(text.split()) for text in texts)
        assert "".join("".join(p.text.split()) for p in reading.pieces) == whole
        assert sum(p.tokens for p in reading.pieces) == pytest.approx(call.usage.prompt)


def test_a_message_read_is_one_that_a_plain_search_finds() -> None:
    """The index agrees with a search for every text in every prompt, at any place in it."""
    rng = random.Random(4)
    talk = [" ".join(rng.choices(["one", "two", "three", "four"], k=rng.randint(4, 9)))
            for _ in range(40)]  # fmt: skip
    calls = [recorded("ann", text, QUESTION) for text in talk]
    for _ in range(60):
        some = rng.sample(talk, 3)
        calls.append(recorded("bob", "ok", "-" * rng.randint(0, 9) + " ; ".join(some)))
    readings = read_episode(episode(*calls))
    for call, reading in zip(calls[40:], readings[40:], strict=True):
        prompt = call.messages[0].content
        expected = {text for text in talk if text in prompt and len(text) >= 16}
        cut = {t for t in expected if f"{t}e" in prompt or f"{t}r" in prompt or f"{t}o" in prompt}
        assert expected - cut <= reading.held <= expected


def test_two_hundred_calls_of_twenty_thousand_characters_are_read() -> None:
    """Each prompt ends with the messages before it. A scan of all pairs would take minutes."""
    rng = random.Random(0)
    made = ["".join(rng.choices("abcdefghij", k=7)) for _ in range(5000)]
    talk = [" ".join(rng.choices(made, k=60)) for _ in range(200)]
    filler = " ".join(made)
    calls = []
    for number, text in enumerate(talk):
        shown = "\n".join(talk[max(0, number - 30) : number])
        calls.append(recorded("abc"[number % 3], text, (filler + "\n" + shown)[-20_000:]))
    readings = read_episode(episode(*calls))
    for number, reading in enumerate(readings):
        assert {p.source for p in reading.pieces} - {None} == set(
            range(max(0, number - 30), number)
        )
