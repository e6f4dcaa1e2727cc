"""The teams a search chooses among: what they are called, when two are the same, the first ones.

Candidates are played as they are, untrained: `trained` marks are taken off and matter only once
there is a winner.
"""

import inspect
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tacit.config import AgentConfig, Config, TeamConfig
from tacit.errors import ConfigError
from tacit.run.opening import teams_of
from tacit.team.roster import Role, Topology, check_team, find_topology, may_be_silent
from tacit.team.topologies import TOPOLOGIES

COUNTED = ("rounds", "samples", "generations", "population")
"""Options of topologies that say how often something is done."""
PLURAL_AGENTS = 3
"""Agents of a role that needs several, in a topology that the config does not have."""
VARIED = 0.7
"""Temperature of agents that vote, in such a topology: greedy ones would all say the same."""
KEPT = {"model", "max_tokens", "max_input_tokens", "top_p", "top_k"}
"""Settings that an agent takes with it into another role."""

LONGEST = 80
"""Characters of a name, which is a file's too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    name: str
    team: TeamConfig
    parent: str | None = None
    """The candidate it was made from."""
    edit: str = ""
    """How it differs from that one, in words."""


@dataclass(frozen=True, slots=True)
class Known:
    """An agent of a team at hand, from which another team can be filled."""

    role: str
    part: str
    may_be_silent: bool
    agent: AgentConfig


def known_agents(teams: Iterable[TeamConfig]) -> list[Known]:
    return [
        Known(name, role.part if role else "", may_be_silent(team, name), agent)
        for team in teams
        for name, agent in team.agents.items()
        for role in [find_topology(team.topology).roles.get(name)]
    ]


def filled(team: TeamConfig, topology: str, known: Iterable[Known]) -> TeamConfig:
    """Another topology for the models of `team`, each role filled from the agent most like it."""
    known = list(known)
    roles = TOPOLOGIES[topology].roles.items()
    agents = {name: fill(name, role, known) for name, role in roles if not role.optional}
    made = TeamConfig(topology=topology, agents=agents, prompts=team.prompts)
    made.servers.update(team.servers)
    return made


def fill(name: str, role: Role, known: Iterable[Known]) -> AgentConfig:
    """An agent for a role: of the same name, else with the same part, else a like voice."""
    best = max(known, key=lambda one: _likeness(one, name, role))
    if best.role == name and best.part == role.part:
        return best.agent
    kept = best.agent.model_dump(include=KEPT)
    several = role.many and role.least > 1
    votes = several and not role.may_be_silent
    count = PLURAL_AGENTS if several else 1
    return AgentConfig(**kept, count=count, temperature=VARIED if votes else None)


def _likeness(one: Known, name: str, role: Role) -> tuple[bool, bool, bool]:
    return one.role == name, one.part == role.part, one.may_be_silent == role.may_be_silent


def first_candidates(config: Config) -> list[Candidate]:
    """The config's own teams, the start team first, and the shipped topologies if asked for."""
    own = {name: untrained(team) for name, team in teams_of(config).items()}
    start = start_name(config)
    ordered = {start: own[start], **own}
    pool = Pool(config)
    for name, team in ordered.items():
        pool.add(team, name=name)
    if config.search.start == "shipped":
        known = known_agents(ordered.values())
        for topology in TOPOLOGIES:
            pool.add(filled(ordered[start], topology, known))
    return pool.candidates


def start_name(config: Config) -> str:
    """What the start team is called: the config's own, or the first of its teams."""
    teams = teams_of(config)
    own = next((name for name, team in teams.items() if team is config.team), None)
    return own or next(iter(teams))


def untrained(team: TeamConfig) -> TeamConfig:
    agents = {n: a.model_copy(update={"trained": False}) for n, a in team.agents.items()}
    return team.model_copy(update={"agents": agents})


