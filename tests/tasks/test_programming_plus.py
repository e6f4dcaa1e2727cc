"""HumanEval+ and MBPP+: what is asked, what is visible, and what the sandbox makes of answers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.benchmarks.programming_plus import examples, typed
from tacit.grading import grade
from tacit.tasks import load_tasks
from tacit.types import Task
from tests.tasks.made_up import DOUBLE_PLUS, ENDS_PLUS, TREE, write_files


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("plus"))


async def passes(task: Task, source: str) -> bool:
    return (await grade(task, f"```python\n{source}\n```")).right


async def test_the_reference_decides_on_all_inputs(made_up: Path) -> None:
    (task,) = load_tasks("humaneval_plus", split="test", folder=made_up)
    assert task.data["visible"] == ["assert double(2) == 4"]
    assert await passes(task, task.answer)
    assert await passes(task, "def double(x):\n    return x + x")
    assert await passes(
        task, "def double(x):\n    return x + x + (1e-9 if x == 0.1 else type(x)())"
    )
    assert not await passes(task, "def double(x):\n    return x + x + (1e-3 if x == 0.1 else 0)")
    assert not await passes(task, "def double(x):\n    return int(x) * 2")
    assert not await passes(task, "def double(x):\n    return 4 if x == 2 else -6")
    assert not await passes(task, "def double(x):\n    pass")
    hidden = "def double(x):\n    return 5 if x == 2 else x + x"
    assert await passes(task, hidden), "what is visible does not count"
    told = replace(task, data={**task.data, "tests": task.data["visible"][0]})
    assert not await passes(told, hidden)


async def test_the_visible_assert_is_shown_and_not_graded(made_up: Path) -> None:
    (task,) = load_tasks("mbpp_plus", split="test", folder=made_up)
    assert task.id == "mbpp_plus/test/Mbpp/11"  # and not 601, which MBPP trains on
    (visible,) = task.data["visible"]
    assert visible == "assert ends([(1, 2), (3, 4)]) == 5" and visible in task.question
    only_others = (
        "def ends(p):\n    return {1: 1, 5: 12}.get(p[0][-1] if p[0][0] == 0 else p[0][0])"
    )
    assert await passes(task, task.answer) and await passes(task, only_others)
    told = replace(task, data={**task.data, "tests": visible})
    assert await passes(told, task.answer) and not await passes(told, only_others)
    assert not await passes(task, "def ends(p):\n    return 5")
    assert not await passes(task, "def ends(p):\n    return sum(p[0]) if type(p[0]) is list else 0")


@pytest.mark.parametrize("name", ["validation", "train"])
async def test_mbpp_for_a_tester_is_graded_by_the_other_asserts(made_up: Path, name: str) -> None:
    (task,) = load_tasks("mbpp_tested", split=name, folder=made_up)
    first, second = TREE["test_list"]
    assert task.data["visible"] == [f"{TREE['test_setup_code']}\n{first}"]
    assert first in task.question and second not in task.question
    assert second in task.data["tests"] and first not in task.data["tests"]
    assert await passes(task, task.answer)
    assert not await passes(task, task.answer.replace("else 0", "else 1"))


def test_doctests_become_asserts() -> None:
    prompt = (
        "def f(x):\n    '''Some.\n\n    >>> f('a\\n')\n    [1, None]\n"
        "    >>> f(2) == 3\n    >>> f(3)\n    >>> x = 4\n    >>> f(x)\n    <Node>\n    '''\n"
    )
    assert examples(prompt) == ["assert f('a\\n') == [1, None]", "assert f(2) == 3"]


def test_inputs_get_the_types_of_the_asserts() -> None:
    assert typed([[1, 2], []], [[(3, 4)], [(5,)]]) == [(1, 2), ()]
    assert typed([1, [2]], [(3, (4, 5))]) == (1, (2,))
    assert typed([1, 1], [{2, 3}]) == {1}
    assert typed({"a": [1]}, [{"b": (2,)}]) == {"a": (1,)}
    assert typed([[1]], [[2, [3]]]) == [[1]]
    assert typed("1", [2]) == "1"


def test_a_row_without_its_assert_is_refused(tmp_path: Path) -> None:
    folder = write_files(tmp_path)
    for file, row in (
        ("mbpp_plus/MbppPlus.jsonl", {**ENDS_PLUS, "prompt": '"""\nWrite ends.\n"""'}),
        ("humaneval_plus/HumanEvalPlus.jsonl", {**DOUBLE_PLUS, "plus_input": None}),
    ):
        (folder / file).write_text(json.dumps(row))
        with pytest.raises(ValueError, match="is this the original"):
            load_tasks(file.partition("/")[0], split="test", folder=folder)


async def test_references_pass_and_empty_functions_fail(data_dir: Path) -> None:
    """Some of each: those with a rule, a limit or types of their own, and a few others."""
    humaneval = load_tasks("humaneval_plus", split="test", folder=data_dir)
    assert sum(bool(task.data["visible"]) for task in humaneval) == 74
    told = {task.id.rpartition("/")[2]: task for task in humaneval}["0"]
    first = "[1.0, 2.0, 3.0], 0.5"
    assert first in told.data["visible"][0] and f"[{first}]" not in told.data["tests"]
    mbpp = {
        task.id.rpartition("/")[2]: task
        for task in load_tasks("mbpp_plus", split="test", folder=data_dir)
    }
    chosen = [humaneval[n] for n in (15, 32, 47, 139)]
    chosen += [mbpp[n] for n in ("111", "124", "252", "392")]
    for task in chosen:
        assert await passes(task, task.answer), task.id
        assert not await passes(task, f"def {task.data['entry_point']}(*_):\n    pass"), task.id
    for task in chosen[-4:]:
        told = replace(task, data={**task.data, "tests": task.data["visible"][0]})
        assert await passes(told, task.answer), task.id
