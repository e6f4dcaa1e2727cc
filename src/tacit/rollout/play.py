"""Plays episodes, many at once.

An error of an engine, a grader or a topology makes a failed episode: recorded, left out, never
scored 0. A prompt that overflows because the team talked too much is a wrong answer.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from tacit.errors import (
    EngineError,
    GradingError,
    Overflow,
    Refused,
    RunError,
    SpendCap,
    TopologyError,
    first_error,
)
from tacit.grading import Grader, grade
from tacit.team.roster import Roster
from tacit.team.setting import Setting
from tacit.types import Call, Episode, Grade, Task

J = TypeVar("J")


@dataclass(frozen=True, slots=True)
class Cap:
    """A limit on spending; by default there is none."""

    reached: Callable[[], str | None] = lambda: None
    """Why no further episode may start, or None."""
    left: Callable[[], float] = lambda: math.inf
    """How much money is left."""


NO_CAP = Cap()


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play."""

    task: Task
    setting: Setting


async def play_episode(
    roster: Roster,
    job: Job,
    *,
    grader: Grader = grade,
    on_call: Callable[[Call], None] | None = None,
) -> Episode:
    """Play and grade one task.

    Errors of engines, graders and topologies end up in the episode. `Refused` and config errors are
    raised, since they would hit every episode.
    """
    team = roster.seat(job.task, job.setting, on_call)
    answer, graded, error = "", None, None
    try:
        answer = (await roster.play(team)).text
        graded = await grader(job.task, answer)
    except Refused:
        raise
    except Overflow as failure:
        graded, error = Grade(reward=0.0, right=False), f"{type(failure).__name__}: {failure}"
    except (EngineError, TopologyError, GradingError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    return Episode(
        task_id=job.task.id,
        sample=job.setting.sample,
        level=job.task.level,
        views=job.task.views,
        needed=team.needed,
        calls=tuple(team.whole.calls),
        answer=answer,
        grade=graded,
        error=error,
        seconds=team.whole.path_seconds,
    )


async def play_all(
    roster: Roster,
    jobs: Iterable[Job],
    *,
    concurrency: int = 64,
    grader: Grader = grade,
    on_episode: Callable[[Episode], None] | None = None,
    succeeded: int = 0,
    cap: Cap = NO_CAP,
) -> list[Episode]:
    """Play every job with the team, as `play_each` does."""

    async def play(job: Job) -> Episode:
        if roster.remote:
            return await roster.remote(roster, job)
        return await play_episode(roster, job, grader=grader)

    return await play_each(jobs, play, concurrency, on_episode, succeeded, cap)


async def play_each(
    jobs: Iterable[J],
    play: Callable[[J], Coroutine[Any, Any, Episode]],
    concurrency: int,
    on_episode: Callable[[Episode], None] | None = None,
    succeeded: int = 0,
    cap: Cap = NO_CAP,
) -> list[Episode]:
    """Play every job, at most `concurrency` at once, and return episodes in the order of the jobs.

    Raises RunError if the first episodes all fail, unless some `succeeded` before, and SpendCap at
    the cap, after the episodes under way. With a cap, the first is played alone, and then only as
    many at once as the money left will pay for; while all were free, as many as have ended.
    """
    queue = list(enumerate(jobs))[::-1]
    enough = min(len(queue), max(8, concurrency))
    done: dict[int, Episode] = {}
    at_first, free, under_way, ended = cap.left(), 0, 0, asyncio.Event()

    def affordable() -> bool:
        left = cap.left()
        if math.isinf(left) or not under_way:
            return True
        if left == at_first:
            return under_way < free
        paid = len(done) - free
        return paid > 0 and (under_way + 1) * (at_first - left) <= left * paid

    async def player() -> None:
        nonlocal succeeded, free, under_way
        while queue and not cap.reached():
            if not affordable():
                ended.clear()
                await ended.wait()
                continue
            number, job = queue.pop()
            under_way += 1
            # in its own task, so that the critical path of one episode never leaks into the next
            episode = await asyncio.create_task(play(job))
            done[number] = episode
            under_way -= 1
            free += cap.left() == at_first
            ended.set()
            if on_episode:
                on_episode(episode)
            succeeded += episode.grade is not None
            if not succeeded and len(done) >= enough:
                errors = [str(one.error) for one in reversed(done.values())]
                told = min(errors, key=lambda error: error.startswith(TopologyError.__name__))
                raise RunError(f"no episode succeeded out of {len(done)}: {told}")

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(queue))):
                group.create_task(player())
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    if queue:
        raise SpendCap(str(cap.reached()))
    return [done[number] for number in sorted(done)]
