"""The Hub copies, with a local folder standing where a Hub repository would."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tacit.benchmarks import hub
from tacit.errors import ConfigError, DataError
from tacit.tasks import BENCHMARKS, find_benchmark, load_tasks


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty dataset folder; `datasets` keeps its cache beside it and stays off the network."""
    pytest.importorskip("datasets")
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


def publish(
    repository: Path, monkeypatch: pytest.MonkeyPatch, file: str, rows: list[dict[str, Any]]
) -> None:
    (repository / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setitem(hub.COPIES, file, (str(repository), "", "test"))


def test_every_file_has_a_hub_copy_or_says_that_it_has_none() -> None:
    found = map(find_benchmark, BENCHMARKS)
    files = {split.file for one in found for split in one.splits.values()}
    alone = {"hotpotqa", "2wiki", "musique", "humaneval_plus", "mbpp_plus", "hiddenbench"}
    assert {file.partition("/")[0] for file in files - set(hub.COPIES)} == alone
    assert set(hub.COPIES) <= files
    with pytest.raises(DataError, match=r"musique/all\.jsonl has no copy on the Hub: .*`folder`"):
        hub.read_rows("musique/all.jsonl")


def test_hub_rows_are_parsed_like_file_rows(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(3)]
    publish(repository, monkeypatch, "gsm8k/test.jsonl", rows)
    tasks = load_tasks("gsm8k", split="test", hub=True)
    assert [(task.id, task.answer) for task in tasks] == [
        (f"gsm8k/test/{n}", str(n + 1)) for n in range(3)
    ]


@pytest.mark.parametrize(
    ("name", "split", "inputs", "choices", "question", "answer"),
    [
        (
            "checkmate_in_one",
            "test",
            "In the following chess position, find a checkmate-in-one move.\n\n1. f3 e5 2. g4 ",
            ["a6", "Qh4#"],
            "After these moves of a chess game, find the move that gives mate:\n\n1. f3 e5 2. g4",
            "Qh4#",
        ),
        (
            "sports_understanding",
            "bigbench",
            "Determine whether the following statement or statements are plausible or implausible:"
            "\n\nStatement: A keeper hit a slam dunk\nPlausible/implausible? ",
            ["plausible", "implausible"],
            'Is the following sentence plausible? "A keeper hit a slam dunk."',
            "no",
        ),
        ("strategyqa", "bigbench", "Q: Is A: B?\nA: ", ["Yes", "No"], "Is A: B?", "no"),
    ],
)
def test_big_bench_prompts_are_unwrapped(
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    split: str,
    inputs: str,
    choices: list[str],
    question: str,
    answer: str,
) -> None:
    row = {
        "idx": 0,
        "inputs": inputs,
        "targets": choices[-1:],
        "multiple_choice_targets": choices,
        "multiple_choice_scores": [0, 1],
    }
    publish(repository, monkeypatch, find_benchmark(name).splits[split].file, [row])
    (task,) = load_tasks(name, split=split, hub=True)
    assert (task.question, task.answer) == (question, answer)


def test_changed_columns_and_absent_repositories_are_told(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(repository, monkeypatch, "checkmate_in_one/task.json", [{"text": "?"}])
    with pytest.raises(DataError, match="no column 'multiple_choice_targets'"):
        load_tasks("checkmate_in_one", split="test", hub=True)
    publish(repository, monkeypatch, "gsm8k/test.jsonl", [{"text": "?"}])
    with pytest.raises(DataError, match="row 0: no field 'answer'"):
        load_tasks("gsm8k", split="test", hub=True)
    gone = (str(repository / "gone"), "", "test")
    monkeypatch.setitem(hub.COPIES, "gsm8k/test.jsonl", gone)
    with pytest.raises(DataError, match=r"cannot load .*gone .*from the Hub.*`folder`"):
        load_tasks("gsm8k", split="test", hub=True)


def test_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"pip install 'tacit\[hub\]'"):
        load_tasks("gsm8k", split="test", hub=True)


def test_a_folder_goes_before_the_hub(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        load_tasks("gsm8k", split="test", hub=True, folder=tmp_path)
