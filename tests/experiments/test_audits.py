"""What is kept of an audit and of a search holds no text of a task or a message."""

import json
from pathlib import Path
from typing import Any

from experiments import audits
from experiments.audits import keep
from experiments.records import Records
from tacit import load_config

VALUE = {"mean": 0.1, "low": 0.0, "high": 0.2}
TEXT = {"text": "a secret"}


def write(folder: Path, **files: Any) -> None:
    for name, tree in files.items():
        (folder / f"{name}.json").write_text(json.dumps(tree), encoding="utf-8")


def test_of_an_audit_its_parts_and_smaller_teams_are_kept(tmp_path: Path) -> None:
    part = {"name": "agent 1", "value": VALUE, "verdict": "helps"}
    audit = {"reward": 0.5, "tasks": 8, "parts": [part | TEXT], "messages": [TEXT], "traffic": TEXT}
    write(tmp_path, audit=audit)
    assert keep(tmp_path) == {"reward": 0.5, "tasks": 8, "parts": [part], "smaller": []}
    write(tmp_path, prune={"proposals": [{"name": "without it", "passed": True} | TEXT]})
    assert keep(tmp_path)["smaller"] == [{"name": "without it", "passed": True}]


def test_of_a_search_every_team_is_kept_without_its_prompts(tmp_path: Path) -> None:
    team = {"tasks": 8, "accuracy": VALUE}
    check = {"tasks": 8, "teams": {"solo": team | TEXT}, "winner_compared_with": {"solo": TEXT}}
    entries = {"solo": {**team, "rung": 2, "team": TEXT}}
    search = {"winner": "solo", "turns": [TEXT], "entries": entries, "check": check | TEXT}
    write(tmp_path, search=search, config={"search": {"price": 0.5}})
    kept = keep(tmp_path)
    assert kept["teams"] == {"solo": {**team, "rung": 2}}
    assert kept["price"] == 0.5 and kept["check"]["teams"] == {"solo": team}
    assert "secret" not in json.dumps(kept)


def test_the_page_lists_every_record_and_the_recipe_has_the_budget_of_the_search() -> None:
    page = audits.page(Records.read())
    for path in audits.KEPT.glob("*.json"):
        assert f"\n## {path.stem}\n" in page
    kept = json.loads((audits.KEPT / "search-gsm8k.json").read_text(encoding="utf-8"))
    recipe = load_config(Path(audits.__file__).with_name("search-gsm8k.yaml"))
    assert recipe.search.tokens == kept["budget"] >= kept["spend"]["search"]
    share = kept["spend"]["search"] / kept["spend"]["first_pool"]
    assert share < 0.5 and f"{100 * share:.0f} % of what the first pool" in page
