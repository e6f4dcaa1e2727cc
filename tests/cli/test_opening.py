"""What can be said of a config's teams before anything is opened."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.cli.commands import views_of
from tacit.config import Config
from tacit.config.file import parse_config
from tacit.errors import ConfigError
from tacit.run.opening import Variants, helpers_of, is_greedy, prices_of, teams_of, variants_of
from tacit.types import Task, Usage

FAR = {"engine": "api", "model": "far-id", "base_url": "http://localhost:1/v1"}


def config(topology: str, models: dict[str, Any] | None = None, **agents: Any) -> Config:
    team = {"topology": topology, "agents": agents}
    return parse_config({"team": team, "models": models or {}})


def helpers(topology: str, models: dict[str, Any] | None = None, **agents: Any) -> set[str]:
    whole = config(topology, models, **agents)
    assert whole.team is not None
    return set(helpers_of(whole, whole.team))


def test_helpers_are_those_whose_silence_a_topology_provides_for() -> None:
    assert helpers("hint_actor", hinter={}, actor={}) == {"hinter"}
    assert helpers("hint_actor", hinter={"silent": False, "trained": True}, actor={}) == {"hinter"}
    assert helpers("critic_actor", actor={}, critic={"trained": True}) == {"critic"}
    assert helpers("debate", debater={"count": 2}, collaborator={}) == {"collaborator"}
    assert helpers("debate", debater={"count": 2}) == set()
    assert helpers("solo", actor={}) == set()
    assert helpers("dialogue", agent={"count": 2}) == set(), "nobody would be left to answer"


def test_nobody_is_left_out_where_the_rest_would_not_answer_the_same_again() -> None:
    assert helpers("hint_actor", hinter={}, actor={"temperature": 0.7}) == set()
    assert helpers("hint_actor", hinter={}, actor={"trained": True}) == set()
    assert helpers("hint_actor", {"far": FAR}, hinter={}, actor={"model": "far"}) == {"hinter"}
    sampling = {"far": {**FAR, "parameters": {"temperature": None}}}
    assert helpers("hint_actor", sampling, hinter={}, actor={"model": "far"}) == set()


def test_leaving_helpers_out_can_be_switched_off() -> None:
    whole = config("hint_actor", hinter={}, actor={})
    off = whole.evaluation.model_copy(update={"without_helpers": False})
    assert whole.team is not None
    assert not helpers_of(whole.model_copy(update={"evaluation": off}), whole.team)


PLAIN = Task(id="a", question="?", answer="1", grader="math")
PRIVATE = Task(id="a", question="?", answer="1", grader="math", views={"hinter": "it is 1"})


def variants(
    task: Task, models: dict[str, Any] | None = None, talk: bool | None = None, **agents: Any
) -> Variants:
    whole = config("hint_actor", models, **({"hinter": {}, "actor": {}} | agents))
    settings = whole.evaluation.model_copy(update={"talk": talk})
    assert whole.team is not None
    return variants_of(whole.model_copy(update={"evaluation": settings}), whole.team, [task])


def test_talk_is_measured_where_tasks_have_views_or_a_truth_or_the_config_says_so() -> None:
    hinter = frozenset({"hinter"})
    assert variants(PLAIN) == variants(PRIVATE, talk=False) == Variants(hinter)
    assert variants(PRIVATE) == variants(PLAIN, talk=True) == Variants(hinter, hinter)
    told = replace(PLAIN, data={"speak": {"hinter": False}})
    assert variants(told) == Variants(hinter, hinter)


def test_views_given_to_play_are_for_agents_that_there_are_and_each_given_once() -> None:
    teams = {"alone": {"topology": "solo", "agents": {"actor": {}}}}
    team = {"topology": "debate", "agents": {"debater": {"count": 2}, "collaborator": {}}}
    whole = parse_config({"team": team, "teams": {**teams, "again": teams["alone"]}})
    given = ["debater=a = b", "debater 2=c", "actor=d"]
    assert views_of(given, whole) == {"debater": "a = b", "debater 2": "c", "actor": "d"}
    for wrong, said in (
        (["=x"], "unknown agent ``: known: actor, collaborator, debater, debater 1, debater 2"),
        (["actor"], "play: --view 'actor': write it as agent=text"),
        (["actor= "], "play: --view 'actor= ': write it as agent=text"),
        (["actor=a", "actor=b"], "play: --view actor is given twice: write it once"),
    ):
        with pytest.raises(ConfigError) as error:
            views_of(wrong, whole)
        assert str(error.value) == said


def test_talk_is_measured_where_the_topology_finds_the_truth() -> None:
    whole = config("tester", actor={}, tester={})
    assert whole.team is not None
    tester = frozenset({"tester"})
    assert variants_of(whole, whole.team, [PLAIN]) == Variants(tester, tester)


def test_a_team_in_which_nobody_may_be_silent_has_no_talk_to_measure() -> None:
    assert variants(PRIVATE, hinter={"silent": False}).speakers == frozenset()


def test_what_cannot_be_played_has_a_reason() -> None:
    far = variants(PRIVATE, {"far": FAR}, hinter={"model": "far"})
    assert far.missing == {"speaking": "hinter: an API model cannot be made to speak"}
    served = {"far": {"engine": "vllm", "path": "x"}}
    assert (
        "top-p"
        in variants(PRIVATE, served, hinter={"model": "far", "top_p": 0.9}).missing["speaking"]
    )
    assert not variants(PRIVATE, served, hinter={"model": "far"}).missing
    drawn = variants(PRIVATE, actor={"temperature": 1.0})
    assert drawn.speakers == {"hinter"} and "frozen and greedy" in drawn.missing["silent"]


def test_a_topologys_own_temperature_counts_unless_an_agent_has_one() -> None:
    for agent, expected in (({}, False), ({"temperature": 0.0}, True)):
        whole = config("self_consistency", actor=agent)
        assert whole.team is not None
        assert is_greedy(whole, whole.team, "actor") is expected


def test_a_team_cannot_be_called_what_anothers_plays_are() -> None:
    solo = {"topology": "solo", "agents": {"actor": {}}}
    for name in ("a without helpers", "a made to speak", "a weights alone", "a reworded"):
        whole = parse_config({"teams": {"a": solo, name: solo}})
        with pytest.raises(ConfigError, match=rf"`{name}`.*rename it"):
            teams_of(whole)


@pytest.mark.parametrize("name", ["untrained", "trained", "train", "eval-000001"])
def test_names_that_training_takes_are_refused_by_every_command(name: str) -> None:
    solo = {"topology": "solo", "agents": {"actor": {}}}
    with pytest.raises(ConfigError, match=f"teams: `{name}` is what training calls its own"):
        teams_of(parse_config({"teams": {name: solo}}))


def test_a_local_model_costs_nothing_unless_the_table_says_so(tmp_path: Path) -> None:
    table, tree = tmp_path / "prices.yaml", {"team": {"topology": "solo", "agents": {"actor": {}}}}
    prices = {}
    for name, models in (("left out", "{}"), ("given", "{pocket: {input: 1, output: 2}}")):
        table.write_text(f"date: 2026-01-01\nmodels: {models}\n")
        found = prices_of(parse_config({**tree, "prices": str(table)}))
        assert found is not None
        prices[name] = found.of("pocket").of(Usage(generated=1_000_000))
    assert prices == {"left out": 0.0, "given": 2.0}


def test_every_model_needs_its_price_the_judge_too(tmp_path: Path) -> None:
    table = tmp_path / "prices.yaml"
    table.write_text("date: 2026-01-01\nmodels: {pocket: {input: 0, output: 0}}\n")
    tree = {
        "team": {"topology": "solo", "agents": {"actor": {}}},
        "models": {"far": FAR},
        "prices": str(table),
    }
    assert prices_of(parse_config(tree)) is not None
    with pytest.raises(ConfigError, match="no price for model `far-id`"):
        prices_of(parse_config(tree | {"judge": {"model": "far", "rubric": "good"}}))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"base_url": "https://user:secret@host/v1"}, "no place for a key; use `api_key_env`"),
        ({"base_url": "https://host/v1?key=secret"}, "no place for a key; use `api_key_env`"),
        ({"base_url": "localhost:8000"}, "write a whole URL, not 'localhost:8000'"),
        ({"parameters": {"messages": []}}, "`messages` is not for you to set here"),
        ({"cache": "off"}, "cache"),
    ],
)
def test_a_bad_api_model_is_refused_in_words(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        parse_config({"models": {"far": {**FAR, **changed}}})
    assert "models.far" in str(error.value) and "secret" not in str(error.value)


def test_a_cap_needs_prices() -> None:
    with pytest.raises(ConfigError, match="spend_cap: money cannot be counted without `prices: …`"):
        parse_config({"spend_cap": 5.0})
