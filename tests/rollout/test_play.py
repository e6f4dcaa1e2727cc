"""Many episodes at once: failures are data, order is kept, bugs are told with their place."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tacit.engine.base import Request
from tacit.errors import ConfigError, EngineError, GradingError, Refused, RunError, SpendCap
from tacit.rollout.play import Cap, Job, play_all, play_episode
from tacit.team.setting import Setting
from tacit.team.team import Team
from tacit.types import Episode, Grade, Message, Task
from tests.helpers.scripted_teams import TASK, scripted


def tasks(count: int) -> list[Task]:
    return [
        replace(TASK, id=f"sum/{i}", question=f"What is {i} + 1?", answer=str(i + 1))
        for i in range(count)
    ]


def jobs(count: int) -> list[Job]:
    return [Job(task, Setting()) for task in tasks(count)]


def number_in(request: Request) -> int:
    return int(request.messages[-1].content.split()[2])


def failing_on(*numbers: int) -> Callable[[Request], str | Exception]:
    def script(request: Request) -> str | Exception:
        i = number_in(request)
        return EngineError(f"server: 500 on {i}") if i in numbers else f"\\boxed{{{i + 1}}}"

    return script


async def test_a_failed_episode_is_recorded_with_its_reason_and_no_grade() -> None:
    episodes = await play_all(scripted("solo", {"actor": failing_on(1, 3)}), jobs(5))
    assert [episode.task_id for episode in episodes] == [f"sum/{i}" for i in range(5)]
    assert [episode.error is None for episode in episodes] == [True, False, True, False, True]
    assert episodes[1].error == "EngineError: actor: server: 500 on 1"
    assert episodes[1].grade is None and episodes[1].calls == ()
    assert all(e.grade and e.grade.right for e in episodes if e.error is None)


async def test_what_was_said_before_a_failure_is_kept() -> None:
    scripts = {"hinter": ["a hint"], "actor": [EngineError("gone")]}
    episode = await play_episode(scripted("hint_actor", scripts), jobs(1)[0])
    assert episode.error is not None and [call.text for call in episode.calls] == ["a hint"]
    assert episode.usage.generated == 2


async def test_a_grader_that_breaks_fails_the_episode_and_is_no_wrong_answer() -> None:
    async def broken(task: Task, text: str) -> Grade:
        raise GradingError(f"{task.id}: out of chalk")

    roster = scripted("solo", {"actor": [r"\boxed{1}"]})
    episode = await play_episode(roster, jobs(1)[0], grader=broken)
    assert episode.error == "GradingError: sum/0: out of chalk"
    assert episode.grade is None and episode.answer == r"\boxed{1}"


async def test_episodes_come_back_in_order_whoever_finishes_first() -> None:
    async def slow_first(request: Request) -> str:
        for _ in range(50 - number_in(request)):
            await asyncio.sleep(0)
        return "x"

    finished: list[str] = []
    roster = scripted("solo", {"actor": slow_first})
    episodes = await play_all(
        roster, jobs(50), on_episode=lambda episode: finished.append(episode.task_id)
    )
    assert [episode.task_id for episode in episodes] == [f"sum/{i}" for i in range(50)]
    assert finished == [f"sum/{i}" for i in reversed(range(50))]


async def test_no_more_episodes_are_under_way_than_allowed() -> None:
    under_way = most = 0

    async def script(request: Request) -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return "x"

    await play_all(scripted("solo", {"actor": script}), jobs(40), concurrency=7)
    assert most == 7


@pytest.mark.parametrize("concurrency", [1, 4, 64])
async def test_when_all_fail_the_run_stops_with_the_servers_message(concurrency: int) -> None:
    calls = 0

    def down(request: Request) -> Exception:
        nonlocal calls
        calls += 1
        return EngineError("401 invalid api key")

    roster = scripted("solo", {"actor": down})
    with pytest.raises(RunError, match=r"no episode succeeded out of .*: 401 invalid api key"):
        await play_all(roster, jobs(200), concurrency=concurrency)
    assert calls <= 2 * max(8, concurrency), "it goes on asking a server that is down"


async def test_a_topology_is_blamed_only_if_it_failed_every_time() -> None:
    roster = scripted(f"{__name__}:unplanned", {"actor": failing_on(5)})
    with pytest.raises(RunError, match="out of 4: TopologyError"):
        await play_all(roster, jobs(4), concurrency=1)
    with pytest.raises(RunError, match="out of 8: EngineError"):
        await play_all(roster, jobs(8), concurrency=1)


async def unplanned(task: Task, team: Team) -> Message:
    await team.actor.ask(task.question)
    raise ValueError("no plan")


async def test_a_few_episodes_that_all_fail_are_an_error_too() -> None:
    with pytest.raises(RunError, match="out of 2: EngineError: actor: server: 500 on 1"):
        await play_all(scripted("solo", {"actor": failing_on(0, 1)}), jobs(2), concurrency=1)


async def test_an_early_failure_does_not_condemn_those_still_under_way() -> None:
    async def script(request: Request) -> str | Exception:
        if number_in(request) == 0:
            return EngineError("too long")
        await asyncio.sleep(0.01)
        return "x"

    episodes = await play_all(scripted("solo", {"actor": script}), jobs(20), concurrency=64)
    assert [episode.error is not None for episode in episodes] == [True] + [False] * 19


async def test_what_succeeded_before_keeps_a_run_going() -> None:
    roster = scripted("solo", {"actor": failing_on(0, 1)})
    episodes = await play_all(roster, jobs(2), succeeded=98)
    assert all(episode.error for episode in episodes)


async def divides_by_zero(task: Task, team: Team) -> Message:
    if task.id == "sum/3":
        1 / 0  # noqa: B018
    return await team.actor.ask(task.question)


async def divides_by_zero_together(task: Task, team: Team) -> Message:
    return (await team.together(divides_by_zero(task, team), team.actor.ask("x")))[0]


async def divides_by_zero_in_a_group(task: Task, team: Team) -> Message:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(divides_by_zero(task, team))
    return asked.result()


async def says_nothing(task: Task, team: Team) -> None:
    await team.nobody.ask(task.question) if task.id == "sum/3" else None


BROKEN = ["divides_by_zero", "divides_by_zero_together", "divides_by_zero_in_a_group"]


@pytest.mark.parametrize("name", BROKEN)
async def test_a_bug_in_a_topology_is_one_failed_episode_with_its_place(name: str) -> None:
    roster = scripted(f"tests.rollout.test_play:{name}", {"actor": lambda request: "x"})
    episodes = await play_all(roster, jobs(10), concurrency=4)
    (broken,) = [episode for episode in episodes if episode.grade is None]
    assert broken.task_id == "sum/3" and broken.error is not None
    said = r"TopologyError: test_play.py, line \d+: ZeroDivisionError: division by zero"
    assert re.fullmatch(said, broken.error)


async def test_a_topology_that_always_breaks_stops_early_and_says_why() -> None:
    heard: list[Episode] = []
    roster = scripted("tests.rollout.test_play:says_nothing", {"actor": ["x"]})
    with pytest.raises(RunError, match="must return the answering Message, not NoneType"):
        await play_all(roster, jobs(200), concurrency=1, on_episode=heard.append)
    assert len(heard) == 8
    assert heard[3].error is not None and heard[3].error.endswith("this team has no `nobody`")


async def engine_fails_in_a_group(task: Task, team: Team) -> Message:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(team.actor.ask(task.question))
    return asked.result()


async def test_an_engines_failure_is_its_own_though_the_topology_made_a_group_of_it() -> None:
    roster = scripted(
        "tests.rollout.test_play:engine_fails_in_a_group", {"actor": [EngineError("gone")]}
    )
    episode = await play_episode(roster, jobs(1)[0])
    assert episode.error == "EngineError: actor: gone"


async def test_a_wrong_setting_found_while_playing_is_no_failed_episode() -> None:
    async def unknown(task: Task, text: str) -> Grade:
        raise ConfigError("unknown grader `mahts`")

    with pytest.raises(ConfigError, match="mahts"):
        await play_all(scripted("solo", {"actor": ["x"]}), jobs(1), grader=unknown)


async def test_a_listener_that_breaks_stops_the_run_with_its_own_error() -> None:
    def full(episode: Episode) -> None:
        raise OSError("no space left on device")

    roster = scripted("solo", {"actor": lambda request: "x"})
    with pytest.raises(OSError, match="no space left"):
        await play_all(roster, jobs(100), on_episode=full)


async def test_the_critical_path_of_one_episode_does_not_enter_the_next() -> None:
    roster = scripted("hint_actor", {"hinter": lambda r: "a b c", "actor": lambda r: "d e"})
    episodes = await play_all(roster, jobs(10), concurrency=2)
    assert {episode.path_tokens for episode in episodes} == {5}


async def test_a_thousand_at_once() -> None:
    started = asyncio.Event()
    waiting = 0

    async def script(request: Request) -> str:
        nonlocal waiting
        waiting += 1
        if waiting == 1000:
            started.set()
        await started.wait()
        return f"\\boxed{{{number_in(request) + 1}}}"

    async def exact(task: Task, text: str) -> Grade:
        right = text == f"\\boxed{{{task.answer}}}"
        return Grade(reward=float(right), right=right)

    grader: Callable[[Task, str], Awaitable[Grade]] = exact
    roster = scripted("solo", {"actor": script})
    episodes = await play_all(roster, jobs(1000), concurrency=1000, grader=grader)
    assert [e.task_id for e in episodes] == [f"sum/{i}" for i in range(1000)]
    assert all(e.grade and e.grade.right for e in episodes)


async def test_no_jobs_are_no_episodes() -> None:
    assert await play_all(scripted("solo", {"actor": ["x"]}), []) == []


async def test_a_server_that_refuses_us_stops_everything_at_once() -> None:
    asked = 0

    def script(request: Request) -> str:
        nonlocal asked
        asked += 1
        if number_in(request) == 3:
            raise Refused("wrong key")
        return r"\boxed{1}"

    with pytest.raises(Refused, match="wrong key"):
        await play_all(scripted("solo", {"actor": script}), jobs(500), concurrency=4)
    assert asked < 10


async def test_a_cap_lets_those_under_way_finish_and_begins_no_more() -> None:
    done: list[Episode] = []
    with pytest.raises(SpendCap, match="no money left"):
        await play_all(
            scripted("solo", {"actor": failing_on(1)}),
            jobs(50),
            concurrency=4,
            on_episode=done.append,
            cap=Cap(lambda: "no money left" if len(done) >= 10 else None),
        )
    assert 10 <= len(done) <= 10 + 4
    assert sorted(int(e.task_id.removeprefix("sum/")) for e in done) == list(range(len(done)))


async def test_a_cap_reached_by_the_last_episode_stops_nothing() -> None:
    done: list[Episode] = []
    await play_all(
        scripted("solo", {"actor": failing_on()}),
        jobs(5),
        on_episode=done.append,
        cap=Cap(lambda: "no money left" if len(done) >= 5 else None),
    )
    assert len(done) == 5


async def test_under_a_cap_no_more_is_begun_than_what_is_left_will_pay_for() -> None:
    """Ten for an episode, a hundred in all: at first one alone, then several, none too many."""
    left, under_way, most = 100.0, 0, [0]

    async def script(request: Request) -> str:
        nonlocal left, under_way
        under_way += 1
        most.append(under_way)
        await asyncio.sleep(0)
        under_way -= 1
        left -= 10.0
        return r"\boxed{1}"

    cap = Cap(lambda: None if left > 0 else "no money left", lambda: left)
    with pytest.raises(SpendCap, match="no money left"):
        await play_all(scripted("solo", {"actor": script}), jobs(50), concurrency=50, cap=cap)
    assert left == 0.0
    assert most[1] == 1 and max(most) > 1


async def test_free_episodes_do_not_open_the_purse() -> None:
    """The first five are kept answers; the others cost sixty of a hundred each."""
    left, played = 100.0, 0

    async def script(request: Request) -> str:
        nonlocal left, played
        played += 1
        price = 60.0 if played > 5 else 0.0
        await asyncio.sleep(0)
        left -= price
        return r"\boxed{1}"

    cap = Cap(lambda: None if left > 0 else "no money left", lambda: left)
    with pytest.raises(SpendCap, match="no money left"):
        await play_all(scripted("solo", {"actor": script}), jobs(50), concurrency=50, cap=cap)
    assert played < 5 + 50 / 2 and left >= 100 - 60 * 5
