"""What talk is worth, from records: gates, rules and shares of an oracle's gain, by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import talk
from experiments.records import Records

TASKS = ["free", "free", "needed", "needed"] * 25
SPOKE = [0, 1, 1, 0] * 25


def play(right: str, silent: list[int] | None = None, **more: Any) -> Any:
    calls = {"actor/solver": {"generated": 9, "read": 9, "calls": 1, "silent": 0, "cut": 0}}
    if silent is not None:
        calls["hinter/hinter"] = {
            "generated": 3, "read": 5, "calls": 1, "silent": silent, "cut": 0
        }  # fmt: skip
    ids = [str(n) for n in range(len(TASKS))]
    return {
        "tasks": "t/test", "ids": ids, "right": right * 25, "level": TASKS, "path": 9,
        "calls": calls, **more,
    }  # fmt: skip


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    quiet = [1 - one for one in SPOKE]
    log_p = [-0.1 if one else -3.0 for one in quiet]
    trained = {
        "trained": play("1110", quiet, log_silence=log_p, silent_above={"hinter": 0.4}),
        "trained made to speak": play("1111", [0] * 100),
        "trained without helpers": play("1100", None),
        "trained reworded": play("1110", quiet),
    }
    untrained = {"alone": play("1100"), "told the missing sentence": play("1111")}
    for name, evaluations in (("split-s0", trained), ("split-untrained-s0", untrained)):
        tree = {"experiment": name, "seed": 0, "calls": [], "evaluations": evaluations}
        (tmp_path / f"{name}.json").write_text(json.dumps(tree))
    rules = tmp_path / "rules"
    rules.mkdir()
    rule = {"ids": [str(n) for n in range(100)], "speaks": "0011" * 25, "auc": 0.94}
    (rules / "split.json").write_text(json.dumps(rule))
    monkeypatch.setattr(talk, "RULES", rules)
    return Records.read(tmp_path)


def test_a_row_says_what_choosing_was_worth(records: Records) -> None:
    """Right on 75 %, 50 when silent, 100 when speaking: a gate of rate ½ has 75."""
    head, _, one, all_of, rule = (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in talk.talk_table(records, ["split"]).splitlines()
    )
    row = dict(zip(head, one, strict=True))
    assert row["seed"] == "0, silent from π .40" and row["right %"] == "75.0"
    assert row["of the oracle's gain %"].startswith("50.0 [")
    assert row["over silence"].startswith("+25.0 [")
    assert row["against always speaking"].startswith("−25.0 [")
    assert row["over a random gate"].startswith("+0.0 [")
    assert row["over the rule"].startswith("−25.0 ["), "which speaks where it is needed"
    assert row["over the weights alone"] == "" and row["kept when reworded %"] == "100.0"
    assert row["messages %"] == "50.0" and row["AUC"] == ".50"
    assert row["silent, not needed : needed %"] == "50.0 : 50.0"
    assert row["precision, recall %"] == "50.0, 50.0"
    assert all_of[0] == "all" and all_of[1:] == one[1:]
    assert rule[-3:] == ["100.0 : 0.0", "100.0, 100.0", ".94"]


def test_a_team_without_other_plays_has_no_row(records: Records) -> None:
    assert talk.talk_table(records, ["split-untrained"]) == ""
