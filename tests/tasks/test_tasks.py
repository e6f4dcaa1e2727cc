"""Loading by name: files, folders, filters, shuffles, leaks, refusals. Small files made here."""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import ConfigError, DataError
from tacit.tasks import (
    BENCHMARKS,
    answer_form,
    check_trainable,
    drop_leaks,
    find_benchmark,
    load_tasks,
)
from tacit.types import Task


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACIT_DATA", raising=False)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")


def write_gsm8k(folder: Path, count: int = 30) -> None:
    write_jsonl(
        folder / "gsm8k" / "test.jsonl",
        [
            {"question": f"What is {n} + 1?", "answer": f"Add.\n#### {n + 1:,}"}
            for n in range(count)
        ],
    )


def write_math(folder: Path) -> None:
    subjects = ("Algebra", "Number Theory")
    rows = [
        {
            "problem": f"Problem {n}",
            "level": f"Level {n % 5 + 1}",
            "type": subjects[n % 2],
            "solution": rf"Thus \boxed{{{n}}}.",
            "unique_id": f"test/x/{n}.json",
        }
        for n in range(20)
    ]
    write_jsonl(folder / "math" / "test.jsonl", rows)


def write_sports(folder: Path) -> None:
    examples = [
        {"input": f"Player {n} scored", "target_scores": {"plausible": n % 2, "implausible": 0}}
        for n in range(6)
    ]
    hard = [{"input": 'Is the following sentence plausible? "Player 3 scored."', "target": "yes"}]
    sports = folder / "sports_understanding"
    sports.mkdir()
    (sports / "bigbench_task.json").write_text(json.dumps({"examples": examples}))
    (sports / "bbh.json").write_text(json.dumps({"examples": hard}))


SOURCE = f"{__name__}:made"


def made(*, split: str, size: int = 3) -> Iterator[Task]:
    """A task source of the user's own, named below by its module."""
    for n in range(size):
        yield Task(id=f"{split}/{n}", question="?", answer=str(n), grader="math")


def made_twice(*, split: str) -> list[Task]:
    return [*made(split=split), *made(split=split)]


def made_of_numbers(*, split: str) -> list[int]:
    return [1, 2]


def ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


# --- folders and files


def test_plain_and_gz_files_give_the_same_tasks(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    write_gsm8k(plain)
    write_sports(plain)
    for path in plain.rglob("*.json*"):
        target = packed / path.relative_to(plain)
        target.parent.mkdir(parents=True, exist_ok=True)
        Path(f"{target}.gz").write_bytes(gzip.compress(path.read_bytes()))
    for name in ("gsm8k", "sports_understanding"):
        read = load_tasks(name, split="test", folder=plain)
        assert read == load_tasks(name, split="test", folder=packed)
        assert read


def test_folder_argument_goes_before_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gsm8k(tmp_path / "few", 2)
    write_gsm8k(tmp_path / "many", 5)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "many"))
    assert len(load_tasks("gsm8k", split="test")) == 5
    assert len(load_tasks("gsm8k", split="test", folder=tmp_path / "few")) == 2


