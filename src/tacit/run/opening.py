"""What every command opens first: tasks, engines and teams, checked before anything heavy loads."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from tacit.config import Config, JudgeConfig, TaskConfig, TeamConfig
from tacit.economy.ledger import Price, PriceTable, load_prices
from tacit.engine.base import Account, Engine
from tacit.engine.factory import open_engine
from tacit.engine.gc_freeze import undisturbed
from tacit.errors import ConfigError
from tacit.grading import find_grader, grade
from tacit.grading.judge import Grader, Judge
from tacit.run.folder import WITHOUT
from tacit.tasks import answer_form, load_tasks
from tacit.team.prompts import build
from tacit.team.roster import Roster, build_roster, check_team, find_topology
from tacit.types import Task


def tasks_of(config: TaskConfig, judge: JudgeConfig | None = None) -> list[Task]:
    tasks = load_tasks(
        config.name,
        split=config.split,
        folder=config.folder,
        hub=config.hub,
        limit=config.limit,
        offset=config.offset,
        shuffle_seed=config.shuffle_seed,
        level=config.level,
        subject=config.subject,
        allow_canaried=config.allow_canaried,
        **config.options,
    )
    check_graders(tasks)
    if judge is None and any(task.grader == "judge" for task in tasks):
        raise ConfigError(f"{config.name}: its tasks are judged: add `judge:` with a rubric")
    return tasks


def check_graders(tasks: Iterable[Task]) -> None:
    """Refuse tasks whose grader there is not, by the first of them."""
    first: dict[str, str] = {}
    for task in tasks:
        first.setdefault(task.grader, task.id)
    for grader, task_id in first.items():
        if grader != "judge":
            try:
                find_grader(grader)
            except ConfigError as error:
                raise ConfigError(f"{task_id}: {error}") from None


def teams_of(config: Config) -> dict[str, TeamConfig]:
    """The named teams, or the one team under its topology's name; every one checked."""
    teams = dict(config.teams)
    if config.team:
        own = config.team.topology.rpartition(":")[2]
        own = own if own not in teams else f"{own} (team)"
        if own in teams:
            raise ConfigError(f"teams: `{own}` is what `team` is called; give it another name")
        teams[own] = config.team
    if not teams:
        raise ConfigError(
            "the config names no team: add `team:` or `teams:` (`tacit init` shows how)"
        )
    for name, team in teams.items():
        check_team(team, f"teams.{name}" if name in config.teams else "team")
        if name.endswith(WITHOUT):
            raise ConfigError(f"teams: `{name}` is what another's plays are called; rename it")
    for name in config.teams:
        if name in ("trained", "untrained", "train") or name.startswith("eval-"):
            raise ConfigError(f"teams: `{name}` is what training calls its own; rename it")
    return teams


def measured_teams_of(config: Config) -> dict[str, TeamConfig]:
    """The same, where someone samples if several episodes of a task are asked for."""
    teams, several = teams_of(config), config.evaluation.samples
    roles = [(team, role) for team in teams.values() for role in team.agents]
    if several > 1 and not any(_draws(config, team, role) for team, role in roles):
        raise ConfigError(
            f"evaluation.samples is {several}, but nobody samples: the episodes of a task would "
            "all be the same; give an agent a `temperature`"
        )
    return teams


def answer_form_of(config: Config) -> tuple[str, str]:
    """How questions like the config's tasks are graded, and how they are to be answered."""
    if known := answer_form(config.tasks.name):
        return known
    (first,) = tasks_of(config.tasks.model_copy(update={"limit": 1}), config.judge)
    return first.grader, first.instruction


def prices_of(config: Config) -> PriceTable | None:
    """The price table, with a price for every model that some agent uses: a local one's is 0."""
    if config.prices is None:
        return None
    prices = load_prices(config.prices)
    teams = [*([config.team] if config.team else []), *config.teams.values()]
    names = [agent.model for team in teams for agent in team.agents.values()]
    names += [config.judge.model] if config.judge else []
    local = [name for name in names if config.model_named(name).engine != "api"]
    free = dict.fromkeys(local, Price(input=0.0, output=0.0))
    prices = replace(prices, models={**free, **prices.models})
    for name in names:
        prices.of(config.model_named(name).model or name)
    return prices


def is_greedy(config: Config, team: TeamConfig, role: str) -> bool:
    """Whether a role says the same each time it is asked the same: frozen, and not sampling."""
    return not (team.agents[role].trained or _draws(config, team, role))


def _draws(config: Config, team: TeamConfig, role: str) -> bool:
    """Whether a role samples when it is measured."""
    agent = team.agents[role]
    known = find_topology(team.topology).roles.get(role)
    usual = known.temperature if known else 0.0
    sampled = bool(usual if agent.temperature is None else agent.temperature)
    return sampled or config.model_named(agent.model).samples


def helpers_of(config: Config, team: TeamConfig) -> frozenset[str]:
    """Roles that can be left out to see what they change; none where the rest would not be greedy.

    A helper is a role whose silence its topology provides for. Whoever remains must answer.
    """
    known = find_topology(team.topology).roles
    helpers = {
        role
        for role, agent in team.agents.items()
        if (role in known and known[role].may_be_silent) or agent.silent
    }
    rest = team.agents.keys() - helpers
    comparable = rest and all(is_greedy(config, team, role) for role in rest)
    return frozenset(helpers) if comparable and config.evaluation.without_helpers else frozenset()


@asynccontextmanager
async def open_engines(
    config: Config, teams: Mapping[str, TeamConfig], account: Account | None = None
) -> AsyncIterator[dict[str, Engine]]:
    """One engine for each model that some agent or the judge uses."""
    names = dict.fromkeys(agent.model for team in teams.values() for agent in team.agents.values())
    if config.judge:
        names[config.judge.model] = None
    engines: dict[str, Engine] = {}
    try:
        for name in names:
            engines[name] = open_engine(name, config.model_named(name), account)
        with undisturbed():
            yield engines
    finally:
        for engine in engines.values():
            await engine.close()


def grader_of(config: Config, engines: Mapping[str, Engine]) -> Grader:
    """What grades the run's answers: each task's own grader, and the judge where there is one."""
    return Judge(engines[config.judge.model], config.judge, build) if config.judge else grade


def seat(team: TeamConfig, engines: Mapping[str, Engine], place: str = "team") -> Roster:
    """A roster whose roles speak through the engine of their model."""
    by_role = {role: engines[agent.model] for role, agent in team.agents.items()}
    return build_roster(team, by_role, place)
