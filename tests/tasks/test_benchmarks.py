"""The benchmarks: how rows become tasks, on made-up rows; and what the original files hold."""

import re
from pathlib import Path

import pytest

from tacit.tasks import BENCHMARKS, answer_form, drop_leaks, find_benchmark, load_tasks
from tacit.tools.run_tests import run_visible
from tacit.types import Task
from tests.tasks.made_up import write_files

SPLITS = [(name, split) for name in BENCHMARKS for split in find_benchmark(name).splits]
GRADERS = {
    "maths": "math",
    "split_gsm8k": "math",
    "multihop": "span",
    "programming": "code",
    "programming_plus": "code",
    "yes_no": "choice",
    "hidden_profile": "choice",
    "checkmate": "chess",
}


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("benchmarks"))


def load(folder: Path, name: str, split: str) -> list[Task]:
    return load_tasks(name, split=split, folder=folder, allow_canaried=True)


def answers(folder: Path, name: str, split: str = "test") -> list[str]:
    return [task.answer for task in load(folder, name, split)]


# --- made-up rows ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "split"), [one for one in SPLITS if one != ("strategyqa_facts", "validation")]
)
def test_ids_and_shape(made_up: Path, name: str, split: str) -> None:
    tasks = load(made_up, name, split)
    check_shape(tasks, name, split)
    assert answer_form(name) == (tasks[0].grader, tasks[0].instruction)


def check_shape(tasks: list[Task], name: str, split: str) -> None:
    family = BENCHMARKS[name].partition(":")[0].rpartition(".")[2]
    assert len({task.id for task in tasks}) == len(tasks)
    for task in tasks:
        assert task.id.split("/")[:2] == [name, split]
        assert task.question.strip() and task.answer.strip() and task.instruction
        assert task.grader == GRADERS[family]


def test_maths_answers_are_taken_out_of_their_rows(made_up: Path) -> None:
    assert answers(made_up, "gsm8k", "train") == ["18", "1250"]
    assert answers(made_up, "math") == [r"\frac{1}{2}", r"\{1, 2\}"]
    assert answers(made_up, "math", "train")[0] == "0"  # an empty box, as in two original rows
    assert answers(made_up, "aime24") == ["25"]
    assert answers(made_up, "amc23") == ["27"]
    assert answers(made_up, "minerva_math") == ["1.6"]
    assert answers(made_up, "olympiadbench") == ["1", "1, 2"]


def test_maths_questions_levels_and_subjects(made_up: Path) -> None:
    first, second = load(made_up, "olympiadbench", "test")
    assert (first.question, second.question) == ("Let x be 1.\n\nx?", "Roots?")
    (kept,) = load(made_up, "math500", "test")
    same = load(made_up, "math", "test")[0]
    assert (kept.id, same.id) == ("math500/test/algebra/1.json", "math/test/algebra/1.json")
    assert (kept.level, kept.subject) == (same.level, same.subject) == ("2", "Algebra")
    assert load(made_up, "math", "train")[0].level == "?"


def test_math500_is_dropped_from_math_training(made_up: Path) -> None:
    held_out = load(made_up, "math500", "test")
    kept, dropped = drop_leaks(load(made_up, "math", "train+test"), held_out)
    assert ([task.id for task in kept], dropped) == (
        ["math/train/algebra/3.json", "math/test/geometry/2.json"],
        2,
    )


def test_yes_and_no_are_those_of_the_rows(made_up: Path) -> None:
    assert answers(made_up, "strategyqa", "train+test") == ["no", "yes"]
    assert answers(made_up, "strategyqa", "bigbench") == ["no", "yes"]
    assert answers(made_up, "sports_understanding", "bigbench") == ["no", "yes"]
    (hard,) = load(made_up, "sports_understanding", "test")
    whole = load(made_up, "sports_understanding", "bigbench")
    assert (hard.question, hard.answer) == (whole[1].question, "yes")
    assert load(made_up, "sports_understanding", "train")[0].question == whole[0].question


@pytest.mark.parametrize(
    "name",
    ["humaneval", "mbpp", "mbpp_sanitized", "mbpp_tested", "humaneval_plus", "mbpp_plus"],
)
def test_code_tasks_show_tests_but_no_solution(made_up: Path, name: str) -> None:
    for task in load(made_up, name, "train" if name == "mbpp_tested" else "test"):
        check_code(task)
        exec(f"{task.answer}\n{task.data['tests']}", {})


def check_code(task: Task) -> None:
    solution = task.answer.removeprefix(task.data["prompt"]).strip()
    assert solution and solution not in task.question
    assert f"def {task.data['entry_point']}" in task.answer
    assert task.data["entry_point"] in task.question
    assert "\r" not in task.data["tests"] + task.answer


def test_chess_gives_nothing_away(made_up: Path) -> None:
    tasks = load(made_up, "checkmate_in_one", "test")
    assert [task.answer for task in tasks] == ["Qh4#", "Qxf7#"]
    assert all(set(task.data) == {"moves"} and "#" not in task.question for task in tasks)
    assert [task.id for task in load(made_up, "checkmate_in_one", "train")] == [
        "checkmate_in_one/train/1"
    ]