def test_missing_folder_or_file_is_named_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"gsm8k.*TACIT_DATA.*hub: true"):
        load_tasks("gsm8k", split="test")
    with pytest.raises(DataError, match=r"nowhere is not a folder: mend `folder`"):
        load_tasks("gsm8k", split="test", folder=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no file .*gsm8k/test\.jsonl \(nor test\.jsonl\.gz\)"):
        load_tasks("gsm8k", split="test", folder=tmp_path)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"gone is not a folder: mend TACIT_DATA"):
        load_tasks("gsm8k", split="test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"question": "a", "answer": "#### 1"}\n{"question"\n', r"test\.jsonl:2: not valid JSON"),
        (b'{"question": "a"}\n', r"test\.jsonl:1: no field 'answer'.*original gsm8k file"),
        (b'{"question": "a", "answer": "1"}\n', r"test\.jsonl:1: .*####"),
        (b'{"question": "a", "answer": 1}\n', r"test\.jsonl:1: "),
        (b"[1]\n", r"test\.jsonl:1: expected a JSON object, got list"),
        (b"\xff\xfe\n", r"cannot read .*test\.jsonl.*UTF-8"),
        (b"", r"gsm8k: it holds no tasks"),
    ],
)
def test_malformed_benchmark_file_names_the_place(
    tmp_path: Path, content: bytes, message: str
) -> None:
    write_gsm8k(tmp_path)
    (tmp_path / "gsm8k" / "test.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_tasks("gsm8k", split="test", folder=tmp_path)


def test_broken_gz_and_wrong_json_shape_are_named(tmp_path: Path) -> None:
    write_gsm8k(tmp_path)
    plain = tmp_path / "gsm8k" / "test.jsonl"
    packed = gzip.compress(plain.read_bytes())
    plain.unlink()
    for broken in (packed[:-20], b"not gzip", packed[:10] + b"\x00" * 50):
        Path(f"{plain}.gz").write_bytes(broken)
        with pytest.raises(DataError, match=r"cannot read .*test\.jsonl\.gz"):
            load_tasks("gsm8k", split="test", folder=tmp_path)
    write_sports(tmp_path)
    (tmp_path / "sports_understanding" / "bbh.json").write_text('{"rows": []}')
    with pytest.raises(DataError, match="list `examples`"):
        load_tasks("sports_understanding", split="test", folder=tmp_path)


def test_line_separators_inside_strings_do_not_end_a_line(tmp_path: Path) -> None:
    question = "one\u2028two\u0085three"
    write_jsonl(tmp_path / "gsm8k" / "test.jsonl", [{"question": question, "answer": "#### 3"}])
    assert load_tasks("gsm8k", split="test", folder=tmp_path)[0].question == question


# --- names and splits


def test_unknown_names_get_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown task source `gms8k`: did you mean `gsm8k`"):
        load_tasks("gms8k", split="test")
    with pytest.raises(ConfigError, match="did you mean `arithmetic`"):
        load_tasks("aritmetic", split="test")
    with pytest.raises(ConfigError, match="unknown split of gsm8k `tset`: did you mean `test`"):
        load_tasks("gsm8k", split="tset", folder=tmp_path)
    with pytest.raises(ConfigError, match="gsm8k has no options of its own, but got shufle_seed"):
        load_tasks("gsm8k", split="test", folder=tmp_path, shufle_seed=1)


def test_registry_entries_carry_their_own_name() -> None:
    assert [find_benchmark(name).name for name in BENCHMARKS] == list(BENCHMARKS)
    only = {name for name in BENCHMARKS if find_benchmark(name).evaluation_only}
    assert only == {"sports_understanding", "checkmate_in_one", "hiddenbench"}


def test_a_benchmark_has_a_grader_of_its_own_and_other_sources_have_none() -> None:
    names = ("gsm8k", "mbpp", "strategyqa", "checkmate_in_one")
    graders = [form[0] for name in names if (form := answer_form(name))]
    assert graders == ["math", "code", "choice", "chess"]
    assert answer_form("arithmetic") is answer_form("mine.jsonl") is None


def test_import_is_light() -> None:
    heavy = "{'torch', 'datasets', 'chess', 'tacit.benchmarks'}"
    program = f"import sys, tacit.tasks; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


# --- filters, shuffles, limits


def test_levels_and_subjects_filter_in_any_spelling(tmp_path: Path) -> None:
    write_math(tmp_path)
    by_number = load_tasks("math", split="test", folder=tmp_path, level=[4, 5])
    assert {task.level for task in by_number} == {"4", "5"}
    assert by_number == load_tasks(
        "math", split="test", folder=tmp_path, level=["Level 4", "level 5"]
    )
    theory = load_tasks("math", split="test", folder=tmp_path, subject=["number_theory"])
    assert {task.subject for task in theory} == {"Number Theory"}
    assert len(theory) == 10
    with pytest.raises(DataError, match="no level 9; it has: 1, 2, 3, 4, 5"):
        load_tasks("math", split="test", folder=tmp_path, level=[5, 9])
    write_gsm8k(tmp_path)
    with pytest.raises(DataError, match="gsm8k/test has no level 1; it has: none"):
        load_tasks("gsm8k", split="test", folder=tmp_path, level=[1])


def test_shuffle_is_fixed_by_its_seed_for_ever(tmp_path: Path) -> None:
    write_gsm8k(tmp_path)
    plain = load_tasks("gsm8k", split="test", folder=tmp_path)
    zero = load_tasks("gsm8k", split="test", folder=tmp_path, shuffle_seed=0)
    one = load_tasks("gsm8k", split="test", folder=tmp_path, shuffle_seed=1)
    assert len({tuple(ids(tasks)) for tasks in (plain, zero, one)}) == 3
    assert sorted(ids(zero)) == sorted(ids(plain)) == sorted(ids(one))
    # Golden: a change here would silently change every recipe's training tasks.
    assert ids(zero)[:3] == ["gsm8k/test/27", "gsm8k/test/25", "gsm8k/test/2"]


def test_offset_and_limit_come_after_the_shuffle(tmp_path: Path) -> None:
    write_gsm8k(tmp_path)
    whole = load_tasks("gsm8k", split="test", folder=tmp_path, shuffle_seed=3)
    part = load_tasks("gsm8k", split="test", folder=tmp_path, shuffle_seed=3, offset=10, limit=5)
    assert part == whole[10:15]
    with pytest.raises(DataError, match="30 tasks, none left after offset 30"):
        load_tasks("gsm8k", split="test", folder=tmp_path, offset=30)
    for wrong in ({"limit": 0}, {"limit": -1}, {"offset": -1}):
        with pytest.raises(ConfigError, match="limit must be 1 or more"):
            load_tasks("gsm8k", split="test", folder=tmp_path, **wrong)


def test_splits_join_with_a_plus(tmp_path: Path) -> None:
    row = {"test_list": ["assert f(1) == 1"], "code": "def f(x): return x", "text": "Write f."}
    write_jsonl(
        tmp_path / "mbpp" / "mbpp.jsonl", [{**row, "task_id": n} for n in (3, 11, 600, 974)]
    )
    read = load_tasks("mbpp", split="prompt+train", folder=tmp_path)
    assert ids(read) == ["mbpp/prompt/3", "mbpp/train/974"]


def test_mbpp_set_up_code_runs_between_solution_and_tests(tmp_path: Path) -> None:
    row = {
        "task_id": 11,
        "text": "Write f.",
        "code": "class Node:\r\n    x = 4\r\ndef f(n): return n.x",
        "test_setup_code": "root = Node()",
        "test_imports": ["import math"],
        "test_list": ["assert f(root) == math.sqrt(16)"],
    }
    write_jsonl(tmp_path / "mbpp" / "mbpp.jsonl", [row])
    (task,) = load_tasks("mbpp", split="test", folder=tmp_path)
    exec(f"{task.data['prompt']}\n{task.answer}\n{task.data['tests']}", {})
    with pytest.raises(AssertionError):
        exec(f"{task.answer.replace('4', '5')}\n{task.data['tests']}", {})
    assert task.data["entry_point"] == "f"
    assert "assert f(root)" in task.question and "class Node" not in task.question


# --- training: leaks and canaries


def test_drop_leaks_ignores_case_and_blanks_only() -> None:
    def task(question: str) -> Task:
        return Task(id=question, question=question, answer="", grader="math")

    train = [task("What is  $x+1$?\n"), task("what is $X + 1$?"), task("What is $x-1$?")]
    kept, dropped = drop_leaks(train, [task("What is $x + 1$?")])
    assert (kept, dropped) == ([train[2]], 2)


def test_canaried_training_is_refused_unless_insisted_on(tmp_path: Path) -> None:
    write_sports(tmp_path)
    with pytest.raises(
        ConfigError, match=r"sports_understanding/train is BIG-bench.*allow_canaried"
    ):
        load_tasks("sports_understanding", split="train", folder=tmp_path)
    with pytest.raises(ConfigError, match="allow_canaried"):
        load_tasks("sports_understanding", split="bigbench+train", folder=tmp_path)
    train = load_tasks("sports_understanding", split="train", folder=tmp_path, allow_canaried=True)
    assert [task.id.rpartition("/")[2] for task in train] == ["0", "1", "2", "4", "5"]
    assert len(load_tasks("sports_understanding", split="bigbench", folder=tmp_path)) == 6


def test_check_trainable_looks_at_the_split_not_its_name() -> None:
    for name, split in (("checkmate_in_one", "test"), ("strategyqa", "train+bigbench")):
        with pytest.raises(ConfigError, match="BIG-bench"):
            check_trainable(name, split)
        check_trainable(name, split, allow_canaried=True)
    with pytest.raises(ConfigError, match=r"hiddenbench/test states no licence.*allow_canaried"):
        check_trainable("hiddenbench", "test")
    check_trainable("strategyqa", "train")
    check_trainable("mine.jsonl", "train")


# --- other sources


def test_user_function_is_a_source() -> None:
    tasks = load_tasks(SOURCE, split="dev", size=5, offset=1, limit=2)
    assert ids(tasks) == ["dev/1", "dev/2"]


def test_user_function_that_does_not_fit_is_explained() -> None:
    with pytest.raises(ConfigError, match=rf"{SOURCE} cannot be called.*'sise'"):
        load_tasks(SOURCE, split="dev", sise=5)
    with pytest.raises(ConfigError, match=r"cannot import task source `.*:absent`"):
        load_tasks(f"{__name__}:absent", split="dev")
    with pytest.raises(DataError, match="two tasks have the id `dev/0`"):
        load_tasks(f"{SOURCE}_twice", split="dev")
    with pytest.raises(ConfigError, match=r"must give tacit\.types\.Task, not int"):
        load_tasks(f"{SOURCE}_of_numbers", split="dev")
    with pytest.raises(DataError, match="holds no tasks"):
        load_tasks(SOURCE, split="dev", size=0)


def test_arithmetic_takes_limit_as_count_and_its_own_options() -> None:
    assert len(load_tasks("arithmetic", split="test", limit=7)) == 7
    assert len(load_tasks("arithmetic", split="test", limit=7, offset=4)) == 7
    hard = load_tasks("arithmetic", split="train", limit=5, hard=1.0, seed=2)
    assert {task.level for task in hard} == {"hard"}
    assert hard == load_tasks("arithmetic", split="train", limit=5, hard=1.0, seed=2)
    with pytest.raises(ConfigError, match="'sede'"):
        load_tasks("arithmetic", split="train", sede=2)
