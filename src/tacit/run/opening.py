"""Opens what every command needs: tasks, teams, prices, engines; checks it before models load."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from tacit.config import Config, JudgeConfig, TaskConfig, TeamConfig
from tacit.economy.ledger import Price, PriceTable, load_prices
from tacit.engine.base import Account, Engine
from tacit.engine.factory import open_engine
from tacit.engine.gc_freeze import gc_frozen
from tacit.errors import ConfigError
from tacit.grading import JUDGE, Grader, find_grader, grade
from tacit.registry import lookup
from tacit.run.folder import VARIANTS
from tacit.tasks import answer_form, load_tasks
from tacit.team.roster import (
    Roster,
    agent_names,
    build_roster,
    check_team,
    find_topology,
    helper_roles,
    may_be_silent,
)
from tacit.team.tools import TOOLS
from tacit.types import Task


def tasks_of(config: TaskConfig, judge: JudgeConfig | None = None) -> list[Task]:
    settings = config.model_dump(exclude={"name", "options"})
    tasks = load_tasks(config.name, **settings, **config.options)
    check_graders(tasks)
    if judge is None and any(task.grader == "judge" for task in tasks):
        raise ConfigError(f"{config.name}: its tasks are judged: add `judge:` with a rubric")
    return tasks


def unseen_views(tasks: Iterable[Task], teams: Iterable[TeamConfig]) -> str | None:
    """A warning if tasks name agents in `views` or `data.speak` that no team has."""
    roles = [one for team in teams for one in team.agents.items()]
    names = {name for role, agent in roles for name in agent_names(role, agent.count)}
    shown = names.union(role for role, _ in roles)
    lost = dict.fromkeys(
        f"`{agent}`"
        for task in tasks
        for named, known in ((task.views, shown), (task.data.get("speak", {}), names))
        for agent in named
        if agent not in known
    )
    told = f"tasks name {', '.join(lost)} in `views` or `data.speak`, but no team has such an agent"
    return told if lost else None


def check_graders(tasks: Iterable[Task]) -> None:
    """Raise a ConfigError for the first task whose grader does not exist."""
    for task in tasks:
        try:
            if task.grader != "judge":
                find_grader(task.grader)
        except ConfigError as error:
            raise ConfigError(f"{task.id}: {error}") from None


def teams_of(config: Config) -> dict[str, TeamConfig]:
    """The named teams and the config's own, under its topology's name; all of them checked."""
    teams = dict(config.teams)
    if config.team:
        own = config.team.topology.rpartition(":")[2]
        own = own if own not in teams else f"{own} (team)"
        if own in teams:
            raise ConfigError(f"teams: `team` itself is called `{own}`; rename this one")
        teams[own] = config.team
    if not teams:
        raise ConfigError(
            "the config names no team: add `team:` or `teams:` (`tacit init` shows how)"
        )
    for name, team in teams.items():
        check_team(team, f"teams.{name}" if name in config.teams else "team")
        if name.endswith(VARIANTS):
            raise ConfigError(f"teams: the plays of another team are saved as `{name}`; rename it")
    for name in config.teams:
        if name in ("trained", "untrained", "train") or name.startswith("eval-"):
            raise ConfigError(f"teams: `{name}` is what training calls its own; rename it")
    return teams


def measured_teams_of(config: Config) -> dict[str, TeamConfig]:
    """`teams_of`, but refuses several samples per task if no agent samples."""
    teams, several = teams_of(config), config.evaluation.samples
    roles = [(team, role) for team in teams.values() for role in team.agents]
    if several > 1 and not any(draws(config, team, role) for team, role in roles):
        raise ConfigError(
            f"evaluation.samples is {several}, but nobody samples: the episodes of a task would "
            "all be the same; give an agent a `temperature`"
        )
    return teams


def answer_form_of(config: Config) -> tuple[str, str]:
    """The grader and the answer instruction of the config's tasks."""
    if known := answer_form(config.tasks.name):
        return known
    (first,) = tasks_of(config.tasks.model_copy(update={"limit": 1}), config.judge)
    return first.grader, first.instruction