@pytest.mark.parametrize(
    ("name", "file", "row", "message"),
    [
        ("math", "math/test.jsonl", '{"problem": "?", "level": 1, "type": "", "solution": "1"}',
         r"no \\boxed answer"),
        ("strategyqa", "strategyqa/dev.json", '[{"question": "?", "answer": "yes"}]',
         "must be true or false, not 'yes'"),
        ("sports_understanding", "sports_understanding/bbh.json",
         '[{"input": "?", "target": "perhaps"}]', "must be yes or no, not 'perhaps'"),
        ("olympiadbench", "olympiadbench/test.jsonl",
         '{"question": "?", "final_answer": "1", "subfield": ""}', "must be a list"),
        ("mbpp", "mbpp/mbpp.jsonl",
         '{"task_id": 11, "text": "?", "code": "x = 1", "test_list": ["assert f()"]}',
         "the tests call no function of `code`"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit_is_named(
    tmp_path: Path, name: str, file: str, row: str, message: str
) -> None:
    (write_files(tmp_path) / file).write_text(row)
    with pytest.raises(ValueError, match=f"{Path(file).name}.*{message}.*the original {name} file"):
        load(tmp_path, name, "test")


# --- the original files ----------------------------------------------------------------------


def test_every_split_has_its_rows(data_dir: Path) -> None:
    for name, split in SPLITS:
        tasks = load(data_dir, name, split)
        assert len(tasks) == find_benchmark(name).splits[split].rows, (name, split)
        check_shape(tasks, name, split)


def test_maths_answers_are_read_right(data_dir: Path) -> None:
    gsm8k = answers(data_dir, "gsm8k", "train+test")
    assert all(answer.removeprefix("-").replace(".", "").isdecimal() for answer in gsm8k)
    assert not any(answer.startswith("['") for answer in answers(data_dir, "olympiadbench"))
    tasks = load(data_dir, "math", "train+test")
    by_id = {task.id.removeprefix("math/"): task.answer for task in tasks}
    for task in load(data_dir, "math500", "test"):
        assert by_id[task.id.removeprefix("math500/")] == task.answer
    assert all(answer.count("{") == answer.count("}") for answer in by_id.values())
    assert sum(task.level == "?" for task in tasks) == 2
    assert len({task.subject for task in tasks}) == 7


async def test_right_code_passes_the_visible_tests_with_nothing_imported(data_dir: Path) -> None:
    """The asserts of MBPP+ name `math` and do not import it."""
    tasks = [t for t in load(data_dir, "mbpp_plus", "test") if "math." in t.data["visible"][0]]
    assert len(tasks) == 10
    for task in tasks:
        assert await run_visible(task, task.answer) == "", task.id


def test_no_task_of_a_tester_is_one_that_it_is_tested_on(data_dir: Path) -> None:
    """MBPP asks a few things twice, in its training and in its test split."""

    def asked(task: Task) -> tuple[str, ...]:
        text = task.question.partition("Your code must pass")[0].casefold()
        spare = ("a", "an", "the", "given", "python")
        return tuple(word for word in re.findall(r"[a-z0-9]+", text) if word not in spare)

    tested = {asked(task): task.id for task in load(data_dir, "mbpp_plus", "test")}
    trained = load(data_dir, "mbpp_tested", "train")
    assert {task.id: tested[asked(task)] for task in trained if asked(task) in tested} == {}


def test_train_and_test_questions_are_apart(data_dir: Path) -> None:
    names = (
        *("gsm8k", "math", "mbpp", "mbpp_sanitized", "strategyqa", "sports_understanding"),
        *("split_gsm8k", "split_hotpotqa", "split_2wiki", "split_musique", "strategyqa_facts"),
    )
    leaks = {
        name: drop_leaks(load(data_dir, name, "train"), load(data_dir, name, "test"))[1]
        for name in names
    }
    # Two of MATH's training problems are test problems too, but for blanks.
    assert leaks == {**dict.fromkeys(names, 0), "math": 2}
    held_out = load(data_dir, "checkmate_in_one", "test250")
    assert drop_leaks(load(data_dir, "checkmate_in_one", "train"), held_out)[1] == 0
    first = load(data_dir, "checkmate_in_one", "test")[:250]
    assert [task.question for task in first] == [task.question for task in held_out]
    held_out = load(data_dir, "math500", "test")
    assert drop_leaks(load(data_dir, "math", "train+test"), held_out)[1] == 500


def test_yes_no_answers_are_those_of_the_files(data_dir: Path) -> None:
    def yes(name: str, split: str) -> int:
        return answers(data_dir, name, split).count("yes")

    assert yes("strategyqa", "bigbench") == yes("strategyqa", "train+test") == 1071
    assert yes("sports_understanding", "test") == 115
    assert yes("sports_understanding", "bigbench") == 500
    # The two copies of each agree question by question.
    for name, split in (("strategyqa", "train+test"), ("sports_understanding", "test")):
        whole = {task.question: task.answer for task in load(data_dir, name, "bigbench")}
        assert all(whole[task.question] == task.answer for task in load(data_dir, name, split))


@pytest.mark.filterwarnings("ignore:.*invalid escape sequence")  # MBPP's own style
def test_reference_code_compiles_before_its_tests(data_dir: Path) -> None:
    for name, split in (("humaneval", "test"), ("mbpp", "all"), ("mbpp_sanitized", "all")):
        for task in load(data_dir, name, split):
            check_code(task)
            parts = (task.data["prompt"], task.answer, task.data["tests"])
            compile("\n".join(parts), task.id, "exec")
