"""Plans of small configs: what grows with what, and what is said where nothing was measured."""

from pathlib import Path
from typing import Any

import pytest

from tacit.config import Config
from tacit.config.file import load_config, parse_config, recipe_files
from tacit.errors import ConfigError
from tacit.plan.cards import CARDS
from tacit.plan.made_up_talk import turns_of
from tacit.plan.model_shapes import shape_of
from tacit.plan.plan_command import shapes_of
from tacit.plan.planning import make_plan
from tacit.plan.site import Plan, Site

H200 = CARDS["H200"]


def config_of(**changed: Any) -> Config:
    team = {
        "topology": "hint_actor",
        "agents": {
            "hinter": {"model": "base", "trained": True, "max_tokens": 100, "silent": False},
            "actor": {"model": "base", "max_tokens": 200},
        },
    }
    train = {"steps": 10, "tasks_per_step": 8, "group": 4, **changed.pop("train", {})}
    models = {"base": {"path": "nowhere", "rows": 16}, **changed.pop("models", {})}
    tasks = {"name": "arithmetic", "limit": 20}
    whole = {"models": models, "team": team, "train": train, "tasks": tasks, **changed}
    return parse_config(whole)


def plan_of(config: Config, size: str = "1.5B", **site: Any) -> Plan:
    assert config.team is not None
    where = Site(**{"card": H200, **site})
    return make_plan(config, config.team, {"base": shape_of(size)}, where)


def test_turns_are_those_of_the_topology() -> None:
    team = config_of().team
    assert team is not None
    hinter, actor = turns_of(team, 50, 0.5)
    assert (hinter.role, hinter.new, hinter.cap, hinter.first) == ("hinter", 50, 100, True)
    assert (actor.role, actor.new, actor.first) == ("actor", 100, False)
    assert hinter.prompt > 50 and actor.prompt > 50 + 50, "it reads the hint"


def test_agents_that_are_asked_at_once_read_the_same() -> None:
    team = load_config("split-2wiki").team
    assert team is not None
    *holders, asker = turns_of(team, 50, 0.5)
    assert len(holders) == 5 and all(turn.first for turn in holders) and not asker.first


@pytest.mark.parametrize("recipe", sorted(recipe_files()))
def test_every_recipe_that_trains_can_be_planned(recipe: str) -> None:
    config = load_config(recipe)
    if config.team is None or not any(agent.trained for agent in config.team.agents.values()):
        pytest.skip("it trains nobody")
    names = [n for n in config.models_used(config.all_teams.values()) if n in config.models]
    local = [n for n in names if config.models[n].engine != "api"]
    shapes = shapes_of(config, config.team, None, [f"{name}=3B" for name in local])
    plan = make_plan(config, config.team, shapes, Site(card=H200))
    assert plan.step_s > 0 and plan.ways == 1
    assert plan.bottleneck[0] in plan.phases


def test_phases_add_up_and_a_run_is_its_steps() -> None:
    plan = plan_of(config_of(), gpu_price=2.0)
    assert plan.step_s == pytest.approx(sum(plan.phases.values()))
    assert plan.run_s == pytest.approx(10 * plan.step_s + plan.evaluations_s)
    assert plan.gpu_money == pytest.approx(2.0 * plan.run_s / 3600)
    assert plan.generated == pytest.approx(32 * (70 + 140))
    assert plan.phases["score"] == 0 and plan.notes == ()


def test_more_takes_more() -> None:
    plain = plan_of(config_of())
    assert plan_of(config_of(), "7B").step_s > 2 * plain.step_s
    two = plan_of(config_of(train={"updates": 2}))
    assert two.phases["score"] > 0 and two.phases["update"] > plain.phases["update"]
    saved = plan_of(config_of(train={"gradient_checkpointing": True}))
    assert saved.memory["activations"] < 0.5 * plain.memory["activations"]
    assert saved.phases["update"] > plain.phases["update"]
    full = plan_of(config_of(policy={"kind": "full"}))
    assert full.memory["optimiser"] > 50 * plain.memory["optimiser"]
    assert full.memory["weights"] == pytest.approx(2 * plain.memory["weights"])


