"""Records and their statistics: pairing, failed episodes, seeds, silence by task."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import pages
from experiments.records import Records, auc, difference
from experiments.tables import (
    alone,
    difficulty_table,
    level_table,
    measured_table,
    points,
    separation,
    training_table,
    within_table,
)
from tacit import ConfigError
from tacit.evaluation.statistics import mcnemar


def recorded(right: str, tokens: list[int], silent: list[int] | None = None, **more: Any) -> Any:
    kinds = {"actor/solver": {"generated": tokens, "read": 9, "calls": 1, "silent": 0, "cut": 0}}
    if silent is not None:
        kinds["hinter/hinter"] = {
            "generated": 3, "read": 5, "calls": 1, "silent": silent, "cut": 0,
        }  # fmt: skip
    ids = [str(n) for n in range(len(right))]
    return {
        "tasks": "gsm8k/test",
        "ids": ids,
        "right": right,
        "path": tokens,
        "calls": kinds,
        **more,
    }


def records_of(folder: Path, runs: dict[str, dict[str, Any]]) -> Records:
    for name, evaluations in runs.items():
        tree = {"experiment": name, "seed": int(name[-1]), "calls": [], "evaluations": evaluations}
        (folder / f"{name}.json").write_text(json.dumps(tree))
    return Records.read(folder)


def test_differences_are_paired_by_task_over_seeds(tmp_path: Path) -> None:
    better = "1" * 140 + "0" * 60
    records = records_of(
        tmp_path,
        {
            "baselines-s0": {"solo": recorded("1" * 100 + "0" * 100, [10] * 200)},
            "hint-s0": {"trained": recorded(better, [12] * 200)},
            "hint-s1": {"trained": recorded(better[:120] + "0" * 80, [14] * 200)},
        },
    )
    solo, hint = records.get("baselines", "solo"), records.get("hint", "trained")
    assert hint.seeds == 2 and hint.accuracy.mean == pytest.approx(0.65)
    assert hint.mean("generated") == pytest.approx(13) and hint.mean("read") == 9
    test = difference(solo, hint)
    assert test and test.difference.mean == pytest.approx(0.15) and test.tasks == 200
    assert test.p == mcnemar(0, 20), "the weaker seed's"
    assert 0.05 < test.difference.low < 0.1 < 0.15 < test.difference.high < 0.3
    back = difference(hint, solo)
    assert points(back).startswith("−15.0 [−")


def test_answers_in_part_right_have_rows_of_their_own(tmp_path: Path) -> None:
    """`only` keeps every column of a task together."""

    def asked(ids: str, right: str, reward: list[float]) -> Any:
        return {**recorded(right, [9] * 3), "ids": [*ids], "tasks": "q/test", "reward": reward}

    teams = {
        "solo, q": asked("abc", "000", [0.0, 0.0, 0.1]),
        "untrained": asked("abc", "001", [0.5, 0.0, 1.0]),
        "trained": asked("cba", "100", [1.0, 0.2, 0.6]),
    }
    records = records_of(tmp_path, {"holders-s0": teams})
    mine = records.get("holders", "trained").only("ab").worth
    assert mine and mine.right_ST.tolist() == [[0.6, 0.2]]
    rows = [line.split("|") for line in measured_table(records, ["holders"]).splitlines()]
    (f1,) = ([cell.strip() for cell in row] for row in rows if row[1].strip() == "trained, F1")
    assert f1[5].startswith("60.0 [") and f1[6].startswith("+56.7 [") and f1[7] == ""
    changed = within_table(records, ["holders"]).splitlines()[2:]
    assert [row.split("|")[3].strip()[:5] for row in changed[2:]] == ["+0.0 ", "+10.0"]


def test_a_failed_episode_counts_nowhere(tmp_path: Path) -> None:
    teams = {"solo": recorded("1-0", [10, 99, 20]), "hint": recorded("11-", [10, 10, 10])}
    records = records_of(tmp_path, {"baselines-s0": teams})
    solo, hint = (records.get("baselines", name) for name in teams)
    assert solo.accuracy.mean == 0.5 and solo.mean("generated") == 15
    test = difference(solo, hint)
    assert test and test.tasks == 1 and test.difference.mean == 0


def test_a_check_of_one_seed_is_compared_with_that_seed(tmp_path: Path) -> None:
    runs = {
        "hint-s0": {"trained": recorded("1111", [5] * 4), "reworded": recorded("1110", [6] * 4)},
        "hint-s1": {"trained": recorded("0000", [5] * 4)},
    }
    (row,) = within_table(records_of(tmp_path, runs), ["hint"]).splitlines()[2:]
    assert [cell.strip() for cell in row.split("|")[1:3]] == ["reworded", "trained"]
    assert row.split("|")[3].strip().startswith("−25.0 [") and "5 → 6" in row


def test_helped_and_harmed_are_counted_where_it_spoke(tmp_path: Path) -> None:
    records = records_of(
        tmp_path,
        {
            "baselines-s0": {
                "solo": recorded("1100", [5] * 4),
                "self-consistency": recorded("1100", [5] * 4, right_calls=[8, 8, 0, 0]),
            },
            "arms-s0": {"trained": recorded("0110", [5] * 4, silent=[0, 1, 0, 0])},
        },
    )
    rows = [line.split("|") for line in difficulty_table(records, ["arms"]).splitlines()[2:]]
    found = {row[1].strip(): [cell.strip() for cell in row[2:-1]] for row in rows}
    assert found["8 of 8"] == ["2", "50.0", "50.0", "100.0", "50.0", "0.0", "100.0"]
    assert found["0 of 8"] == ["2", "0.0", "100.0", "0.0", "50.0", "50.0", "0.0"]
    assert found["all"][:3] == ["4", "25.0", "75.0"]


def test_the_choice_is_judged_by_what_the_task_needed(tmp_path: Path) -> None:
    own = {"level": ["free", "needed", "free", "needed"], "log_silence": [-0.1, -2.0, -0.5, -0.4]}
    team = recorded("1010", [5] * 4, silent=[1, 0, 1, 1], **own)
    records = records_of(tmp_path, {"split-s0": {"trained": team}})
    assert separation(records.get("split", "trained")) == ".75", "three pairs of four are in order"
    free, needed = level_table(records, ["split"]).splitlines()[2:]
    assert "| free | 2 | 100.0 | 100.0 |  |" in free
    assert "| needed | 2 | 0.0 | 50.0 | .75 |" in needed


def test_auc_counts_ties_as_half() -> None:
    assert auc(np.array([2.0, 1.0]), np.array([1.0, 0.0])) == 0.875


def test_what_is_no_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "hint-s0.json").write_text("{")
    with pytest.raises(ConfigError, match=r"hint-s0\.json is not a record"):
        Records.read(tmp_path)
    with pytest.raises(ConfigError, match="no record `hint`"):
        Records().get("hint", "trained")


def test_a_variant_is_held_against_the_actor_alone_of_its_experiment(tmp_path: Path) -> None:
    mine = {"tasks": "math500/test"}
    own, others = recorded("1100", [5] * 4, **mine), recorded("0000", [5] * 4, **mine)
    runs = {
        "math-hint-s0": {"trained": own, "solo, math500": own},
        "math-hint+kl-s0": {"trained": own},
        "baselines-dialogue-s0": {"solo, math500": others},
    }
    records = records_of(tmp_path, runs)
    for name in ("math-hint", "math-hint+kl"):
        solo = alone(records, name, records.get(name, "trained"))
        assert solo and solo.accuracy.mean == 0.5, name


def test_only_what_was_made_before_has_the_wrong_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_about", lambda name: f"What {name} is.")
    days = {"baselines": "2026-11-15", "gspo": "2026-11-15"}
    days |= {"gspo+right-end": "2026-11-19", "gspo-code": "2026-11-19"}
    one = recorded("1100", [5] * 4)
    played = {"trained": one, "solo": one, "self-consistency": one}
    runs = {
        name: {0: {"seed": 0, "calls": [{"date": day}], "evaluations": played}}
        for name, day in days.items()
    }
    both = pages.page(Records(runs), "gspo", ["gspo", "gspo+right-end"])
    assert "wrong end of silence" in both and "all but `gspo+right-end`." in both
    assert "wrong end" not in pages.page(Records(runs), "gspo-code", ["gspo-code"])


def test_a_run_that_was_ended_before_its_first_step_has_a_row(tmp_path: Path) -> None:
    validation = {"step": [0], "accuracy": [0.5], "tokens": [9.0]}
    empty = {"steps": 0, "best_step": 0, "validation": validation, "curves": {}, "seconds": {}}
    records = records_of(tmp_path, {"hint-s0": {"trained": recorded("11", [5, 5])}})
    run = {**records.runs["hint"][0], "config": {"train": {}}, "training": empty}
    (row,) = training_table(Records({"hint": {0: run}}), ["hint"]).splitlines()[2:]
    assert row.startswith("| seed 0 | 0 | 0 | 50.0 → 50.0 | 9 → 9 | 0.0 |")


def test_every_record_is_read_and_told_about() -> None:
    from experiments.pages import _abouts

    runs = Records.read().runs
    assert {*runs} == {*_abouts()}
    assert sum(len(seeds) for seeds in runs.values()) == len(
        [*(Path(__file__).parents[2] / "experiments" / "results").glob("*.json")]
    )
