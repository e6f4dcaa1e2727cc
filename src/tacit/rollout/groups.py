"""Playing the groups of one training step, and what silence would have earned in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tacit.config import Config, TeamConfig
from tacit.economy.group import Group
from tacit.errors import ConfigError, RunError
from tacit.rollout.dedupe import Once
from tacit.rollout.play import NO_CAP, Cap, Grader, Job, play_all
from tacit.silence import Silence
from tacit.team.roster import Roster, may_be_silent
from tacit.team.team import Setting
from tacit.types import Choice, Episode, Task


@dataclass(slots=True)
class Player:
    """Plays groups; remembers the silent arm where the rest of the team is deterministic."""

    roster: Roster
    grader: Grader
    config: Config
    silence: Silence
    choosing: tuple[str, ...]
    """Trained roles that may be silent."""
    silent_plays: int
    """Plays of the silent arm a step."""
    remembered: bool
    """Whether the silent arm of a task is the same every time."""
    on_episode: Callable[[Episode], None] = lambda episode: None
    """Hears of every episode, failed ones too."""
    _silent: dict[str, list[Episode]] = field(default_factory=dict)

    async def play(self, tasks: Sequence[Task], step: int, cap: Cap = NO_CAP) -> list[Group]:
        """G episodes of each task, and the silent arm. Failed episodes are left out."""
        for agent in self.roster.agents:
            if isinstance(agent.engine, Once):
                agent.engine.forget()
        jobs = [job for task in tasks for job in self._jobs(task, step)]
        episodes = await self._play_all(jobs, cap)
        spoken: dict[str, list[Episode]] = {}
        silent: dict[str, list[Episode]] = self._silent if self.remembered else {}
        for job, episode in zip(jobs, episodes, strict=True):
            arm = silent if Choice.SILENT in job.setting.choices.values() else spoken
            if episode.grade:
                arm.setdefault(job.task.id, []).append(episode)
        groups = [
            self.silence.group(task, spoken.get(task.id, ()), silent.get(task.id, ()))
            for task in tasks
        ]
        whole = [group for group in groups if group is not None]
        if not whole:
            errors = [episode.error for episode in episodes if episode.error]
            raise RunError(f"no group of step {step} could be played: {errors[0]}")
        return whole

    async def play_silent(self, tasks: Sequence[Task], cap: Cap) -> list[Episode]:
        """One episode of each task in which everyone who may be silent is."""
        return await self._play_all([self._quiet(task, 0, 0) for task in tasks], cap)

    async def _play_all(self, jobs: Sequence[Job], cap: Cap) -> list[Episode]:
        return await play_all(
            self.roster,
            jobs,
            concurrency=self.config.train.concurrency,
            grader=self.grader,
            on_episode=self.on_episode,
            cap=cap,
        )

    def _jobs(self, task: Task, step: int) -> list[Job]:
        size = self.config.train.group
        choices = dict.fromkeys(self.choosing, self.silence.choice)
        spoken = [Job(task, self._setting(step, sample, choices)) for sample in range(size)]
        if not self.remembered:
            plays = range(self.silent_plays)
            return spoken + [self._quiet(task, step, size + play, draw=play) for play in plays]
        return spoken if task.id in self._silent else [*spoken, self._quiet(task, 0, size)]

    def _quiet(self, task: Task, step: int, sample: int, draw: int | None = None) -> Job:
        quiet = dict.fromkeys(self.choosing, Choice.SILENT)
        return Job(task, replace(self._setting(step, sample, quiet), draw=draw))

    def _setting(self, step: int, sample: int, choices: Mapping[str, Choice]) -> Setting:
        return Setting(
            seed=self.config.seed,
            step=step,
            sample=sample,
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
    silence: Silence,
    fixed: set[str],
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> Player:
    """`fixed` are the roles that say the same each time they are asked the same."""
    roles = {agent.role: agent for agent in roster.agents}
    choosing = tuple(
        r for r, agent in roles.items() if agent.config.trained and agent.may_be_silent
    )
    deterministic = fixed.issuperset(role for role in roles if role not in choosing)
    plays = silence.silent_plays(deterministic=deterministic) if choosing else 0
    # what is drawn before the choice is drawn for both arms
    once = set(roles) if plays and not deterministic else fixed
    agents = tuple(
        replace(a, engine=Once(a.engine)) if a.role in once else a for a in roster.agents
    )
    return Player(
        roster=replace(roster, agents=agents),
        grader=grader,
        config=config,
        silence=silence,
        choosing=choosing,
        silent_plays=plays,
        remembered=bool(plays) and deterministic,
        on_episode=on_episode,
    )


def choosing_roles(team: TeamConfig) -> tuple[str, ...]:
    """Trained roles that may be silent."""
    return tuple(r for r, agent in team.agents.items() if agent.trained and may_be_silent(team, r))


def check_choices(team: TeamConfig, silence: Silence) -> None:
    """Refuse a strategy that is for one choice where several are to be made in an episode."""
    choosing = choosing_roles(team)
    several = len(choosing) > 1 or any(team.agents[role].count > 1 for role in choosing)
    rounds = team.topology == "critic_actor" and team.options.get("rounds", 1) != 1
    if not silence.several and (several or rounds or team.topology == "dialogue"):
        raise ConfigError(
            "silence.exploration: `arms` needs a team with one choice to speak in an episode; "
            "use `floor` where several agents choose, or one agent several times"
        )
