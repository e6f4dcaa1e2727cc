"""Plays a team of ours for an audit, and keeps the episodes in the audit's folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tacit.audit.auditing import Again, once
from tacit.audit.worth import Pair
from tacit.cli.terminal import note
from tacit.config import Config, Cut
from tacit.engine.base import derive_seed
from tacit.errors import RunError, TopologyError
from tacit.evaluation.measure import evaluate_team
from tacit.evaluation.teams import Listen
from tacit.grading import Grader, grade
from tacit.rollout.play import NO_CAP, Cap, Job, play_all
from tacit.run.folder import RunFolder
from tacit.team.roster import Roster
from tacit.team.setting import Setting
from tacit.types import Call, Episode, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamPlayer:
    """A team of the config, in its seats."""

    config: Config
    run: RunFolder
    roster: Roster
    grader: Grader = grade
    cap: Cap = NO_CAP
    listen: Listen = lambda name, total: lambda episode: None
    notes: list[str] = field(default_factory=list)
    """Which smaller teams cannot play, and why."""

    async def play(
        self,
        name: str,
        tasks: Sequence[Task],
        without: frozenset[Cut] = frozenset(),
        recorded: Mapping[tuple[str, int], Episode] | None = None,
    ) -> list[Episode]:
        samples = self.config.audit.samples
        return await evaluate_team(
            name,
            self.roster,
            tasks,
            self.config.evaluation.model_copy(update={"samples": samples}),
            self.run,
            seed=self.config.seed,
            grader=self.grader,
            on_episode=self.listen(name, len(tasks) * samples),
            without=without,
            recorded=recorded,
            cap=self.cap,
        )

    async def tried(
        self,
        name: str,
        tasks: Sequence[Task],
        without: frozenset[Cut],
        recorded: Sequence[Episode],
        shown: str,
    ) -> list[Episode] | None:
        """Plays without these, taken from what was recorded; None and a note if it cannot play."""
        known = {(one.task_id, one.sample): one for one in recorded}
        try:
            return await self.play(name, tasks, without, known)
        except RunError as error:  # not one play succeeded
            if TopologyError.__name__ not in str(error):
                raise  # the spend cap, or a server that is down, if only for some
            told = f"{shown} cannot play: {error}"
            if told not in self.notes:
                self.notes.append(told)
                note(told)
            return None

    async def again(
        self, task: Task, episode: Episode, call: int, without: Cut, times: int
    ) -> Again:
        before, said = episode.calls[:call], episode.calls[call]

        def job(number: int, recorded: tuple[Call, ...], cuts: frozenset[Cut]) -> Job:
            seed = derive_seed(self.config.seed, "again", number)
            return Job(task, Setting(seed=seed, recorded=recorded, without=cuts))

        arms = ((*before, said), frozenset[Cut]()), (before, frozenset({without}))
        both = [job(number, *arm) for number in range(times) for arm in arms]

        async def play() -> list[Pair]:
            plays = await play_all(
                self.roster,
                both,
                concurrency=self.config.evaluation.concurrency,
                grader=self.grader,
                succeeded=1,
                cap=self.cap,
            )
            return list(zip(plays[::2], plays[1::2], strict=True))

        return await once(self.run, f"{task.id} {episode.sample} {call} {times}", play)
