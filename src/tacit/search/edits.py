"""One edit of a team: a role, a round, who reads whom, how many, which model, which topology."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations
from typing import Any, get_args

from tacit.config import AgentConfig, Config, Cut, TeamConfig
from tacit.engine.base import derive_seed
from tacit.search.candidates import (
    COUNTED,
    Candidate,
    Pool,
    fill,
    filled,
    known_agents,
    options_of,
    parameters,
)
from tacit.team.roster import agent_names, find_topology
from tacit.team.topologies import TOPOLOGIES

Edit = tuple[str, TeamConfig]
"""What was changed, in words, and the team it gives."""


def roles(team: TeamConfig, config: Config) -> Iterator[Edit]:
    """Add or drop a role that the topology can do without, or let two roles swap models."""
    known = known_agents([team, *config.all_teams.values()])
    for name, role in find_topology(team.topology).roles.items():
        if role.optional and name not in team.agents:
            agent = fill(name, role, known).model_copy(update={"trained": False})
            yield f"+ {name}", _with_agents(team, {**team.agents, name: agent})
        elif role.optional:
            rest = {other: agent for other, agent in team.agents.items() if other != name}
            yield f"− {name}", _with_agents(team, rest)
    for one, other in combinations(team.agents, 2):
        first, second = team.agents[one], team.agents[other]
        if first.model != second.model:
            swapped = {
                one: _on_model(first, second.model, config),
                other: _on_model(second, first.model, config),
            }
            yield f"{one} and {other} swap models", _with_agents(team, {**team.agents, **swapped})


def rounds(team: TeamConfig, config: Config) -> Iterator[Edit]:
    """More or fewer rounds, samples, generations or members of a population."""
    for name, value in options_of(team).items():
        if name in COUNTED and isinstance(value, int):
            for number in neighbours(value):
                yield f"{name} {value} → {number}", _with_option(team, name, number)


def shape(team: TeamConfig, config: Config) -> Iterator[Edit]:
    """Another value of an option that takes one of a few words, such as who sees whom."""
    for name, parameter in parameters(team).items():
        now = options_of(team).get(name)
        words = [one for one in get_args(parameter.annotation) if isinstance(one, str)]
        for word in words:
            if word != now:
                yield f"{name} {now} → {word}", _with_option(team, name, word)


def edge(team: TeamConfig, config: Config) -> Iterator[Edit]:
    """One of several alike reads another no longer, or again; or talk ends where they agree."""
    names = [agent_names(role, agent.count) for role, agent in team.agents.items()]
    for agent, reader in (pair for alike in names for pair in permutations(alike, 2)):
        cut = Cut(agent=agent, reader=reader)
        rest = [one for one in team.without if one != cut]
        if len(rest) < len(team.without):
            yield f"+ {agent} to {reader}", team.model_copy(update={"without": rest})
        else:
            less = {"without": [*team.without, cut]}
            yield f"− {agent} to {reader}", team.model_copy(update=less)
    if team.stop is None and any(len(alike) > 1 for alike in names):
        yield "talk ends where answers agree", team.model_copy(update={"stop": "agreed"})


def count(team: TeamConfig, config: Config) -> Iterator[Edit]:
    """One agent more or fewer, where the topology takes several."""
    known = find_topology(team.topology).roles
    for name, agent in team.agents.items():
        if name in known and known[name].many:
            for number in (agent.count - 1, agent.count + 1):
                if number >= known[name].least:
                    changed = agent.model_copy(update={"count": number})
                    agents = {**team.agents, name: changed}
                    yield f"{name} ×{agent.count} → ×{number}", _with_agents(team, agents)


def model(team: TeamConfig, config: Config) -> Iterator[Edit]:
    """Another model of the config for one role."""
    for name, agent in team.agents.items():
        for other in config.models:
            if other != agent.model:
                changed = _on_model(agent, other, config)
                agents = {**team.agents, name: changed}
                yield f"{name} {agent.model} → {other}", _with_agents(team, agents)


def topology(team: TeamConfig, config: Config) -> Iterator[Edit]:
    """Another shipped topology, filled with this team's agents."""
    known = known_agents([team])
    for name in TOPOLOGIES:
        if name != team.topology:
            yield f"as {name}", filled(team, name, known)


EDITS: dict[str, Callable[[TeamConfig, Config], Iterator[Edit]]] = {
    "role": roles,
    "rounds": rounds,
    "shape": shape,
    "edge": edge,
    "count": count,
    "model": model,
    "topology": topology,
}


def neighbours(number: int) -> list[int]:
    """One less and one more; half and twice as many from 5 on."""
    near = [number - 1, number + 1] if number < 5 else [number // 2, 2 * number]
    return [one for one in near if one >= 1]


def newcomers(
    leaders: Sequence[Candidate], pool: Pool, config: Config, most: int, turn: int
) -> list[Candidate]:
    """At most so many new candidates, one edit away from the leaders, who take turns.

    Which edits come first is drawn by the config's seed, and is the same in a resumed search.
    """
    found: list[Candidate] = []
    ways = {leader.name: _edits(leader, config, turn) for leader in leaders}
    while len(found) < most and ways:
        for leader in leaders:
            if leader.name in ways and len(found) < most:
                new = next(_added(leader, ways[leader.name], pool), None)
                if new:
                    found.append(new)
                else:
                    del ways[leader.name]
    return found


def _edits(leader: Candidate, config: Config, turn: int) -> Iterator[Edit]:
    allowed = dict.fromkeys(config.search.edits)
    every = [edit for kind in allowed for edit in EDITS[kind](leader.team, config)]
    seed = (config.seed, turn, leader.name)
    return iter(sorted(every, key=lambda edit: derive_seed(*seed, edit[0])))


def _added(leader: Candidate, ways: Iterator[Edit], pool: Pool) -> Iterator[Candidate]:
    for words, team in ways:
        if new := pool.add(team, parent=leader.name, edit=words):
            yield new


def _with_agents(team: TeamConfig, agents: dict[str, AgentConfig]) -> TeamConfig:
    return team.model_copy(update={"agents": agents})


def _with_option(team: TeamConfig, name: str, value: Any) -> TeamConfig:
    return team.model_copy(update={"options": {**team.options, name: value}})


def _on_model(agent: AgentConfig, name: str, config: Config) -> AgentConfig:
    """The agent with another model; the prompt of an api model cannot be counted beforehand."""
    api = config.model_named(name).engine == "api"
    return agent.model_copy(update={"model": name, **({"max_input_tokens": None} if api else {})})
