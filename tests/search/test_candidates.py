"""Candidates have readable names, come once each, and are one edit apart from their parents."""

from typing import Any

import pytest

from tacit.config import Config, Cut, TeamConfig
from tacit.config.file import parse_config
from tacit.errors import ConfigError
from tacit.search.candidates import (
    Candidate,
    Pool,
    first_candidates,
    resolved,
    size_of,
    start_name,
    title_of,
)
from tacit.search.edits import EDITS, neighbours, newcomers
from tacit.team.roster import check_team
from tacit.team.topologies import TOPOLOGIES

HINT = {
    "topology": "hint_actor",
    "agents": {"hinter": {"max_tokens": 80, "trained": True}, "actor": {"max_tokens": 16}},
}
SOLO = {"topology": "solo", "agents": {"actor": {"max_tokens": 16}}}
MODELS = {"small": {}, "large": {}, "far": {"engine": "api", "model": "far"}}


def config_of(**changed: Any) -> Config:
    return parse_config({"team": SOLO, "teams": {"hint": HINT}, **changed})


def team(topology: str, options: dict[str, Any] | None = None, **agents: Any) -> TeamConfig:
    whole = {"topology": topology, "agents": agents, "options": options or {}}
    return TeamConfig.model_validate(whole)


def edits(kind: str, one: TeamConfig, config: Config) -> dict[str, TeamConfig]:
    return dict(EDITS[kind](one, config))


def test_every_shipped_topology_is_filled_from_the_agents_at_hand() -> None:
    pool = {one.name: one.team for one in first_candidates(config_of())}
    assert {one.topology for one in pool.values()} == TOPOLOGIES.keys()
    assert list(pool)[:2] == ["solo", "hint"], "the start team first, under their own names"
    assert len(pool) == len(TOPOLOGIES), "solo and hint_actor are there already"
    critic = pool["critic_actor, 1 round"].agents
    assert critic["critic"].max_tokens == 80, "a helper talks as long as helpers do"
    assert critic["actor"].max_tokens == 16
    debaters = pool["debate ×3, 2 rounds"].agents["debater"]
    assert (debaters.count, debaters.temperature) == (3, 0.7), "greedy ones would agree"
    assert not any(agent.trained for one in pool.values() for agent in one.agents.values())


def test_only_the_configs_own_teams_if_so_asked() -> None:
    config = config_of(search={"start": "own"})
    assert [one.name for one in first_candidates(config)] == ["solo", "hint"]
    assert start_name(parse_config({"teams": {"hint": HINT, "alone": SOLO}})) == "hint"


def test_a_team_of_the_config_that_cannot_be_played_is_an_error_and_no_candidate() -> None:
    broken = {"topology": "debate", "agents": {"debater": {"count": 1}}}
    with pytest.raises(ConfigError, match=r"teams\.odd\.agents\.debater\.count"):
        first_candidates(config_of(teams={"odd": broken}))


@pytest.mark.parametrize(
    ("one", "title"),
    [
        (team("debate", debater={"count": 3}), "debate ×3, 2 rounds"),
        (team("debate", {"shape": "sparse"}, debater={"count": 2}), "debate ×2, 2 rounds, sparse"),
        (team("hint_actor", hinter={"model": "small"}, actor={}), "hint_actor, hinter=small"),
        (team("critic_actor", {"rounds": 1}, actor={}, critic={}), "critic_actor, 1 round"),
        (
            team("debate", debater={"count": 2}, collaborator={}),
            "debate ×2, 2 rounds, + collaborator",
        ),
        (team("solo", actor={"model": "org/name"}), "solo, actor=org-name"),
        (
            team("debate", debater={"count": 2}).model_copy(
                update={"without": [Cut(agent="debater 1", reader="debater 2")], "stop": "agreed"}
            ),
            "debate ×2, 2 rounds, − debater 1 to debater 2, stop agreed",
        ),
    ],
)
def test_names_say_what_a_team_is(one: TeamConfig, title: str) -> None:
    assert title_of(one, usual="pocket") == title


