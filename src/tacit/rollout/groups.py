"""Plays the groups of one training step, and the silent arm they are compared with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tacit.config import Config, TeamConfig
from tacit.economy.group import Group
from tacit.errors import ConfigError, RunError
from tacit.grading import Grader
from tacit.rollout.dedupe import DedupedEngine
from tacit.rollout.play import NO_CAP, Cap, Job, play_all
from tacit.silence import Silence
from tacit.team.roster import Roster, find_topology, may_be_silent
from tacit.team.setting import Setting
from tacit.types import Choice, Episode, Task

PROBED = 16
"""Tasks played to measure what a team costs when its helpers are silent."""


@dataclass(slots=True)
class Player:
    """Plays groups. Keeps each task's silent arm if it would be the same in every step."""

    roster: Roster
    grader: Grader
    config: Config
    silence: Silence
    fixed: set[str]
    """Roles that always give the same answer to the same prompt."""
    on_episode: Callable[[Episode], None] = lambda episode: None
    """Called with every episode, failed ones included."""
    choosing: tuple[str, ...] = field(init=False)
    """Trained roles that may be silent."""
    seats: tuple[str, ...] = field(init=False)
    """The agents of those roles."""
    silent_plays: int = field(init=False)
    """Silent episodes per task and step."""
    remembered: bool = field(init=False)
    """True if the silent arm of a task is played once and kept."""
    _silent: dict[str, list[Episode]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        roles = {agent.role: agent for agent in self.roster.agents}
        self.choosing = tuple(
            role for role, agent in roles.items() if agent.config.trained and agent.may_be_silent
        )
        self.seats = tuple(a.name for a in self.roster.agents if a.role in self.choosing)
        deterministic = self.fixed.issuperset(roles.keys() - self.choosing)
        plays = self.silence.silent_plays(deterministic=deterministic) if self.choosing else 0
        self.silent_plays, self.remembered = plays, bool(plays) and deterministic
        # both arms must share whatever is sampled before the choice
        shared = self.silence.pairs or (plays and not deterministic)
        once = set(roles) if shared else self.fixed
        agents = tuple(
            replace(a, engine=DedupedEngine(a.engine)) if a.role in once else a
            for a in self.roster.agents
        )
        self.roster = replace(self.roster, agents=agents)

    async def play(self, tasks: Sequence[Task], step: int, cap: Cap = NO_CAP) -> list[Group]:
        """`train.group` episodes of each task and its silent arm, without failed episodes."""
        for agent in self.roster.agents:
            if isinstance(agent.engine, DedupedEngine):
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

    async def probe(self, tasks: Sequence[Task], cap: Cap) -> list[Episode]:
        """Play some tasks with silent helpers, and refuse a budget that is exceeded even then."""
        if not self.choosing:
            return []
        silent = await self._play_all([self._quiet(task, 0, 0) for task in tasks[:PROBED]], cap)
        graded, budget = [episode for episode in silent if episode.grade], self.config.budget
        costs = {
            # of frozen agents: trained ones may learn to be brief
            "tokens": [sum(c.usage.spent for c in one.calls if not c.policy) for one in graded],
            "turns": [episode.turns for episode in graded],
        }
        for name, spent in costs.items():
            if (limit := budget.limit(name)) is not None and budget.control == "dual":
                check_budget(name, limit, sum(spent) / max(1, len(spent)))
        return silent

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
        if self.silence.pairs:
            return self._pairs(task, step, size)
        choices = dict.fromkeys(self.choosing, self.silence.choice)
        spoken = [Job(task, self._setting(step, sample, choices)) for sample in range(size)]
        if not self.remembered:
            plays = range(self.silent_plays)
            return spoken + [self._quiet(task, step, size + play, draw=play) for play in plays]
        return spoken if task.id in self._silent else [*spoken, self._quiet(task, 0, size)]

    def _pairs(self, task: Task, step: int, size: int) -> list[Job]:
        """Each sample with an agent made to speak, then with it silent, as `silence.seats` says."""
        compared = min(self.config.silence.seats, len(self.seats))
        drawn = dict.fromkeys(self.choosing, Choice.FLOOR)
        jobs = []
        for number in range(size * compared):
            picked = self.seats[(step * size * compared + number) % len(self.seats)]
            draw = number // compared
            for play, choice in enumerate((Choice.SPEAK, Choice.SILENT)):
                setting = self._setting(step, 2 * number + play, drawn | {picked: choice})
                jobs.append(Job(task, replace(setting, draw=draw)))
        return jobs

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


def check_budget(name: str, budget: float, fixed_cost: float) -> None:
    """Refuse a budget below the cost that no training can remove."""
    if budget < fixed_cost:
        spender = " the frozen agents of" if name == "tokens" else ""
        raise ConfigError(
            f"budget.{name} = {budget:g} is below what{spender} an episode cost when everyone is "
            f"silent who may be ({fixed_cost:.4g}); set it above that"
        )


def choosing_roles(team: TeamConfig) -> tuple[str, ...]:
    """Trained roles that may be silent."""
    return tuple(r for r, agent in team.agents.items() if agent.trained and may_be_silent(team, r))


def several_choices(team: TeamConfig) -> bool:
    """True if an episode may hold several choices to speak of trained agents."""
    choosing = choosing_roles(team)
    many = len(choosing) > 1 or any(team.agents[role].count > 1 for role in choosing)
    return many or find_topology(team.topology).repeats(team)
