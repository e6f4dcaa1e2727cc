"""Topologies in which agents know different things: who is told what, and who is not."""

from dataclasses import replace

import pytest

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