class Pool:
    """Candidates without duplicates, each under a name of its own."""

    def __init__(self, config: Config, candidates: Iterable[Candidate] = ()) -> None:
        self.candidates = list(candidates)
        self._usual = usual_model(config)
        self._seen = {resolved(one.team) for one in self.candidates}

    def add(
        self, team: TeamConfig, *, name: str = "", parent: str | None = None, edit: str = ""
    ) -> Candidate | None:
        """The new candidate; None if the pool has that team, or it is none that can be played."""
        try:
            check_team(team, name or "candidate")
        except ConfigError:
            if name:
                raise
            return None
        if (key := resolved(team)) in self._seen:
            return None
        self._seen.add(key)
        title = self._free(name or title_of(team, self._usual))
        self.candidates.append(Candidate(name=title, team=team, parent=parent, edit=edit))
        return self.candidates[-1]

    def _free(self, title: str) -> str:
        taken = {one.name for one in self.candidates}
        numbered = (f"{title} ({number})" for number in range(2, len(taken) + 3))
        return title if title not in taken else next(one for one in numbered if one not in taken)


def usual_model(config: Config) -> str:
    """The model that most agents of the config have; names need not mention it."""
    models = [a.model for team in config.all_teams.values() for a in team.agents.values()]
    return Counter(models).most_common(1)[0][0]


def resolved(team: TeamConfig) -> str:
    """The same for teams that play the same: every default is filled in."""
    topology = find_topology(team.topology)
    agents = {
        name: agent.model_dump(mode="json")
        | {"silent": may_be_silent(team, name), "temperature": _temperature(topology, name, agent)}
        for name, agent in team.agents.items()
    }
    whole = team.model_dump(mode="json") | {"options": options_of(team), "agents": agents}
    return json.dumps(whole, sort_keys=True, ensure_ascii=False)


def _temperature(topology: Topology, name: str, agent: AgentConfig) -> float:
    role = topology.roles.get(name)
    usual = role.temperature if role else 0.0
    return usual if agent.temperature is None else agent.temperature


def parameters(team: TeamConfig) -> dict[str, inspect.Parameter]:
    """The options that a team's topology takes."""
    found = inspect.signature(find_topology(team.topology).play).parameters
    return dict(list(found.items())[2:])


def options_of(team: TeamConfig) -> dict[str, Any]:
    """A team's options with the defaults of those not given."""
    known = {n: p.default for n, p in parameters(team).items() if p.default is not p.empty}
    return {**known, **team.options}


def title_of(team: TeamConfig, usual: str) -> str:
    """A readable name that is also a file's. Example: `debate ×3, 2 rounds, + collaborator`."""
    roles = find_topology(team.topology).roles
    parts = [team.topology.rpartition(":")[2] + _counts(team)]
    defaults = {name: one.default for name, one in parameters(team).items()}
    for name, value in options_of(team).items():
        if name in COUNTED:
            several = name if value != 1 else name.removesuffix("s")
            parts.append(f"population {value}" if name == "population" else f"{value} {several}")
        elif value != defaults.get(name):
            parts.append(str(value))
    parts += [f"+ {name}" for name in team.agents if name in roles and roles[name].optional]
    parts += [f"{name}={a.model}" for name, a in team.agents.items() if a.model != usual]
    parts += [f"− {cut}".replace("`", "") for cut in team.without]
    parts += [f"stop {team.stop}"] if team.stop else []
    title = ", ".join(parts).replace("/", "-").replace("\\", "-").replace("\0", "")
    return title[:LONGEST].rstrip()


def _counts(team: TeamConfig) -> str:
    roles = find_topology(team.topology).roles
    many = {
        name: agent.count
        for name, agent in team.agents.items()
        if agent.count > 1 or (name in roles and roles[name].least > 1)
    }
    if len(many) == 1:
        return f" ×{next(iter(many.values()))}"
    return "".join(f", {name} ×{count}" for name, count in many.items())


def size_of(team: TeamConfig) -> float:
    """About how many calls an episode takes, to guess the cost of an edited team."""
    options = options_of(team)
    times = [v for n, v in options.items() if n in COUNTED and isinstance(v, int)]
    size = float(sum(agent.count for agent in team.agents.values()))
    for count in times:
        size *= count
    return size
