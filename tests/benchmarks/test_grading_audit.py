"""The audit program: it passes on real files and fails where a grader and a file disagree."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "grading_audit.py"
QUICK = ("gsm8k", "aime24", "amc23", "strategyqa", "sports_understanding")


def audit(folder: Path, out: Path, *names: str) -> tuple[int, dict[str, list[dict[str, object]]]]:
    only = [option for name in names for option in ("--only", name)]
    command = [sys.executable, str(PROGRAM), "--data", str(folder), "--json", str(out), *only]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, json.loads(out.read_text()) if out.exists() else {}


def write_exam(folder: Path, *, spoilt: int | None = None) -> None:
    rows = [
        {"problem": "?", "answer": f"{n:03}", "solution": rf"\boxed{{{n if n != spoilt else 999}}}"}
        for n in range(10, 40)
    ]
    (folder / "aime24").mkdir()
    lines = "\n".join(json.dumps(row) for row in rows)
    (folder / "aime24" / "test.jsonl").write_text(lines)


def test_the_quick_benchmarks_hold(data_dir: Path, tmp_path: Path) -> None:
    code, results = audit(data_dir, tmp_path / "audit.json", *QUICK)
    assert code == 0
    counted = {name: (found[0]["right"], found[-1]["right"]) for name, found in results.items()}
    assert counted == {
        "gsm8k": (1319, 0),
        "aime24": (30, 0),
        "amc23": (40, 0),
        "strategyqa": (2290, 0),
        "sports_understanding": (1000, 0),
    }


def test_answers_once_graded_wrong_hold(tmp_path: Path) -> None:
    code, results = audit(tmp_path, tmp_path / "audit.json", "by hand")
    right, wrong = results["by hand"]
    assert (code, right["exceptions"], wrong["exceptions"]) == (0, [], [])
    assert (right["right"], wrong["right"]) == (right["rows"], 0)


def test_one_wrong_reference_is_named_and_fails_the_audit(tmp_path: Path) -> None:
    write_exam(tmp_path, spoilt=12)
    code, results = audit(tmp_path, tmp_path / "audit.json", "aime24")
    reference = results["aime24"][0]
    assert (code, reference["right"], reference["held"]) == (1, 29, False)
    assert [item["id"] for item in reference["exceptions"]] == ["aime24/test/2"]  # type: ignore[attr-defined]


def test_a_missing_file_is_the_users_error(tmp_path: Path) -> None:
    assert audit(tmp_path, tmp_path / "audit.json", "aime24") == (2, {})
