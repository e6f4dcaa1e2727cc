"""Topologies in which agents know different things: who is told what, and who is not."""

from dataclasses import replace

import pytest

from tacit.errors import ConfigError
from tacit.team.topologies.private import NO_QUOTE, sentences
from tacit.types import Task
from tests.helpers.scripted_teams import SILENT, TASK, order, play, scripted, user

NOTES = replace(TASK, views={"holder 1": "17 is odd", "holder 2": "25 is square"})
CODE = Task(
    id="code/1",
    question="Write `double(n)`.",
    answer="",
    grader="code",
    data={
        "entry_point": "double",
        "tests": "assert double(4) == 8",
        "visible": ["assert double(2) == 4", "assert double(0) == 0"],
    },
)
RIGHT = "```python\ndef double(n):\n    return 2 * n\n```"
WRONG = "```python\ndef double(n):\n    return n * n\n```"
CRASH = "```python\ndef double(n):\n    return n / 0\n```"


async def test_holders_tell_the_asker_what_they_hold() -> None:
    said = {"holder": ["odd", SILENT], "asker": [r"\boxed{42}"]}
    episode = await play(scripted("holders", said, holder={"count": 2}), NOTES)
    assert order(episode) == [("holder 1", "holder"), ("holder 2", "holder"), ("asker", "solver")]
    first, second, asker = episode.calls
    assert "17 is odd" in user(first) and "25 is square" in user(second)
    assert '<message from="holder 1">\nodd\n</message>' in user(asker)
    assert "holder 2" not in user(asker) and "square" not in user(asker)


async def test_holders_may_quote_instead_of_telling() -> None:
    """The asker reads the sentences that were named, and never their numbers."""
    text = "Sums: Small ones are easy. The sum of 17 and 25 is 42.\n\nRoad 9: It leads to St. Ives."
    views = {f"holder {n}": text for n in (1, 2, 3, 4)}
    titles = {name: ["Sums", "Road 9"] for name in views}
    said = {"holder": ["It is [2].", SILENT, "All 3 of them", "3."], "asker": [r"\boxed{42}"]}
    team = scripted("holders", said, options={"quotes": True}, holder={"count": 4})
    episode = await play(team, replace(TASK, views=views, data={"titles": titles}))
    first, *_, asker = episode.calls
    assert "[2] Sums: The sum of 17 and 25 is 42." in user(first)
    assert user(first).count("Small ones are easy") == 1, "the view, and only its numbered form"
    heard = {
        1: "Sums: The sum of 17 and 25 is 42.",
        3: NO_QUOTE,
        4: "Road 9: It leads to St. Ives.",
    }
    for number, sentence in heard.items():
        assert f'<message from="holder {number}">\n{sentence}\n</message>' in user(asker)
    assert [call.is_turn for call in episode.calls[:4]] == [True, False, True, True]
    assert first.text == "It is [2]." and first.delivered == heard[1]


def test_who_quotes_cannot_search() -> None:
    tools = {"count": 2, "tools": ["lookup"]}
    with pytest.raises(ConfigError, match="quotes"):
        scripted("holders", {"holder": [], "asker": []}, options={"quotes": True}, holder=tools)


def test_sentences_of_notes_and_paragraphs() -> None:
    assert sentences("- One of 3.\n- Two (2). Three") == ["- One of 3.", "- Two (2).", "Three"]
    dotted = "Route 9: The First: U.S. Route 9 is a road. See Mr. Fox there!"
    assert sentences(dotted, ["Route 9", "Route 9: The First"]) == [
        "Route 9: The First: U.S. Route 9 is a road.",
        "Route 9: The First: See Mr. Fox there!",
    ]
    assert sentences("He said: I won. It rained.") == ["He said: I won.", "It rained."]
    assert sentences("") == []


async def test_an_inquirer_asks_once_and_is_answered() -> None:
    said = {
        "holder": [SILENT, SILENT, "odd", SILENT],
        "inquirer": ["Is 17 odd?"],
        "asker": [r"\boxed{42}"],
    }
    episode = await play(scripted("holders", said, holder={"count": 2}), NOTES)
    assert [agent for agent, _ in order(episode)] == [
        "holder 1", "holder 2", "inquirer", "holder 1", "holder 2", "asker",
    ]  # fmt: skip
    again, asker = episode.calls[3], episode.calls[-1]
    assert "Is 17 odd?" in user(again) and "17 is odd" in user(again)
    assert '<message from="holder 1">\nodd\n</message>' in user(asker)
    quiet = said | {"holder": [SILENT, SILENT], "inquirer": [SILENT]}
    assert len((await play(scripted("holders", quiet, holder={"count": 2}), NOTES)).calls) == 4


@pytest.mark.parametrize(
    ("draft", "shown", "failed"),
    [
        (RIGHT, "All visible tests pass.", False),
        (WRONG, "All visible tests pass.", False),  # 2 · 2 = 2²: only the hidden test tells
        (CRASH, "division by zero", True),
        ("I cannot write code.", "SyntaxError", True),
    ],
    ids=["right", "wrong unseen", "crash", "no code"],
)
async def test_the_tester_alone_sees_how_the_visible_tests_end(
    draft: str, shown: str, failed: bool
) -> None:
    roster = scripted("tester", {"actor": [draft, RIGHT], "tester": ["mend it"]})
    episode = await play(roster, CODE)
    assert order(episode) == [("actor", "solver"), ("tester", "tester"), ("actor", "reviser")]
    first, tester, second = map(user, episode.calls)
    assert shown in tester.partition("Test results:")[2]
    assert "Test results:" not in first + second and "<comment>\nmend it\n</comment>" in second
    assert episode.needed == {"tester": failed}
    assert episode.grade is not None and episode.grade.right


async def test_a_silent_tester_accepts_the_draft() -> None:
    episode = await play(scripted("tester", {"actor": [WRONG], "tester": [SILENT]}), CODE)
    assert len(episode.calls) == 2 and episode.answer == WRONG
    assert episode.grade is not None and not episode.grade.right


async def test_without_visible_tests_the_tester_reads_the_draft() -> None:
    task = replace(CODE, data={**CODE.data, "visible": []})
    episode = await play(scripted("tester", {"actor": [WRONG], "tester": [SILENT]}), task)
    assert "Test results:" not in user(episode.calls[1]) and episode.needed == {"tester": False}
