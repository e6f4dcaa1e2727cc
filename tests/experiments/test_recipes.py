"""The experiments as YAML: each can be run as it stands, and is what was recorded."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tacit import TeamConfig, load_config, parse_config
from tacit.learn.assemble import check_training
from tacit.team.roster import check_team

HERE = Path(__file__).parents[2] / "experiments"
RECIPES = sorted(path for path in HERE.glob("*.yaml") if not path.stem.startswith("prices"))
PLAYED = {
    "audit-debate", "audit-dialogue", "audit-roles", "baselines", "code-baselines", "rivals",
    "rivals-math", "rivals-rest", "search-gsm8k", "split-gsm8k-told", "split-hotpotqa-told",
}  # fmt: skip
"""Nothing in them is trained, or only what a search found."""
TRAINED = [path for path in RECIPES if path.stem not in PLAYED]
RECORDED = {
    "split-gsm8k-blind": "split-gsm8k-blind-validation",
    "split-gsm8k-seeing": "split-gsm8k-seeing-validation",
}
NOT_RUN = {
    "api-actor", "critic-small", "gspo-code", "gspo-strategyqa", "hint-small", "hint-tool",
    "math-actor", "math-hint", "several", "split-gsm8k-blind-solvable",
    "split-gsm8k-seeing-solvable", "split-gsm8k-small", "split-hotpotqa-solvable",
}  # fmt: skip
"""Not run, or kept elsewhere (`api-actor` in benchmarks/results)."""
RUNS = [path.stem for path in TRAINED if path.stem not in NOT_RUN]
UNLIKE = {"train.microbatch_tokens"}
"""What the machine asked for."""


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_an_experiment_can_be_run_as_it_stands(path: Path) -> None:
    config = load_config(path)
    assert config.name == path.stem
    teams = {**config.teams, **({"team": config.team} if config.team else {})}
    assert teams
    for name, team in teams.items():
        check_team(team, name)
    if path in TRAINED:
        check_training(config)


@pytest.mark.parametrize(
    "path", sorted((HERE / "teams").glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_team_for_trained_weights_is_one(path: Path) -> None:
    team = TeamConfig.model_validate(yaml.safe_load(path.read_text()))
    check_team(team, path.stem)
    assert any(agent.trained for agent in team.agents.values())
    config = load_config(HERE / "hint.yaml", [f"team={path.read_text()}"])
    assert config.team == team, "as the README gives it to `tacit eval`"


def flat(tree: Any, place: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict) or not tree:
        return {place: tree}
    return {
        k: v
        for key, one in tree.items()
        for k, v in flat(one, f"{place}.{key}".lstrip(".")).items()
    }


def said(config: Any) -> dict[str, Any]:
    """Every setting that decides what is learned."""
    tree = config.model_dump(mode="json", exclude={"name", "models", "teams", "seed"})
    return {name: value for name, value in flat(tree).items() if name not in UNLIKE}


@pytest.mark.parametrize("name", [*RUNS, "silence-floor", "silence-none"])
def test_a_recipe_is_what_was_recorded(name: str) -> None:
    record = json.loads((HERE / "results" / f"{RECORDED.get(name, name)}-s0.json").read_text())
    tree = {key: value for key, value in record["config"].items() if key not in ("models", "teams")}
    tree["train"] = {k: v for k, v in tree["train"].items() if k not in ("overlap", "compile")}
    base = {"models": {"base": {"path": "models/base"}}}
    mode = re.fullmatch("silence-(floor|none)", name)
    recipe = HERE / f"{'silence-arms' if mode else name}.yaml"
    mine = load_config(recipe, [f"silence.exploration={mode[1]}"] if mode else [])
    text = json.dumps(base | tree).replace("jigsaw:tasks", "experiments.split_gsm8k:tasks")
    text = text.replace("jigsaw:BLIND", "experiments.split_gsm8k:blind")
    text = text.replace("jigsaw:JIGSAW", "experiments.split_gsm8k:seeing")
    assert said(mine) == said(parse_config(json.loads(text)))