def prices_of(config: Config) -> PriceTable | None:
    """The price table. Local models cost 0 unless it says otherwise; an api model must be in it."""
    if config.prices is None:
        return None
    prices = load_prices(config.prices)
    names = config.models_used(config.all_teams.values())
    local = [name for name in names if config.model_named(name).engine != "api"]
    free = dict.fromkeys(local, Price(input=0.0, output=0.0))
    prices = replace(prices, models={**free, **prices.models})
    for name in names:
        prices.of(config.model_named(name).model or name)
    return prices


def is_greedy(config: Config, team: TeamConfig, role: str) -> bool:
    """True if a role always gives the same reply to the same prompt: it is frozen and greedy."""
    return not (team.agents[role].trained or draws(config, team, role))


def draws(config: Config, team: TeamConfig, role: str) -> bool:
    """True if a role samples during evaluation, or has tools whose answers may change."""
    agent = team.agents[role]
    known = find_topology(team.topology).roles.get(role)
    usual = known.temperature if known else 0.0
    sampled = bool(usual if agent.temperature is None else agent.temperature)
    varies = any(tool not in TOOLS for tool in agent.tools)
    return sampled or varies or config.model_named(agent.model).samples


def helpers_of(config: Config, team: TeamConfig) -> frozenset[str]:
    """Roles to leave out to measure what they change; none unless all others are greedy."""
    helpers = helper_roles(team)
    rest = team.agents.keys() - helpers
    comparable = rest and all(is_greedy(config, team, role) for role in rest)
    return helpers if comparable and config.evaluation.without_helpers else frozenset()


@dataclass(frozen=True, slots=True)
class Variants:
    """Other ways in which a team plays the held-out tasks, to measure its helpers and its talk."""

    helpers: frozenset[str] = frozenset()
    """Roles to leave out."""
    speakers: frozenset[str] = frozenset()
    """Roles that may be silent, if talk is to be measured."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """`silent` or `speaking` → why that play is missing."""


def variants_of(config: Config, team: TeamConfig, tasks: Sequence[Task]) -> Variants:
    helpers, measured = helpers_of(config, team), config.evaluation.talk
    if measured is None:
        known = any(task.views or task.data.get("speak") for task in tasks)
        measured = known or find_topology(team.topology).finds_needed
    speakers = frozenset(role for role in team.agents if may_be_silent(team, role))
    if not (measured and speakers):
        return Variants(helpers)
    missing = {}
    if helpers != speakers:
        missing["silent"] = (
            "evaluation.without_helpers is off"
            if not config.evaluation.without_helpers
            else "needs agents that answer, frozen and greedy, and helpers that may all be silent"
        )
    for role in sorted(speakers):
        agent = team.agents[role]
        engine, filtered = config.model_named(agent.model).engine, agent.top_p < 1 or agent.top_k
        if engine == "api":
            missing["speaking"] = f"{role}: an API model cannot be made to speak"
        elif engine == "vllm" and filtered:
            missing["speaking"] = f"{role}: vLLM cannot draw speech alone under top-p or top-k"
    return Variants(helpers, speakers, missing)


@asynccontextmanager
async def open_engines(
    config: Config, teams: Mapping[str, TeamConfig], account: Account | None = None
) -> AsyncIterator[dict[str, Engine]]:
    """One engine for each model that an agent or the judge uses."""
    engines: dict[str, Engine] = {}
    try:
        for name in config.models_used(teams.values()):
            engines[name] = open_engine(name, config.model_named(name), account)
        with gc_frozen():
            yield engines
    finally:
        for engine in engines.values():
            await engine.close()


def grader_of(config: Config, engines: Mapping[str, Engine]) -> Grader:
    """Grades the run's answers: each task's own grader, or the judge if there is one."""
    if config.judge is None:
        return grade
    judge: Grader = lookup("judge", JUDGE, {})(engines[config.judge.model], config.judge)
    return judge


def seat(team: TeamConfig, engines: Mapping[str, Engine], place: str = "team") -> Roster:
    """The team with each role speaking through the engine of its model."""
    by_role = {role: engines[agent.model] for role, agent in team.agents.items()}
    return build_roster(team, by_role, place)
