"""Builds a team from its configuration, which is checked before any model loads."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tacit.config import Cut, TeamConfig
from tacit.engine.base import Engine
from tacit.errors import ConfigError, TacitError, TopologyError, first_error
from tacit.registry import did_you_mean, lookup
from tacit.team.prompts import FORMS
from tacit.team.setting import Agent, Setting
from tacit.team.team import Team
from tacit.team.tools import open_toolbox
from tacit.types import Call, Episode, Message, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role that a topology asks for."""

    part: str
    many: bool = False
    least: int = 1
    may_be_silent: bool = False
    optional: bool = False
    temperature: float = 0.0
    """Default for its agents; above 0 where several samples of one agent must differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Who speaks when: an async function and the roles it asks for."""

    play: Callable[..., Awaitable[Message]]
    roles: Mapping[str, Role] = field(default_factory=dict)
    """None: any, as the config names them."""
    summary: str = ""
    check: Callable[[TeamConfig], None] = lambda config: None
    """Raises a ConfigError for mistakes that only this topology can detect."""
    repeats: Callable[[TeamConfig], bool] = lambda config: False
    """True if an agent that may be silent is asked several times in an episode."""
    finds_needed: bool = False
    """True if it sets `team.needed` itself, even if the task does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """A team ready to play."""

    agents: tuple[Agent, ...]
    topology: Topology
    options: Mapping[str, Any] = field(default_factory=dict)
    without: frozenset[Cut] = frozenset()
    stop: str | None = None
    remote: Callable[..., Awaitable[Episode]] | None = None
    """Called with this roster and a job if another process plays and grades the episodes."""

    def seat(
        self, task: Task, setting: Setting, on_call: Callable[[Call], None] | None = None
    ) -> Team:
        return Team(self.agents, task, setting, on_call, self.without, self.stop)

    async def play(self, team: Team) -> Message:
        """The team's answer. Exceptions of the topology's own code become a TopologyError."""
        try:
            answer = await self.topology.play(team.task, team, **self.options)
        except TacitError:
            raise
        except Exception as error:
            raise _located(error) from error
        if not isinstance(answer, Message):
            said = f"it must return the answering Message, not {type(answer).__name__}"
            raise TopologyError(getattr(self.topology.play, "__name__", "topology"), said)
        return answer


def _located(raised: Exception) -> TacitError:
    """A TopologyError that names the topology's line, or the TacitError inside a group."""
    frames = extract_tb(raised.__traceback__)
    place = frames[min(1, len(frames) - 1)]  # the first is `Roster.play`
    error = first_error(raised)
    if isinstance(error, TacitError):
        return error
    where = f"{Path(place.filename).name}, line {place.lineno}: {type(error).__name__}"
    return TopologyError(where, str(error))


def find_topology(name: str) -> Topology:
    """A registered topology, or `module:name` of a `Topology` or a plain async function."""
    from tacit.team.topologies import TOPOLOGIES

    found = lookup("topology", name, TOPOLOGIES)
    if isinstance(found, Topology):
        return found
    if not inspect.iscoroutinefunction(found):
        raise ConfigError(f"topology `{name}` must be an async function (task, team) -> Message")
    return Topology(play=found, roles={})


def check_team(config: TeamConfig, place: str = "team") -> Topology:
    """Check what can be checked of a team's config without a model; returns its topology."""
    topology = find_topology(config.topology)
    _check_roles(config, topology, place)
    _check_options(config, topology, place)
    topology.check(config)
    _check_cuts(config, place)
    for name, agent in config.agents.items():
        if agent.tools:
            open_toolbox(agent, config.servers, f"{place}.agents.{name}")
    return topology


def _check_options(config: TeamConfig, topology: Topology, place: str) -> None:
    """Check names against the function's parameters and values against their annotations."""
    known = dict(list(inspect.signature(topology.play).parameters.items())[2:])
    for option, value in config.options.items():
        if option not in known:
            hint = did_you_mean(option, known) if known else "it takes none"
            raise ConfigError(
                f"{place}.options.{option}: {config.topology} has no such option; {hint}"
            )
        _check_value(f"{place}.options.{option}", value, known[option].annotation)
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in config.options:
            raise ConfigError(f"{place}.options: {config.topology} needs `{option}: …`")


