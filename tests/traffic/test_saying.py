"""Repetition, acknowledgements, loops and repeated tool calls, each planted beside what is none."""

import pytest

from tacit.economy.reward import repetition
from tacit.traffic.exchange import Read
from tacit.traffic.prompt_pieces import read_episode
from tacit.traffic.saying import loops, sayings, tool_repeats
from tacit.types import Episode, ToolCall
from tests.helpers.recorded import episode, recorded

QUESTION = "How many legs have three spiders?"


def read(*episodes: Episode) -> list[Read]:
    return [(one, read_episode(one)) for one in episodes]


def test_repetition_is_the_rewards_and_names_the_message() -> None:
    first = "Each spider has eight legs."
    again = "Each spider has eight legs. Indeed."
    talk = episode(
        recorded("ann", first, QUESTION),
        recorded("bob", again, QUESTION, first),
        recorded("ann", "So it is twenty-four in all.", QUESTION, first, again),
    )
    ann, bob = sayings(read(talk))
    assert (ann.messages, ann.again, ann.repetition) == (2, 0, 0.0)
    # ann has 2 + 3 four-grams, bob 3 of which 2 were said: 2/3 is not yet "again"
    assert (bob.messages, bob.again, bob.repetition) == (1, 0, pytest.approx(2 / 3))
    assert repetition([call.text for call in talk.calls]) == pytest.approx(2 / 8)
    verbatim = episode(recorded("ann", first, QUESTION), recorded("bob", first, QUESTION, first))
    _, bob = sayings(read(verbatim))
    assert (bob.again, bob.again_tokens, bob.repetition) == (1, len(first), 1.0)
    assert [(one.call, one.excerpt) for one in bob.again_examples] == [(1, first)]


@pytest.mark.parametrize(
    "text",
    [
        "Thanks, I agree.",
        "Sounds good!",
        "Great point, thank you.",
        "I agree with you: eight legs.",
        "OK",
    ],
)
def test_acknowledgements_are_found(text: str) -> None:
    """They add no content word to what their sender was shown."""
    talk = episode(
        recorded("ann", "A spider has eight legs.", QUESTION),
        recorded("bob", text, QUESTION, "A spider has eight legs."),
        recorded("ann", "24", QUESTION),
    )
    _, bob = sayings(read(talk))
    assert (bob.acknowledgements, bob.acknowledgement_tokens) == (1, len(text))
    assert bob.acknowledgement_examples[0].excerpt == text


@pytest.mark.parametrize(
    "text",
    [
        "42",
        "24, thanks",
        "No.",
        "Yes.",
        "Thanks, but a crab differs.",
        "Paris",
        "Eight legs.",
        "I agree, yet the third one lost a leg.",
    ],
)
def test_short_messages_that_carry_news_are_none(text: str) -> None:
    talk = episode(
        recorded("ann", "A spider has eight legs.", QUESTION),
        recorded("bob", text, QUESTION, "A spider has eight legs."),
        recorded("ann", "24", QUESTION),
    )
    _, bob = sayings(read(talk))
    assert bob.acknowledgements == 0


def test_the_answer_is_no_acknowledgement() -> None:
    talk = episode(recorded("ann", "Thanks, good.", QUESTION), answer="Thanks, good.")
    assert sayings(read(talk))[0].acknowledgements == 0


def dialogue(*texts: str, everything: bool = False) -> Episode:
    """Ann and Bob in turn, each shown the last message or the whole talk."""
    calls = []
    for number, text in enumerate(texts):
        shown = texts[:number] if everything else texts[max(0, number - 1) : number]
        calls.append(recorded(("ann", "bob")[number % 2], text, QUESTION, *shown))
    return episode(*calls)


PLAN, CHECK = "Please check the plan for spiders.", "The plan needs a review first."


@pytest.mark.parametrize("everything", [False, True])
def test_a_planted_loop_is_found_with_its_calls(everything: bool) -> None:
    talk = dialogue(PLAN, CHECK, PLAN, CHECK, PLAN, "It is 24.", everything=everything)
    (loop,) = loops(read(dialogue("It is 23."), talk))
    assert (loop.episode, loop.calls, loop.agents) == (1, (2, 3, 4), ("ann", "bob", "ann"))
    assert loop.tokens == sum(talk.calls[number].usage.total for number in (2, 3, 4))
    assert [one.excerpt for one in loop.examples] == [PLAN, CHECK, PLAN]


def test_other_words_in_the_same_order_are_a_loop_too() -> None:
    said = ("A review first, the plan needs.", "Check the plan, please, for spiders.")
    (loop,) = loops(read(dialogue(PLAN, CHECK, *said[::-1], everything=True)))
    assert loop.calls == (2, 3)


def test_a_talk_that_moves_on_is_no_loop() -> None:
    moves = dialogue(PLAN, CHECK, "Reviewed: eight legs each.", "Then twenty-four.", PLAN)
    assert loops(read(moves)) == ()


def test_words_shuffled_into_new_sentences_are_no_loop() -> None:
    moves = dialogue(PLAN, CHECK, "First the spiders plan needs", "a check review please for the")
    assert loops(read(moves)) == ()


def test_a_second_round_of_a_debate_is_no_loop() -> None:
    """Who says it again at the same time as the others has not read them."""
    first = [recorded(name, f"{name} says 24 legs in all.", QUESTION) for name in ("a", "b")]
    shown = [call.text for call in first]
    second = [recorded(call.agent, call.text, QUESTION, *shown) for call in first]
    assert loops(read(episode(*first, *second))) == ()


def test_the_same_tool_call_again_is_counted_by_agent_and_tool() -> None:
    one = ToolCall("search", '{"query": "spider", "top": 3}')
    same = ToolCall("search", '{"top":3,"query":"spider"}', id="call_2")
    other = ToolCall("search", '{"query": "crab", "top": 3}')
    broken = ToolCall("python", "{print(")
    talk = episode(
        recorded("ann", "", QUESTION, tools=(one, broken)),
        recorded("ann", "", QUESTION, tools=(same, other)),
        recorded("bob", "", QUESTION, tools=(one,)),
        recorded("ann", "", QUESTION, tools=(broken, one)),
    )
    fresh = episode(recorded("ann", "", QUESTION, tools=(one,)))
    search, python = tool_repeats(read(talk, fresh))
    assert (search.agent, search.tool, search.calls, search.repeated) == ("ann", "search", 5, 2)
    assert (python.agent, python.tool, python.calls, python.repeated) == ("ann", "python", 2, 1)
    assert [one.call for one in search.examples] == [1, 3]
