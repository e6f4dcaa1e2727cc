"""Playing episodes, many at once. A failed episode is data: recorded, left out, never scored 0."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from tacit.errors import EngineError, GradingError, RunError
from tacit.grading import grade
from tacit.team.roster import Roster
from tacit.team.team import Setting, path_seconds, reset_path
from tacit.types import Call, Episode, Grade, Task

Grader = Callable[[Task, str], Awaitable[Grade]]


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
    """Play and grade one task. Only failures of engines and graders are caught; bugs are not."""
    reset_path()
    team = roster.seat(job.task, job.setting, on_call)
    answer, graded, error = "", None, None
    try:
        answer = (await roster.play(team)).text
        graded = await grader(job.task, answer)
    except (EngineError, GradingError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    return Episode(
        task_id=job.task.id,
        sample=job.setting.sample,
        level=job.task.level,
        calls=tuple(team.calls),
        answer=answer,
        grade=graded,
        error=error,
        seconds=path_seconds(),
    )


async def play_all(
    roster: Roster,
    jobs: Iterable[Job],
    *,
    concurrency: int = 64,
    grader: Grader = grade,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play every job, at most so many at once; episodes come back in the order of the jobs.

    When the first episodes all fail there is no point in going on: RunError with the reason.
    """
    queue = list(enumerate(jobs))[::-1]
    done: dict[int, Episode] = {}

    async def player() -> None:
        while queue:
            number, job = queue.pop()
            # A task of its own, so that the critical path of one episode never leaks into the next.
            episode = await asyncio.create_task(play_episode(roster, job, grader=grader))
            done[number] = episode
            if on_episode:
                on_episode(episode)
            _stop_if_hopeless(list(done.values()) if episode.error else (), len(queue), concurrency)

    async with _plain_errors(), asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(queue))):
            group.create_task(player())
    return [done[number] for number in sorted(done)]


def _stop_if_hopeless(episodes: Sequence[Episode], left: int, concurrency: int) -> None:
    enough = left == 0 or len(episodes) >= max(8, concurrency)
    if episodes and enough and all(episode.error for episode in episodes):
        raise RunError(f"no episode succeeded out of {len(episodes)}: {episodes[-1].error}")


class _plain_errors:
    """Unwrap a TaskGroup's bundle, so that callers see the error itself."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
            if not isinstance(error, BaseExceptionGroup):
                raise error from None