def test_a_silent_arm_is_played_too() -> None:
    tree = config_of().model_dump()
    tree["team"]["agents"]["hinter"]["silent"] = True
    arms, none = (
        plan_of(parse_config({**tree, "silence": {"exploration": way}})) for way in ("arms", "none")
    )
    assert arms.generated == pytest.approx(none.generated * (32 + 8) / 32), "a play for each task"


def test_several_gpus_play_faster_and_are_said_to_be_unmeasured() -> None:
    config = config_of(train={"tasks_per_step": 256}, policy={"kind": "full"})
    one, many = plan_of(config), plan_of(config, gpus_per_node=8, nodes=2)
    assert many.phases["play"] < one.phases["play"] / 4
    assert many.phases["sync"] > one.phases["sync"], "gradients travel"
    assert many.generated == pytest.approx(one.generated)
    assert any("not measured" in note for note in many.notes)
    near = plan_of(config, gpus_per_node=16)
    assert near.phases["sync"] < many.phases["sync"], "inside a node they travel faster"


def test_what_does_not_fit_is_split_and_said_to_be() -> None:
    large = plan_of(config_of(), "70B", gpus_per_node=8)
    assert large.ways == 2 and large.replicas == 4
    assert sum(large.memory.values()) <= 0.95 * H200.memory
    assert any("neither Tacit's engine nor its learner" in note for note in large.notes)
    alone = plan_of(config_of(), "70B")
    assert alone.replicas == 0 and alone.gpus == 2
    assert "too few" in alone.notes[0]


def test_rows_whose_keys_and_values_do_not_fit_wait() -> None:
    many = config_of(models={"base": {"path": "nowhere", "rows": 512}}, train={"group": 64})
    small, large = (plan_of(many, card=CARDS[name]) for name in ("L40S", "H200"))
    assert any("rows fit; the others wait" in note for note in small.notes)
    assert not any("wait" in note for note in large.notes)
    free = CARDS["L40S"].memory - small.memory["weights"] - small.memory["optimiser"]
    assert small.memory["keys and values"] == pytest.approx(0.6 * free)
    assert small.ways == 1


def test_an_unmeasured_card_is_slower_by_its_figures_and_says_so() -> None:
    slower = plan_of(config_of(), card=CARDS["A100"])
    assert slower.step_s > plan_of(config_of()).step_s
    assert "No A100 was measured" in slower.notes[0]


def test_api_tokens_are_counted_and_paid(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("date: 2026-01-01\nmodels: {big: {input: 2.0, output: 10.0}}\n")
    far = {"engine": "api", "model": "big", "requests_per_minute": 6}
    tree = config_of(models={"far": far}, prices=str(prices)).model_dump()
    tree["team"]["agents"]["actor"]["model"] = "far"
    plan = plan_of(parse_config(tree))
    need = plan.api["far"]
    assert need.calls == 10 * 32 + 2 * 20 + 20, "steps, two evaluations, once without helpers"
    assert need.generated == need.calls * 140
    paid = (need.prompt * 2.0 + need.generated * 10.0) / 1e6
    assert plan.api_money == pytest.approx(paid, rel=1e-3)
    assert plan.bottleneck[0] == "api limits"
    assert plan.phases["api limits"] + plan.phases["play"] == pytest.approx(need.calls * 10 / 10)


def test_a_team_without_a_trained_agent_is_refused() -> None:
    tree = config_of().model_dump()
    tree["team"]["agents"]["hinter"]["trained"] = False
    with pytest.raises(ConfigError, match="nothing to train"):
        plan_of(parse_config(tree))


def test_an_api_model_cannot_be_trained() -> None:
    tree = config_of(models={"far": {"engine": "api", "model": "big"}}).model_dump()
    tree["team"]["agents"]["hinter"]["model"] = "far"
    with pytest.raises(ConfigError, match="hinter: a model behind an API cannot be trained"):
        plan_of(parse_config(tree))
