"""Problems that are cut: the same ones as in the records, and what is taken out is in the notes."""

import json
from pathlib import Path

import pytest

from experiments.split_gsm8k import tasks
from tacit import load_tasks
from tacit.benchmarks.split_gsm8k import NOTES, sentences

RESULTS = Path(__file__).parents[2] / "experiments" / "results"


def test_the_validation_tasks_are_those_that_were_recorded(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(data_dir))
    mine = load_tasks(
        "experiments.split_gsm8k:tasks", split="train", shuffle_seed=0, offset=5000, limit=256
    )
    for kind in ("blind", "seeing"):
        path = RESULTS / f"split-gsm8k-{kind}-validation-s0.json"
        record = json.loads(path.read_text())
        recorded = dict(zip(record["tasks"], record["level"], strict=True))
        assert {task.id: task.level for task in mine} == recorded


def test_what_is_taken_out_stands_in_the_notes(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(data_dir))
    made, whole = tasks("test"), load_tasks("gsm8k", split="test")
    questions = {task.id.rpartition("/")[2]: task.question for task in whole}
    needed = [task for task in made if task.level == "needed"]
    assert (len(made), len(needed)) == (1056, 526)
    for task in made:
        original, notes = questions[task.id.rpartition("/")[2]], task.data["notes"]
        notes = notes.removeprefix("- ").split("\n- ")
        assert len(notes) == NOTES
        if task.level == "free":
            assert task.question == " ".join(original.split())
            assert not {*notes} & {*sentences(original)}
        else:
            assert task.data["fact"] in notes and task.data["fact"] in original
            assert task.data["fact"] not in task.question
