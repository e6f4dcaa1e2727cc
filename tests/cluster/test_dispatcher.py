"""Who plays which episode, and which is played again."""

import asyncio
from dataclasses import replace

import pytest

from tacit.cluster.dispatcher import Dispatcher, Pending, WorkerHandle, blamed_for
from tacit.cluster.envelopes import Order
from tacit.errors import RunError
from tacit.rollout.play import Job
from tacit.team.setting import Setting
from tacit.types import Call, Episode, Stop, Usage
from tests.helpers.scripted_teams import TASK


def worker(number: int) -> WorkerHandle:
    return WorkerHandle(number, actor=None, lost=asyncio.get_running_loop().create_future())


def pending(number: int, task: str = "", *, tries: int = 0) -> Pending:
    order = Order(number, 0, Job(replace(TASK, id=task or f"task/{number}"), Setting(sample=3)))
    future = asyncio.get_running_loop().create_future()
    return Pending(order, future, shared=bool(task), tries=tries)


def dispatcher(
    there: int, *some: Pending, wanted: int | None = None, retries: int = 2
) -> Dispatcher:
    made = Dispatcher(wanted or there, retries)
    made.workers = [worker(number) for number in range(there)]
    for one in some:
        made.add(one)
    return made


async def test_episodes_are_spread_evenly_and_what_others_will_play_is_left() -> None:
    made = dispatcher(2, *(pending(n) for n in range(12)), wanted=3)
    made.assign()
    assert [len(one.under_way) for one in made.workers] == [4, 4]
    made.workers.append(worker(2))
    made.assign()
    assert [len(one.under_way) for one in made.workers] == [4, 4, 4]


async def test_what_is_left_of_an_absent_worker_is_played_by_the_others_in_the_end() -> None:
    made = dispatcher(1, *(pending(n) for n in range(8)), wanted=4)
    played = 0
    while assigned := made.assign():
        (mine,) = assigned.values()
        for one in mine:
            del made.workers[0].under_way[one.order.number]
            played += 1
    assert played == 8


async def test_the_episodes_of_a_task_stay_together_until_their_worker_is_lost() -> None:
    made = dispatcher(3, *(pending(n, f"task/{n % 2}") for n in range(10)))
    assigned = made.assign()
    tasks = [{one.order.job.task.id for one in mine} for mine in assigned.values()]
    assert sorted(map(sorted, tasks)) == [["task/0"], ["task/1"]]
    lost = next(iter(assigned))
    for one in made.drop(lost):
        made.retry(one, "")
    (again,) = made.assign()
    assert again is not lost and len(assigned[lost]) == 5


async def test_an_episode_nobody_waits_for_is_not_played() -> None:
    made = dispatcher(1, left := pending(1))
    left.future.cancel()
    assert made.assign() == {}


async def test_what_was_lost_twice_is_played_apart_and_blamed_alone() -> None:
    suspects = [pending(n, tries=2) for n in range(3)]
    made = dispatcher(2, *suspects, *(pending(n) for n in range(3, 9)))
    made.assign()
    assert [len(one.suspects) for one in made.workers] == [1, 1]
    first = made.workers[0]
    blamed = blamed_for(first, deadline=60.0)
    assert list(blamed) == first.suspects
    for one in made.drop(first):
        made.retry(one, "worker 0 was lost", blamed=one in blamed)
    failed = [one.future.result() for one in suspects if one.future.done()]
    assert [one.grade for one in failed] == [None] and made.counts["failed"] == 1
    assert failed[0].error == "played 3 times in vain: worker 0 was lost"
    assert failed[0].sample == 3


async def test_only_what_was_late_is_blamed_for_a_missed_deadline() -> None:
    made = dispatcher(1, late := pending(1), pending(2))
    made.assign()
    late.sent -= 100.0
    assert blamed_for(made.workers[0], deadline=60.0) == [late]
    assert len(blamed_for(made.workers[0], deadline=600.0)) == 2


async def test_an_episode_of_other_weights_is_stale() -> None:
    def episode(version: int, *, reused: bool = False, policy: str = "team") -> Episode:
        call = Call(
            agent="a", model="m", messages=(), text="", stop=Stop.EOS, usage=Usage(),
            policy=policy, version=version, reused=reused,
        )  # fmt: skip
        return Episode(task_id="t", sample=0, calls=(call,))

    one = pending(1)
    assert one.stale(episode(1)) and not one.stale(episode(0)), "as at the start"
    one.versions = {"team": 7}
    assert one.stale(episode(6)) and not one.stale(episode(7))
    assert not one.stale(episode(3, reused=True)), "an earlier play's reply was asked for"
    assert not one.stale(episode(0, policy="")), "frozen weights have no version"


async def test_when_no_worker_is_left_those_who_wait_are_told() -> None:
    made = dispatcher(0, one := pending(1), wanted=1)
    made.close("no worker is left")
    with pytest.raises(RunError, match="no worker is left"):
        await one.future