def _check_value(place: str, value: Any, annotation: Any) -> None:
    if annotation is not inspect.Parameter.empty and not isinstance(annotation, str):
        try:
            TypeAdapter(annotation).validate_python(value, strict=True)
        except ValidationError as error:
            complaint = error.errors()[0]["msg"].lower()
            raise ConfigError(f"{place}: {complaint}, got {value!r}") from None
    if isinstance(value, int) and not isinstance(value, bool) and value < 1:
        raise ConfigError(f"{place}: must be at least 1, got {value}")


def _check_roles(config: TeamConfig, topology: Topology, place: str) -> None:
    if not topology.roles:
        return
    for name, agent in config.agents.items():
        if name not in topology.roles:
            hint = did_you_mean(name, topology.roles)
            raise ConfigError(f"{place}.agents.{name}: {config.topology} has no such role; {hint}")
        role = topology.roles[name]
        if agent.count > 1 and not role.many:
            raise ConfigError(f"{place}.agents.{name}.count: {config.topology} takes one {name}")
        if agent.count < role.least:
            raise ConfigError(
                f"{place}.agents.{name}.count: {config.topology} needs at least {role.least}"
            )
    for name, role in topology.roles.items():
        if name not in config.agents and not role.optional:
            raise ConfigError(f"{place}.agents: {config.topology} needs an agent `{name}`")


def _check_cuts(config: TeamConfig, place: str) -> None:
    known = [
        name
        for role, agent in config.agents.items()
        for name in dict.fromkeys((role, *agent_names(role, agent.count)))
    ]
    for cut in config.without:
        for name in (cut.agent, cut.reader):
            if name is not None and name not in known:
                hint = did_you_mean(name, known)
                raise ConfigError(f"{place}.without: the team has no agent `{name}`; {hint}")


def agent_names(role: str, count: int) -> list[str]:
    """Agents are named after their role, and numbered if there are several."""
    return [role] if count == 1 else [f"{role} {number}" for number in range(1, count + 1)]


def has_role(agent: str, role: str) -> bool:
    """True if an agent of this name has the role."""
    return agent == role or (agent.startswith(f"{role} ") and agent[len(role) + 1 :].isdigit())


def build_roster(config: TeamConfig, engines: Mapping[str, Engine], place: str = "team") -> Roster:
    """The agents of a team. `engines` maps each role to the engine that speaks for it."""
    topology = check_team(config, place)
    agents = []
    for name, agent in config.agents.items():
        role = topology.roles.get(name) or Role(part=_own_part(name, config))
        agents += [
            Agent(
                name=agent_name,
                role=name,
                engine=engines[name],
                config=agent,
                part=role.part,
                may_be_silent=may_be_silent(config, name),
                temperature=role.temperature,
                form=config.prompts,
                toolbox=open_toolbox(agent, config.servers, place) if agent.tools else None,
            )
            for agent_name in agent_names(name, agent.count)
        ]
    return Roster(
        agents=tuple(agents),
        topology=topology,
        options=config.options,
        without=frozenset(config.without),
        stop=config.stop,
    )


def may_be_silent(team: TeamConfig, role: str) -> bool:
    known, own = find_topology(team.topology).roles.get(role), team.agents[role].silent
    return bool(known and known.may_be_silent) if own is None else own


def helper_roles(team: TeamConfig) -> frozenset[str]:
    """Roles without which the topology still works, because it lets them be silent."""
    known = find_topology(team.topology).roles
    optional = {role for role in team.agents if role in known and known[role].may_be_silent}
    return frozenset(optional | {role for role, agent in team.agents.items() if agent.silent})


def _own_part(role: str, team: TeamConfig) -> str:
    """The part of a role that the topology does not name: a helper's if it may be silent."""
    if role in FORMS[team.prompts][0]:
        return role
    return "hinter" if team.agents[role].silent else "solver"
