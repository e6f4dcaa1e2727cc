"""Playing episodes, many at once.

What an engine, a grader or a bug in a topology did is a failed episode: recorded, left out, never
scored 0. What the team did to itself, talking until a prompt overflows, is a wrong answer.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from tacit.errors import (
    EngineError,
    GradingError,
    Overflow,
    Refused,
    RunError,
    SpendCap,
    TopologyError,
)
from tacit.grading import grade
from tacit.team.roster import Roster
from tacit.team.team import Setting
from tacit.types import Call, Episode, Grade, Task

Grader = Callable[[Task, str], Awaitable[Grade]]


@dataclass(frozen=True, slots=True)
class Cap:
    """How much money may still be spent: any, where nothing else is said."""

    reached: Callable[[], str | None] = lambda: None
    """Why nothing more may be begun, or None."""
    left: Callable[[], float] = lambda: math.inf


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
    """Play and grade one task. What fails in engines, graders and topologies is caught.

    A server that refuses us altogether is no failure of one episode; nor is a wrong setting.
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
    """Play every job, at most so many at once; episodes come back in the order of the jobs.

    When the first episodes all fail there is no point in going on: RunError with the reason, unless
    some `succeeded` before. Where the cap is reached no more are begun; those under way are
    finished, and then it is SpendCap with the reason. Under a cap the first episode is played
    alone, then no more at once than what is left will pay for; while all were free, such as kept
    answers, no more at once than have ended.
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
            # A task of its own, so that the critical path of one episode never leaks into the next.
            episode = await asyncio.create_task(play_episode(roster, job, grader=grader))
            done[number] = episode
            under_way -= 1
            free += cap.left() == at_first
            ended.set()
            if on_episode:
                on_episode(episode)
            succeeded += episode.grade is not None
            if not succeeded and len(done) >= enough:
                raise RunError(f"no episode succeeded out of {len(done)}: {episode.error}")

    async with _plain_errors(), asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(queue))):
            group.create_task(player())
    if queue:
        raise SpendCap(str(cap.reached()))
    return [done[number] for number in sorted(done)]


class _plain_errors:
    """Unwrap a TaskGroup's bundle, so that callers see the error itself."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
            if not isinstance(error, BaseExceptionGroup):
                raise error from None
