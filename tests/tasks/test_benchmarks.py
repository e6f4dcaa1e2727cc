"""The benchmarks' original files: exact counts, ids, answers, and nothing given away."""

from pathlib import Path

import pytest

from tacit.tasks import BENCHMARKS, drop_leaks, load_tasks
from tacit.types import Task

COUNTS = {
    ("gsm8k", "train"): 7473,
    ("gsm8k", "test"): 1319,
    ("math", "train"): 7500,
    ("math", "test"): 5000,
    ("math500", "test"): 500,
    ("humaneval", "test"): 164,
    ("mbpp", "all"): 974,
    ("mbpp", "prompt"): 10,
    ("mbpp", "test"): 500,
    ("mbpp", "validation"): 90,
    ("mbpp", "train"): 374,
    ("mbpp_sanitized", "all"): 427,
    ("mbpp_sanitized", "prompt"): 7,
    ("mbpp_sanitized", "test"): 257,
    ("mbpp_sanitized", "validation"): 43,
    ("mbpp_sanitized", "train"): 120,
    ("strategyqa", "train"): 2061,
    ("strategyqa", "test"): 229,
    ("strategyqa", "bigbench"): 2290,
    ("sports_understanding", "test"): 250,
    ("sports_understanding", "bigbench"): 1000,
    ("sports_understanding", "train"): 744,
    ("checkmate_in_one", "test"): 3500,
    ("checkmate_in_one", "test250"): 250,
    ("checkmate_in_one", "train"): 3250,
    ("aime24", "test"): 30,
    ("amc23", "test"): 40,
    ("minerva_math", "test"): 272,
    ("olympiadbench", "test"): 675,
}


def load(data_dir: Path, name: str, split: str) -> list[Task]:
    return load_tasks(name, split=split, folder=data_dir, allow_canaried=True)


def test_every_split_is_counted_here() -> None:
    assert set(COUNTS) == {
        (name, split) for name in BENCHMARKS for split in BENCHMARKS[name].splits
    }


@pytest.mark.parametrize(("name", "split"), COUNTS)
def test_rows_ids_and_shape(data_dir: Path, name: str, split: str) -> None:
    tasks = load(data_dir, name, split)
    assert len(tasks) == COUNTS[name, split] == BENCHMARKS[name].splits[split].rows
    assert len({task.id for task in tasks}) == len(tasks)
    assert {task.id.split("/")[:2] == [name, split] for task in tasks} == {True}
    for task in tasks:
        assert task.question.strip() and task.answer.strip() and task.instruction
        assert task.grader == BENCHMARKS[name].family


def test_maths_answers_are_read_right(data_dir: Path) -> None:
    gsm8k = load(data_dir, "gsm8k", "train+test")
    assert all(task.answer.removeprefix("-").replace(".", "").isdecimal() for task in gsm8k)
    aime = [task.answer for task in load(data_dir, "aime24", "test")]
    assert "25" in aime and "025" not in aime
    amc = [task.answer for task in load(data_dir, "amc23", "test")]
    assert amc[0] == "27" and "-1" in amc
    olympiad = load(data_dir, "olympiadbench", "test")
    assert olympiad[0].answer == "2"
    assert not any(task.answer.startswith("['") for task in olympiad)
    minerva = load(data_dir, "minerva_math", "test")
    assert minerva[0].answer == "1.6"


def test_math_boxes_agree_with_math500_and_are_whole(data_dir: Path) -> None:
    tasks = load(data_dir, "math", "train+test")
    answers = {task.id.removeprefix("math/"): task.answer for task in tasks}
    for task in load(data_dir, "math500", "test"):
        assert answers[task.id.removeprefix("math500/")] == task.answer
    assert all(answer.count("{") == answer.count("}") for answer in answers.values())
    assert answers["train/number_theory/7115.json"] == "0"  # the file's box is empty


def test_math_levels_and_subjects(data_dir: Path) -> None:
    train = load(data_dir, "math", "train")
    assert {task.level for task in train} == {"1", "2", "3", "4", "5", "?"}
    assert sum(task.level == "?" for task in train) == 2
    assert len({task.subject for task in train}) == 7
    assert {task.level for task in load(data_dir, "math500", "test")} == {"1", "2", "3", "4", "5"}


def test_math500_is_dropped_from_math_training(data_dir: Path) -> None:
    held_out = load(data_dir, "math500", "test")
    kept, dropped = drop_leaks(load(data_dir, "math", "train+test"), held_out)
    assert (len(kept), dropped) == (12000, 500)
    assert drop_leaks(load(data_dir, "math", "train"), held_out)[1] == 0


@pytest.mark.parametrize(
    ("name", "test", "leaks"),
    [
        ("gsm8k", "test", 0),
        (
            "math",
            "test",
            2,
        ),  # the same problem twice, but for blanks: algebra/636, precalculus/24307
        ("mbpp", "test", 0),
        ("mbpp_sanitized", "test", 0),
        ("strategyqa", "test", 0),
        ("sports_understanding", "test", 0),
        ("checkmate_in_one", "test250", 0),
    ],
)
def test_train_and_test_questions_are_apart(
    data_dir: Path, name: str, test: str, leaks: int
) -> None:
    assert drop_leaks(load(data_dir, name, "train"), load(data_dir, name, test))[1] == leaks


def test_yes_no_answers_are_those_of_the_files(data_dir: Path) -> None:
    def count(name: str, split: str) -> int:
        return sum(task.answer == "yes" for task in load(data_dir, name, split))

    assert count("strategyqa", "bigbench") == count("strategyqa", "train+test") == 1071
    assert count("sports_understanding", "test") == 115
    assert count("sports_understanding", "bigbench") == 500
    # The two copies of each agree question by question.
    for name, split in (("strategyqa", "train+test"), ("sports_understanding", "test")):
        whole = {task.question: task.answer for task in load(data_dir, name, "bigbench")}
        assert all(whole[task.question] == task.answer for task in load(data_dir, name, split))


def test_code_tasks_show_tests_but_no_solution(data_dir: Path) -> None:
    for task in load(data_dir, "humaneval", "test"):
        solution = task.answer.removeprefix(task.data["prompt"]).strip()
        assert solution and solution not in task.question
        assert task.data["entry_point"] in task.question
        assert task.data["tests"].rstrip().endswith(f"check({task.data['entry_point']})")
    for task in load(data_dir, "mbpp", "all") + load(data_dir, "mbpp_sanitized", "all"):
        assert task.answer.strip() not in task.question
        assert f"def {task.data['entry_point']}" in task.answer
        assert task.data["entry_point"] in task.question
        assert "\r" not in task.data["tests"] + task.answer


@pytest.mark.filterwarnings("ignore:.*invalid escape sequence")  # MBPP's own style
def test_reference_code_compiles_before_its_tests(data_dir: Path) -> None:
    for name, split in (("humaneval", "test"), ("mbpp", "all"), ("mbpp_sanitized", "all")):
        for task in load(data_dir, name, split):
            parts = (task.data["prompt"], task.answer, task.data["tests"])
            compile("\n".join(parts), task.id, "exec")


def test_chess_gives_nothing_away(data_dir: Path) -> None:
    tasks = load(data_dir, "checkmate_in_one", "test")
    for task in tasks:
        assert task.answer.endswith("#") and "#" not in task.question
        assert set(task.data) == {"moves"} and "#" not in task.data["moves"]
    first = load(data_dir, "checkmate_in_one", "test250")
    assert [task.question for task in first] == [task.question for task in tasks[:250]]
