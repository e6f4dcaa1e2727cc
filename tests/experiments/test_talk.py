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
        "eval-000000": {**play("0000", quiet, log_silence=log_p), "tasks": "t/train"},
        "eval-000000 made to speak": {**play("0000", [0] * 100), "tasks": "t/train"},
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


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


def record(folder: Path, name: str, **evaluations: Any) -> Records:
    tree = {"experiment": name, "seed": 0, "calls": [], "evaluations": evaluations}
    (folder / f"{name}-s0.json").write_text(json.dumps(tree))
    return Records.read(folder)


def paragraphs(right: str, reward: list[float], **more: Any) -> Any:
    """Two tasks, two holders: the question names a title of the first's, not of the second's."""
    silent = {"holder 1": "00", "holder 2": "10"}
    again = {"holder 1": "0-", "holder 2": "0-"}
    rounds = {"round 0": silent, "round 1": again}
    return {
        "tasks": "split_hotpotqa/test", "ids": ["1", "2"], "right": right, "path": 9,
        "reward": reward, "level": ["", "bridge"],
        "calls": {
            "holder 1/quoter": {"generated": 3, "read": 5, "calls": [2, 1], "silent": 0, "cut": 0},
            "holder 2/quoter": {
                "generated": 3, "read": 5, "calls": [2, 1], "silent": [1, 0], "cut": 0
            },
            "asker/solver": {"generated": 9, "read": 9, "calls": 1, "silent": 0, "cut": 0},
        },
        "choices": {
            f"{agent}, {number}": {
                "silent": flags,
                "log_silence": [
                    None if one == "-" else -0.1 if one == "1" else -3.0 for one in flags
                ],
            }
            for number, agents in rounds.items()
            for agent, flags in agents.items()
        },
        "needed": {"holder 1": "10", "holder 2": "10"},
        "named": {"holder 1": "10", "holder 2": "00"},
        **more,
    }  # fmt: skip


def test_several_holders_have_a_row_and_one_for_f1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the second hop of the first task speak: 3 of 4, two of them needed in the end."""
    monkeypatch.setattr(talk, "RULES", tmp_path)
    alone = {k: v for k, v in paragraphs("00", [0.0, 0.0]).items() if k != "choices"}
    records = record(
        tmp_path,
        "split",
        **{
            "trained": paragraphs("10", [1.0, 0.4]),
            "trained made to speak": paragraphs("10", [1.0, 0.2]),
            "trained without helpers": alone,
        },
    )
    head, _, right, worth, *_ = cells(talk.talk_table(records, ["split"]))
    row, f1 = (dict(zip(head, one, strict=True)) for one in (right, worth))
    assert row["right %"] == "50.0" and row["over silence"].startswith("+50.0 [")
    assert f1["seed"].endswith(", F1") and f1["right %"] == "70.0"
    assert f1["against always speaking"].startswith("+10.0 [")
    assert row["silent, not needed : needed %"] == "0.0 : 0.0" and row["AUC"] == ".50"
    _, _, before, after = cells(talk.holders_table(records, ["split"]))[:4]
    assert before == [
        "trained, before the question", "0", ".25", "100.0", "0.0", "100.0", "75.0"
    ]  # fmt: skip
    assert after[2:] == [".50", "100.0", "100.0", "100.0", "100.0"]
    speaks = {"holder 1": "10", "holder 2": "01"}
    rule = {"ids": ["1", "2"], "speaks": speaks, "auc": 0.75}
    (tmp_path / "split-hotpotqa-title.json").write_text(json.dumps(rule))
    ruled = cells(talk.holders_table(records, ["split"]))[-1]
    assert ruled == [
        "the rule by title, split_hotpotqa", "", ".75", "100.0", "0.0", "50.0", "50.0"
    ]  # fmt: skip


def test_a_tester_is_judged_by_the_tests_that_fail(tmp_path: Path) -> None:
    def tested(right: str, silent: list[int]) -> Any:
        said = {"generated": 3, "read": 5, "calls": 1, "silent": silent, "cut": 0}
        made = play("1100", None, calls={"tester/tester": said}, needed={"tester": "0011" * 25})
        del made["level"]
        return {**made, "right": right * 25, "log_silence": [-2.0, -0.1, -3.0, -0.1] * 25}

    quiet = [0, 1, 0, 1] * 25
    records = record(
        tmp_path,
        "tester",
        **{
            "trained, mbpp_plus": tested("1110", quiet),
            "trained, mbpp_plus made to speak": tested("0010", [0] * 100),
        },
    )
    head, _, one, *_ = cells(talk.talk_table(records, ["tester"]))
    row = dict(zip(head, one, strict=True))
    assert row["seed"] == "0, silent from π .50 (mbpp_plus)"
    assert row["silent, not needed : needed %"] == "50.0 : 50.0" and row["AUC"] == ".62"


def test_a_tool_is_judged_where_it_made_the_answer_right(tmp_path: Path) -> None:
    """Called on the first two of four, right by it on the first."""
    said = {"generated": 9, "read": 9, "calls": [2, 2, 1, 1] * 25, "silent": 0, "cut": 0}
    calls = {"hinter/hinter": {**said, "observed": [8, 8, 0, 0] * 25}}
    records = record(
        tmp_path,
        "tool",
        **{
            "trained": play("1100", None, calls=calls),
            "trained, without the tool": play("0100", [0] * 100),
        },
    )
    _, _, row = cells(talk.tools_table(records, ["tool"]))
    assert row[2].startswith("+25.0 [") and row[3:] == ["50.0", "100.0", "33.3", ".83", "4.0"]