def test_teams_that_play_the_same_are_one_candidate() -> None:
    plain = team("critic_actor", actor={}, critic={})
    spelt = team("critic_actor", {"rounds": 1}, actor={"temperature": 0.0}, critic={"silent": True})
    assert resolved(plain) == resolved(spelt)
    assert resolved(plain) != resolved(team("critic_actor", {"rounds": 2}, actor={}, critic={}))
    pool = Pool(config_of())
    assert pool.add(plain) and not pool.add(spelt)
    longer = team("critic_actor", actor={"max_tokens": 9}, critic={})
    again = pool.add(longer)
    assert again and again.name == "critic_actor, 1 round (2)", "names stay apart"


def test_each_kind_of_edit() -> None:
    config = config_of(models=MODELS)
    debate = team("debate", debater={"count": 3, "max_input_tokens": 99})
    assert [*edits("rounds", debate, config)] == ["rounds 2 → 1", "rounds 2 → 3"]
    assert [*edits("shape", debate, config)] == ["shape full → sparse", "shape full → centralised"]
    assert [*edits("count", debate, config)] == ["debater ×3 → ×2", "debater ×3 → ×4"]
    fewest = team("debate", debater={"count": 2})
    deaf = edits("edge", fewest, config)
    assert [*deaf] == [
        "− debater 1 to debater 2", "− debater 2 to debater 1", "talk ends where answers agree",
    ]  # fmt: skip
    less = deaf["− debater 1 to debater 2"]
    assert less.without == [Cut(agent="debater 1", reader="debater 2")]
    assert edits("edge", less, config)["+ debater 1 to debater 2"] == fewest
    assert deaf["talk ends where answers agree"].stop == "agreed"
    assert not edits("edge", team("solo", actor={}), config)
    assert [*edits("count", fewest, config)] == ["debater ×2 → ×3"], "a debate needs two"
    helped = edits("role", debate, config)["+ collaborator"]
    assert helped.agents["collaborator"].max_tokens == 80
    assert not helped.agents["collaborator"].trained
    assert "collaborator" not in edits("role", helped, config)["− collaborator"].agents
    far = edits("model", debate, config)["debater pocket → far"].agents["debater"]
    assert far.model == "far" and far.max_input_tokens is None
    mixed = team("hint_actor", hinter={"model": "small"}, actor={"model": "large"})
    swapped = edits("role", mixed, config)["hinter and actor swap models"]
    assert [agent.model for agent in swapped.agents.values()] == ["large", "small"]
    others = edits("topology", mixed, config)
    assert len(others) == len(TOPOLOGIES) - 1
    assert others["as critic_actor"].agents["critic"].model == "small", "the helper's model"
    for kind in EDITS:
        for changed in edits(kind, mixed, config).values():
            check_team(changed)


def test_numbers_change_by_one_and_large_ones_by_half() -> None:
    assert [neighbours(n) for n in (1, 2, 4, 8)] == [[2], [1, 3], [3, 5], [4, 16]]


def test_newcomers_are_new_few_and_the_same_every_time() -> None:
    config = config_of(search={"edits": ["rounds", "count", "shape"]})
    leaders = [one for one in first_candidates(config) if one.name.startswith(("deb", "critic"))]

    def made(seed: int, turn: int) -> list[Candidate]:
        seeded = config.model_copy(update={"seed": seed})
        return newcomers(leaders, Pool(seeded, first_candidates(seeded)), seeded, 4, turn)

    found = made(seed=0, turn=2)
    assert len({one.name for one in found}) == 4
    assert {one.parent for one in found} == {leader.name for leader in leaders}
    assert [one.name for one in found] == [one.name for one in made(seed=0, turn=2)]
    draws = {tuple(one.name for one in made(seed, turn)) for seed in range(4) for turn in (2, 4)}
    assert len(draws) > 1, "another seed or turn tries other edits first"
    few = newcomers(leaders[:1], Pool(config, first_candidates(config)), config, 99, 0)
    assert [one.edit for one in few] == ["rounds 1 → 2"], "a critic has no other edit of these"


def test_no_edit_no_newcomer() -> None:
    config = config_of(search={"edits": ["shape"]})
    pool = first_candidates(config)
    assert newcomers(pool[:1], Pool(config, pool), config, 4, 0) == []


def test_more_rounds_and_agents_are_a_larger_team() -> None:
    small = team("debate", debater={"count": 2})
    assert size_of(team("debate", {"rounds": 4}, debater={"count": 3})) == 3 * size_of(small)
