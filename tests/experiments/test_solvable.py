"""The tasks that the team solves if all is told, from a run of it."""

from pathlib import Path

import pytest

import tacit
from experiments import solvable


def test_a_run_says_which_tasks_can_be_solved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(solvable, "FOLDER", tmp_path / "solvable")
    settings = ["tasks.limit=12", "evaluation.without_helpers=false"]
    team = "team={topology: solo, agents: {actor: {model: pocket, max_tokens: 24}}}"
    tacit.evaluate("pocket-hint", team, *settings, out=tmp_path / "run")
    monkeypatch.setattr("sys.argv", ["solvable", "sums", str(tmp_path / "run")])
    solvable.main()
    (grades,) = (tmp_path / "run" / "episodes").glob("*.jsonl")
    right = grades.read_text().count('"right": true') + grades.read_text().count('"right":true')
    tasks = tacit.load_tasks("arithmetic", split="test")
    kept = solvable.only_solvable("sums", tasks)
    assert 0 < len(kept) == right < 12
    assert [task for task in tasks if task in kept] == kept
    assert f"{right} tasks" in capsys.readouterr().out
    with pytest.raises(tacit.TacitError, match=r"others-told\.yaml"):
        solvable.only_solvable("others", tasks)
