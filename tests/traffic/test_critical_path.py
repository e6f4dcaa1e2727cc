"""The longest chain of calls by hand."""

import pytest

from tacit.traffic.critical_path import CriticalPath, critical_path, longest_chain
from tacit.traffic.prompt_pieces import read_episode
from tacit.types import Call, Episode, Stop, Usage
from tests.helpers.recorded import episode, recorded
from tests.helpers.scripted_teams import SILENT, play, scripted

QUESTION = "How many legs have three spiders?"
A, B = "A spider has eight legs.", "There are three of them."


def chain(one: Episode) -> list[int]:
    timed = any(call.seconds for call in one.calls)
    return longest_chain(one.calls, read_episode(one), timed)


def measured(*episodes: Episode) -> CriticalPath:
    found = critical_path([(one, read_episode(one)) for one in episodes])
    assert found is not None
    return found


def test_two_that_do_not_read_each_other_stand_side_by_side() -> None:
    """a (2 s) and b (5 s), then c (1 s) reads both: the chain is b, c."""
    team = episode(
        recorded("a", A, QUESTION, seconds=2.0),
        recorded("b", B, QUESTION, seconds=5.0),
        recorded("c", "24", QUESTION, A, B, seconds=1.0),
        seconds=8.5,
    )
    assert chain(team) == [1, 2]
    found = measured(team, team)
    assert (found.unit, found.episodes, found.path, found.total) == ("seconds", 2, 12.0, 16.0)
    assert (found.wall, found.beside) == (17.0, 0.25)
    shares = [(one.agent, one.amount, one.off) for one in found.agents]
    assert shares == [("b", 10.0, 0.0), ("c", 2.0, 0.0), ("a", 0.0, 4.0)]
    assert found.agents[0].share == pytest.approx(10 / 12)


def test_who_reads_who_makes_a_chain() -> None:
    team = episode(
        recorded("a", A, QUESTION, seconds=2.0),
        recorded("b", B, QUESTION, A, seconds=1.0),
        recorded("a", "24", QUESTION, B, seconds=2.0),
    )
    assert chain(team) == [0, 1, 2]
    assert measured(team).beside == 0.0


def test_without_seconds_tokens_are_measured() -> None:
    team = episode(recorded("a", A, QUESTION), recorded("b", B, QUESTION))
    found = measured(team)
    assert (found.unit, found.path, found.total) == ("tokens", 24.0, 48.0)


async def test_what_was_waited_for_and_not_read_counts_by_tokens() -> None:
    """The actor waits for a hinter that stays silent: one token, then two."""
    team = scripted("hint_actor", {"hinter": [SILENT], "actor": ["It is"]})
    assert chain(await play(team)) == [0, 1]


async def test_a_debate_has_two_calls_in_a_row_and_two_beside() -> None:
    team = scripted(
        "debate", {"debater": ["It is 24 legs.", "I say 24."] * 2}, debater={"count": 2}
    )
    found = await play(team)
    first, second = chain(found)
    assert first in (0, 1)
    assert second in (2, 3)


def test_equal_texts_at_the_same_time_are_not_taken_for_read() -> None:
    """b's prompt holds a's words, but nothing had been generated before b."""
    team = episode(
        recorded("a", A, QUESTION, path_tokens=24),
        recorded("b", B, f"{A} {QUESTION}", path_tokens=24),
    )
    assert len(chain(team)) == 1


def test_without_texts_there_is_no_chain_but_one_call_is_its_own() -> None:
    dark = Call(
        agent="a",
        model="m",
        messages=(),
        text="",
        stop=Stop.EOS,
        usage=Usage(prompt=9, generated=1),
        seconds=2.0,
    )
    assert critical_path([(episode(dark, dark), read_episode(episode(dark, dark)))]) is None
    assert measured(episode(dark)).path == 2.0
    assert critical_path([]) is None
