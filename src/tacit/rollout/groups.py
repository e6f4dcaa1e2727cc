"""Playing the groups of one training step: who is made to speak, and what silence would cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tacit.config import Config, SilenceConfig, TeamConfig
from tacit.engine.dedupe import Once
from tacit.errors import ConfigError, RunError
from tacit.learn.arms import Played
from tacit.rollout import NO_CAP, Cap, Grader, Job, play_all
from tacit.run.opening import is_greedy
from tacit.team.roster import Roster, may_be_silent
from tacit.team.team import Setting
from tacit.types import Choice, Episode, Task


@dataclass(slots=True)
class Player:
    """Plays groups; remembers the silent arm where the rest of the team is deterministic."""

    roster: Roster
    grader: Grader
    config: Config
    choosing: tuple[str, ...]
    """Trained roles that may be silent."""
    silent_plays: int
    """Plays of the silent arm a step; 0 unless `arms`."""
    remembered: bool
    """Whether the silent arm of a task is the same every time."""
    on_episode: Callable[[Episode], None] = lambda episode: None
    """Hears of every episode, failed ones too."""
    _silent: dict[str, tuple[Episode, ...]] = field(default_factory=dict)

    async def play(self, tasks: Sequence[Task], step: int, cap: Cap = NO_CAP) -> list[Played]:
        """G episodes of each task, and the silent arm. Failed episodes are left out."""
        for agent in self.roster.agents:
            if isinstance(agent.engine, Once):
                agent.engine.forget()
        jobs = [job for task in tasks for job in self._jobs(task, step)]
        episodes = await self._play_all(jobs, cap)
        spoken: dict[str, list[Episode]] = {}
        silent: dict[str, list[Episode]] = {}
        for job, episode in zip(jobs, episodes, strict=True):
            arm = silent if _is_silent(job.setting) else spoken
            if episode.grade:
                arm.setdefault(job.task.id, []).append(episode)
        if self.remembered:
            self._silent |= {task: tuple(some) for task, some in silent.items()}
        played = [self._group(task, spoken, silent) for task in tasks]
        whole = [group for group in played if group is not None]
        if not whole:
            errors = [episode.error for episode in episodes if episode.error]
            raise RunError(f"no group of step {step} could be played: {errors[0]}")
        return whole

    async def play_silent(self, tasks: Sequence[Task], cap: Cap) -> list[Episode]:
        """One episode of each task in which everyone who may be silent is."""
        quiet = dict.fromkeys(self.choosing, Choice.SILENT)
        jobs = [Job(task, self._setting(0, 0, quiet)) for task in tasks]
        return await self._play_all(jobs, cap)

    async def _play_all(self, jobs: Sequence[Job], cap: Cap) -> list[Episode]:
        return await play_all(
            self.roster,
            jobs,
            concurrency=self.config.train.concurrency,
            grader=self.grader,
            on_episode=self.on_episode,
            cap=cap,
        )

    def _group(
        self,
        task: Task,
        spoken: Mapping[str, list[Episode]],
        silent: Mapping[str, list[Episode]],
    ) -> Played | None:
        """A group that has something to compare, or None."""
        other = self._silent.get(task.id) if self.remembered else tuple(silent.get(task.id, ()))
        mine = tuple(spoken.get(task.id, ()))
        if self.silent_plays and not any(_chose(episode, Choice.SILENT) for episode in other or ()):
            # Whoever got to choose has nothing to be compared with.
            mine = tuple(episode for episode in mine if not _chose(episode, Choice.SPEAK))
        if not mine or (self.silent_plays and not other):
            return None
        return Played(task_id=task.id, level=task.level, spoken=mine, silent=other or ())

    def _jobs(self, task: Task, step: int) -> list[Job]:
        forced = {"arms": Choice.SPEAK, "floor": Choice.FLOOR, "none": Choice.FREE}
        silence = self.config.silence
        choices = dict.fromkeys(self.choosing, forced[silence.exploration])
        spoken = [
            Job(task, self._setting(step, sample, choices))
            for sample in range(self.config.train.group)
        ]
        if not self.silent_plays or (self.remembered and task.id in self._silent):
            return spoken
        quiet = dict.fromkeys(self.choosing, Choice.SILENT)
        first = self.config.train.group
        if self.remembered:
            return [*spoken, Job(task, self._setting(0, first, quiet))]
        return spoken + [
            Job(task, self._setting(step, first + play, quiet, draw=play))
            for play in range(self.silent_plays)
        ]

    def _setting(
        self, step: int, sample: int, choices: Mapping[str, Choice], draw: int | None = None
    ) -> Setting:
        return Setting(
            seed=self.config.seed,
            step=step,
            sample=sample,
            draw=draw,
            training=True,
            choices=choices,
            floor=self.config.silence.floor,
        )


def fixed_tokens(episode: Episode) -> int:
    """What the frozen agents generate; whoever learns may learn to be brief."""
    return sum(call.usage.generated for call in episode.calls if not call.policy)


def make_player(
    roster: Roster,
    grader: Grader,
    config: Config,
    team: TeamConfig,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> Player:
    """Say how choices are made in this team."""
    choosing = choosing_roles(team)
    arms = config.silence.exploration == "arms" and bool(choosing)
    fixed = {role for role in team.agents if is_greedy(config, team, role)}
    greedy = fixed.issuperset(role for role in team.agents if role not in choosing)
    plays = (1 if greedy else config.silence.silent_samples) if arms else 0
    once = fixed
    if arms and not greedy:
        once = set(team.agents)  # what is drawn before the choice is drawn for both arms
    agents = tuple(
        replace(a, engine=Once(a.engine)) if a.role in once else a for a in roster.agents
    )
    roster = replace(roster, agents=agents)
    return Player(roster, grader, config, choosing, plays, arms and greedy, on_episode)


def choosing_roles(team: TeamConfig) -> tuple[str, ...]:
    """Trained roles that may be silent."""
    return tuple(r for r, agent in team.agents.items() if agent.trained and may_be_silent(team, r))


def check_arms(team: TeamConfig, silence: SilenceConfig) -> None:
    """Refuse `arms` where several choices are to be made in an episode."""
    choosing = choosing_roles(team)
    if silence.exploration != "arms" or not choosing:
        return
    several = len(choosing) > 1 or any(team.agents[role].count > 1 for role in choosing)
    rounds = team.topology == "critic_actor" and team.options.get("rounds", 1) != 1
    if several or rounds or team.topology == "dialogue":
        raise ConfigError(
            "silence.exploration: `arms` needs a team with one choice to speak in an episode; "
            "use `floor` where several agents choose, or one agent several times"
        )


def _chose(episode: Episode, choice: Choice) -> bool:
    return any(call.choice is choice for call in episode.calls)


def _is_silent(setting: Setting) -> bool:
    return Choice.SILENT in setting.choices.values()
