"""What is kept of an audit and of a search holds no text of a task or a message."""

import json
from pathlib import Path

from experiments.audits import keep

VALUE = {"mean": 0.1, "low": 0.0, "high": 0.2}


def test_of_an_audit_its_parts_and_smaller_teams_are_kept(tmp_path: Path) -> None:
    audit = {
        "seed": 0, "reward": 0.5, "tasks": 8, "samples": 1, "confidence": 0.95, "spent": 100,
        "ended": "all tasks are played", "parts": [{"name": "agent 1", "value": VALUE}],
        "messages": [{"text": "a secret"}], "traffic": {"prompts": ["a secret"]},
    }  # fmt: skip
    (tmp_path / "audit.json").write_text(json.dumps(audit))
    assert keep(tmp_path)["smaller"] == []
    (tmp_path / "prune.json").write_text(json.dumps({"proposals": [{"name": "without it"}]}))
    kept = keep(tmp_path)
    assert kept["smaller"] == [{"name": "without it"}] and kept["parts"] == audit["parts"]
    assert "secret" not in json.dumps(kept)


def test_of_a_search_every_team_is_kept_without_its_prompts(tmp_path: Path) -> None:
    entry = {"team": {"system": "a secret"}, "rung": 2, "accuracy": VALUE, "edit": "a secret"}
    search = {
        "budget": 100, "stopped": "", "start": "solo", "winner": "solo", "spend": {}, "check": {},
        "turns": ["a secret"], "entries": {"solo": entry},
    }  # fmt: skip
    (tmp_path / "search.json").write_text(json.dumps(search))
    kept = keep(tmp_path)
    assert kept["teams"] == {"solo": {"rung": 2, "accuracy": VALUE}}
    assert "secret" not in json.dumps(kept)
